"""Every official form of every set is read to the same images; what is broken is one sentence that names the file."""

import gzip
import pickle

import numpy as np
import pytest
import torch

from data_files import (
    array_pickle,
    batch_pickle,
    batch_records,
    cells,
    cifar_files,
    idx_bytes,
    integers,
    small,  # noqa: F401
    string,
    write_cifar,
    write_idx,
    write_svhn,
    write_tar,
)
from learnpool.lab.data import DataError, load
from learnpool.lab.data.cifar import Unpickler
from learnpool.lab.data.sources import SOURCES

pytestmark = pytest.mark.usefixtures("small")


def assert_is(data, name, splits=("train", "test")):
    assert data.name == name
    assert data.classes == SOURCES[name].classes
    for split in splits:
        images, labels = cells(name, split)
        ours = getattr(data, split)
        assert (ours.images.dtype, ours.labels.dtype) == (torch.uint8, torch.int64)
        assert torch.equal(ours.images, torch.from_numpy(images))
        assert torch.equal(ours.labels, torch.from_numpy(labels))


@pytest.mark.parametrize("gz", [True, False])
@pytest.mark.parametrize("dot", [True, False])
@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("mnist", "."),
        ("mnist", "mnist"),
        ("mnist", "MNIST/raw"),
        ("fashion-mnist", "."),
        ("fashion-mnist", "fashion-mnist"),
        ("fashion-mnist", "FashionMNIST/raw"),
    ],
)
def test_idx(name, folder, dot, gz, tmp_path):
    write_idx(tmp_path / folder, name, dot, gz)
    assert_is(load(name, tmp_path), name)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("place", [".", "official", "cifar10/official", "CIFAR100/official", "tar", "cifar-10/tar"])
def test_cifar(name, binary, place, tmp_path):
    number = name.removeprefix("cifar")
    place = place.replace("10/", f"{number}/").replace("CIFAR100/", f"CIFAR{number}/")
    batches = "batches-" if name == "cifar10" else ""
    official = f"cifar-{number}-{batches}{'bin' if binary else 'py'}" if batches else f"cifar-{number}-"
    official += "" if batches else ("binary" if binary else "python")
    if place.endswith("tar"):
        archive = tmp_path / place.removesuffix("tar") / f"cifar-{number}-{'binary' if binary else 'python'}.tar.gz"
        write_tar(archive, cifar_files(name, binary), official)
    else:
        write_cifar(tmp_path / place.replace("official", official), name, binary)
    assert_is(load(name, tmp_path), name)


def test_a_whole_archive_serves_beside_a_half_unpacked_directory(tmp_path):
    write_cifar(tmp_path / "cifar-10-batches-py", "cifar10")
    (tmp_path / "cifar-10-batches-py/data_batch_3").unlink()
    with pytest.raises(DataError, match="cifar10: data_batch_3 is missing in .*cifar-10-batches-py$"):
        load("cifar10", tmp_path)
    write_tar(tmp_path / "cifar-10-python.tar.gz", cifar_files("cifar10"))
    assert_is(load("cifar10", tmp_path), "cifar10")


@pytest.mark.parametrize("folder", [".", "svhn", "SVHN"])
def test_svhn(folder, tmp_path):
    write_svhn(tmp_path / folder)
    assert_is(load("svhn", tmp_path), "svhn", ("train", "test", "extra"))


def test_svhn_without_extra(tmp_path):
    write_svhn(tmp_path, ("train", "test"))
    data = load("svhn", tmp_path)
    assert_is(data, "svhn")
    assert data.extra is None
    (tmp_path / "test_32x32.mat").unlink()
    with pytest.raises(DataError, match="svhn: test_32x32.mat is missing in "):
        load("svhn", tmp_path)


def test_digits():
    data = load("digits")
    assert (len(data.train), len(data.test), data.train.images.shape[1:]) == (1257, 540, (1, 8, 8))
    assert data.train.images.unique().tolist() == [round(level * 255 / 16) for level in range(17)]
    assert torch.bincount(data.test.labels).min() >= 52


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


