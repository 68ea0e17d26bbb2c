"""What the pictures show: every mask and filter with its numbers, and gate maps where their regions lie."""

import sys

import pytest
import torch
from torch import nn

import learnpool
from learnpool import GatedPool2d, MixedPool2d, Pool2d, TreePool2d
from learnpool.explanation.pictures import GATES, LEFT, RIGHT, SIDES, SIGNED
from learnpool.tree import Avg, Filter, Gate, Max, Mix, Std


def words(figure):
    """Every text of a figure."""
    return [text.get_text() for text in [*figure.texts, *(t for axes in figure.axes for t in axes.texts)]]


def panels(figure, title):
    return [axes for axes in figure.axes if any(text.get_text().startswith(title) for text in axes.texts)]


def masked(value, *window, **options):
    pool = GatedPool2d(*window, **options)
    with torch.no_grad():
        pool.weight.fill_(value)
    return pool


def test_masks_and_filters_with_their_numbers_on_a_symmetric_scale():
    pool = TreePool2d(3, 2)
    with torch.no_grad():
        pool.weight[:] = torch.arange(27).reshape(pool.weight.shape) / 10 - 1
    figure = learnpool.explain(pool).draw()
    assert len(figure.axes) == 3
    for number, (axes, title) in enumerate(
        zip(figure.axes, ("ω of gate0", "v of filter0", "v of filter1"), strict=True)
    ):
        (image,) = axes.images
        assert image.get_cmap() is SIGNED
        assert torch.equal(torch.tensor(image.get_array()), pool.weight.detach()[number, 0, 0, 0])
        low, high = image.get_clim()
        assert low == -high  # one scale for the pool
        assert high == pytest.approx(2 * 1.6)
        shown = [text.get_text() for text in axes.texts]
        assert title in shown
        assert [f"{v:.2f}".replace("-", "−") for v in pool.weight[number].flatten().tolist()] == shown[:9]
    assert "tree2, 3×3, stride 2×2, shared per layer" in words(figure)


@pytest.mark.parametrize("window", [(2, 2), (1, 1), (2, 3), (3, 2, 1), (3, 3, 1), (2, 2, 1), (2, 4, 0, 3)], ids=str)
@pytest.mark.parametrize("at", [(0, 0), (7, 5), (9, 11)])
def test_the_tile_of_a_gate_lies_where_its_region_lies(window, at):
    image = torch.zeros(1, 1, 10, 12)
    image[0, 0, at[0], at[1]] = 1
    pool = masked(20.0, *window)
    pools = nn.Sequential(pool)
    explanation = learnpool.explain(pools, image)
    (axes,) = panels(explanation.draw(), "mean of 1")
    tiles, shade = axes.images
    assert tuple(shade.get_extent()) == (0, 12, 10, 0)
    left, right, bottom, top = tiles.get_extent()
    values = torch.tensor(tiles.get_array())
    rows, columns = values.shape
    for row, column in (values > 0.9).nonzero().tolist():
        centre = (top + (row + 0.5) * (bottom - top) / rows, left + (column + 0.5) * (right - left) / columns)
        reach = [d * (k - 1) / 2 for k, d in zip(pool.window.kernel, pool.window.dilation, strict=True)]
        for c, r, pixel in zip(centre, reach, at, strict=True):
            assert abs(pixel + 0.5 - c) <= r + 1e-6  # the lit pixel is in this tile's region
    covered = pool(image).gt(0).any()
    assert bool((values > 0.9).any()) == bool(covered)
    assert ((bottom - top) / rows, (right - left) / columns) == tuple(map(float, pool.window.stride))


def test_channels_that_vary_most_come_first():
    x = torch.zeros(1, 5, 4, 4)
    for channel, spread in enumerate((1, 5, 0, 3, 2)):
        x[0, channel, :2] = spread
    figure = learnpool.explain(masked(0.25, 2), x).draw()
    titles = [text for text in words(figure) if text.startswith(("mean", "channel"))]
    assert titles == ["mean", "mean of 5", "channel 1", "channel 3", "channel 4"]
    (axes,) = panels(figure, "channel 1")
    shown = torch.tensor(axes.images[0].get_array())
    assert torch.allclose(shown, torch.tensor([[5.0, 5.0], [0.0, 0.0]]).sigmoid())
    assert axes.images[0].get_cmap() is SIDES
    assert axes.images[0].get_clim() == (0, 1)


def test_max_is_orange_and_mean_is_blue():
    figure = learnpool.explain(masked(0.0, 2), torch.zeros(1, 1, 4, 4)).draw()
    (axes,) = panels(figure, "ω of gate0")
    colours = {text.get_text(): text.get_color() for text in axes.texts}
    assert (colours["max"], colours["mean"]) == (LEFT, RIGHT)
    assert SIDES(1.0)[0] > SIDES(1.0)[2]
    assert SIDES(0.0)[2] > SIDES(0.0)[0]


