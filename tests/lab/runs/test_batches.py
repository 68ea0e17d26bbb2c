"""Batches: fixed by seed and epoch, kept from test, from tensors and from a folder."""

import sys

import pytest
import torch
from PIL import Image

from learnpool import cli
from learnpool.lab.data import DataError
from learnpool.lab.runs.batches import derive_seed, load_batches
from learnpool.lab.runs.distributed import Ranks
from learnpool.lab.runs.run import Run, RunError
from learnpool.lab.runs.train import train
from runs import Stop, assert_same_run, stop_at

ALONE = Ranks(0, 1, torch.device("cpu"))


def epoch(run, number):
    return list(load_batches(run, None, ALONE).train_batches(number, ALONE))


def test_seed_and_epoch_decide_the_batches():
    run = Run(pad=1, mirror=True, batch=100)
    first, again, later = epoch(run, 0), epoch(run, 0), epoch(run, 1)
    assert len(first) == 11  # of 1,132 images
    assert all(torch.equal(x, u) and torch.equal(y, v) for (x, y), (u, v) in zip(first, again, strict=True))
    assert not torch.equal(first[0][1], later[0][1])
    assert not torch.equal(first[0][1], epoch(Run(pad=1, mirror=True, batch=100, seed=1), 0)[0][1])
    assert len({derive_seed(run, use, e) for use in ("batches", "noise", "weights") for e in range(50)}) == 150


def test_an_epoch_shows_every_image_at_most_once():
    shown = load_batches(Run(batch=100), None, ALONE)
    seen = torch.cat([x for x, _ in shown.train_batches(0, ALONE)]).flatten(1)
    assert len(seen.unique(dim=0)) == len(shown.train.images[:1100].flatten(1).unique(dim=0)) == 1100


@pytest.mark.parametrize("start", [1, 4])
def test_an_epoch_can_begin_in_the_middle(start, folder):
    for run in (Run(pad=1, mirror=True, batch=100), Run(data=str(folder), mirror=True, batch=2, image_size=16)):
        shown = load_batches(run, None, ALONE)
        whole, rest = (list(shown.train_batches(2, ALONE, first)) for first in (0, start))
        assert len(rest) == len(whole) - start > 0
        for (x, y), (u, v) in zip(rest, whole[start:], strict=True):
            assert torch.equal(x, u)
            assert torch.equal(y, v)


def test_augmentation_is_for_training_only():
    plain, augmented = (load_batches(Run(pad=pad, mirror=pad > 0), None, ALONE) for pad in (0, 1))
    for held in ("validation", "test"):
        for (x, _), (u, _) in zip(
            plain.eval_batches(getattr(plain, held), ALONE),
            augmented.eval_batches(getattr(augmented, held), ALONE),
            strict=True,
        ):
            assert torch.equal(x, u)
    (x, y), (u, v) = next(plain.train_batches(0, ALONE)), next(augmented.train_batches(0, ALONE))
    assert torch.equal(y, v)
    assert not torch.equal(x, u)


def test_layout():
    batches = load_batches(Run(channels_last=True, data="digits"), None, ALONE)
    images, _ = next(batches.train_batches(0, ALONE))
    assert images.stride() == (64, 1, 8, 1)


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    for split, count in (("train", 12), ("test", 4)):
        for label, name in enumerate(("cats", "dogs")):
            (tmp_path / split / name).mkdir(parents=True)
            for k in range(count):
                pixels = (torch.rand(20, 24, 3) * 100 + 100 * label).to(torch.uint8).numpy()
                Image.fromarray(pixels).save(tmp_path / split / name / f"{k}.png")
    return tmp_path


SMALL = {"image_size": 16, "batch": 4, "epochs": 2, "width": 0.05, "init": "kaiming", "pool": "gated", "validation": 4}


def test_a_folder_streams(folder, tmp_path):
    run = Run(data=str(folder), mirror=True, channels_last=True, **SMALL)
    shown = load_batches(run, None, ALONE)
    assert (shown.image, shown.classes, shown.steps) == ((3, 16, 16), ("cats", "dogs"), 5)
    once, twice = (list(shown.train_batches(0, ALONE)) for _ in range(2))
    assert all(torch.equal(x, u) and torch.equal(y, v) for (x, y), (u, v) in zip(once, twice, strict=True))
    assert once[0][0].is_contiguous(memory_format=torch.channels_last)
    parts = [list(shown.train_batches(0, Ranks(rank, 2, torch.device("cpu")))) for rank in (0, 1)]
    assert torch.equal(torch.cat([parts[0][2][0], parts[1][2][0]]), once[2][0])
    result = train(run, tmp_path / "runs", workers=1)
    assert result.images == {"train": 20, "validation": 4, "test": 8}
    with pytest.raises(Stop):
        train(run, tmp_path / "others", workers=1, watch=stop_at(8))  # of 10
    train(run, tmp_path / "others")  # neither the stop nor the number of workers makes a difference
    assert_same_run(tmp_path / "runs" / run.id, tmp_path / "others" / run.id)


