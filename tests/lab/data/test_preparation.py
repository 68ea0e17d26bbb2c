"""Preparations: against loops in numpy, by their properties, fitted on train alone, and cached on disk."""

import errno
import logging
import math
import os

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from learnpool.lab import files
from learnpool.lab.data import KINDS, DataError, Preparation, Split, cache, fit, prepare
from learnpool.lab.data.preparation import ZCA_BIAS, gcn

COSTLY = ("gcn-zca", "gcn-lcn")


@pytest.fixture(autouse=True)
def cache_dir(monkeypatch, tmp_path):
    """A cache of the test's own."""
    monkeypatch.setenv("LEARNPOOL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def images(count=300, shape=(3, 6, 5), seed=0):
    """Smooth pictures of different contrast: neighbours are alike, as in photographs."""
    random = np.random.default_rng(seed)
    walk = random.normal(size=(count, *shape)).cumsum(2).cumsum(3) * random.uniform(2, 12, (count, 1, 1, 1))
    return torch.from_numpy((walk + random.uniform(60, 200, (count, 1, 1, 1))).clip(0, 255).astype(np.uint8))


def split(*given, **options):
    pictures = images(*given, **options)
    return Split(pictures, torch.zeros(len(pictures), dtype=torch.int64))


def gcn_by_hand(x, scale):
    out = np.empty(x.shape)
    for n, image in enumerate(x.numpy().astype(np.float64)):
        centred = image - image.sum() / image.size
        norm = math.sqrt((centred**2).sum()) / scale
        out[n] = centred / (norm if norm >= 1e-8 else 1)
    return out


def lcn_by_hand(x):
    """Every pixel by itself: its neighbourhood of 7×7 under a Gaussian of σ = 2, zeros outside the image."""
    weight = np.array([[math.exp(-(i * i + j * j) / 8) for j in range(-3, 4)] for i in range(-3, 4)])
    weight /= weight.sum()
    out = np.empty_like(x)
    for n, c in np.ndindex(*x.shape[:2]):
        plane = np.pad(x[n, c], 3)
        mean, root = np.empty(x.shape[2:]), np.empty(x.shape[2:])
        for i, j in np.ndindex(*x.shape[2:]):
            around = plane[i : i + 7, j : j + 7]
            mean[i, j], root[i, j] = (weight * around).sum(), math.sqrt((weight * around**2).sum())
        out[n, c] = (x[n, c] - mean) / np.maximum(np.maximum(root, root.mean()), 1e-4)
    return out


def test_none_is_the_pixel_over_255():
    x = split(5)
    (ours,) = prepare("none", x)
    assert_close(ours, torch.from_numpy((x.images.numpy() / 255).astype(np.float32)))


def test_mean_is_per_pixel():
    x, other = split(2345), split(7, seed=1)
    ours, theirs = prepare("mean", x, other)
    mean = x.images.numpy().astype(np.float64).mean(0) / 255
    assert_close(ours, torch.from_numpy((x.images.numpy() / 255 - mean).astype(np.float32)))
    assert_close(theirs, torch.from_numpy((other.images.numpy() / 255 - mean).astype(np.float32)))
    assert_close(ours.mean(0), torch.zeros(3, 6, 5), atol=1e-6, rtol=0)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 6, 5)])
def test_gcn(shape):
    x = split(20, shape)
    (ours,) = prepare("gcn", x)
    scale = 55 if shape == (3, 32, 32) else 55 * math.sqrt(math.prod(shape) / 3072)
    assert_close(ours.double().numpy(), gcn_by_hand(x.images, scale), rtol=1e-5, atol=1e-5)
    assert_close(ours.flatten(1).norm(dim=1), torch.full((20,), float(scale)))


@pytest.mark.parametrize("size", [6, 301])  # the sum of the large one is more than a float holds
def test_an_image_without_contrast_becomes_zero(size):
    levels = torch.tensor([126, 141, 151], dtype=torch.uint8)
    flat = Split(levels.view(3, 1, 1, 1).repeat(1, 3, size, size), torch.zeros(3, dtype=torch.int64))
    for kind in ("gcn", "gcn-lcn"):
        assert prepare(kind, flat)[0].abs().max() == 0


