"""ImageNet-2012: the official tar files read in place are the same images and labels as class folders."""

import re

import pytest
import torch

from data_files import IMAGENET_IDS, write_devkit, write_imagenet, write_photos
from learnpool.lab.data import Crop, DataError, compute_digest, drop_broken, hold_out, iter_batches, load
from learnpool.lab.data.decoding import find_problems
from learnpool.lab.data.imagenet import DEVKIT, TRAIN, VAL, read_devkit


@pytest.fixture
def photos(tmp_path):
    broken = write_photos(tmp_path / "photos")
    return tmp_path / "photos", broken


def read_all(files):
    skipped = []
    batches = list(iter_batches(files, torch.arange(len(files)).split(7), Crop(24), skipped=skipped))
    return torch.cat([images for images, _ in batches]), torch.cat([labels for _, labels in batches]), skipped


def test_official_files_are_the_same_images_as_class_folders(photos, tmp_path):
    labels = write_imagenet(tmp_path / "data/imagenet", photos[0])
    data, folder = load("imagenet", tmp_path / "data"), load(str(photos[0]))
    assert data.classes == folder.classes == ("n00", "n01", "n02")
    assert data.test.labels.tolist() == labels  # translated from the devkit's numbers
    ours, theirs = read_all(data.test), read_all(folder.test)
    order = sorted(range(30), key=lambda index: (folder.test.paths[index].name, int(folder.test.labels[index])))
    assert torch.equal(ours[0], theirs[0][order])
    assert torch.equal(ours[1], theirs[1][order])
    by_name = {path.name: path for path in data.train.paths if path.name.startswith("train_0")}
    assert len(data.train) == 30
    assert {path.read() for path in data.train.paths} == {path.read_bytes() for path in folder.train.paths}
    assert str(by_name["train_03.JPEG"]).startswith(f"{tmp_path}/data/imagenet/{TRAIN}:")
    for member, label in zip(data.train.paths, data.train.labels.tolist(), strict=True):
        assert member.read() == (photos[0] / "train" / data.classes[label] / member.name).read_bytes()


def test_workers_read_the_same(photos, tmp_path):
    write_imagenet(tmp_path / "data", photos[0])
    test = load(str(tmp_path / "data")).test
    batches = torch.arange(30).split(8)
    alone, many = (list(iter_batches(test, batches, Crop(24), workers=workers)) for workers in (0, 2))
    for one, other in zip(alone, many, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(one, other, strict=True))


def test_class_folders_below_the_data_directory(photos, tmp_path):
    data = load("imagenet", photos[0])
    assert (len(data.train), len(data.test)) == (30, 30)
    (tmp_path / "all").mkdir()
    photos[0].rename(tmp_path / "all/ILSVRC2012")
    assert compute_digest(load("imagenet", tmp_path / "all")) == compute_digest(load(str(tmp_path / "all/ILSVRC2012")))


def test_broken_images_are_named_and_counted(photos, tmp_path):
    write_imagenet(tmp_path / "data", photos[0])
    data = load("imagenet", tmp_path / "data")
    problems = [problem for problem in find_problems(data.train) if problem]
    member = f"{tmp_path / 'data' / TRAIN}:train_05.JPEG"
    assert len(problems) == 1
    assert problems[0].startswith(f"{member}: wanted an image, got a file that does not decode")
    smaller, names = drop_broken(data)
    assert (len(smaller.train), names) == (29, (member,))
    with pytest.raises(DataError, match=re.escape(member)):
        list(iter_batches(data.train, [torch.arange(30)], Crop(24)))


def test_a_digest_knows_the_files(photos, tmp_path):
    write_imagenet(tmp_path / "one", photos[0])
    write_imagenet(tmp_path / "two", photos[0])
    one, two = (load(str(tmp_path / name)) for name in ("one", "two"))
    assert compute_digest(one) == compute_digest(two)
    train, validation = hold_out(one, 0, 4)
    assert (len(train), len(validation)) == (26, 4)
    (photos[0] / "val/n00/val_00.JPEG").write_bytes(photos[1].read_bytes())
    write_imagenet(tmp_path / "two", photos[0])
    assert compute_digest(load(str(tmp_path / "two"))) != compute_digest(one)


def test_a_devkit(tmp_path):
    write_devkit(tmp_path / DEVKIT, IMAGENET_IDS, [3, 1, 2, 2])
    assert read_devkit(tmp_path / DEVKIT) == (IMAGENET_IDS, [3, 1, 2, 2])


def test_what_is_missing_or_wrong_is_named(photos, tmp_path):
    root = tmp_path / "data"
    root.mkdir()
    with pytest.raises(DataError, match=f"^imagenet: wanted {TRAIN}, .*, in {root}/imagenet, got none$"):
        load("imagenet", root)
    write_imagenet(root, photos[0])
    val = (root / VAL).read_bytes()
    for name in (VAL, DEVKIT):
        content = (root / name).read_bytes()
        (root / name).unlink()
        with pytest.raises(DataError, match=f"^{root}: wanted .* got no {name}$"):
            load(str(root))
        (root / name).write_bytes(content)
    write_devkit(root / DEVKIT, IMAGENET_IDS, [1, 2])
    with pytest.raises(DataError, match=f"^{root / VAL}: wanted 2 images, as many as .* has labels, got 30$"):
        load(str(root))
    write_devkit(root / DEVKIT, IMAGENET_IDS, [9] * 30)
    with pytest.raises(DataError, match=f"^{root / DEVKIT}: wanted labels that meta.mat has, got 9$"):
        load(str(root))
    write_devkit(root / DEVKIT, {1: "n00", 2: "n01"}, [1] * 30)
    with pytest.raises(DataError, match=f"^{root / TRAIN}: wanted a tar file of each class .*, got n02.tar$"):
        load(str(root))
    write_devkit(root / DEVKIT, IMAGENET_IDS | {4: "n03"}, [1] * 30)
    with pytest.raises(DataError, match=f"^{root / TRAIN}: wanted images of every class, got none of n03$"):
        load(str(root))
    (root / DEVKIT).write_bytes(b"no archive")
    with pytest.raises(DataError, match=f"^{root / DEVKIT}: "):
        load(str(root))
    write_imagenet(root, photos[0])
    (root / VAL).write_bytes(val[: len(val) // 2])
    with pytest.raises(DataError, match=f"^{root / VAL}: "):
        load(str(root))


def test_it_is_not_fetched(learnpool):
    status, _, error = learnpool("data", "get", "imagenet")
    assert status == 2
    assert "imagenet: nothing to fetch; image-net.org gives its files to those who register" in " ".join(error.split())