def test_an_unknown_name(tmp_path):
    with pytest.raises(
        DataError, match="unknown data 'cifar-10' \\(did you mean 'cifar10'\\?\\); known: digits, mnist, "
    ):
        load("cifar-10", tmp_path)


def test_fashion_is_not_taken_for_mnist(tmp_path, monkeypatch):
    write_idx(tmp_path)
    found = SOURCES["fashion-mnist"]
    monkeypatch.setitem(found.balance, "train", (5,) + (4,) * 8 + (3,))
    with pytest.raises(DataError, match="wanted 5 images of class T-shirt/top, got 4: another set\\?"):
        load("fashion-mnist", tmp_path)


IMAGES = "train-images-idx3-ubyte.gz"
LABELS = "train-labels-idx1-ubyte.gz"


def relabelled(label):
    labels = cells("mnist", "train")[1]
    labels[0] = label
    return gzip.compress(idx_bytes(labels))


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        (IMAGES, lambda data: data[:-100], "wanted a whole gzip file, got a broken one"),
        (IMAGES, lambda data: b"", "wanted an idx file that begins with 00000803, got nothing"),
        (IMAGES, lambda data: b"<html>", "wanted a whole gzip file, got a broken one"),
        (IMAGES, lambda data: data[:50] + b"?" + data[51:], "wanted a whole gzip file, got a broken one"),
        (IMAGES, lambda data: gzip.compress(gzip.decompress(data)[:-1]), "wanted 31,376 bytes, got 31,375"),
        (IMAGES, lambda data: gzip.compress(gzip.decompress(data) + b"?"), "wanted 31,376 bytes, got 31,377"),
        (IMAGES, lambda data: gzip.compress(idx_bytes(np.zeros((40, 28, 27)))), "wanted 40×28×28 cells, got 40×28×27"),
        (IMAGES, lambda data: gzip.compress(idx_bytes(np.zeros((41, 28, 28)))), "wanted 40×28×28 cells, got 41×28×28"),
        (IMAGES, lambda data: gzip.compress(idx_bytes(np.zeros(40))), "begins with 00000803, got 00000801"),
        (IMAGES, lambda data: gzip.compress(b"\0\0\x08\x03\0\0"), "wanted 40×28×28 cells, got 0×0×0 by its header"),
        (LABELS, lambda data: gzip.compress(idx_bytes(np.zeros(39))), "wanted 40 cells, got 39"),
        (LABELS, lambda data: relabelled(10), "train-labels-idx1-ubyte.gz: wanted labels 0 to 9, got 0 to 10"),
    ],
)
def test_a_broken_idx_file(file, change, said, tmp_path):
    write_idx(tmp_path)
    path = tmp_path / file
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=said) as error:
        load("mnist", tmp_path)
    assert str(tmp_path) in str(error.value)
    assert "train" in str(error.value)
    path.unlink()
    with pytest.raises(DataError, match=f"mnist: {file.removesuffix('.gz')} is missing in {tmp_path}"):
        load("mnist", tmp_path)