def test_fewer_images_than_a_batch_are_one_batch(folder, learnpool, tmp_path):
    run = Run(data=str(folder), **SMALL | {"batch": 64})
    shown = load_batches(run, None, ALONE)
    assert (shown.batch, shown.steps) == (20, 1)
    ((images, labels),) = shown.train_batches(0, ALONE)
    assert (len(images), sorted(labels.tolist())) == (20, sorted(shown.train.labels.tolist()))
    with pytest.raises(RunError, match="^batch: 20 images cannot be shared evenly by 3 processes; see --set batch=N$"):
        load_batches(run, None, Ranks(0, 3, torch.device("cpu")))
    options = [f"--set={name}={value}" for name, value in SMALL.items() if name != "pool"]
    words = ["train", "--data", str(folder), *options, "--set=batch=64", "--out", str(tmp_path / "runs")]
    status, _, error = learnpool(*words)
    assert status == 0
    assert "there are 20 training images, fewer than a batch of 64: every step took all of them\n" in error


def test_an_image_that_does_not_decode_is_named_and_skipped_on_request(folder, tmp_path):
    broken = folder / "train" / "cats" / "3.png"
    broken.write_bytes(broken.read_bytes()[:40])
    run = Run(data=str(folder), prepare="none", seed=1, **SMALL)
    with pytest.raises(DataError, match=r"cats/3.png: wanted an image"):
        train(run, tmp_path / "runs")
    run = run.model_copy(update={"skip_broken": True})
    for workers in (0, 1):
        shown = load_batches(run, None, ALONE, workers)
        assert shown.skipped == (str(broken),)
        assert [len(labels) for _, labels in shown.train_batches(0, ALONE)] == [4] * shown.steps
    result = train(run, tmp_path / "runs")
    assert result.images == {"train": 19, "validation": 4, "test": 8}
    assert result.skipped == [str(broken)]
    assert train(run, tmp_path / "runs") == result


def test_a_class_of_broken_images_cannot_be_skipped(folder):
    for image in (folder / "test" / "dogs").iterdir():
        image.write_bytes(b"")
    with pytest.raises(DataError, match=r": class dogs has no image for test that decodes$"):
        load_batches(Run(data=str(folder), skip_broken=True, **SMALL), None, ALONE)


@pytest.mark.parametrize(("data", "message"), [("folder", "cats/3.png: wanted an image"), ("nowhere", "")])
def test_an_image_that_does_not_decode_is_named_by_whoever_reads_it(data, message, folder, monkeypatch, capsys):
    """Under torchrun the first process speaks for all, but this one process knows alone."""
    (folder / "train" / "cats" / "3.png").write_bytes(b"no image")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "1")
    where = str(folder) if data == "folder" else data
    options = [f"--set={name}={value}" for name, value in SMALL.items() if name != "pool"]
    monkeypatch.setattr(sys, "argv", ["learnpool", "train", "--data", where, *options, "--out", str(folder / "runs")])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    error = capsys.readouterr().err
    assert stop.value.code == 2
    assert message in error
    assert error.count("\n") == bool(message)
    assert error.endswith("; --set skip_broken=true leaves such files out\n" if message else "")


def test_a_folder_that_changed_is_refused(folder, tmp_path):
    run = Run(data=str(folder), **SMALL)
    before = load_batches(run, None, ALONE).digest
    assert load_batches(run.model_copy(update={"seed": 1, "train_size": 12}), None, ALONE).digest == before
    found = {before}
    for name in ("train/cats/3.png", "test/dogs/2.png"):
        Image.new("RGB", (24, 20)).save(folder / name)
        found.add(load_batches(run, None, ALONE).digest)
    (folder / "test/dogs/2.png").rename(folder / "test/dogs/20.png")
    found.add(load_batches(run, None, ALONE).digest)
    assert len(found) == 4


def test_alternating_mirrors_show_both_sides_in_two_epochs():
    run = Run(mirror=True, alternate=True, prepare="none", batch=1132)
    shown = load_batches(run, None, ALONE)
    own = {tuple(image.flatten().tolist()) for image in shown.train.images}
    turned = {tuple(image.flatten().tolist()) for image in shown.train.images.flip(-1)}
    epochs = [
        {tuple(image.flatten().tolist()) for x, _ in shown.train_batches(number, ALONE) for image in x}
        for number in range(4)
    ]
    assert epochs[0] == epochs[2] != epochs[1] == epochs[3]
    assert epochs[0] | epochs[1] == own | turned
    assert epochs[0] & own
    assert epochs[0] - own


def test_alternating_mirrors_are_for_images_in_memory(folder):
    with pytest.raises(RunError, match="^alternate: wanted a data set in memory, got a folder of images$"):
        load_batches(Run(data=str(folder), mirror=True, alternate=True, image_size=16), None, ALONE)
