"""Every kind of file, cut short and with a bit flipped: it is noticed and named, or it does no harm."""

import random
import shutil

import pytest
import torch
from rounds import ROUNDS
from safetensors.torch import save_file

import learnpool
from data_files import cifar_files, write_cifar, write_idx, write_photos, write_svhn, write_tar
from learnpool.lab import data
from learnpool.lab.comparison.comparison import read_run
from learnpool.lab.data import DataError
from learnpool.lab.data.decoding import ImageError
from learnpool.lab.runs.records import EpochMetrics
from learnpool.lab.runs.run import Run, RunError
from learnpool.lab.runs.state_dicts import read_state_dict
from learnpool.lab.runs.studies import pack_runs, read_study
from learnpool.lab.runs.train import train
from runs import SMALL

RECORDS = ["run.json", "env.json", "metrics.jsonl", "last.json", "result.json"]
TENSORS = ["last-2.safetensors", "preparation.safetensors"]


def damage(content, rounds):
    """Copies of a file's content: cut at its ends and at random, and with one bit flipped at random."""
    chance = random.Random(len(content))
    yield from (content[:0], content[: len(content) // 2], content[:-1])
    for _ in range(rounds):
        yield content[: chance.randrange(len(content))]
        for _ in range(3):
            flipped = bytearray(content)
            flipped[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            yield bytes(flipped)


def find_refusal(call, *kinds):
    """The message of an error of these kinds; None if nothing was noticed."""
    try:
        call()
    except kinds as error:
        return str(error)
    return None


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("damage")
    run = Run(**SMALL | {"epochs": 2, "prepare": "gcn-zca"})
    train(run, out, threads=1)
    return run, out / run.id, read_everything(out / run.id)


def read_everything(path):
    """What a run's directory says, but for where and when it was trained, and for fields that nobody reads."""
    finished = read_run(path)
    rows = [{name: row.get(name) for name in EpochMetrics.model_fields} for row in finished.metrics]
    images = data.load("digits").test.images[:20]
    return finished.run, finished.result, rows, learnpool.load(path).predict(images).probabilities.tolist()


@pytest.mark.trains
@pytest.mark.parametrize("name", RECORDS + TENSORS)
def test_a_run_with_a_damaged_file_is_refused_or_says_the_same(name, trained, tmp_path):
    run, path, whole = trained
    copy = tmp_path / run.id
    shutil.copytree(path, copy)
    refused, content = 0, (path / name).read_bytes()

    def use():
        assert read_everything(copy) == whole
        train(run, tmp_path, threads=1)

    for damaged in damage(content, ROUNDS):
        (copy / name).write_bytes(damaged)
        if (refusal := find_refusal(use, ValueError)) is not None:
            refused += 1
            assert str(copy) in refusal
            assert "\n" not in refusal
        (copy / name).write_bytes(content)
    assert refused >= 3  # whatever is cut short is noticed
    assert read_everything(copy) == whole


@pytest.mark.trains
def test_a_study_with_a_damaged_line_is_refused_or_says_the_same(trained):
    _, path, _ = trained
    file, _ = pack_runs(path.parent)
    whole, content = read_study(file), file.read_bytes()

    def use():
        for name, line in read_study(file).items():  # an empty file is a study of nothing
            assert {field: line[field] for field in whole[name]} == whole[name]

    for damaged in damage(content, ROUNDS):
        file.write_bytes(damaged)
        assert str(file) in (find_refusal(use, RunError) or str(file))


def write_cifar_archive(folder):
    write_tar(folder / "cifar-10-python.tar.gz", cifar_files("cifar10"), "cifar-10-batches-py")


WRITERS = {
    "idx": ("mnist", lambda folder: write_idx(folder, gz=False)),
    "idx.gz": ("mnist", write_idx),
    "pickled batches": ("cifar10", lambda folder: write_cifar(folder, "cifar10")),
    "binary batches": ("cifar10", lambda folder: write_cifar(folder, "cifar10", binary=True)),
    "tar.gz": ("cifar10", write_cifar_archive),
    "mat": ("svhn", write_svhn),
}


@pytest.mark.usefixtures("small_sources")
@pytest.mark.parametrize("kind", WRITERS)
def test_a_damaged_data_set_is_named_or_has_its_shape(kind, tmp_path):
    """Pixels have no digest of their own: ``learnpool data check`` compares files with the published ones."""
    name, write = WRITERS[kind]
    write(tmp_path)
    whole = data.load(name, tmp_path)

    def use():
        assert data.load(name, tmp_path).train.images.shape == whole.train.images.shape

    for path in sorted(path for path in tmp_path.rglob("*") if path.is_file())[:2]:
        content = path.read_bytes()
        for damaged in damage(content, ROUNDS):
            path.write_bytes(damaged)
            refusal = find_refusal(use, DataError) or str(tmp_path)
            assert str(tmp_path) in refusal or name in refusal
            assert "\n" not in refusal
        path.write_bytes(content)


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_damaged_image_is_named_or_decodes(place, tmp_path):
    """Colour, grey and CMYK as JPEG, and a PNG."""
    write_photos(tmp_path)
    path = tmp_path / "train" / "n00" / f"train_{place:02}.JPEG"
    one = data.Files((path,), torch.zeros(1, dtype=torch.int64))

    def use():
        ((pixels, _),) = data.iter_batches(one, [torch.tensor([0])], data.Crop(32, None, None))
        assert pixels.shape == (1, 3, 32, 32)

    for damaged in damage(path.read_bytes(), 2 * ROUNDS):
        path.write_bytes(damaged)
        assert str(path) in (find_refusal(use, ImageError) or str(path))


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_damaged_state_dict_is_named_or_has_tensors(suffix, tmp_path):
    path, state = tmp_path / f"model{suffix}", {"weight": torch.randn(8, 8), "bias": torch.randn(8)}
    save_file(state, path) if suffix == ".safetensors" else torch.save(state, path)

    def use():
        assert all(isinstance(tensor, torch.Tensor) for tensor in read_state_dict(path, "look").values())

    for damaged in damage(path.read_bytes(), 5 * ROUNDS):
        path.write_bytes(damaged)
        assert f"look: {path} " in (find_refusal(use, ValueError) or f"look: {path} ")
