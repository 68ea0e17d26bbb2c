"""Every official form of MNIST's files is read to the same images; a broken file is one sentence that names it."""

import gzip

import numpy as np
import pytest

from data_files import assert_is, cells, idx_bytes, write_idx
from learnpool.lab.data import DataError, load
from learnpool.lab.data.catalog import SOURCES

pytestmark = pytest.mark.usefixtures("small_sources")


@pytest.mark.parametrize("gz", [True, False])
@pytest.mark.parametrize("dot", [True, False])
@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("mnist", "."),
        ("mnist", "mnist"),
        ("mnist", "MNIST/raw"),
        ("fashion-mnist", "."),
        ("fashion-mnist", "fashion-mnist"),
        ("fashion-mnist", "FashionMNIST/raw"),
    ],
)
def test_idx(name, folder, dot, gz, tmp_path):
    write_idx(tmp_path / folder, name, dot, gz)
    assert_is(load(name, tmp_path), name)


def test_fashion_is_not_taken_for_mnist(tmp_path, monkeypatch):
    write_idx(tmp_path)
    found = SOURCES["fashion-mnist"]
    monkeypatch.setitem(found.balance, "train", (5,) + (4,) * 8 + (3,))
    with pytest.raises(DataError, match="wanted 5 images of class T-shirt/top, got 4: another set\\?"):
        load("fashion-mnist", tmp_path)


IMAGES = "train-images-idx3-ubyte.gz"


LABELS = "train-labels-idx1-ubyte.gz"


def change_label(label):
    labels = cells("mnist", "train")[1]
    labels[0] = label
    return gzip.compress(idx_bytes(labels))


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (IMAGES, lambda data: data[:-100], "wanted a whole gzip file, got a broken one"),
        (IMAGES, lambda data: b"", "wanted an idx file that begins with 00000803, got nothing"),
        (IMAGES, lambda data: b"<html>", "wanted a whole gzip file, got a broken one"),
        (IMAGES, lambda data: data[:50] + b"?" + data[51:], "wanted a whole gzip file, got a broken one"),
        (IMAGES, lambda data: gzip.compress(gzip.decompress(data)[:-1]), "wanted 31,376 bytes, got 31,375"),
        (IMAGES, lambda data: gzip.compress(gzip.decompress(data) + b"?"), "wanted 31,376 bytes, got more"),
        (IMAGES, lambda data: gzip.compress(idx_bytes(np.zeros((40, 28, 27)))), "wanted 40×28×28 cells, got 40×28×27"),
        (IMAGES, lambda data: gzip.compress(idx_bytes(np.zeros((41, 28, 28)))), "wanted 40×28×28 cells, got 41×28×28"),
        (IMAGES, lambda data: gzip.compress(idx_bytes(np.zeros(40))), "begins with 00000803, got 00000801"),
        (IMAGES, lambda data: gzip.compress(b"\0\0\x08\x03\0\0"), "wanted 40×28×28 cells, got 0×0×0 by its header"),
        (LABELS, lambda data: gzip.compress(idx_bytes(np.zeros(39))), "wanted 40 cells, got 39"),
        (LABELS, lambda data: change_label(10), "train-labels-idx1-ubyte.gz: wanted labels 0 to 9, got 0 to 10"),
    ],
)
def test_a_broken_idx_file(file, change, message, tmp_path):
    write_idx(tmp_path)
    path = tmp_path / file
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=message) as error:
        load("mnist", tmp_path)
    assert str(tmp_path) in str(error.value)
    assert "train" in str(error.value)
    path.unlink()
    with pytest.raises(DataError, match=f"mnist: {file.removesuffix('.gz')} is missing in {tmp_path}"):
        load("mnist", tmp_path)
