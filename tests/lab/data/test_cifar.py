"""Every official form of CIFAR is read to the same images; a broken file is one sentence that names it."""

import numpy as np
import pytest

from data_files import assert_is, batch_pickle, batch_records, cifar_files, write_cifar, write_tar
from learnpool.lab.data import DataError, load

pytestmark = pytest.mark.usefixtures("small_sources")


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


IMAGE_ROWS, TEN_LABELS = np.zeros((8, 3072), np.uint8), np.arange(8)


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
