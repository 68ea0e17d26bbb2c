"""The figure of every pool answers what learnpool answers."""

import re

import pytest
import torch
from pages import ROOT

import pool_figures
from browser import render
from learnpool import Avg, Blur, Filter, Gate, LogSumExp, Max, Median, Min, Mix, Pool2d, Power, Rank, Soft, Std

REGION = (-0.3, 0.8, 0.8, 0.0, -0.9, 0.25, 1.0, 0.1, -0.45)  # with a tie, a zero and negative cells
SCALARS = {"a": 0.3, "beta": -2.5, "r": 6.0, "p": 4.5}
MASK = (-1, -1, -1, -1, 4, -1, -1, -1, -1)
FILTER = (0, -0.25, 0, -0.25, 2, -0.25, 0, -0.25, 0)


def answer(tree, weight=None):
    layer = Pool2d(tree, 3).double()
    with torch.no_grad():
        if weight is not None:
            layer.weight.copy_(torch.tensor(weight, dtype=torch.float64).reshape(layer.weight.shape))
        return layer(torch.tensor(REGION, dtype=torch.float64).reshape(1, 1, 3, 3)).item()


def expected():
    return {
        "max": answer(Max()),
        "min": answer(Min()),
        "avg": answer(Avg()),
        "mixed": answer(Mix(Max(), Avg(), a=SCALARS["a"])),
        "gated": answer(Gate(Max(), Avg()), MASK),
        "filter": answer(Filter(), FILTER),
        "median": answer(Median()),
        "soft": answer(Soft(SCALARS["beta"])),
        "lse": answer(LogSumExp(SCALARS["r"])),
        "gem": answer(Power(SCALARS["p"])),
        "lp2": answer(Power(2.0, learn=False, absolute=True)),
        "rank": answer(Rank(), [1 / 3] * 3 + [0] * 6),
        "blur": answer(Blur()),
        "std": answer(Std()),
    }


MOVE = """
const [first, second] = document.querySelectorAll(".pools-region g");
first.setPointerCapture = () => {};
const point = (type, clientY) => first.dispatchEvent(new PointerEvent(type, { clientY }));
point("pointerdown", 100); point("pointermove", 80); point("pointerup", 80); point("pointermove", 300);
second.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown" }));
"""


@pytest.mark.parametrize(("begin", "script"), [(REGION, ""), ((-0.5, 0.85, *REGION[2:]), MOVE)], ids=["link", "moves"])
def test_the_figure_computes_what_learnpool_computes(begin, script, tmp_path):
    """Also after one cell is dragged up by 20 points and another goes down by a key."""
    page = tmp_path / "page.html"
    figure = (ROOT / "docs" / "assets" / "pools.js").read_text(encoding="utf-8")
    state = "&".join([f"cells={','.join(map(str, begin))}", *(f"{k}={v}" for k, v in SCALARS.items())])
    page.write_text(
        f'<!doctype html><meta charset="utf-8"><div class="pools-figure"></div>'
        f"<script>location.hash = '{state}'</script><script>{figure}</script>"
        f"<script>addEventListener('DOMContentLoaded', () => {{ {script} }})</script>",
        encoding="utf-8",
    )
    dom, console = render(page, tmp_path / "profile")
    assert not console
    shown = {pool: float(value) for pool, value in re.findall(r'data-pool="(\w+)" data-value="([^"]+)"', dom)}
    wanted = expected()
    assert set(wanted) == set(shown)
    for pool, value in wanted.items():
        assert shown[pool] == pytest.approx(value, abs=1e-6), pool


@pytest.mark.parametrize("name", pool_figures.POOLS)
def test_a_picture_is_what_the_tool_draws(name):
    path = pool_figures.FOLDER / f"{name}.svg"
    assert path.read_text(encoding="utf-8") == pool_figures.draw(name), "run python tools/pool_figures.py"
