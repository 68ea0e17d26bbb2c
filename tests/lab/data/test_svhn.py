"""SVHN's MATLAB files; a broken one is one sentence that names it."""

import numpy as np
import pytest

from data_files import assert_is, write_svhn
from learnpool.lab.data import DataError, load

pytestmark = pytest.mark.usefixtures("small_sources")


@pytest.mark.parametrize("folder", [".", "svhn", "SVHN"])
def test_svhn(folder, tmp_path):
    write_svhn(tmp_path / folder)
    assert_is(load("svhn", tmp_path), "svhn", ("train", "test", "extra"))


def test_svhn_without_extra(tmp_path):
    write_svhn(tmp_path, ("train", "test"))
    data = load("svhn", tmp_path)
    assert_is(data, "svhn")
    assert data.extra is None
    (tmp_path / "test_32x32.mat").unlink()
    with pytest.raises(DataError, match="svhn: test_32x32.mat is missing in "):
        load("svhn", tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": np.zeros((32, 32, 3, 39), np.uint8)}, "wanted X as uint8 32×32×3×40, got uint8 32×32×3×39"),
        ({"X": np.zeros((32, 32, 3, 40))}, "wanted X as uint8 32×32×3×40, got double 32×32×3×40"),
        ({"X": np.zeros((32, 32, 3, 40), np.int16)}, "wanted X as uint8 32×32×3×40, got int16 32×32×3×40"),
        ({"y": np.zeros((40, 1), np.uint8)}, "wanted labels 1 to 10, got 0 to 0"),
        ({"y": np.full((40, 1), 11, np.uint8)}, "wanted labels 1 to 10, got 11 to 11"),
        ({"y": np.ones((1, 40), np.uint8)}, "wanted y as integers 40×1, got uint8 1×40"),
    ],
)
def test_a_broken_svhn_file(changes, message, tmp_path):
    write_svhn(tmp_path)
    write_svhn(tmp_path, ("train",), **changes)
    with pytest.raises(DataError, match=f"train_32x32.mat: {message}"):
        load("svhn", tmp_path)


@pytest.mark.parametrize("keep", [0, 100, 50_000])
def test_a_truncated_svhn_file(keep, tmp_path):
    write_svhn(tmp_path)
    path = tmp_path / "extra_32x32.mat"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match="extra_32x32.mat: wanted a whole MATLAB file, got a broken one"):
        load("svhn", tmp_path)
