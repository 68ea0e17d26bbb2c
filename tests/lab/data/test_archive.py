"""Files inside tar files, read in place."""

import pytest

from data_files import pack_tar
from learnpool.lab.data import DataError
from learnpool.lab.data.archive import Member, iter_members


def test_files_of_a_tar_file_inside_another(tmp_path):
    inner = {"a": pack_tar({"a/1": b"one", "a/2": b"two" * 1000}), "b": pack_tar({"3": b""})}
    path = tmp_path / "x.tar"
    path.write_bytes(pack_tar({f"{name}.tar": content for name, content in inner.items()}))
    outer = list(iter_members(path))
    assert [member.name for member in outer] == ["a.tar", "b.tar"]
    assert outer[0].read() == inner["a"]
    found = [member for tar in outer for member in iter_members(path, tar)]
    assert {member.name: member.read() for member in found} == {"a/1": b"one", "a/2": b"two" * 1000, "3": b""}
    assert str(found[0]) == f"{path}:a/1"


@pytest.mark.parametrize("kept", [0, 100, 700, 1600])
def test_a_tar_file_that_is_cut_short_is_named(kept, tmp_path):
    path = tmp_path / "x.tar"
    path.write_bytes(pack_tar({"1": b"one", "2": b"two" * 1000})[:kept])
    with pytest.raises(DataError, match=f"^{path}: wanted a whole tar file, got"):
        list(iter_members(path))
    whole = pack_tar({"1": b"one", "2": b"two" * 1000})
    path.write_bytes(pack_tar({"inner.tar": whole}))
    (inner,) = iter_members(path)
    short = Member(path, inner.name, inner.offset, kept)
    with pytest.raises(DataError, match=f"^{path}:inner.tar: wanted a whole tar file, got"):
        list(iter_members(path, short))
