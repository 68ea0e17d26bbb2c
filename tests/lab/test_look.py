"""``learnpool look``: the picture, and that every mistake is one line and status 2."""

import importlib
import shutil
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from torch.testing import assert_close

import learnpool
from learnpool.lab import data, look
from learnpool.lab.data import KINDS
from learnpool.lab.runs.batches import load_batches
from learnpool.lab.runs.run import Run
from learnpool.lab.runs.train import train
from runs import ALONE, SMALL

MODEL = """
import learnpool
from torch import nn

def colour(channels=3):
    return nn.Sequential(nn.Conv2d(channels, 4, 3, padding=1), nn.ReLU(), learnpool.GatedPool2d(2))

def grey():
    return colour(1)

def fixed():
    return nn.Sequential(*colour(1), nn.Flatten(), nn.Linear(4 * 14 * 14, 2))

def plain():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2))

def wide():
    return colour(5)

def broken():
    raise RuntimeError("no such thing")

def number():
    return 7

def needs(argument):
    return colour()
"""
NET = """
from torch import nn

def make(classes, channels):
    return nn.Sequential(nn.Conv2d(channels, 4, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, classes))
"""
COUNT = iter(range(1000))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A directory with a module of networks, their checkpoints and some images."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"look_nets_{next(COUNT)}"  # imported once each
    (tmp_path / f"{name}.py").write_text(MODEL)
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), learnpool.GatedPool2d(2))
    torch.save(net.state_dict(), "net.pt")
    save_file(net.state_dict(), "net.safetensors")
    torch.save({"model": net.state_dict(), "epoch": 3}, "nested.pt")
    torch.save(net, "whole.pt")
    torch.save([1, 2], "list.pt")
    grey = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), learnpool.GatedPool2d(2))
    torch.save(grey.state_dict(), "grey.pt")
    torch.save({**grey.state_dict(), "4.weight": torch.zeros(2, 784), "4.bias": torch.zeros(2)}, "fixed.pt")
    torch.save(nn.Sequential(nn.Conv2d(3, 4, 3)).state_dict(), "plain.pt")
    Image.new("RGB", (20, 12), (200, 30, 30)).save("image.png")
    Image.new("LA", (20, 12)).save("grey.png")
    Image.new("RGBA", (28, 28)).save("square.png")
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "text.pt").write_text("no checkpoint")
    return name


@pytest.fixture
def command(learnpool):
    return lambda *words: learnpool("look", *words)


@pytest.mark.parametrize("checkpoint", ["net.pt", "net.safetensors", "nested.pt"])
def test_the_picture_and_the_table(checkpoint, here, command):
    status, out, error = command(checkpoint, "image.png", "--model", f"{here}:colour")
    assert (status, error) == (0, "")
    assert out.startswith("1 learned pool, 4 parameters; gates s = σ(ω·x) over all regions of 1 image\n")
    assert out.endswith("Written: look.png\n")
    with Image.open("look.png") as picture:
        assert picture.size[0] == 1500


def test_the_checkpoints_parameters_are_those_explained(here, tmp_path):
    explanation = look.look(tmp_path / "net.pt", tmp_path / "image.png", tmp_path / "a.svg", f"{here}:colour")
    state = torch.load("net.pt")
    assert torch.equal(explanation["2"].gates[0].weight, state["2.weight"][0])
    assert torch.equal(explanation.image, torch.tensor([200, 30, 30])[:, None, None].expand(3, 12, 20) / 255)


@pytest.mark.parametrize(
    ("words", "shape"),
    [
        ("grey.pt image.png --model {}:grey", (1, 12, 20)),
        ("grey.pt grey.png --model {}:grey --size 9", (1, 9, 9)),
        ("net.pt grey.png --model {}:colour --size 10,14", (3, 10, 14)),
        ("fixed.pt square.png --model {}:fixed", (1, 28, 28)),
        ("fixed.pt image.png --model {}:fixed --size 28", (1, 28, 28)),
    ],
)
def test_images_become_what_the_network_wants(words, shape, here, command, monkeypatch):
    seen, real = [], look.explain
    monkeypatch.setattr(look, "explain", lambda net, x: (seen.append(x.shape[1:]), real(net, x))[1])
    status, _, error = command(*words.format(here).split(), "--out", "other.png")
    assert (status, error) == (0, "")
    assert seen == [shape]


def test_mean_and_deviation():
    x = look.prepare_image(Image.new("RGB", (2, 1), (255, 0, 51)), 3, None, [0.5, 0.5, 0.1], [0.5])
    assert torch.allclose(x, torch.tensor([1.0, -1.0, 0.2])[:, None, None].expand(3, 1, 2))


