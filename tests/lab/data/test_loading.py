"""A data set by its name: where it is looked for, and the message about one that is missing."""

import pytest
import torch

from data_files import TWO_CLASSES, assert_is, write_folder, write_idx
from learnpool.lab.data import DataError, load
from learnpool.lab.data.catalog import SOURCES


def test_digits():
    data = load("digits")
    assert (len(data.train), len(data.test), data.train.images.shape[1:]) == (1257, 540, (1, 8, 8))
    assert data.train.images.unique().tolist() == [round(level * 255 / 16) for level in range(17)]
    assert torch.bincount(data.test.labels).min() >= 52


@pytest.mark.usefixtures("small_sources")
def test_the_data_directory_may_come_from_the_environment(tmp_path, monkeypatch):
    write_idx(tmp_path / "mnist")
    monkeypatch.setenv("LEARNPOOL_DATA_DIR", str(tmp_path))
    assert_is(load("mnist"), "mnist")
    monkeypatch.delenv("LEARNPOOL_DATA_DIR")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").symlink_to(tmp_path)
    assert_is(load("mnist"), "mnist")


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_nothing_there(name, tmp_path):
    with pytest.raises(DataError, match=f"^{name}: none of its files found in .*; `learnpool data get {name}` fetches"):
        load(name, tmp_path)


def test_an_empty_name_is_not_the_current_directory(tmp_path, monkeypatch):
    write_folder(tmp_path, TWO_CLASSES)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="wanted the name of a data set or the path of a folder of images, got ''"):
        load("")
    assert load(".").classes == ("cat", "dog")


def test_an_unknown_name(tmp_path):
    with pytest.raises(
        DataError,
        match="no folder and no data set 'cifar-10' \\(did you mean 'cifar10'\\?\\); data sets: digits, mnist, ",
    ):
        load("cifar-10", tmp_path)
