"""``learnpool data``: what it prints, draws and refuses."""

import gzip
import hashlib
import json
import os
import sys
from dataclasses import replace

import pytest
from PIL import Image

from data_files import TWO_CLASSES, cifar_files, write_cifar, write_folder, write_idx, write_svhn, write_tar
from learnpool.lab.data import compute_digest, drop_broken, load, prepare, show
from learnpool.lab.data.catalog import SOURCES
from learnpool.lab.data.check import check
from learnpool.lab.data.fetch import compute_md5


@pytest.fixture(autouse=True)
def _an_empty_directory(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LEARNPOOL_DATA_DIR", raising=False)


def publish(monkeypatch, name, path):
    """Make what lies at ``path`` the published content."""
    source = SOURCES[name]
    files = [(remote, path / remote.file) for remote in source.remotes]
    remotes = tuple(replace(remote, md5=compute_md5(file)) for remote, file in files)
    contents = {name: content for _, file in files for name, content in source.iter_contents(file)}
    sums = {name: hashlib.md5(content).hexdigest() for name, content in contents.items()}
    monkeypatch.setitem(SOURCES, name, replace(source, remotes=remotes, md5=sums))


def test_data_alone_shows_its_commands_with_examples(learnpool):
    status, text, error = learnpool("data")
    assert (status, error) == (0, "")
    assert "..." not in text.partition("Commands:")[2]  # no first sentence is cut short
    for command in ("get", "check", "show", "clear-cache"):
        assert f" {command} " in text
        assert f"Example: learnpool data {command}" in " ".join(learnpool("data", command, "--help")[1].split())


@pytest.mark.usefixtures("published")
def test_get(learnpool, tmp_path, monkeypatch):
    status, text, error = learnpool("data", "get", "fashion-mnist", "--data-dir", "here")
    assert (status, error) == (0, "")
    assert len(text.splitlines()) == 4
    assert all((tmp_path / line).is_file() for line in text.splitlines())
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    status, again, error = learnpool("data", "get", "fashion-mnist", "--data-dir", "here")
    assert (status, again) == (0, text)
    assert "train-images-idx3-ubyte.gz" in error
    assert "1.0/1.0" in error
    assert learnpool("data", "get", "fashion-mnist", "--data-dir", "here", "--quiet") == (0, text, "")


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize(
    ("how", "message"),
    [("lies", "of MD5"), ("missing", "HTTP 404"), ("truncated", "got 500,000 of"), ("hangs-up", "got 0")],
)
def test_get_fails_in_one_line(how, message, learnpool, server, tmp_path):
    words = ["data", "get", "fashion-mnist", "--quiet", "--mirror", f"{server.url}/{how}/"]
    status, text, error = learnpool(*words)
    assert (status, text, error.count("\n")) == (2, "", 1)
    assert error.startswith("learnpool: ")
    assert message in error
    assert not (tmp_path / "data").exists()


@pytest.mark.usefixtures("small_sources")
def test_check_what_is_there(learnpool, tmp_path, monkeypatch):
    write_idx(tmp_path / "data/mnist")
    write_svhn(tmp_path / "data")
    publish(monkeypatch, "mnist", tmp_path / "data/mnist")
    publish(monkeypatch, "svhn", tmp_path / "data")
    write_cifar(tmp_path / "data/cifar-100-binary", "cifar100", binary=True)
    status, text, error = learnpool("data", "check")
    assert (status, error) == (0, "")
    lines = text.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == ["mnist: right", "cifar100: right", "svhn: right"]
    assert "  train: 40 images, 4 of each of 10 classes" in lines
    assert "  extra: 30 images, 3 of each of 10 classes" in lines
    assert text.count("checksum right") == 7
    assert text.count("no published checksum") == 2
    size = (tmp_path / "data/mnist/train-labels-idx1-ubyte.gz").stat().st_size
    assert f"  data/mnist/train-labels-idx1-ubyte.gz  {size:,} bytes, checksum right" in lines


@pytest.mark.usefixtures("small_sources")
def test_check_finds_other_content(learnpool, tmp_path, monkeypatch):
    write_idx(tmp_path / "mnist")
    publish(monkeypatch, "mnist", tmp_path / "mnist")
    path = tmp_path / "mnist/t10k-labels-idx1-ubyte.gz"
    content = gzip.decompress(path.read_bytes())
    other = content[:-2] + content[:-3:-1]
    path.write_bytes(gzip.compress(other))
    status, text, error = learnpool("data", "check", "mnist", "--data-dir", ".")
    assert (status, error) == (2, "")
    assert text.startswith("mnist: wrong\n")
    md5, wanted = (hashlib.md5(data).hexdigest() for data in (other, content))
    assert f"mnist/t10k-labels-idx1-ubyte.gz: wanted t10k-labels-idx1-ubyte of MD5 {wanted} inside, got {md5}\n" in text
    path.write_bytes(path.read_bytes()[:-9])
    status, text, _ = learnpool("data", "check", "--data-dir", ".", "--json")
    (report,) = json.loads(text)
    assert status == 2
    assert report["name"] == "mnist"
    assert [state for _, _, state in report["files"]] == ["checksum right"] * 3 + ["broken"]
    (problem,) = report["problems"]
    assert "wanted a whole gzip file" in problem


@pytest.mark.usefixtures("small_sources")
def test_check_judges_content_where_the_container_differs(learnpool, tmp_path, monkeypatch):
    write_idx(tmp_path / "mnist")
    publish(monkeypatch, "mnist", tmp_path / "mnist")
    labels, images = (tmp_path / f"mnist/train-{what}-ubyte.gz" for what in ("labels-idx1", "images-idx3"))
    labels.write_bytes(gzip.compress(gzip.decompress(labels.read_bytes()), mtime=1_591_335_661))
    images.with_name("train-images.idx3-ubyte").write_bytes(gzip.decompress(images.read_bytes()))
    images.unlink()
    status, text, _ = learnpool("data", "check", "mnist", "--data-dir", ".")
    assert (status, text.splitlines()[0]) == (0, "mnist: right")
    assert "labels-idx1-ubyte.gz" in text
    assert text.count("content right, packed differently than the published file") == 1
    assert text.count("checksum right") == 3  # the unpacked one too


@pytest.mark.usefixtures("small_sources")
def test_check_judges_the_files_of_an_archive(learnpool, tmp_path, monkeypatch):
    files = cifar_files("cifar10")
    write_tar(tmp_path / "cifar-10-python.tar.gz", files)
    publish(monkeypatch, "cifar10", tmp_path)
    write_tar(tmp_path / "cifar-10-python.tar.gz", files, "elsewhere")
    status, text, _ = learnpool("data", "check", "cifar10", "--data-dir", ".")
    assert status == 0
    assert "content right, packed differently" in text
    write_tar(tmp_path / "cifar-10-python.tar.gz", files | {"data_batch_2": files["data_batch_3"]})
    status, text, _ = learnpool("data", "check", "cifar10", "--data-dir", ".")
    assert status == 2
    assert "cifar-10-python.tar.gz: wanted data_batch_2 of MD5" in text


@pytest.mark.usefixtures("small_sources")
def test_check_does_not_call_content_right_that_nobody_published(learnpool, tmp_path):
    write_tar(tmp_path / "cifar-100-binary.tar.gz", cifar_files("cifar100", binary=True))
    status, text, _ = learnpool("data", "check", "cifar100", "--data-dir", ".")
    assert status == 2
    assert "cifar-100-binary.tar.gz: wanted MD5 03b5dce01913d631647c71ecec9e9cb8, got " in text


def test_check_what_is_not_there(learnpool):
    for words, place in (([], "data"), (["--data-dir", "a\x1b[2J"], "a\\x1b[2J")):
        status, text, error = learnpool("data", "check", *words)
        assert (status, text, error.count("\n")) == (2, "", 1)
        assert f"no data set found in {place}; see learnpool data get, or give --data-dir" in error
    status, text, _ = learnpool("data", "check", "svhn", "digits", "nothing")
    assert status == 2
    assert "svhn: wrong\n  svhn: none of its files found in data; `learnpool data get svhn` fetches it\n" in text
    assert "digits: right\n  train: 1,257 images, 122 to 128 of each of 10 classes\n" in text
    assert "nothing: wrong\n  no folder and no data set 'nothing'; data sets: " in text


def test_check_a_folder_decodes_every_image(learnpool, tmp_path):
    write_folder(tmp_path / "photos", TWO_CLASSES)
    status, text, _ = learnpool("data", "check", "photos")
    train, test = "train: 5 images, 2 to 3 of each of 2 classes", "test: 3 images, 1 to 2 of each of 2 classes"
    assert (status, text) == (0, f"photos: right\n  {train}\n  {test}\n")
    (tmp_path / "photos/train/dog/00.png").write_bytes(b"no")
    (tmp_path / "photos/test/dog/00.png").write_bytes(b"no")
    report = check("photos", tmp_path)
    assert [problem.split(":")[0] for problem in report.problems] == [
        "photos/train/dog/00.png",
        "photos/test/dog/00.png",
    ]
    assert learnpool("data", "check", "photos")[0] == 2


@pytest.mark.usefixtures("small_sources")
@pytest.mark.parametrize(
    ("name", "per_class"), [("digits", 10), ("mnist", 4), ("cifar100", 1), ("svhn", 4), ("photos", None)]
)
def test_show(name, per_class, learnpool, tmp_path):
    write_idx(tmp_path / "data/mnist")
    write_cifar(tmp_path / "data", "cifar100")
    write_svhn(tmp_path / "data")
    write_folder(tmp_path / "photos", TWO_CLASSES)
    assert learnpool("data", "show", name) == (0, f"{name}.png\n", "")
    with Image.open(tmp_path / f"{name}.png") as picture:
        assert picture.width > 1400
        colours = len(picture.convert("L").getcolors())
    assert colours > 16
    assert sorted(path.suffix for path in tmp_path.glob(f"{name}.*")) == [".png"]
    data = load(name, tmp_path / "data")
    (axes,) = show.draw(data, seed=0).axes
    assert len(axes.images) == (len(data.classes) * per_class if per_class else len(data.train))
    labels = [text.get_text() for text in axes.texts]
    assert all(title.replace("_", " ") in labels for title in data.classes)


def test_show_draws_the_images_of_the_class_it_names():
    data = load("digits")
    images, labels = show.sample(data, 10, seed=0)
    assert labels.tolist() == [label for label in range(10) for _ in range(10)]
    (axes,) = show.draw(data, seed=0).axes
    names = {text.get_text(): text.get_position()[1] for text in axes.texts[2:]}
    for place, drawn in enumerate(axes.images):
        assert (drawn.get_array() == images[place, 0].numpy()).all()
        _, _, bottom, top = drawn.get_extent()
        assert top < names[str(place // 10)] < bottom  # beside the name of its class
    assert (show.sample(data, 10, seed=1)[0] != images).any()


def test_show_elsewhere_and_awkward_names(learnpool, tmp_path):
    write_folder(tmp_path / "photos", {"$x^$ & <b>": 3, "Ankylosaurus_magniventris": 3})
    (axes,) = show.draw(load(str(tmp_path / "photos")), seed=0).axes
    labels = [text.get_text() for text in axes.texts]
    assert labels[2:] == ["$x^$ & <b>", "Ankylosaurus magn…"] or labels[2:] == ["Ankylosaurus magn…", "$x^$ & <b>"]
    assert learnpool("data", "show", "photos/", "--out", "grid.svg", "--seed", "3") == (0, "grid.svg\n", "")
    text = (tmp_path / "grid.svg").read_text()
    assert text.startswith("<?xml")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("get", "name"),
        ("get imagenett", "unknown data 'imagenett'"),
        ("get digits", "nothing to fetch"),
        ("get mnist --mirror here", "--mirror: wanted an address"),
        ("get mnist --data-dir file", "Not a directory: file/mnist"),
        ("show", "name"),
        ("show mnist", "mnist: none of its files found in data; `learnpool data get mnist` fetches it"),
        ("show cifar11", "no folder and no data set 'cifar11' (did you mean 'cifar10'?)"),
        ("show digits --out grid.pdf", "--out: wanted a .png or .svg file, got 'grid.pdf'"),
        ("show digits --out nowhere/grid.png", "No such file or directory: nowhere/grid.png"),
        ("show digits --seed -1", "learnpool: --seed: "),
        ("show one", "one: wanted a folder for each of at least two classes, got 1: cat"),
        ("show lacking", "lacking: class dog has no images for test"),
        ("show broken", "broken/train/cat/00.png: wanted an image, got a file that does not decode"),
        ("shew", "'shew'"),
    ],
)
def test_a_mistake_is_one_line(words, part, learnpool, tmp_path):
    (tmp_path / "file").touch()
    write_folder(tmp_path / "one", {"cat": 3})
    write_folder(tmp_path / "lacking", {place: count for place, count in TWO_CLASSES.items() if place != "test/dog"})
    write_folder(tmp_path / "broken", TWO_CLASSES)
    (tmp_path / "broken/train/cat/00.png").write_bytes(b"GIF89a?")
    code, text, error = learnpool("data", *words.split())
    assert (code, text) == (2, "")
    assert error.startswith("learnpool: ")
    assert part.lower() in error.lower()
    assert error.count("\n") == 1


def test_clear_cache_removes_what_was_cached_and_nothing_else(learnpool, tmp_path, monkeypatch):
    monkeypatch.setenv("LEARNPOOL_CACHE", str(tmp_path / "cache"))
    assert learnpool("data", "clear-cache") == (0, f"Removed 0 files, 0 bytes, from {tmp_path / 'cache'}\n", "")
    prepare("gcn-zca", load("digits").test)
    size = sum(path.stat().st_size for path in (tmp_path / "cache").iterdir())
    others = {"notes.txt", "gcn-zca-mine.npy", "subset.npy"}
    for name in others:
        (tmp_path / "cache" / name).write_text("mine")
    (tmp_path / "cache" / f"gcn-lcn-{'0' * 32}.npy.123.part").touch()
    status, text, _ = learnpool("data", "clear-cache")
    assert (status, text) == (0, f"Removed 3 files, {size:,} bytes, from {tmp_path / 'cache'}\n")
    assert {path.name for path in (tmp_path / "cache").iterdir()} == others


def write_bytes_folder(root, name):
    """A folder of images with a class whose name is any bytes."""
    write_folder(root, {"cat": 3, "dog": 3})
    os.rename(root / "dog", os.fsencode(root) + b"/" + name)
    return root


def test_escape_sequences_in_names_do_not_reach_the_terminal(learnpool, tmp_path):
    write_bytes_folder(tmp_path / "photos", b"dog\x1b[2J")
    broken = next((tmp_path / "photos").glob("dog*")) / "00.png"
    broken.rename(broken.with_name("\x1b]0;title\x07\n.png"))
    next(broken.parent.glob("*title*")).write_bytes(b"no")
    for words in (("check", "photos"), ("show", "photos"), ("check", "a\x1bb"), ("show", "a\x1bb")):
        _, text, error = learnpool("data", *words)
        assert not any(letter in text + error for letter in "\x1b\x07")
        assert "\\x1b" in text + error
    assert learnpool("data", "show", "photos")[2].count("\n") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes")
def test_names_that_are_no_utf8(learnpool, tmp_path):
    write_bytes_folder(tmp_path / "photos", b"caf\xe9")
    status, text, _ = learnpool("data", "check", "photos")
    assert (status, text.count("\n")) == (2, 2)
    assert "photos: wanted names of classes in UTF-8, got 'caf\\udce9'" in text
    status, _, error = learnpool("train", "--data", "photos", "--quiet")
    assert (status, error.count("\n")) == (2, 1)
    write_folder(tmp_path / "others", {"cat": 12, "dog": 12})
    path = os.fsencode(tmp_path / "others/cat") + b"/\xe9.png"
    os.rename(tmp_path / "others/cat/00.png", path)
    assert learnpool("data", "check", "others")[0] == 0
    with open(path, "wb") as file:
        file.write(b"no")
    status, text, _ = learnpool("data", "check", "others")
    assert status == 2
    assert "others/cat/\\udce9.png: wanted an image" in text
    data, (name,) = drop_broken(load("others"))
    assert name == "others/cat/\\udce9.png"  # so that it can be written to a result
    compute_digest(data)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_an_unreadable_file_is_one_line(learnpool, tmp_path):
    write_idx(tmp_path / "data")
    (tmp_path / "data/train-labels-idx1-ubyte.gz").chmod(0)
    status, _, error = learnpool("data", "show", "mnist")
    assert (status, error.count("\n")) == (2, 1)
    assert "Permission denied" in error


def test_a_full_disk_leaves_no_picture(learnpool, tmp_path):
    (tmp_path / "grid.png.part").symlink_to("/dev/full")
    status, _, error = learnpool("data", "show", "digits", "--out", "grid.png")
    assert (status, error) == (2, "learnpool: No space left on device: grid.png\n")
    assert list(tmp_path.iterdir()) == []