def test_every_kind_of_pool_can_be_drawn():
    net = nn.Sequential(
        MixedPool2d(2, 1),
        MixedPool2d(2, 1, learn=False, a=0.25),
        MixedPool2d(2, 1, share="channel", channels=3),
        MixedPool2d(2, 1, share="region_channel", channels=3, grid=9),
        GatedPool2d(5, 1, 2, share="channel", channels=3),
        Pool2d(Gate(Gate(Filter(), Max()), Mix(Avg(), Max())), (2, 1)),
        TreePool2d(1, levels=5),
        GatedPool2d(1),
    )
    x = torch.randn(2, 3, 13, 13)
    plain, over = learnpool.explain(net).draw(), learnpool.explain(net, x).draw()
    for figure in (plain, over):
        figure.savefig("/dev/null", format="png", dpi=40)
    assert "not learned" in words(plain)
    assert "3 values, sorted" in [axes.get_xlabel() for axes in plain.axes]
    # Each gate's map, of tree5's fifteen the first seven; and the means of masks and proportions that differ.
    assert len(panels(over, "mean of 3")) == (1 + 2 + GATES + 1) + 2
    assert any(text.endswith("; 7 of 15 gates drawn") for text in words(over))


def test_a_gate_that_a_tree_decides_is_a_curve():
    pool = Pool2d(Gate(Max(), Avg(), by=Std(), bias=True), 2)
    for g, b in ((2.0, -1.0), (-2.0, 0.0), (0.0, 1.0), (float("nan"), 0.0)):
        with torch.no_grad():
            pool.mix[0], pool.mix[1] = g, b
        figure = learnpool.explain(pool, torch.rand(1, 3, 8, 8)).draw()
        figure.savefig("/dev/null", format="png", dpi=40)
        (axes,) = panels(figure, "s of gate0")
        t, s = (torch.tensor(values) for values in axes.lines[0].get_data())
        assert torch.allclose(s, (g * t + b).sigmoid(), atol=1e-6, equal_nan=True)
        assert {"by Std()", "1: max", "0: mean"} <= set(words(figure))
        assert len(panels(figure, "mean of 3")) == 1  # its map
        ticks = [label.get_text() for label in axes.get_xticklabels()]
        assert ticks == {2.0: ["−0.97", "0.50", "1.97"], -2.0: ["−1.47", "0.00", "1.47"]}.get(g, [])
    figure = learnpool.explain(learnpool.Pool3d(Gate(Max(), Filter(), by=Std()), 2)).draw()
    assert len(figure.axes) == 1 + 2  # one curve, and two planes of the filter


def test_numbers_that_differ_are_a_bar_from_the_least_to_the_largest():
    pool = learnpool.SoftPool2d(2, share="channel", channels=2)
    for values, bar, labels in (
        ((-4.0, 4.0), (-0.8, 0.8), ["min", "max"]),
        ((1.0, 4.0), (0.5, 0.8), ["average", "max"]),
        ((-1.0, -1.0), (-0.5, 0.0), ["min", "average"]),
    ):
        with torch.no_grad():
            pool.mix.copy_(torch.tensor(values).reshape(pool.mix.shape))
        (axes,) = learnpool.explain(pool).draw().axes
        assert sorted(axes.patches[0].get_bbox().intervalx) == pytest.approx(bar)
        assert [text.get_text() for text in axes.texts][-2:] == labels


def test_one_and_three_dimensions_have_masks_and_no_maps():
    for pool, x in (
        (learnpool.GatedPool1d(3), torch.randn(1, 2, 9)),
        (learnpool.GatedPool3d(2), torch.randn(1, 2, 4, 4, 4)),
    ):
        figure = learnpool.explain(pool, x).draw()
        figure.savefig("/dev/null", format="png", dpi=40)
        assert len(figure.axes) == (1 if x.dim() == 3 else 2)  # each plane of a 3d mask
    mixed = learnpool.MixedPool1d(2, share="region", grid=4)
    assert learnpool.explain(mixed, torch.randn(1, 2, 8)).draw()


def test_an_image_of_one_value_and_a_mask_of_zeros():
    figure = learnpool.explain(masked(0.0, 2), torch.ones(1, 3, 4, 4)).draw()
    figure.savefig("/dev/null", format="png", dpi=40)


def test_without_matplotlib_it_says_what_to_install(monkeypatch):
    explanation = learnpool.explain(MixedPool2d(2))
    monkeypatch.delitem(sys.modules, "learnpool.explanation.pictures")
    monkeypatch.setitem(sys.modules, "matplotlib.colors", None)
    with pytest.raises(ModuleNotFoundError, match="^draw needs matplotlib: pip install matplotlib$"):
        explanation.draw()
