"""The README's figure: its numbers are right, and the one in the repository is the one the code draws."""

import re
import struct
from pathlib import Path

import pytest

from learnpool.lab import figure

CHECKED_IN = Path(__file__).parents[2] / "docs" / "figures" / "region.svg"

# By hand. The region 0.1 0.4 0.2 / 0.3 0.9 0.5 / 0.0 0.6 0.2 sums to 3.2.
#   max      0.9
#   average  3.2 / 9 = 0.355556
#   mixed    0.3 · 0.9 + 0.7 · 0.355556 = 0.27 + 0.248889 = 0.518889
#   gated    ω·x = −(0.1 + 0.2 + 0.0 + 0.2) + (0.4 + 0.3 + 0.9 + 0.5 + 0.6) / 2 = −0.5 + 1.35 = 0.85
#            σ = 1 / (1 + e^−0.85) = 0.700567;  0.700567 · 0.9 + 0.299433 · 0.355556 = 0.736975
#   tree     ω·x = (0.1 + 0.3 + 0.0) / 2 − (0.4 + 0.9 + 0.6) + (0.2 + 0.5 + 0.2) / 2 = 0.2 − 1.9 + 0.45 = −1.25
#            σ = 1 / (1 + e^1.25) = 0.222700
#            v₁·x = 0.2 (0.4 + 0.3 + 0.5 + 0.6) + 0.4 · 0.9 = 0.72;  v₂·x = 0.4 (0.7 − 0.8) = −0.04
#            0.222700 · 0.72 − 0.777300 · 0.04 = 0.129252
BY_HAND = {
    "max": (1, 0.9, 0.355556, 0.9),
    "average": (0, 0.9, 0.355556, 0.355556),
    "mixed": (0.3, 0.9, 0.355556, 0.518889),
    "gated": (0.700567, 0.9, 0.355556, 0.736975),
    "tree, 2 levels": (0.222700, 0.72, -0.04, 0.129252),
}


def texts(svg):
    """The texts of a figure; matplotlib leaves each as a comment beside its outlines."""
    return re.findall(r"<!-- (.*?) -->", svg, flags=re.DOTALL)


def numbers(svg):
    return [value for text in texts(svg) for value in re.findall(r"−?\d*\.?\d+", text)]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    out = tmp_path_factory.mktemp("figure") / "region.svg"
    figure.save(out)
    return out.read_text(encoding="utf-8")


def test_numbers_are_those_by_hand():
    rows = {row.name: (row.p, row.left, row.right, row.value) for row in figure.compute_rows()}
    assert rows.keys() == BY_HAND.keys()
    for name, row in rows.items():
        assert row == pytest.approx(BY_HAND[name], abs=1e-6), name


@pytest.mark.parametrize("label", ["σ(0.85)", "σ(−1.25)", "= 0.70", "= 0.22", "30%", "70%", "22%", "78%"])
def test_proportions_are_drawn(label, fresh):
    assert any(label in text for text in texts(fresh))


def test_outputs_are_drawn_in_order(fresh):
    drawn = [text for text in texts(fresh) if re.fullmatch(r"−?\d\.\d\d", text)]
    assert drawn == ["0.90", "0.36", "0.52", "0.74", "0.13"]


def test_the_figure_in_the_repository_is_current(fresh):
    assert numbers(CHECKED_IN.read_text(encoding="utf-8")) == numbers(fresh)


def test_equal_bytes_every_time(fresh, tmp_path):
    figure.save(tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text(encoding="utf-8") == fresh
    assert "<dc:date>" not in fresh


def test_png(tmp_path):
    figure.save(tmp_path / "region.png")
    head = (tmp_path / "region.png").read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">I", head[16:20])[0] == 2 * figure.WIDTH


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_leaves_nothing(tmp_path):
    (tmp_path / "region.svg.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '.*region\.svg'$"):
        figure.save(tmp_path / "region.svg")
    assert not list(tmp_path.iterdir())
