"""Draws docs/figures/pools/*.svg: one region, how much each cell counts in a pool's answer, and the answer."""

from pathlib import Path

import torch

from learnpool import Avg, Blur, Filter, Gate, LogSumExp, Max, Median, Min, Mix, Pool2d, Power, Rank, Soft, Std, Tree

FOLDER = Path(__file__).parents[1] / "docs" / "figures" / "pools"
REGION = (0.1, 0.4, 0.2, 0.3, 0.9, 0.6, 0.0, 0.2, 0.5)
MASK = (-1, -1, -1, -1, 4, -1, -1, -1, -1)  # is the centre above its neighbours?
FILTER = (0, -0.25, 0, -0.25, 2, -0.25, 0, -0.25, 0)  # sharpens
ROW = (0, 0, 0, 1 / 3, 1 / 3, 1 / 3, 0, 0, 0)
POOLS: dict[str, tuple[Tree, tuple[float, ...]]] = {  # with the masks, filters or weights it has learned, if any
    "max": (Max(), ()),
    "min": (Min(), ()),
    "avg": (Avg(), ()),
    "median": (Median(), ()),
    "std": (Std(), ()),
    "mixed": (Mix(Max(), Avg()), ()),
    "gated": (Gate(Max(), Avg()), MASK),
    "filter": (Filter(), FILTER),
    "tree": (Gate(Filter(), Filter()), (*MASK, *FILTER, *ROW)),
    "soft": (Soft(2.0), ()),
    "lse": (LogSumExp(4.0), ()),
    "gem": (Power(3.0), ()),
    "lp2": (Power(2.0, learn=False, absolute=True), ()),
    "rank": (Rank(), (1 / 3, 1 / 3, 1 / 3, 0, 0, 0, 0, 0, 0)),
    "blur": (Blur(), ()),
}
CELL = 34
FONT = 'font-family="sans-serif" font-size="11" text-anchor="middle"'


def compute(tree: Tree, weights: tuple[float, ...]) -> tuple[float, list[float]]:
    """The pool's answer for REGION, and ∂y/∂x of each cell."""
    layer = Pool2d(tree, 3).double()
    if weights:
        with torch.no_grad():
            layer.weight.copy_(torch.tensor(weights, dtype=torch.float64).reshape(layer.weight.shape))
    x = torch.tensor(REGION, dtype=torch.float64).reshape(1, 1, 3, 3).requires_grad_()
    y = layer(x)
    (shares,) = torch.autograd.grad(y.sum(), x)
    return y.item(), shares.flatten().tolist()


def draw(name: str) -> str:
    """The figure of a pool."""
    y, shares = compute(*POOLS[name])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="420" height="136" viewBox="0 0 420 136" {FONT}>',
        f"<title>{name}: one region, how much each cell counts, and the answer {format_number(y)}</title>",
        '<rect width="420" height="136" fill="#fff"/>',
        *draw_cells(10, "region", REGION, "90, 100, 110", 0.6),
        '<path d="M122 75h24m-6 -4l6 4l-6 4" fill="none" stroke="#888"/>',
        *draw_cells(156, "how much each cell counts", shares, "230, 97, 1", 1.0),
        '<path d="M268 75h24m-6 -4l6 4l-6 4" fill="none" stroke="#888"/>',
        '<text x="352" y="18" fill="#555">answer</text>',
        '<rect x="302" y="51" width="100" height="48" rx="6" fill="rgba(230, 97, 1, 0.12)" stroke="#e66101"/>',
        f'<text x="352" y="82" font-size="20" fill="#222">{format_number(y)}</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def draw_cells(
    left: int, title: str, values: "list[float] | tuple[float, ...]", colour: str, scale: float
) -> list[str]:
    """A grid of nine numbers, the stronger the larger they are; blue below zero."""
    lines = [f'<text x="{left + 1.5 * CELL:g}" y="18" fill="#555">{title}</text>']
    for i, value in enumerate(values):
        x, y = left + CELL * (i % 3), 24 + CELL * (i // 3)
        strength = min(1.0, abs(value)) * scale
        fill = f"rgba({'31, 119, 180' if value < -0.005 else colour}, {strength:.2f})"
        lines.append(f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="{fill}" stroke="#ccc"/>')
        lines.append(f'<text x="{x + CELL // 2}" y="{y + 21}" fill="#222">{format_number(value)}</text>')
    return lines


def format_number(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "−")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in POOLS:
        (FOLDER / f"{name}.svg").write_text(draw(name), encoding="utf-8")