LARGE_LABELS = b"](K\x01K\x01K\x01K\x01K\x01K\x01K\x01" + b"\x8a\x09" + (1 << 70).to_bytes(9, "little") + b"e"
IMAGE_ROWS, TEN_LABELS = np.zeros((8, 3072), np.uint8), np.arange(8)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "wanted a pickled batch of CIFAR, got something else"),
        (batch_pickle(IMAGE_ROWS, TEN_LABELS)[:-9000], "wanted a pickled batch of CIFAR, got something else"),
        (pickle.dumps([1, 2]), "wanted a dict of data and labels, got list"),
        (pickle.dumps({}), "wanted data of 8×3072 bytes, got NoneType"),
        (pickle.dumps({"data": b"x" * 8 * 3072}), "wanted data of 8×3072 bytes, got bytes"),
        (
            b"\x80\x02}" + string(b"data") + b"cnumpy.core.multiarray\n_reconstruct\n)Rs.",
            "wanted data of 8×3072 bytes, got 0×0",
        ),
        (batch_pickle(IMAGE_ROWS[:7], TEN_LABELS), "wanted data of 8×3072 bytes, got 7×3072"),
        (batch_pickle(IMAGE_ROWS[:, :-1], TEN_LABELS), "wanted data of 8×3072 bytes, got 8×3071"),
        (batch_pickle(IMAGE_ROWS, TEN_LABELS[1:]), "wanted a list of 8 labels, got 7 items"),
        (
            b"\x80\x02}(" + string(b"data") + array_pickle(IMAGE_ROWS) + string(b"labels") + string(b"abc") + b"u.",
            "wanted a list of 8 labels, got bytes",
        ),
        (
            b"\x80\x02}(" + string(b"data") + array_pickle(IMAGE_ROWS) + string(b"labels") + b"](NNNNNNNNeu.",
            "wanted a list of 8 labels, got 8 items",
        ),
        (
            b"\x80\x02}(" + string(b"data") + array_pickle(IMAGE_ROWS) + string(b"labels") + LARGE_LABELS + b"u.",
            "wanted labels 0 to 9, got 1 to 1180591620717411303424",
        ),
    ],
)
@pytest.mark.parametrize("tar", [True, False])
def test_a_broken_batch(content, said, tar, tmp_path):
    files = cifar_files("cifar10") | {"data_batch_2": content}
    if tar:
        write_tar(tmp_path / "cifar-10-python.tar.gz", files)
    else:
        write_cifar(tmp_path / "cifar-10-batches-py", "cifar10")
        (tmp_path / "cifar-10-batches-py/data_batch_2").write_bytes(content)
    with pytest.raises(DataError, match=said) as error:
        load("cifar10", tmp_path)
    assert ("cifar-10-python.tar.gz: data_batch_2: " if tar else "cifar-10-batches-py/data_batch_2: ") in str(
        error.value
    )


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("label", [10, 255])
def test_a_label_that_is_no_class(binary, label, tmp_path):
    write_cifar(tmp_path, "cifar10", binary)
    path = tmp_path / ("data_batch_3.bin" if binary else "data_batch_3")
    images, labels = IMAGE_ROWS, np.where(TEN_LABELS == 5, label, TEN_LABELS)
    path.write_bytes((batch_records if binary else batch_pickle)(images, labels))
    with pytest.raises(DataError, match=f"{path}: wanted labels 0 to 9, got 0 to {label}"):
        load("cifar10", tmp_path)


def test_a_broken_binary_batch(tmp_path):
    write_cifar(tmp_path, "cifar10", binary=True)
    path = tmp_path / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="test_batch.bin: wanted 20 records of 3,073 bytes, got 61,459 bytes"):
        load("cifar10", tmp_path)


def test_a_broken_archive(tmp_path):
    path = tmp_path / "cifar-10-python.tar.gz"
    write_tar(path, cifar_files("cifar10"))
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"no archive", b"", whole[:1000] + b"?????" + whole[1005:]):
        path.write_bytes(content)
        with pytest.raises(DataError, match="cifar-10-python.tar.gz: wanted a whole tar.gz archive, got a broken one"):
            load("cifar10", tmp_path)
    write_tar(path, {name: data for name, data in cifar_files("cifar10").items() if name != "data_batch_4"})
    with pytest.raises(DataError, match="wanted data_batch_4 inside, got an archive without"):
        load("cifar10", tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"X": np.zeros((32, 32, 3, 39), np.uint8)}, "wanted X as integers 32×32×3×40, got uint8 32×32×3×39"),
        ({"X": np.zeros((32, 32, 3, 40))}, "wanted X as integers 32×32×3×40, got float64 32×32×3×40"),
        ({"X": np.zeros((32, 32, 3, 40), np.int16)}, "wanted X as uint8, got int16"),
        ({"y": np.zeros((40, 1), np.uint8)}, "wanted labels 1 to 10, got 0 to 0"),
        ({"y": np.full((40, 1), 11, np.uint8)}, "wanted labels 1 to 10, got 11 to 11"),
        ({"y": np.ones((1, 40), np.uint8)}, "wanted y as integers 40×1, got uint8 1×40"),
    ],
)
def test_a_broken_svhn_file(changes, said, tmp_path):
    write_svhn(tmp_path)
    write_svhn(tmp_path, ("train",), **changes)
    with pytest.raises(DataError, match=f"train_32x32.mat: {said}"):
        load("svhn", tmp_path)