def test_rows_and_columns_are_not_exchanged():
    image = Image.new("L", (3, 2))
    image.putpixel((2, 0), 255)
    assert look.prepare_image(image, 1, None, (), ()).tolist() == [[[0, 0, 1], [0, 0, 0]]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("gone.pt image.png --model {}:colour", "look: no such file: gone.pt"),
        ("net.pt gone.png --model {}:colour", "look: no such file: gone.png"),
        ("net.pt text.png --model {}:colour", "look: text.png is not an image"),
        ("net.pt . --model {}:colour", "look: . is not an image"),
        ("text.pt image.png --model {}:colour", "look: text.pt cannot be read as a state_dict: "),
        ("whole.pt image.png --model {}:colour", "look: whole.pt cannot be read as a state_dict: "),
        ("list.pt image.png --model {}:colour", "look: list.pt holds no state_dict but a list"),
        ("net.pt image.png", "look: --model package.module:function must say which network the checkpoint is of"),
        ("net.pt image.png --model {}", "look: --model must be package.module:function, got '{}'"),
        (
            "net.pt image.png --model nowhere:net",
            "look: --model nowhere:net: cannot import nowhere: ModuleNotFoundError",
        ),
        ("net.pt image.png --model {}:nothing", "has no function nothing"),
        ("net.pt image.png --model {}:broken", "look: --model {}:broken: RuntimeError: no such thing"),
        ("net.pt image.png --model {}:needs", "look: --model {}:needs: TypeError: needs() missing 1 required"),
        ("net.pt image.png --model {}:number", "look: --model {}:number must return a module, got int"),
        ("net.pt image.png --model {}:grey", "look: net.pt does not fit the network of {}:grey: size mismatch"),
        ("net.pt image.png --model {}:fixed", "look: net.pt does not fit the network of {}:fixed: Missing key"),
        ("plain.pt image.png --model {}:plain", "explain: the model has no learned pools; "),
        ("fixed.pt image.png --model {}:fixed", "look: the network does not take an image of 1×12×20 (mat1 and mat2"),
        ("net.pt image.png --model {}:colour --size 1", "look: the network does not take an image of 3×1×1 ("),
        ("net.pt image.png --model {}:colour --size 0", "--size must be one or two whole numbers, got '0'"),
        ("net.pt image.png --model {}:colour --size 8,8,8", "--size must be one or two whole numbers, got '8,8,8'"),
        ("net.pt image.png --model {}:colour --size big", "--size must be numbers with commas between them, got 'big'"),
        ("net.pt image.png --model {}:colour --mean 1,2", "look: --mean must be 1 or 3 numbers, got 2"),
        ("net.pt image.png --model {}:colour --std 0", "look: --std must be above 0, got 0.0"),
        ("net.pt image.png --model {}:colour --out a.txt", "look: wanted a .png, .svg or .pdf file to write, got"),
    ],
)
def test_mistakes(words, message, here, command):
    status, out, error = command(*words.format(here).split())
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert message.format(here) in error


def test_a_network_that_wants_no_image(here, command):
    torch.save(nn.Sequential(nn.Conv2d(5, 4, 3), nn.ReLU(), learnpool.GatedPool2d(2)).state_dict(), "wide.pt")
    status, _, error = command("wide.pt", "image.png", "--model", f"{here}:wide")
    assert (status, error.count("\n")) == (2, 1)
    assert "look: the network wants 5 channels; an image has 1 or 3" in error


def test_a_directory_that_is_no_run(here, command, tmp_path):
    (tmp_path / "run").mkdir()
    status, out, error = command("run", "image.png")
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert "look: load: run is no run directory: it has no run.json" in error


def test_where_it_cannot_write(here, command):
    status, _, error = command("net.pt", "image.png", "--model", f"{here}:colour", "--out", "nowhere/look.png")
    assert (status, error) == (2, "learnpool: No such file or directory: nowhere/look.png\n")


@pytest.mark.parametrize("prepare", KINDS)
def test_a_runs_image_is_prepared_as_in_the_run(prepare, tmp_path, monkeypatch):
    monkeypatch.setenv("LEARNPOOL_CACHE", str(tmp_path / "cache"))
    run = Run(**SMALL | {"prepare": prepare, "epochs": 1})
    train(run, tmp_path)
    cells = data.load("digits").test.images[7, 0]
    Image.fromarray(cells.numpy()).convert("RGB").save(tmp_path / "seven.png")
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    ours = look.look(tmp_path / run.id, tmp_path / "seven.png", tmp_path / "look.png").image
    assert_close(ours, load_batches(run, None, ALONE).test.images[7])
    Image.new("RGBA", (30, 20)).save(tmp_path / "large.png")
    assert look.load_from_run(tmp_path / run.id, tmp_path / "large.png", None)[1].shape == (1, 8, 8)


