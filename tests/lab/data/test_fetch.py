"""Fetching, from a server in this process that drops, truncates, redirects, ignores ranges and lies."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from learnpool.lab.data import DataError, fetch
from learnpool.lab.data.sources import SOURCES, Remote

CONTENT = bytes(range(256)) * 4000  # 1,024,000 bytes
FILE = "set.bin"


class Handler(BaseHTTPRequestHandler):
    """The first part of the path says how to behave; a request is remembered with its range."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        how = self.path.split("/")[1]
        self.server.seen.append((how, self.headers.get("Range")))
        self.close_connection = True
        getattr(self, how.replace("-", "_"))()

    def asked(self):
        """The first byte that is asked for."""
        given = self.headers.get("Range")
        return int(given.removeprefix("bytes=").split("-")[0]) if given else 0

    def answer(self, status, body, *, length=None, place=None):
        self.send_response(status)
        if length is not False:
            self.send_header("Content-Length", str(len(body) if length is None else length))
        if place is not None:
            self.send_header("Content-Range", f"bytes {place}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def send_from(self, start, content=CONTENT, **options):
        self.answer(206 if start else 200, content[start:], place=start or None, **options)

    def right(self):
        self.send_from(self.asked())

    def drops(self):
        """Every connection ends after 300,000 bytes."""
        start = self.asked()
        rest = CONTENT[start:]
        self.answer(206 if start else 200, rest[:300_000], length=len(rest), place=start or None)

    def drops_once(self):
        """The first connection ends early; then it is gone."""
        if any(given for _, given in self.server.seen):
            self.answer(503, b"")
        else:
            self.answer(200, CONTENT[:300_000], length=len(CONTENT))

    def ignores_range(self):
        """Half of it the first time, then all of it, whatever is asked."""
        first = len(self.server.seen) == 1
        self.answer(200, CONTENT[: 500_000 if first else None], length=len(CONTENT))

    def always_half(self):
        """Never more than half, and always from the start."""
        self.answer(200, CONTENT[:500_000], length=len(CONTENT))

    def truncated(self):
        """A shorter file that says so itself."""
        self.answer(200, CONTENT[:500_000])

    def too_long(self):
        """More than there should be."""
        self.answer(200, CONTENT + b"more")

    def endless(self):
        """Without a length and without an end."""
        self.answer(200, b"", length=False)
        try:
            while True:
                self.wfile.write(CONTENT)
        except OSError:
            pass

    def without_length(self):
        self.answer(200, CONTENT, length=False)

    def chunked(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for start in range(0, len(CONTENT), 100_000):
            block = CONTENT[start : start + 100_000]
            self.wfile.write(f"{len(block):x}\r\n".encode() + block + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def promises_more(self):
        """All of it, but the length says there is more."""
        self.send_from(self.asked(), length=len(CONTENT) + 1000)

    def lies(self):
        """The right length, other content."""
        self.send_from(self.asked(), bytes(len(CONTENT)))

    def wrong_range(self):
        """A range, but not the one that was asked for; without a range the right content."""
        if self.asked():
            self.answer(206, CONTENT[7:], place=7)
        else:
            self.answer(200, CONTENT)

    def drops_and_jumps(self):
        """The first connection ends early, and what goes on goes on elsewhere."""
        if len(self.server.seen) == 1:
            self.answer(200, CONTENT[:300_000], length=len(CONTENT))
        else:
            self.wrong_range()

    def no_range(self):
        """There is nothing behind what we have."""
        if self.asked():
            self.answer(416, b"")
        else:
            self.answer(200, CONTENT)

    def redirects(self):
        self.send_response(302)
        self.send_header("Location", "/drops/" + FILE)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def circles(self):
        self.send_response(302)
        self.send_header("Location", self.path)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def to_a_file(self):
        self.send_response(302)
        self.send_header("Location", "file:///etc/hostname")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def missing(self):
        self.answer(404, b"nothing here")

    def busy(self):
        """Busy the first two times."""
        if len(self.server.seen) < 3:
            self.answer(503, b"")
        else:
            self.right()

    def stutters(self):
        """Busy every second time, 150,000 bytes the other times."""
        rest = CONTENT[self.asked() :]
        if len(self.server.seen) % 2:
            self.answer(503, b"")
        else:
            self.answer(206 if self.asked() else 200, rest[:150_000], length=len(rest), place=self.asked() or None)

    def hangs_up(self):
        self.connection.close()

    def nonsense(self):
        self.wfile.write(b"what?\r\n\r\n")

    def log_message(self, *given):
        pass


@pytest.fixture
def server(monkeypatch):
    """A server on this machine; nothing waits between attempts."""
    monkeypatch.setattr(fetch, "PAUSE", 0.0)
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.daemon_threads = True
    made.seen = []
    made.url = f"http://127.0.0.1:{made.server_port}"
    thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


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
    path = fetch.fetch(remote(server, how), tmp_path / "new", sizes.append)
    assert path == tmp_path / "new" / FILE
    assert path.read_bytes() == CONTENT
    assert names(tmp_path / "new") == [FILE]
    assert sizes[-1] == len(CONTENT)
    if ranges:
        assert [given for _, given in server.seen] == ranges


def test_ranges_survive_a_redirect(server, tmp_path):
    fetch.fetch(remote(server, "redirects"), tmp_path)
    assert ("drops", "bytes=300000-") in server.seen


@pytest.mark.parametrize(
    ("how", "said"),
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
def test_it_does_not_arrive_and_nothing_is_left(how, said, server, tmp_path):
    with pytest.raises(DataError, match=f"^{server.url}/{how}/{FILE}: (?s:{said})"):
        fetch.fetch(remote(server, how), tmp_path)
    assert names(tmp_path) == []


def test_an_endless_file_is_not_taken_further_than_its_size(server, tmp_path):
    assert fetch.fetch(remote(server, "endless"), tmp_path).read_bytes() == CONTENT
    with pytest.raises(DataError, match="wanted 1,000 bytes of MD5 .*, got 1,000 of"):
        fetch.fetch(remote(server, "endless", content=b"x" * 1000), tmp_path / "other")
    assert names(tmp_path / "other") == []


def test_what_arrived_is_kept_for_the_next_call(server, tmp_path):
    with pytest.raises(DataError, match=f"wanted 1,024,000 bytes, got 300,000 .*{FILE}.part is kept to go on from"):
        fetch.fetch(remote(server, "drops-once"), tmp_path)
    assert names(tmp_path) == [FILE + ".part"]
    assert (tmp_path / (FILE + ".part")).read_bytes() == CONTENT[:300_000]
    server.seen.clear()
    assert fetch.fetch(remote(server, "right"), tmp_path).read_bytes() == CONTENT
    assert server.seen == [("right", "bytes=300000-")]
    assert names(tmp_path) == [FILE]


def test_a_server_that_never_finishes_is_given_up(server, tmp_path):
    with pytest.raises(DataError, match="wanted 1,024,000 bytes, got 500,000"):
        fetch.fetch(remote(server, "always-half"), tmp_path)
    assert len(server.seen) == 1 + fetch.PATIENCE
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize("how", ["right", "wrong-range", "no-range", "drops"])
@pytest.mark.parametrize("part", [b"other content" * 100, CONTENT[:-1] + b"?", CONTENT + b"more"])
def test_a_part_of_other_content_is_begun_anew(how, part, server, tmp_path):
    (tmp_path / (FILE + ".part")).write_bytes(part)
    assert fetch.fetch(remote(server, how), tmp_path).read_bytes() == CONTENT
    assert names(tmp_path) == [FILE]


def test_a_whole_part_needs_no_server(server, tmp_path):
    (tmp_path / (FILE + ".part")).write_bytes(CONTENT)
    fetch.fetch(remote(server, "missing"), tmp_path)
    assert (server.seen, names(tmp_path)) == ([], [FILE])


def test_a_file_that_is_there_is_not_fetched_and_a_wrong_one_replaced(server, tmp_path):
    fetch.fetch(remote(server, "right"), tmp_path)
    server.seen.clear()
    fetch.fetch(remote(server, "right"), tmp_path)
    assert server.seen == []
    (tmp_path / FILE).write_bytes(CONTENT[:-1])
    fetch.fetch(remote(server, "right"), tmp_path)
    assert (tmp_path / FILE).read_bytes() == CONTENT


def test_a_wrong_file_stays_until_a_right_one_is_there(server, tmp_path):
    (tmp_path / FILE).write_bytes(b"mine")
    with pytest.raises(DataError):
        fetch.fetch(remote(server, "lies"), tmp_path)
    assert (tmp_path / FILE).read_bytes() == b"mine"


def test_the_next_mirror_is_asked(server, tmp_path):
    assert fetch.fetch(remote(server, "missing", "lies", "drops"), tmp_path).read_bytes() == CONTENT
    with pytest.raises(
        DataError, match="/missing/set.bin: HTTP 404 .*; .*/lies/set.bin: wanted 1,024,000 bytes of MD5"
    ):
        fetch.fetch(remote(server, "missing", "lies"), tmp_path / "other")


def test_nobody_listens(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "PAUSE", 0.0)
    wanted = Remote(FILE, 10, "0" * 32, ("http://127.0.0.1:9/",))
    with pytest.raises(DataError, match="127.0.0.1:9/set.bin: wanted 10 bytes, got 0 \\(.*Connection refused"):
        fetch.fetch(wanted, tmp_path)
    assert names(tmp_path) == []


def test_a_full_disk_is_named(server, tmp_path):
    (tmp_path / (FILE + ".part")).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as error:
        fetch.fetch(remote(server, "right"), tmp_path)
    assert error.value.filename == str(tmp_path / (FILE + ".part"))
    assert not (tmp_path / FILE).exists()


def test_pauses_grow_while_nothing_comes(server, tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr(fetch, "PAUSE", 1.0)
    monkeypatch.setattr(fetch.time, "sleep", pauses.append)
    with pytest.raises(DataError):
        fetch.fetch(remote(server, "hangs-up"), tmp_path)
    assert pauses == [1.0, 2.0, 4.0]


@pytest.fixture
def published(server, monkeypatch):
    """Fashion-MNIST as the server has it: four files of the same content."""
    from dataclasses import replace

    source = SOURCES["fashion-mnist"]
    digest = hashlib.md5(CONTENT).hexdigest()
    files = tuple(replace(r, size=len(CONTENT), md5=digest, mirrors=(f"{server.url}/drops/",)) for r in source.remotes)
    monkeypatch.setitem(SOURCES, "fashion-mnist", replace(source, remotes=files))
    return [r.file for r in files]


def test_get_puts_a_sets_files_into_its_folder(published, tmp_path):
    paths = fetch.get("fashion-mnist", tmp_path, quiet=True)
    assert paths == [tmp_path / "fashion-mnist" / file for file in published]
    assert all(path.read_bytes() == CONTENT for path in paths)


def test_get_from_another_mirror(published, server, tmp_path):
    fetch.get("fashion-mnist", tmp_path, mirror=f"{server.url}/right", quiet=True)
    assert {how for how, _ in server.seen} == {"right"}
    for mirror in ("file:///etc", "ftp://here", "here"):
        with pytest.raises(DataError, match="--mirror: wanted an address that begins with http:// or https://, got"):
            fetch.get("fashion-mnist", tmp_path, mirror=mirror, quiet=True)


def test_get_without_extra(monkeypatch, tmp_path):
    fetched = []
    monkeypatch.setattr(fetch, "fetch", lambda remote, *given: fetched.append(remote.file))
    fetch.get("svhn", tmp_path, extra=False, quiet=True)
    assert fetched == ["train_32x32.mat", "test_32x32.mat"]
    fetch.get("svhn", tmp_path, quiet=True)
    assert fetched[2:] == ["train_32x32.mat", "test_32x32.mat", "extra_32x32.mat"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("digits", "digits: nothing to fetch, they are part of scikit-learn"),
        (
            "minst",
            "unknown data 'minst' \\(did you mean 'mnist'\\?\\); known: mnist, fashion-mnist, cifar10, cifar100, svhn$",
        ),
    ],
)
def test_get_what_cannot_be_got(name, said, tmp_path):
    with pytest.raises(DataError, match=said):
        fetch.get(name, tmp_path, quiet=True)
