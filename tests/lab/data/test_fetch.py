"""Fetching from a server that drops, truncates, redirects, ignores ranges and lies."""

import hashlib

import pytest

from file_server import CONTENT, FILE
from learnpool.lab.data import DataError, fetch
from learnpool.lab.data.source import Remote


def remote(server, *hows, content=CONTENT):
    return Remote(FILE, len(content), hashlib.md5(content).hexdigest(), tuple(f"{server.url}/{how}/" for how in hows))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("how", "ranges"),
    [
        ("right", [None]),
        ("drops", [None, "bytes=300000-", "bytes=600000-", "bytes=900000-"]),
        ("ignores-range", [None, "bytes=500000-"]),
        ("drops-and-jumps", [None, "bytes=300000-", None]),
        ("without-length", [None]),
        ("chunked", [None]),
        ("promises-more", [None]),
        ("too-long", [None]),
        ("busy", [None, None, None]),
        ("stutters", None),
        ("redirects", None),
    ],
)
def test_it_arrives(how, ranges, server, tmp_path):
    sizes = []
    path = fetch.fetch_file(remote(server, how), tmp_path / "new", sizes.append)
    assert path == tmp_path / "new" / FILE
    assert path.read_bytes() == CONTENT
    assert names(tmp_path / "new") == [FILE]
    assert sizes[-1] == len(CONTENT)
    if ranges:
        assert [given for _, given in server.seen] == ranges


def test_ranges_survive_a_redirect(server, tmp_path):
    fetch.fetch_file(remote(server, "redirects"), tmp_path)
    assert ("drops", "bytes=300000-") in server.seen


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("lies", "wanted 1,024,000 bytes of MD5 .*, got 1,024,000 of "),
        ("truncated", "wanted 1,024,000 bytes of MD5 .*, got 500,000 of "),
        ("missing", "HTTP 404 Not Found"),
        ("circles", "HTTP 302 .*infinite loop"),
        ("to-a-file", "HTTP 302 .*not allowed"),
        ("hangs-up", "wanted 1,024,000 bytes, got 0 \\("),
        ("nonsense", "wanted 1,024,000 bytes, got 0 \\(what\\?"),
    ],
)
def test_it_does_not_arrive_and_nothing_is_left(how, message, server, tmp_path):
    with pytest.raises(DataError, match=f"^{server.url}/{how}/{FILE}: (?s:{message})"):
        fetch.fetch_file(remote(server, how), tmp_path)
    assert names(tmp_path) == []


