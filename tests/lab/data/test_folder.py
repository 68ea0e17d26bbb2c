"""A folder of images: its layouts and its mistakes."""

import pytest
import torch

from data_files import TWO_CLASSES, write_folder, write_picture
from learnpool.lab.data import DataError, Folder, load


@pytest.mark.parametrize("name", ["test", "val", "valid", "validation"])
def test_train_beside_test(name, tmp_path):
    write_folder(tmp_path, {place.replace("test", name): count for place, count in TWO_CLASSES.items()})
    data = load(str(tmp_path))
    assert isinstance(data, Folder)
    assert data.classes == ("cat", "dog")
    assert [f"{p.parent.name}{p.stem}" for p in data.train.paths] == ["cat00", "cat01", "cat02", "dog00", "dog01"]
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1]
    assert data.test.labels.tolist() == [0, 0, 1]
    assert {path.parts[-3] for path in data.test.paths} == {name}


def test_a_test_set_without_labels_is_left_for_val(tmp_path):
    write_folder(tmp_path, {place.replace("test", "val"): count for place, count in TWO_CLASSES.items()})
    (tmp_path / "test").mkdir()
    write_picture(tmp_path / "test" / "1.jpg")
    assert {path.parts[-3] for path in load(str(tmp_path)).test.paths} == {"val"}


def test_classes_alone_are_split_the_same_way_every_time(tmp_path):
    write_folder(tmp_path, {"ape": 12, "bee": 2, "cow": 5})
    data = load(str(tmp_path))
    assert torch.bincount(data.test.labels).tolist() == [2, 1, 1]
    assert torch.bincount(data.train.labels).tolist() == [10, 1, 4]
    assert len({*data.train.paths, *data.test.paths}) == 19
    assert load(str(tmp_path)).test.paths == data.test.paths
    assert all(
        data.classes[label] == path.parent.name for path, label in zip(data.train.paths, data.train.labels, strict=True)
    )


def test_only_images_count_in_any_depth_and_case(tmp_path):
    write_folder(tmp_path, TWO_CLASSES)
    write_picture(tmp_path / "train/cat/deep/er/X.JPEG")
    for other in ("notes.txt", ".hidden.png", "Thumbs.db"):
        (tmp_path / "train/cat" / other).write_text("no image")
    (tmp_path / "train/.git").mkdir()
    assert torch.bincount(load(str(tmp_path)).train.labels).tolist() == [4, 2]


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({}, "wanted a folder for each of at least two classes, got 0: none"),
        ({"cat": 5}, "wanted a folder for each of at least two classes, got 1: cat"),
        ({"cat": 5, "dog": 1}, "class dog has 1 images, too few for train and test"),
        ({"train/cat": 5, "test/cat": 5}, "train: wanted a folder for each of at least two classes, got 1: cat"),
        ({"train/cat": 5, "train/dog": 5}, "wanted a folder test or val with a folder for each class beside train"),
        (TWO_CLASSES | {"test/dog": 0}, "class dog has no images for test; the classes there: cat"),
        (TWO_CLASSES | {"train/dog": 0}, "class dog has no images for train; the classes there: cat"),
        (TWO_CLASSES | {"train/eel": 1}, "class eel has no images for test; the classes there: cat, dog"),
        (TWO_CLASSES | {"test/eel": 1}, "class eel has no images for train; the classes there: cat, dog"),
    ],
)
def test_a_folder_that_will_not_do(counts, message, tmp_path):
    write_folder(tmp_path, counts)
    with pytest.raises(DataError, match=message) as error:
        load(str(tmp_path))
    assert str(error.value).startswith(str(tmp_path))


def test_an_empty_class_folder(tmp_path):
    write_folder(tmp_path, TWO_CLASSES)
    for split in ("train", "test"):
        (tmp_path / split / "eel").mkdir()
    with pytest.raises(DataError, match="class eel has no images for test"):
        load(str(tmp_path))
    write_folder(tmp_path / "flat", {"cat": 3, "dog": 3})
    (tmp_path / "flat/eel").mkdir()
    with pytest.raises(DataError, match="class eel has 0 images, too few"):
        load(str(tmp_path / "flat"))