def test_zca_against_numpy():
    x, other = split(400, (1, 4, 5)), split(9, (1, 4, 5), seed=1)
    ours, theirs = prepare("gcn-zca", x, other)
    scale = 55 * math.sqrt(20 / 3072)
    flat = gcn_by_hand(x.images, scale).reshape(400, -1)
    mean = flat.mean(0)
    covariance = sum(np.outer(row, row) for row in flat - mean) / 400
    values, vectors = np.linalg.eigh(covariance + 0.1 * np.eye(20))
    matrix = vectors @ np.diag(values**-0.5) @ vectors.T
    assert_close(ours.flatten(1).double().numpy(), (flat - mean) @ matrix, rtol=1e-4, atol=1e-4)
    held = gcn_by_hand(other.images, scale).reshape(9, -1)
    assert_close(theirs.flatten(1).double().numpy(), (held - mean) @ matrix, rtol=1e-4, atol=1e-4)


def test_zca_whitens_what_is_well_above_its_bias(monkeypatch):
    monkeypatch.setattr("learnpool.lab.data.preparation.ZCA_BIAS", 1e-6)
    x = Split(torch.randint(0, 256, (3000, 1, 4, 4), dtype=torch.uint8), torch.zeros(3000, dtype=torch.int64))
    (ours,) = prepare("gcn-zca", x)
    covariance = torch.cov(ours.flatten(1).T.double(), correction=0)
    # Contrast normalisation takes one direction away: every image sums to zero.
    expected = torch.eye(16).double() - torch.full((16, 16), 1 / 16).double()
    assert_close(covariance, expected, rtol=0, atol=2e-3)
    assert ZCA_BIAS == 0.1


def test_lcn_against_a_loop():
    x = split(6, (3, 11, 9))
    (ours,) = prepare("gcn-lcn", x)
    assert_close(ours.double().numpy(), lcn_by_hand(gcn_by_hand(x.images, 1.0)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_fit_sees_train_alone(kind):
    train, test = split(50), split(20, seed=1)
    ours, theirs = prepare(kind, train, test)
    changed = Split(255 - test.images, test.labels)
    assert torch.equal(prepare(kind, train, changed)[0], ours)
    assert torch.equal(prepare(kind, train, test, changed)[1], theirs)
    assert torch.equal(prepare(kind, train)[0], ours)
    # and it does see train: what is fitted changes with it
    other = prepare(kind, split(50, seed=2), test)[1]
    assert torch.equal(other, theirs) == (kind in ("none", "gcn", "gcn-lcn"))


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_make_no_difference(kind, monkeypatch):
    x = split(50)
    expected = prepare(kind, x)[0].clone()
    monkeypatch.setattr("learnpool.lab.data.preparation.CHUNK", 7)
    monkeypatch.setenv("LEARNPOOL_CACHE", os.environ["LEARNPOOL_CACHE"] + "2")
    assert_close(prepare(kind, x)[0], expected, rtol=1e-4, atol=1e-5)
    assert expected.dtype == torch.float32


def test_batches_of_a_folder_can_be_fitted_on():
    x = images(100)
    assert_close(fit("mean", iter(x.split(30)))(x), fit("mean", x)(x))
    assert torch.equal(fit("gcn", iter(()))(x), gcn(x))
    with pytest.raises(DataError, match="gcn-zca needs a data set in memory"):
        fit("gcn-zca", iter(x.split(30)))


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_fitted_is_all_there_is_to_remember(kind, cache_dir):
    train, test = split(50), images(20, seed=1)
    first = fit(kind, train.images)
    again = Preparation(kind, {name: value.clone() for name, value in fit(kind, train.images).tensors.items()})
    assert torch.equal(first(test), again(test))
    assert (sum(value.numel() for value in first.tensors.values()) > 0) == (kind in ("mean", "gcn-zca"))


def test_mistakes():
    with pytest.raises(DataError, match="unknown preparation 'zca'; known: none, mean, gcn, gcn-zca, gcn-lcn"):
        prepare("zca", split(3))
    with pytest.raises(DataError, match="gcn-zca takes images of at most 4,096 values, got 4,107"):
        prepare("gcn-zca", split(2, (3, 37, 37)))


@pytest.mark.parametrize("kind", COSTLY)
def test_what_is_costly_is_computed_once(kind, cache_dir, monkeypatch):
    train, test = split(50), split(20, seed=1)
    first = [x.clone() for x in prepare(kind, train, test)]
    files = sorted(cache_dir.iterdir())
    assert len(files) == (3 if kind == "gcn-zca" else 2)  # ZCA's matrix too
    with monkeypatch.context() as patch:
        for name in ("gcn", "_compute_mean"):
            patch.setattr(f"learnpool.lab.data.preparation.{name}", None)
        again = prepare(kind, train, test)
    assert all(torch.equal(a, b) for a, b in zip(again, first, strict=True))
    again[0].zero_()  # a run may do what it likes with its copy
    assert torch.equal(prepare(kind, train, test)[0], first[0])
    train.images[0, 0, 0, 0] ^= 1
    assert not torch.equal(prepare(kind, train, test)[0], first[0])
    assert len(list(cache_dir.iterdir())) == (6 if kind == "gcn-zca" else 3)


def test_what_other_code_computed_is_not_used(cache_dir, monkeypatch):
    x = split(10)
    prepare("gcn-lcn", x)
    monkeypatch.setattr("inspect.getsource", lambda module: "of another version")
    prepare("gcn-lcn", x)
    assert len(list(cache_dir.iterdir())) == 2


def test_what_is_cheap_is_not_kept(cache_dir):
    for kind in ("none", "mean", "gcn"):
        prepare(kind, split(5))
    assert not cache_dir.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-4],
        lambda data: data[:-32],
        lambda data: data[:60],
        lambda data: b"x" * 99,
        lambda data: data + b"x",
        lambda data: data[:400] + bytes([data[400] ^ 1]) + data[401:],  # one bit of a pixel
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    ],
)
def test_a_damaged_file_is_computed_again(damage, cache_dir, caplog):
    x = split(10)
    expected = prepare("gcn-lcn", x)[0].clone()
    (file,) = cache_dir.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert torch.equal(prepare("gcn-lcn", x)[0], expected)
    assert [path.name for path in cache_dir.iterdir()] == [file.name]
    assert caplog.messages == [f"learnpool: {file} is damaged; preparing the images again"]
    assert torch.equal(prepare("gcn-lcn", x)[0], expected)
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("after", [0, 1])
def test_a_full_disk_costs_the_cache_and_nothing_else(after, cache_dir, monkeypatch, caplog):
    """The disk fills while the first or the second chunk is written."""
    x = split(10)
    expected = prepare("gcn-lcn", x, cache_dir=cache_dir.with_name("other"))[0].clone()
    monkeypatch.setattr("learnpool.lab.data.preparation.CHUNK", 6)
    written = []

    def full(tensor):
        written.append(tensor)
        if len(written) > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return tensor.numpy().tobytes()

    monkeypatch.setattr(cache, "hash_parts", lambda *parts: "k")
    monkeypatch.setattr(cache, "_view_bytes", full)
    with caplog.at_level(logging.WARNING):
        assert_close(prepare("gcn-lcn", x)[0], expected)
    assert list(cache_dir.iterdir()) == []
    message = (
        f"learnpool: prepared images are not kept (No space left on device: {cache_dir}); continuing without a cache"
    )
    assert caplog.messages == [message]


