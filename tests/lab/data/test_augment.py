"""Pad, crop, mirror: against loops, and the same bits after a resume."""

import pytest
import torch
from torch.nn import functional as F

from learnpool.lab.data import Augment


def by_hand(images, drawn, pad):
    """One image at a time."""
    height, width = images.shape[2:]
    out = []
    for image, (top, left, side) in zip(images, drawn.tolist(), strict=True):
        crop = F.pad(image, [pad] * 4)[:, top : top + height, left : left + width]
        out.append(crop.flip(-1) if side else crop)
    return torch.stack(out)


@pytest.mark.parametrize(("pad", "mirror"), [(4, True), (4, False), (0, True), (1, True), (0, False)])
@pytest.mark.parametrize("shape", [(200, 3, 8, 6), (1, 1, 5, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_it_is_what_a_loop_does(pad, mirror, shape, dtype):
    images = torch.randn(shape).mul(50).to(dtype)
    before = images.clone()
    augment = Augment(pad, mirror)
    drawn = augment.draw(len(images), torch.Generator().manual_seed(1))
    out = augment.apply(images, drawn)
    assert torch.equal(out, by_hand(images, drawn, pad))
    assert torch.equal(images, before)
    assert out.shape == images.shape


def augment_with(augment, images, generator):
    return augment.apply(images, augment.draw(len(images), generator))


def test_every_place_and_both_sides_are_drawn():
    drawn = Augment(2).draw(2000, torch.Generator().manual_seed(0))
    assert {tuple(row) for row in drawn.tolist()} == {(t, l, s) for t in range(5) for l in range(5) for s in range(2)}
    assert Augment(2, mirror=False).draw(500, torch.Generator().manual_seed(0))[:, 2].sum() == 0


def test_a_generators_state_resumes_it_bit_for_bit():
    images, augment = torch.randn(20, 3, 8, 8), Augment()
    generator = torch.Generator().manual_seed(3)
    augment_with(augment, images, generator)
    state = generator.get_state()
    expected = [augment_with(augment, images, generator) for _ in range(3)]
    resumed = torch.Generator()
    resumed.set_state(state)
    assert all(torch.equal(augment_with(augment, images, resumed), x) for x in expected)
    assert not torch.equal(expected[0], expected[1])


def test_a_share_of_a_batch_is_augmented_as_in_the_whole():
    images, augment = torch.randn(20, 3, 8, 8), Augment()
    drawn = augment.draw(20, torch.Generator().manual_seed(3))
    whole = augment.apply(images, drawn)
    assert torch.equal(augment.apply(images[1::2], drawn[1::2]), whole[1::2])


def test_torchs_own_generator_is_left_alone():
    state = torch.get_rng_state()
    images = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    augment_with(Augment(), images, torch.Generator().manual_seed(0))
    assert torch.equal(torch.get_rng_state(), state)
