"""A trained network takes images as people have them, and names what it sees."""

import copy
import io
import json
import pickle
import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

import learnpool as lp
from learnpool.lab import data
from learnpool.lab.runs.pixels import order_axes
from learnpool.lab.runs.prediction import Prediction, Predictions
from learnpool.lab.runs.run import Run
from learnpool.lab.runs.train import train
from runs import SMALL

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The directory of a small run on the digits."""
    out = tmp_path_factory.mktemp("runs")
    run = Run(**SMALL | {"epochs": 2, "channels_last": True})
    result = train(run, out, threads=1)
    return out / run.id, result


@pytest.fixture
def model(trained):
    return lp.load(trained[0])


DIGITS = data.load("digits").test


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("prepare", ["none", "mean", "gcn", "gcn-lcn"])
def test_raw_test_images_give_the_error_of_the_result(prepare, precision, tmp_path):
    run = Run(**SMALL | {"epochs": 1, "prepare": prepare, "precision": precision, "train_size": 120})
    result = train(run, tmp_path, threads=1)
    model = lp.load(tmp_path / run.id)
    found = model.predict(DIGITS.images)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, precision == "bfloat16"):
        votes = model(model.prepare(DIGITS.images[:4]))
    assert votes.dtype == getattr(torch, precision)
    assert_close(found.probabilities[:4], votes.float().softmax(1), atol=1e-4, rtol=1e-3)
    wrong = sum(int(label) != int(wanted) for label, wanted in zip(found.labels, DIGITS.labels, strict=True))
    assert 100 * wrong / len(DIGITS) == pytest.approx(result.test_error)


def as_file(pixels, tmp_path):
    Image.fromarray(pixels[0].numpy()).save(tmp_path / "digit.png")
    return str(tmp_path / "digit.png")


WAYS = {
    "uint8 tensor": lambda x, _: x,
    "float tensor": lambda x, _: x.float() / 255,
    "float tensor to 255": lambda x, _: x.float(),
    "half": lambda x, _: (x.float() / 255).bfloat16(),
    "without channels": lambda x, _: x[0],
    "array": lambda x, _: x.numpy(),
    "array, channels last": lambda x, _: x.permute(1, 2, 0).numpy(),
    "array of integers": lambda x, _: x.long().numpy(),
    "PIL": lambda x, _: Image.fromarray(x[0].numpy()),
    "PIL in colour": lambda x, _: Image.fromarray(x[0].numpy()).convert("RGB"),
    "path": as_file,
}


@pytest.mark.parametrize("way", WAYS)
def test_every_kind_of_image_is_prepared_alike(way, model, tmp_path):
    pixels = DIGITS.images[3]
    wanted = model.prepare(pixels[None])
    tolerance = {"atol": 0.01, "rtol": 0} if way == "half" else {}
    one = WAYS[way](pixels, tmp_path)
    assert_close(model.prepare(one), wanted, **tolerance)
    single, several = model.predict(one), model.predict([one, one])
    assert isinstance(single, Prediction)
    assert isinstance(several, Predictions)
    assert [p.label for p in several] == [single.label] * 2


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("kind", [torch.as_tensor, np.asarray])
def test_a_batch_with_channels_first_or_last_or_none(kind, first, model):
    batch = DIGITS.images[:5]
    shaped = batch if first else batch.movedim(1, -1)
    assert_close(model.prepare(kind(shaped.numpy())), model.prepare(batch))
    assert_close(model.prepare(kind(batch[:, 0].numpy())), model.prepare(batch))
    assert len(model.predict(kind(batch[:3, 0].numpy()))) == 3  # not one image in colour


def test_where_both_are_possible_tensors_have_channels_first_and_arrays_last():
    cells = np.arange(45).reshape(3, 5, 3)
    first, last = order_axes(torch.from_numpy(cells), 3), order_axes(cells, 3)
    assert (first[0].shape, last[0].shape) == ((1, 5, 3, 3), (1, 3, 5, 3))
    assert (first[1], last[1]) == (True, True)


def test_the_answer_reads_well(model):
    found = model.predict(DIGITS.images[:7])
    assert model.classes == tuple("0123456789")
    assert found.probabilities.shape == (7, 10)
    assert_close(found.probabilities.sum(1), torch.ones(7))
    first = found[0]
    assert first.label == found.labels[0]
    assert first.probability == max(first.probabilities.values()) == pytest.approx(found.probabilities[0].max().item())
    assert list(first.probabilities.values()) == sorted(first.probabilities.values(), reverse=True)
    assert len(str(found).splitlines()) == 7
    assert str(first) == str(found[:1])
    assert str(first).startswith(f"{first.label}  {100 * first.probability:.1f} %")
    assert len(model.predict([])) == 0


def test_it_is_the_network_itself(model, trained):
    """With its own state_dict, copies and mode; copies predict by their own weights."""
    assert "predict" not in " ".join(model.state_dict())
    assert not model.training
    twin = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    with torch.no_grad():
        for p in twin.parameters():
            p.zero_()
    assert model.predict(DIGITS.images[0]).probability > twin.predict(DIGITS.images[0]).probability
    file = io.BytesIO()
    torch.save(model, file)
    model.train()
    model.predict(DIGITS.images[:2])
    assert model.training


def test_raw_pixels_in_an_ordinary_call_warn_once(model):
    prepared, raw = model.prepare(DIGITS.images[:9]), DIGITS.images[:9].float()
    model(prepared)
    with pytest.warns(UserWarning, match=r"use model.predict\(images\), or model\(model.prepare\(images\)\)$") as seen:
        model(raw)
    assert len(seen) == 1
    model(raw)
    model(prepared)


def test_the_look_at_the_input_does_not_stand_in_the_way(trained):
    raw = DIGITS.images[:2].float()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.export.export(lp.load(trained[0]), (raw,))
        torch.compile(lp.load(trained[0]), backend="eager", fullgraph=True)(raw)
        torch.func.vmap(lp.load(trained[0]))(raw[None])
        assert lp.load(trained[0]).to("meta")(raw.to("meta")).shape == (2, 10)


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        (
            {},
            TypeError,
            "^predict: wanted an image file, .*, an array or a tensor, or a list of them, got dict$",
        ),
        ("nowhere.png", ValueError, "^predict: no such file: nowhere.png$"),
        (__file__, ValueError, "test_prediction.py is not an image$"),
        (
            torch.zeros(2, 5, 8, 8),
            ValueError,
            r"of 1, 3 or 4 channels, first or last, got shape \[2, 5, 8",
        ),
        (torch.zeros(8), ValueError, r"got shape \[8\]$"),
        (torch.full((8, 8), -0.5), ValueError, r"from 0 to 1 or from 0 to 255, got -0.5 to -0.5; prepared images go"),
        (torch.full((8, 8), float("nan")), ValueError, "got nan to nan"),
        (np.full((8, 8), 1000), ValueError, "got 1000 to 1000"),
        (np.full((8, 8), "a"), TypeError, "wanted an array of numbers"),
        ([torch.zeros(2, 1, 8, 8)], ValueError, "wanted one image at each place of a list, got a batch$"),
        (Image.new("I", (8, 8)), ValueError, "wanted an image of 8 bits, got one of mode I$"),
    ],
)
def test_what_is_no_image_is_one_line(images, error, message, model):
    with pytest.raises(error, match=message):
        model.predict(images)


def test_a_folders_images_are_cropped_as_in_the_run(tmp_path):
    torch.manual_seed(0)
    for label, name in enumerate(("cats", "dogs")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for k in range(10):
            pixels = (torch.rand(20, 30, 3) * 100 + 100 * label).to(torch.uint8).numpy()
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{k}.png")
    run = Run(data=str(tmp_path / "photos"), image_size=16, batch=4, width=0.05, init="kaiming", validation=4)
    train(run, tmp_path / "runs", threads=1)
    model = lp.load(tmp_path / "runs" / run.id)
    path = tmp_path / "photos" / "cats" / "3.png"
    with Image.open(path) as image:
        image.load()
    wanted = model.prepare(path)
    assert wanted.shape == (1, 3, 16, 16)
    assert model.classes == ("cats", "dogs")
    for same in (image, np.asarray(image), torch.from_numpy(np.array(image)).permute(2, 0, 1)):
        assert_close(model.prepare(same), wanted)
    assert set(model.predict(path).probabilities) == {"cats", "dogs"}


def test_a_file_of_16_bits_is_scaled(model, tmp_path):
    pixels = DIGITS.images[3, 0].numpy()
    Image.fromarray(pixels.astype(np.uint16) * 257).save(tmp_path / "deep.png")
    assert_close(model.prepare(tmp_path / "deep.png"), model.prepare(pixels))


def test_a_lost_preparation_is_named(trained, tmp_path):
    import shutil

    shutil.copytree(trained[0], tmp_path / "run")
    (tmp_path / "run" / "preparation.safetensors").unlink()
    with pytest.raises(ValueError, match="^predict: the run does not have what its preparation mean was fitted to$"):
        lp.load(tmp_path / "run").predict(DIGITS.images[0])


def test_from_a_shell(learnpool, trained, tmp_path, model):
    paths = []
    for k in range(2):
        paths.append(str(tmp_path / f"{k}.png"))
        Image.fromarray(DIGITS.images[k, 0].numpy()).save(paths[-1])
    status, text, error = learnpool("predict", str(trained[0]), *paths)
    assert (status, error) == (0, "")
    head, *lines = text.splitlines()
    assert head.split() == ["image", "class", "probability", "next"]
    assert [line.split()[:2] for line in lines] == [[path, model.predict(path).label] for path in paths]
    found = json.loads(learnpool("predict", str(trained[0]), *paths, "--json")[1])
    assert [one["image"] for one in found] == paths
    assert found[0]["probabilities"] == pytest.approx(model.predict(paths[0]).probabilities)
    for words, message in (
        ((str(tmp_path), paths[0]), f"load: {tmp_path} is no run directory: it has no run.json"),
        ((str(trained[0]), "nowhere.png"), "predict: no such file: nowhere.png"),
    ):
        status, _, error = learnpool("predict", *words)
        assert status == 2
        assert error.count("\n") == 1
        assert message in error