@pytest.fixture
def photos(tmp_path):
    """A folder of two classes, and a run on it."""
    random = torch.Generator().manual_seed(0)
    for k in range(16):
        path = tmp_path / "photos" / ("cats", "dogs")[k % 2] / f"{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = torch.randint(256, (20 + k, 30, 3), dtype=torch.uint8, generator=random)
        Image.fromarray(pixels.numpy()).save(path)
    small = {"epochs": 1, "train_size": None, "batch": 4, "image_size": 16, "pad": 0}
    run = Run(**SMALL | small | {"data": str(tmp_path / "photos")})
    train(run, tmp_path)
    return run


def test_a_folders_image_is_cropped_as_in_the_run(photos, tmp_path):
    test = load_batches(photos, None, ALONE).test
    (images, _), *_ = test.iter_batches([torch.arange(len(test.labels))], slice(None), None)
    for path, pixels in zip(test.files.paths, images, strict=True):
        assert torch.equal(look.load_from_run(tmp_path / photos.id, path, None)[1], pixels)


def test_a_run_has_its_own_way(photos, tmp_path, command):
    run, image = str(tmp_path / photos.id), str(next((tmp_path / "photos" / "cats").iterdir()))
    out = "--out", str(tmp_path / "look.png")
    assert command(run, image, *out)[0] == 0
    for words in (("--mean", "0.5"), ("--std", "0.5"), ("--size", "8")):
        status, text, error = command(run, image, *words, *out)
        assert (status, text) == (2, "")
        assert "--size, --mean and --std are for a state_dict; a run has its own preparation" in error
    (tmp_path / "text.png").write_text("no image")
    assert "text.png is not an image" in command(run, str(tmp_path / "text.png"), *out)[2]
    fitted = tmp_path / photos.id / "preparation.safetensors"
    fitted.write_bytes(fitted.read_bytes()[:50])
    assert "preparation.safetensors is damaged" in command(run, image, *out)[2]
    fitted.unlink()
    assert "does not have what its preparation mean was fitted to" in command(run, image, *out)[2]


def test_a_checkpoint_is_read_once(photos, tmp_path, monkeypatch):
    reads, real = [], Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (reads.append(path.name), real(path))[1])
    image = next((tmp_path / "photos" / "cats").iterdir())
    look.look(tmp_path / photos.id, image, tmp_path / "look.png")
    assert sorted(name.split("-")[0] for name in reads if name.endswith("safetensors")) == [
        "last",
        "preparation.safetensors",
    ]


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    """A run of somebody's network, in a directory with a module of that network's name that leaves a file behind."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"foreign_net_{next(COUNT)}"
    theirs, here = tmp_path / "theirs", tmp_path / "here"
    for folder in (theirs, here):
        folder.mkdir()
        (folder / f"{name}.py").write_text(NET)
    monkeypatch.chdir(theirs)
    run = Run(**SMALL | {"net": f"{name}:make", "epochs": 1, "pad": 0})
    train(run, theirs)
    sys.modules.pop(name)
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != theirs]
    importlib.invalidate_caches()
    monkeypatch.chdir(here)
    (here / f"{name}.py").write_text(NET + "\nopen('ran', 'w').close()\n")
    Image.new("L", (8, 8)).save("image.png")
    return theirs / run.id, f"{name}:make"


def test_a_run_is_data_and_runs_no_code_of_the_working_directory(foreign, command):
    path, net = foreign
    status, out, error = command(str(path), "image.png")
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert f"the network {net} is not in an installed package" in error
    assert f"--model {net}" in error
    assert not Path("ran").exists()


def test_the_users_own_word_runs_it(foreign, command):
    path, net = foreign
    status, out, error = command(str(path), "image.png", "--model", net)
    assert (status, error) == (0, "")
    assert Path("ran").exists()
    assert out.startswith("1 learned pool, ")


def test_escape_sequences_of_names_do_not_reach_the_terminal(here, command):
    odd = "\x1b[2J\x9b2J\u202e.pt"
    status, _, error = command(odd, "image.png", "--model", f"{here}:colour")
    assert (status, error) == (2, "learnpool: look: no such file: \\x1b[2J\\x9b2J\\u202e.pt\n")
    status, out, _ = command("net.pt", "image.png", "--model", f"{here}:colour", "--out", "\x1b[2J.png")
    assert (status, out.splitlines()[-1]) == (0, r"Written: \x1b[2J.png")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_leaves_no_picture(here, command, tmp_path):
    (tmp_path / "look.png.part").symlink_to("/dev/full")
    status, text, error = command("net.pt", "image.png", "--model", f"{here}:colour")
    assert (status, text, error) == (2, "", "learnpool: No space left on device: look.png\n")
    assert not list(tmp_path.glob("look.png*"))
