"""Draw docs/figures/architecture.svg, the two walks through the code: ``python tools/architecture_figure.py``."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "architecture.svg"
WIDTH, HEIGHT = 1000, 640
BLUE, ORANGE, GREY = "#0969da", "#bc4c00", "#57606a"
LINE = f'stroke="{GREY}" stroke-width="1.5"'


@dataclass(frozen=True)
class Box:
    """A file or folder, and what happens there."""

    name: str
    text: str
    x: int
    y: int
    width: int = 400
    colour: str = BLUE
    height: int = 50


TENSOR = [
    Box("layers.py", "parameters.py, sharing.py: weight and mix", 30, 90),
    Box("functional.py", "tree.py gives the program, ops/window.py the window", 30, 170),
    Box("ops/registration.py", "learnpool::pool: all that PyTorch knows about it", 30, 250),
    Box("ops/autograd.py", "keeps x, weight and mix; back: learnpool::pool_backward", 30, 330),
    Box("ops/cpu/", "C++", 30, 490, 90),
    Box("ops/triton/", "GPUs", 132, 490, 118),
    Box("ops/reference.py", "any other device", 262, 490, 168),
]
COMPARISON = [
    Box("cli/compare.py", "reads the command line", 570, 90, colour=ORANGE),
    Box("lab/comparison/compare.py", "a list of runs: data set × pool × seed", 570, 170, colour=ORANGE),
    Box("lab/launch/", "processes.py on this machine, cluster.py on Ray", 570, 250, colour=ORANGE),
    Box("lab/runs/train.py", "train(run): data, network, epochs, checkpoints", 570, 330, colour=ORANGE),
    Box("lab/comparison/summary.py", "paired differences, intervals, the answer", 570, 490, colour=ORANGE),
    Box("lab/comparison/report.py", "report.html, from files alone", 570, 570, colour=ORANGE),
]
NOTES = [  # x, y, text
    (230, 66, "y = GatedPool2d(3, stride=2)(x)"),
    (770, 66, "learnpool compare --data digits --pools max,gated"),
    (230, 434, "PyTorch's dispatcher chooses the kernel by device"),
    (230, 574, "All evaluate the tree on each region: its maximum, minimum"),
    (230, 594, "and mean, and one inner product for each Filter and Gate."),
    (770, 431, "out/<run>/: run.json, env.json, metrics.jsonl,"),
    (770, 449, "last.json and its tensors, result.json"),
]
ARROWS = [  # from x, y to x, y
    *((770, y, 770, y + 30) for y in (140, 220, 300)),
    (770, 380, 770, 410), (770, 460, 770, 490), (770, 540, 770, 570),
]  # fmt: skip
BOTH_WAYS = [*((230, y, 230, y + 30) for y in (140, 220, 300, 380)), *((x, 450, x, 490) for x in (75, 191, 346))]


def draw_box(box: Box) -> Iterator[str]:
    middle = box.x + box.width / 2
    yield (
        f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="6" fill="#ffffff" '
        f'stroke="{box.colour}" stroke-width="1.5"/>'
    )
    yield f'<text class="file" x="{middle:g}" y="{box.y + 21}" fill="{box.colour}">{escape(box.name)}</text>'
    yield f'<text x="{middle:g}" y="{box.y + 40}">{escape(box.text)}</text>'


def draw() -> Iterator[str]:
    """The lines of the file. It has a background of its own, so that it is readable on light and dark pages."""
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">'
    yield "<title>Two walks through the code: a tensor forward and back, a comparison from command to report</title>"
    yield (
        "<style>text { font: 13px Helvetica, Arial, sans-serif; fill: #57606a; text-anchor: middle }"
        " .file { font: 600 15px Menlo, Consolas, monospace } .head { font-size: 17px; fill: #1f2328 }"
        f" .file[fill='{BLUE}'] {{ fill: {BLUE} }} .file[fill='{ORANGE}'] {{ fill: {ORANGE} }}</style>"
    )
    yield (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto-start-reverse">'
        f'<path d="M0 0 8 4 0 8z" fill="{GREY}"/></marker></defs>'
    )
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#f6f8fa"/>'
    yield '<text class="head" x="230" y="44">A tensor, forward and back</text>'
    yield '<text class="head" x="770" y="44">A comparison, from command to report</text>'
    for box in (*TENSOR, *COMPARISON):
        yield from draw_box(box)
    for x1, y1, x2, y2 in ARROWS:
        yield f'<path d="M{x1} {y1}L{x2} {y2 - 2}" {LINE} marker-end="url(#tip)"/>'
    for x1, y1, x2, y2 in BOTH_WAYS:
        yield f'<path d="M{x1} {y1 + 2}L{x2} {y2 - 2}" {LINE} marker-start="url(#tip)" marker-end="url(#tip)"/>'
    yield f'<rect x="570" y="410" width="400" height="50" rx="6" fill="none" {LINE} stroke-dasharray="4 3"/>'
    yield f'<rect x="30" y="410" width="400" height="40" rx="6" fill="none" {LINE} stroke-dasharray="4 3"/>'
    for x, y, text in NOTES:
        yield f'<text x="{x}" y="{y}">{escape(text)}</text>'
    yield "</svg>"


if __name__ == "__main__":
    FIGURE.write_text("\n".join(draw()) + "\n", encoding="utf-8")