@pytest.mark.skipif(os.name != "posix", reason="/dev/full")
def test_a_really_full_disk(cache_dir, monkeypatch, caplog):
    def on_a_full_device(path, mode):
        path.symlink_to("/dev/full")
        return path.open(mode)

    monkeypatch.setattr(files, "open", on_a_full_device, raising=False)
    assert prepare("gcn-lcn", split(10))[0].shape == (10, 3, 6, 5)
    assert list(cache_dir.iterdir()) == []
    assert "No space left on device" in caplog.text


def test_a_place_that_cannot_be_written_to(cache_dir, caplog):
    cache_dir.write_text("a file where the directory should be")
    assert prepare("gcn-zca", split(10))[0].shape == (10, 3, 6, 5)
    assert caplog.text.count("not kept") == 2  # the matrix, the images


def test_an_interrupted_write_leaves_nothing(cache_dir, monkeypatch):
    def interrupted(tensor):
        raise KeyboardInterrupt

    monkeypatch.setattr(cache, "hash_parts", lambda *parts: "k")
    monkeypatch.setattr(cache, "_view_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare("gcn-lcn", split(10))
    assert list(cache_dir.iterdir()) == []


def test_what_a_killed_run_left_goes_after_a_day(cache_dir):
    cache_dir.mkdir()
    for name, age in (("old.part", 90_000), ("new.part", 1_000)):
        (cache_dir / name).touch()
        os.utime(cache_dir / name, (0, (cache_dir / name).stat().st_mtime - age))
    prepare("gcn-lcn", split(3))
    assert {path.suffix for path in cache_dir.iterdir()} == {".npy", ".part"}
    assert not (cache_dir / "old.part").exists()


def test_where_the_cache_is(monkeypatch, tmp_path):
    assert cache.get_cache_directory() == tmp_path / "cache"
    monkeypatch.delenv("LEARNPOOL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.get_cache_directory() == tmp_path / "learnpool"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.get_cache_directory() == tmp_path / ".cache/learnpool"