@pytest.mark.parametrize("keep", [0, 100, 50_000])
def test_a_truncated_svhn_file(keep, tmp_path):
    write_svhn(tmp_path)
    path = tmp_path / "extra_32x32.mat"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match="extra_32x32.mat: wanted a whole MATLAB file, got a broken one"):
        load("svhn", tmp_path)


class Attack:
    """Unpickles to a call of whatever is given."""

    def __init__(self, call, *given):
        self.call, self.given = call, given

    def __reduce__(self):
        return self.call, self.given


CALLED = b"cnumpy\nndarray\nK\x02K\x02\x86\x85R."  # numpy.ndarray((2, 2))


@pytest.mark.parametrize(
    "content",
    [
        *(pickle.dumps(Attack(print, "no"), protocol) for protocol in range(6)),
        pickle.dumps(Attack(eval, "1"), 2),
        pickle.dumps(Attack(np.memmap, "file")),
        pickle.dumps(Attack(np.frombuffer, b"")),
        pickle.dumps(np.float64(1)),
        pickle.dumps(np.array([object()], dtype=object), 2),
        b"cos\nsystem\n(S'true'\ntR.",
        b"(S'true'\nios\nsystem\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x04\x8c\x08builtins\x8c\x07getattr\x93.",
        b"cnumpy\nfromfile\n.",
        b"cnumpy.core.multiarray\n_reconstruct.__globals__\n.",
        CALLED,
        array_pickle(IMAGE_ROWS, kind=b"O") + b".",
        array_pickle(IMAGE_ROWS, kind=b"f8") + b".",
        array_pickle(IMAGE_ROWS, module=b"numpy.core.evil") + b".",
        b"\x80\x02\x82\x01.",  # an extension
        b"Pid\n.",  # a persistent object
    ],
)
def test_the_unpickler_builds_nothing_else(content, tmp_path, monkeypatch, capfd):
    import io

    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception) as error:  # noqa: PT011 (any refusal will do)
        Unpickler(io.BytesIO(content), encoding="bytes").load()
    assert not isinstance(error.value, MemoryError)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_the_unpickler_reads_old_and_new_arrays():
    import io

    cells = np.arange(6, dtype=np.uint8).reshape(2, 3)
    columns = array_pickle(cells.T.copy(), order=b"\x88").replace(b"J\x03\0\0\0J\x02\0\0\0", b"J\x02\0\0\0J\x03\0\0\0")
    contents = [array_pickle(cells) + b".", columns + b".", *(pickle.dumps(cells, protocol) for protocol in (3, 4))]
    for content in contents:
        assert np.array_equal(Unpickler(io.BytesIO(content), encoding="bytes").load().cells, cells)
    assert Unpickler(io.BytesIO(b"\x80\x02" + integers([1, 2]) + b".")).load() == [1, 2]


def test_the_table_is_what_is_published():
    assert {name: dict(source.counts) for name, source in SOURCES.items()}.keys() == {
        "mnist", "fashion-mnist", "cifar10", "cifar100", "svhn",
    }  # fmt: skip
    for source in SOURCES.values():
        assert len(set(source.classes)) == len(source.classes)
        sums = [remote.md5 for remote in source.remotes] + list(source.md5.values())
        assert len(set(sums)) == len(sums)
        assert all(len(value) == 32 and int(value, 16) for value in sums)
    assert SOURCES["cifar100"].classes == tuple(sorted(SOURCES["cifar100"].classes))
    assert len(SOURCES["cifar100"].classes) == 100
