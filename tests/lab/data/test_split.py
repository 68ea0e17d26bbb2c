"""What is held out, and what a smaller training set is."""

import doctest
import itertools

import pytest
import torch

from learnpool.lab import data as data_package
from learnpool.lab.data import DataError, Dataset, Files, Folder, Split, choose_subset, hold_out, load


def number_images(count, classes=10, start=0):
    """Images that say their own number: where each one went can be seen."""
    images = torch.arange(start, start + count, dtype=torch.int32).view(count, 1, 1, 1)
    return Split(images, torch.arange(count) % classes)


def numbers(*splits):
    return sorted(number for split in splits for number in split.images.flatten().tolist())


def make_dataset(name, train, extra=None):
    return Dataset(name, train, number_images(10, start=10**6), tuple("0123456789"), extra)


@pytest.mark.parametrize(("count", "size"), [(60_000, 5_000), (50_000, 5_000), (1_257, 125), (19, 1), (2, 1)])
def test_a_tenth_but_at_most_5000_are_held_out(count, size):
    data = make_dataset("mnist", number_images(count))
    train, held = hold_out(data, seed=3)
    assert len(held) == size
    assert numbers(train, held) == list(range(count))
    again = hold_out(data, seed=3)
    assert torch.equal(again[0].images, train.images)
    assert torch.equal(again[1].images, held.images)
    assert torch.equal(held.labels, held.images.flatten() % 10)


def test_another_seed_holds_out_others():
    data = make_dataset("mnist", number_images(2000))
    held = [set(numbers(hold_out(data, seed)[1])) for seed in (0, 1)]
    assert len(held[0] & held[1]) < 60  # 20 by chance


def test_the_held_out_are_the_last_of_the_shuffled():
    order = torch.randperm(100, generator=torch.Generator().manual_seed(5))
    assert hold_out(make_dataset("mnist", number_images(100)), 5)[1].images.flatten().tolist() == order[90:].tolist()


@pytest.mark.parametrize("size", [0, -1, 100, 101])
def test_a_size_that_cannot_be_held_out(size):
    with pytest.raises(DataError, match=f"hold_out: wanted 1 to 99 images for validation, got {size}"):
        hold_out(make_dataset("mnist", number_images(100)), 0, size)
    assert len(hold_out(make_dataset("mnist", number_images(100)), 0, 99)[1]) == 99


def test_svhn_by_its_own_rule():
    """598,388 images to train, 6,000 held out: 400 of each class of train, 200 of each class of extra."""
    data = make_dataset("svhn", number_images(73_257), number_images(531_131, start=100_000))
    train, held = hold_out(data, seed=1)
    assert (len(train), len(held)) == (598_388, 6_000)
    of_extra = held.images.flatten() >= 100_000
    assert torch.bincount(held.labels[~of_extra]).tolist() == [400] * 10
    assert torch.bincount(held.labels[of_extra]).tolist() == [200] * 10
    assert numbers(train, held) == [*range(73_257), *range(100_000, 631_131)]
    assert not torch.equal(hold_out(data, seed=2)[1].images, held.images)


def test_svhn_without_extra_and_with_too_few():
    train, held = hold_out(make_dataset("svhn", number_images(5_000)), seed=1)
    assert (len(train), len(held)) == (1_000, 4_000)
    with pytest.raises(
        DataError, match="hold_out: wanted 400 images of each class of svhn's train, got 300 of class 0"
    ):
        hold_out(make_dataset("svhn", number_images(3_000)), seed=1)
    assert len(hold_out(make_dataset("svhn", number_images(3_000)), 1, size=100)[1]) == 100


def test_files_are_held_out_like_tensors(tmp_path):
    paths = tuple(tmp_path / f"{number}.jpg" for number in range(50))
    folder = Folder("photos", Files(paths, torch.arange(50) % 2), Files(paths[:1], torch.zeros(1)), ("a", "b"))
    train, held = hold_out(folder, seed=4)
    same = hold_out(make_dataset("mnist", number_images(50)), seed=4)
    assert [int(path.stem) for path in held.paths] == same[1].images.flatten().tolist()
    assert [int(path.stem) for path in train.paths] == same[0].images.flatten().tolist()
    assert all(int(path.stem) % 2 == label for path, label in zip(held.paths, held.labels.tolist(), strict=True))


@pytest.mark.parametrize("size", [1, 10, 25, 1000])
def test_a_subset_has_as_many_of_each_class(size):
    split = number_images(1000)
    part = choose_subset(split, size, seed=0)
    counts = torch.bincount(part.labels, minlength=10)
    assert len(part) == size
    assert int(counts.max() - counts.min()) == (size % 10 > 0)
    assert len(set(numbers(part))) == size
    assert torch.equal(choose_subset(split, size, seed=0).images, part.images)
    assert size == 1000 or not torch.equal(choose_subset(split, size, seed=1).images, part.images)


def test_a_smaller_subset_lies_in_a_larger_one():
    parts = [set(numbers(choose_subset(number_images(500), size, seed=7))) for size in (7, 33, 100, 400)]
    assert all(smaller < larger for smaller, larger in itertools.pairwise(parts))


def test_a_rare_class_is_taken_whole():
    labels = torch.tensor([0] * 3 + [1] * 50 + [2] * 50)
    part = choose_subset(Split(torch.zeros(103, 1, 1, 1), labels), 43, seed=0)
    assert torch.bincount(part.labels).tolist() == [3, 20, 20]


@pytest.mark.parametrize("size", [0, 1001])
def test_a_subset_that_is_no_subset(size):
    with pytest.raises(DataError, match=f"--train-size: wanted 1 to 1000 images, got {size}"):
        choose_subset(number_images(1000), size, seed=0)


def test_validation_is_kept_from_test():
    data = load("digits")
    before = data.test.images.clone()
    train, held = hold_out(data, seed=0)
    assert len(train) + len(held) == len(data.train)
    assert torch.equal(data.test.images, before)


def test_the_packages_example_runs():
    assert doctest.testmod(data_package).failed == 0
    assert doctest.testmod(data_package).attempted == 4
