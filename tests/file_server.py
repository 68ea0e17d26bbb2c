"""A file server in this process that drops, truncates, redirects, ignores ranges and lies."""

import hashlib
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from learnpool.lab.data import fetch
from learnpool.lab.data.catalog import SOURCES

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

    def get_range_start(self):
        """The first byte that is asked for."""
        value = self.headers.get("Range")
        return int(value.removeprefix("bytes=").split("-")[0]) if value else 0

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
        self.send_from(self.get_range_start())

    def drops(self):
        """Every connection ends after 300,000 bytes."""
        start = self.get_range_start()
        rest = CONTENT[start:]
        self.answer(206 if start else 200, rest[:300_000], length=len(rest), place=start or None)

    def drops_once(self):
        """The first connection ends early; then it is gone."""
        if any(start for _, start in self.server.seen):
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
        self.send_from(self.get_range_start(), length=len(CONTENT) + 1000)

    def lies(self):
        """The right length, other content."""
        self.send_from(self.get_range_start(), bytes(len(CONTENT)))

    def wrong_range(self):
        """A range, but not the one that was asked for; without a range the right content."""
        if self.get_range_start():
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
        if self.get_range_start():
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
        start = self.get_range_start()
        rest = CONTENT[start:]
        if len(self.server.seen) % 2:
            self.answer(503, b"")
        else:
            self.answer(206 if start else 200, rest[:150_000], length=len(rest), place=start or None)

    def hangs_up(self):
        self.connection.close()

    def nonsense(self):
        self.wfile.write(b"what?\r\n\r\n")

    def log_message(self, *arguments):
        pass


@contextmanager
def serve(monkeypatch):
    """A server on this machine; nothing waits between attempts."""
    monkeypatch.setattr(fetch, "PAUSE", 0.0)
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.seen = []
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def publish_fashion_mnist(server, monkeypatch):
    """Let Fashion-MNIST be four files of the server's content; their names."""
    source = SOURCES["fashion-mnist"]
    digest = hashlib.md5(CONTENT).hexdigest()
    files = tuple(replace(r, size=len(CONTENT), md5=digest, mirrors=(f"{server.url}/drops/",)) for r in source.remotes)
    monkeypatch.setitem(SOURCES, "fashion-mnist", replace(source, remotes=files))
    return [r.file for r in files]
