"""A small file that unpacks to much more than it must hold is refused before it fills the memory."""

import gzip
import io
import pickle
import tarfile
import tracemalloc

import numpy as np
import pytest
from scipy.io import savemat

from data_files import cifar_files, idx_bytes, write_cifar, write_idx, write_svhn
from learnpool.lab.data import DataError, load

BOMB = 64 << 20
SMALL = 16 << 20  # what loading a set of a few images may take, its archive's slack included

pytestmark = pytest.mark.usefixtures("small_sources")


@pytest.fixture
def refuse(tmp_path):
    """Load a data set, which has to be refused with little memory."""

    def load_and_measure(name, message):
        import scipy.io  # noqa: F401 (its import takes memory too)

        tracemalloc.start()
        try:
            with pytest.raises(DataError, match=message):
                load(name, tmp_path)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < SMALL

    return load_and_measure


def write_bomb_tar(path, files, **more):
    """The files in an archive, and after them members of zeros."""
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, content in {**files, **more}.items():
            member = tarfile.TarInfo(f"inside/{name}")
            member.size = content if isinstance(content, int) else len(content)
            archive.addfile(member, io.BytesIO(bytes(content) if isinstance(content, int) else content))


@pytest.mark.parametrize("start", [b"", idx_bytes(np.zeros((40, 28, 28), np.uint8))[:16]])
def test_an_idx_file(start, refuse, tmp_path):
    write_idx(tmp_path)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(start + bytes(BOMB), 1))
    refuse("mnist", "wanted 31,376 bytes, got more" if start else "begins with 00000803, got 00000000")


def test_an_idx_file_that_is_not_packed(refuse, tmp_path):
    write_idx(tmp_path, gz=False)
    with (tmp_path / "train-images-idx3-ubyte").open("r+b") as file:
        file.truncate(BOMB)
    refuse("mnist", "wanted 31,376 bytes, got more")


@pytest.mark.parametrize("binary", [True, False])
def test_a_batch_in_an_archive(binary, refuse, tmp_path):
    name = "data_batch_2.bin" if binary else "data_batch_2"
    archive = tmp_path / f"cifar-10-{'binary' if binary else 'python'}.tar.gz"
    write_bomb_tar(archive, cifar_files("cifar10", binary) | {name: BOMB})
    refuse("cifar10", f"tar.gz: {name}: wanted at most [0-9,]+ bytes unpacked, got 67,108,864")


@pytest.mark.parametrize("first", [True, False])
def test_an_archive_with_something_large_beside_the_batches(first, refuse, tmp_path):
    files = cifar_files("cifar10")
    files = {"other": BOMB} | files if first else files | {"other": BOMB}
    write_bomb_tar(tmp_path / "cifar-10-python.tar.gz", files)
    refuse("cifar10", "cifar-10-python.tar.gz: wanted at most [0-9,]+ bytes unpacked, got more")


def test_an_archive_that_goes_on_behind_its_end(refuse, tmp_path):
    path = tmp_path / "cifar-10-python.tar.gz"
    write_bomb_tar(path, cifar_files("cifar10"))
    path.write_bytes(path.read_bytes() + gzip.compress(bytes(BOMB), 1))
    refuse("cifar10", "cifar-10-python.tar.gz: wanted at most [0-9,]+ bytes unpacked, got more")


def test_a_link_in_an_archive_is_no_batch(tmp_path):
    files = cifar_files("cifar10")
    del files["data_batch_2"]
    path = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        link = tarfile.TarInfo("inside/data_batch_2")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(link)
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    with pytest.raises(DataError, match="wanted data_batch_2 inside, got an archive without"):
        load("cifar10", tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        bytes(BOMB),
        b"\x80\x02}r\xff\xff\xff\x03.",  # object number 2²⁶: a list of so many places in the C unpickler
        b"\x80\x04\x8e" + (1 << 40).to_bytes(8, "little") + b"x.",  # a string that says it is of a terabyte
        pickle.dumps({"data": [[]] * 10}),
    ],
)
def test_a_pickle(content, refuse, tmp_path):
    write_cifar(tmp_path / "cifar-10-batches-py", "cifar10")
    (tmp_path / "cifar-10-batches-py/data_batch_2").write_bytes(content)
    refuse("cifar10", "data_batch_2: wanted ")


@pytest.mark.parametrize("change", [{"X": np.zeros(BOMB, np.uint8)}, {"z": np.zeros(BOMB, np.uint8)}])
def test_a_matlab_file(change, refuse, tmp_path):
    write_svhn(tmp_path)
    write_svhn(tmp_path, ("train",), **change)
    refuse("svhn", "train_32x32.mat: wanted at most 1,171,776 bytes unpacked, got more")


def test_a_matlab_file_that_is_not_packed(refuse, tmp_path):
    write_svhn(tmp_path)
    savemat(tmp_path / "train_32x32.mat", {"X": np.zeros(BOMB, np.uint8)})
    refuse("svhn", "train_32x32.mat: wanted at most 1,171,776 bytes unpacked, got more")