def test_an_endless_file_is_not_taken_further_than_its_size(server, tmp_path):
    assert fetch.fetch_file(remote(server, "endless"), tmp_path).read_bytes() == CONTENT
    with pytest.raises(DataError, match="wanted 1,000 bytes of MD5 .*, got 1,000 of"):
        fetch.fetch_file(remote(server, "endless", content=b"x" * 1000), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_what_arrived_is_kept_for_the_next_call(server, tmp_path):
    with pytest.raises(DataError, match=f"wanted 1,024,000 bytes, got 300,000 .*{FILE}.part is kept, to be resumed"):
        fetch.fetch_file(remote(server, "drops-once"), tmp_path)
    assert names(tmp_path) == [FILE + ".part"]
    assert (tmp_path / (FILE + ".part")).read_bytes() == CONTENT[:300_000]
    server.seen.clear()
    assert fetch.fetch_file(remote(server, "right"), tmp_path).read_bytes() == CONTENT
    assert server.seen == [("right", "bytes=300000-")]
    assert names(tmp_path) == [FILE]


def test_a_server_that_never_finishes_is_given_up(server, tmp_path):
    with pytest.raises(DataError, match="wanted 1,024,000 bytes, got 500,000"):
        fetch.fetch_file(remote(server, "always-half"), tmp_path)
    assert len(server.seen) == 1 + fetch.MAX_IDLE_ATTEMPTS
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize("how", ["right", "wrong-range", "no-range", "drops"])
@pytest.mark.parametrize("part", [b"other content" * 100, CONTENT[:-1] + b"?", CONTENT + b"more"])
def test_a_part_of_other_content_is_begun_anew(how, part, server, tmp_path):
    (tmp_path / (FILE + ".part")).write_bytes(part)
    assert fetch.fetch_file(remote(server, how), tmp_path).read_bytes() == CONTENT
    assert names(tmp_path) == [FILE]


def test_a_whole_part_needs_no_server(server, tmp_path):
    (tmp_path / (FILE + ".part")).write_bytes(CONTENT)
    fetch.fetch_file(remote(server, "missing"), tmp_path)
    assert (server.seen, names(tmp_path)) == ([], [FILE])


def test_a_file_that_is_there_is_not_fetched_and_a_wrong_one_replaced(server, tmp_path):
    fetch.fetch_file(remote(server, "right"), tmp_path)
    server.seen.clear()
    fetch.fetch_file(remote(server, "right"), tmp_path)
    assert server.seen == []
    (tmp_path / FILE).write_bytes(CONTENT[:-1])
    fetch.fetch_file(remote(server, "right"), tmp_path)
    assert (tmp_path / FILE).read_bytes() == CONTENT


def test_a_wrong_file_stays_until_a_right_one_is_there(server, tmp_path):
    (tmp_path / FILE).write_bytes(b"mine")
    with pytest.raises(DataError):
        fetch.fetch_file(remote(server, "lies"), tmp_path)
    assert (tmp_path / FILE).read_bytes() == b"mine"


def test_the_next_mirror_is_asked(server, tmp_path):
    assert fetch.fetch_file(remote(server, "missing", "lies", "drops"), tmp_path).read_bytes() == CONTENT
    with pytest.raises(
        DataError, match="/missing/set.bin: HTTP 404 .*; .*/lies/set.bin: wanted 1,024,000 bytes of MD5"
    ):
        fetch.fetch_file(remote(server, "missing", "lies"), tmp_path / "other")


def test_nobody_listens(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "PAUSE", 0.0)
    wanted = Remote(FILE, 10, "0" * 32, ("http://127.0.0.1:9/",))
    with pytest.raises(DataError, match="127.0.0.1:9/set.bin: wanted 10 bytes, got 0 \\(.*Connection refused"):
        fetch.fetch_file(wanted, tmp_path)
    assert names(tmp_path) == []


def test_a_full_disk_is_named(server, tmp_path):
    (tmp_path / (FILE + ".part")).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as error:
        fetch.fetch_file(remote(server, "right"), tmp_path)
    assert error.value.filename == str(tmp_path / (FILE + ".part"))
    assert not (tmp_path / FILE).exists()


def test_pauses_grow_while_nothing_comes(server, tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr(fetch, "PAUSE", 1.0)
    monkeypatch.setattr(fetch.time, "sleep", pauses.append)
    with pytest.raises(DataError):
        fetch.fetch_file(remote(server, "hangs-up"), tmp_path)
    assert pauses == [1.0, 2.0, 4.0]


def test_get_puts_a_sets_files_into_its_folder(published, tmp_path):
    paths = fetch.fetch_dataset("fashion-mnist", tmp_path, quiet=True)
    assert paths == [tmp_path / "fashion-mnist" / file for file in published]
    assert all(path.read_bytes() == CONTENT for path in paths)


def test_get_from_another_mirror(published, server, tmp_path):
    fetch.fetch_dataset("fashion-mnist", tmp_path, mirror=f"{server.url}/right", quiet=True)
    assert {how for how, _ in server.seen} == {"right"}
    for mirror in ("file:///etc", "ftp://here", "here"):
        with pytest.raises(DataError, match="--mirror: wanted an address that begins with http:// or https://, got"):
            fetch.fetch_dataset("fashion-mnist", tmp_path, mirror=mirror, quiet=True)


def test_get_without_extra(monkeypatch, tmp_path):
    fetched = []
    monkeypatch.setattr(fetch, "fetch_file", lambda remote, *given: fetched.append(remote.file))
    fetch.fetch_dataset("svhn", tmp_path, extra=False, quiet=True)
    assert fetched == ["train_32x32.mat", "test_32x32.mat"]
    fetch.fetch_dataset("svhn", tmp_path, quiet=True)
    assert fetched[2:] == ["train_32x32.mat", "test_32x32.mat", "extra_32x32.mat"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("digits", "digits: nothing to fetch, they are part of scikit-learn"),
        (
            "minst",
            "unknown data 'minst' \\(did you mean 'mnist'\\?\\); known: mnist, fashion-mnist, cifar10, cifar100, svhn$",
        ),
    ],
)
def test_get_what_cannot_be_got(name, message, tmp_path):
    with pytest.raises(DataError, match=message):
        fetch.fetch_dataset(name, tmp_path, quiet=True)
