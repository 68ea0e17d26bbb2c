"""Files are written all or nothing."""

import os
import shutil
from pathlib import Path

import pytest

from learnpool.lab.files import keep_if_used, make_directory, open_atomic, write_bytes, write_json


def test_a_file_gets_its_name_when_it_is_complete(tmp_path):
    path = tmp_path / "result.json"
    with open_atomic(path) as file:
        file.write(b"first")
        file.flush()
        assert [entry.name for entry in tmp_path.iterdir()] == ["result.json.part"]
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_was_there_stays_if_writing_fails(error, tmp_path):
    path = tmp_path / "result.json"
    write_bytes(path, b"old")

    def interrupted():
        yield b"new"
        raise error

    with pytest.raises(error), open_atomic(path) as file:
        file.writelines(interrupted())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_processes_that_write_the_same_file_have_temporary_names_of_their_own(tmp_path, monkeypatch):
    path = tmp_path / "images.npy"
    with open_atomic(path, concurrent=True) as ours:
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with open_atomic(path, concurrent=True) as theirs:
            theirs.write(b"theirs")
        ours.write(b"ours")
    assert path.read_bytes() == b"ours"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_names_the_file_that_was_wanted(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        write_bytes(tmp_path / "nowhere" / "file", b"")
    assert caught.value.filename == str(tmp_path / "nowhere" / "file")
    with pytest.raises(FileNotFoundError) as caught, open_atomic(tmp_path / "file"):
        Path("another").read_bytes()
    assert caught.value.filename == "another"


def test_json_is_readable_text(tmp_path):
    write_json(tmp_path / "a.json", {"pool": "ω", "values": [1]})
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == '{\n "pool": "ω",\n "values": [\n  1\n ]\n}\n'


def test_a_directory_is_made_or_refused(tmp_path):
    make_directory(tmp_path / "a" / "b")
    make_directory(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="file"):
        make_directory(tmp_path / "file")


def test_a_directory_that_was_not_used_is_not_left(tmp_path):
    with pytest.raises(ValueError, match="no"), keep_if_used(tmp_path / "runs" / "compare"):
        raise ValueError("no")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError), keep_if_used(tmp_path / "runs" / "compare"):
        shutil.copy(shutil.copy(__file__, tmp_path / "runs" / "other"), tmp_path / "nowhere" / "else")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["other"]
    (tmp_path / "mine").mkdir()
    with pytest.raises(ValueError, match="no"), keep_if_used(tmp_path / "mine"):
        raise ValueError("no")
    assert (tmp_path / "mine").is_dir()  # it was there before
