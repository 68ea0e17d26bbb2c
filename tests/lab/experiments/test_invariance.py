"""Changed images, and the numbers of the page about them, worked out by hand."""

import pytest
import torch

from learnpool.lab.experiments import invariance


def make_image() -> torch.Tensor:
    """9×9, dark but for a pixel two above the centre."""
    image = torch.zeros(1, 1, 9, 9, dtype=torch.uint8)
    image[0, 0, 2, 4] = 200
    return image


def test_rotation_is_counter_clockwise():
    assert int(invariance.rotate(make_image(), 90)[0, 0, 4, 2]) == 200  # top goes left


def test_translation_is_downwards():
    assert int(invariance.shift(make_image(), 3)[0, 0, 5, 4]) == 200


def test_scale_is_around_the_centre():
    assert int(invariance.scale_by(make_image(), 2)[0, 0, 0, 4]) == 200  # from two rows above it to four
    assert int(invariance.scale_by(make_image().transpose(2, 3), 2)[0, 0, 4, 0]) == 200


def test_images_of_any_shape_turn_without_shear():
    images = torch.zeros(1, 1, 9, 15, dtype=torch.uint8)
    images[0, 0, 4, 9] = 200  # two to the right of the centre
    assert int(invariance.rotate(images, 90)[0, 0, 2, 7]) == 200


def make_errors(unchanged: float, changed: float) -> dict[str, dict[str, float]]:
    """One network: the same error at every amount but none."""
    return {
        kind: {f"{amount:g}": unchanged if amount == change.nothing else changed for amount in change.amounts}
        for kind, change in invariance.CHANGES.items()
    }


def test_the_error_under_a_change_leaves_out_the_unchanged_images():
    errors = make_errors(10.0, 30.0)
    assert [invariance.compute_changed_error(errors, kind) for kind in invariance.CHANGES] == [30.0, 30.0, 30.0]
    errors["rotation"]["-24"] = 42.0
    assert invariance.compute_changed_error(errors, "rotation") == pytest.approx(31.0)  # one of twelve is 12 higher


def test_differences_to_max_are_paired_by_seed():
    networks = {
        "max": [make_errors(10.0, 30.0), make_errors(20.0, 50.0)],
        "gated": [make_errors(9.0, 31.0), make_errors(19.2, 51.0)],
    }
    comparison = invariance.compare_networks(networks, step=0.01)
    table = invariance._build_table(networks, comparison, "cifar10")
    maximum, gated = table.rows
    assert [cell.text for cell in maximum] == ["max", "15.00 ± 7.07", *["40.00 ± 14.14"] * 3, "2"]
    assert all(cell.note == "" for cell in maximum)
    assert gated[1].text == "14.10 ± 7.21"
    assert (gated[2].note[:6], gated[2].kind) == ("1.00 (", "worse")  # the same in both seeds
    worse = "; ".join(f"gated worse under {kind}" for kind in invariance.CHANGES)
    assert f"in the mean over a change: {worse} (the intervals are ± " in invariance.describe_significance(comparison)


def test_one_seed_is_not_tested():
    networks = {"max": [make_errors(10.0, 30.0)], "gated": [make_errors(9.0, 31.0)]}
    sentence = invariance.describe_significance(invariance.compare_networks(networks, step=0.01))
    assert sentence == "Differences to max were not tested: that takes two seeds."


def test_the_answer_counts_amounts_at_which_both_fixed_pools_are_behind():
    networks = {
        "average": [make_errors(10.0, 30.0)],
        "max": [make_errors(10.0, 29.0)],
        "gated": [make_errors(10.0, 28.0)],
        "tree": [make_errors(5.0, 29.5)],
    }
    networks["gated"][0]["scale"]["0.6"] = 40.0
    sentence = invariance._describe(networks, "cifar10")
    counts = "12 of 12 amounts of rotation, 8 of 8 amounts of vertical translation, 7 of 8 amounts of scale"
    assert f"gated pooling has less mean error than both max and average at {counts};" in sentence
    assert "0 of 12 amounts of rotation, 0 of 8 amounts of vertical translation, 0 of 8 amounts of scale." in sentence
    assert invariance._describe({"max": networks["max"]}, "cifar10") == "CIFAR10: not all networks are finished."
    without_average = {"max": networks["max"], "gated": networks["gated"]}
    assert f"gated pooling has less mean error than max at {counts}." in invariance._describe(
        without_average, "cifar10"
    )
