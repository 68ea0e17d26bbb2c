"""``learnpool data get``: files from their mirrors; what arrives is verified before it gets its name.

A file grows as ``NAME.part``. A download that ends early is resumed where it ended, by the next call too. Whatever a
server says of length or range, the published MD5 decides; a complete file of other content is thrown away.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from .. import files
from .catalog import SOURCES
from .loading import describe_unknown
from .source import Remote
from .split import DataError

BLOCK = 1 << 18
MANUAL = {  # how to get what has no published checksum
    "imagenet": "image-net.org gives its files to those who register",
    "imagenette": "github.com/fastai/imagenette has it; unpack it in the data directory",
}
MAX_IDLE_ATTEMPTS = 4  # consecutive attempts that receive nothing
PAUSE = 1.0  # seconds before a further attempt, doubled each time
TIMEOUT = 30.0

Advance = Callable[[int], None]  # called with the number of bytes received so far


class MirrorError(Exception):
    """This mirror does not have the file."""


def fetch_dataset(
    name: str, data_dir: Path, mirror: str | None = None, extra: bool = True, quiet: bool = False
) -> list[Path]:
    """The files of a data set, verified and in place: ``DATA_DIR/NAME/FILE``."""
    if name == "digits":
        raise DataError("digits: nothing to fetch, they are part of scikit-learn")
    if name in MANUAL:
        raise DataError(f"{name}: nothing to fetch; {MANUAL[name]}")
    if name not in SOURCES:
        raise DataError(describe_unknown(name, tuple(SOURCES)))
    remotes = [remote for remote in SOURCES[name].remotes if extra or not remote.file.startswith("extra")]
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    paths: list[Path] = []
    console = Console(stderr=True)
    disable = quiet or not console.is_terminal  # in a file a bar is noise
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=disable) as bar:
        for remote in remotes:
            task = bar.add_task(remote.file, total=remote.size)
            advance = partial(lambda task, size: bar.update(task, completed=size), task)
            paths.append(fetch_file(remote, data_dir / name, advance, mirror))
    return paths


def fetch_file(remote: Remote, folder: Path, advance: Advance = lambda size: None, mirror: str | None = None) -> Path:
    """The file, verified and in place; nothing is fetched if it is there already."""
    if mirror and not mirror.startswith(("http://", "https://")):
        raise DataError(f"--mirror: wanted an address that begins with http:// or https://, got {mirror!r}")
    target = folder / remote.file
    if target.is_file() and compute_md5(target) == remote.md5:
        advance(remote.size)
        return target
    part, reasons = target.with_name(target.name + ".part"), []
    with files.keep_if_used(folder):
        for start in (mirror,) if mirror else remote.mirrors:
            url = start.rstrip("/") + "/" + remote.file
            try:
                _fetch_from(url, remote, part, advance)
            except MirrorError as reason:
                reasons.append(f"{url}: {reason}")
            except OSError as error:  # network errors are handled inside: this is the disk, and does not name the file
                raise OSError(error.errno, error.strerror, str(part)) from None
            else:
                os.replace(part, target)
                return target
        raise DataError("; ".join(reasons))


def _fetch_from(url: str, remote: Remote, part: Path, advance: Advance) -> None:
    """Download ``part`` and verify it; if a resumed one has the wrong content, start over once."""
    while True:
        resumed = _get_size(part) > 0
        _download(url, remote, part, advance)
        md5 = compute_md5(part)
        if md5 == remote.md5:
            return
        size = _get_size(part)
        part.unlink()
        if not resumed:
            raise MirrorError(f"wanted {remote.size:,} bytes of MD5 {remote.md5}, got {size:,} of {md5}")


def _download(url: str, remote: Remote, part: Path, advance: Advance) -> None:
    """Append to ``part`` until it is complete; retry as long as attempts receive something."""
    idle, most = 0, 0
    while True:
        received = _get_size(part)
        if received > most:
            most, idle = received, 0
        if received >= remote.size:
            return
        problem = _try_once(url, remote.size, part, advance)
        if not problem:
            return
        if _get_size(part) <= most:
            idle += 1
        if idle == MAX_IDLE_ATTEMPTS:
            hint = f"; {part} is kept, to be resumed" if _get_size(part) else ""
            raise MirrorError(f"wanted {remote.size:,} bytes, got {_get_size(part):,} ({problem}){hint}")
        if idle:
            time.sleep(PAUSE * 2 ** (idle - 1))


def _try_once(url: str, size: int, part: Path, advance: Advance) -> str:
    """One connection. Returns what went wrong, or nothing if the server sent all it has."""
    before = _get_size(part)
    request = urllib.request.Request(url, headers={"User-Agent": "learnpool"})
    if before:
        request.add_header("Range", f"bytes={before}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink()  # the server's file is no longer than ours: start over
        elif error.code < http.HTTPStatus.INTERNAL_SERVER_ERROR:
            raise MirrorError(f"HTTP {error.code} {error.reason}") from None
        return f"HTTP {error.code} {error.reason}"
    except (OSError, http.client.HTTPException) as error:
        return str(getattr(error, "reason", None) or error or type(error).__name__)
    with response:
        if not isinstance(response, http.client.HTTPResponse):
            raise MirrorError(f"wanted an answer by HTTP, was sent to {response.url}")
        position = 0
        if response.status == http.HTTPStatus.PARTIAL_CONTENT:  # else the range was ignored: all of it comes
            position, answer = before, response.headers.get("Content-Range", "")
            if not answer.startswith(f"bytes {before}-"):
                part.unlink(missing_ok=True)
                return f"asked for the bytes from {before:,} on, got {answer or 'an unknown range'}"
        return _receive(response, part, position, size, advance)


def _receive(response: http.client.HTTPResponse, part: Path, position: int, size: int, advance: Advance) -> str:
    """Write the response into ``part`` from ``position`` up to ``size``; return what went wrong, or an empty string."""
    with part.open("r+b" if position else "wb") as file:
        file.seek(position)
        while position < size:
            try:
                block = response.read(min(BLOCK, size - position))
            except (OSError, http.client.HTTPException) as error:
                return str(error) or type(error).__name__
            if not block:
                complete = response.length == 0 and "Content-Length" in response.headers
                return "" if complete else "the connection ended early"
            file.write(block)
            position += len(block)
            advance(position)
    return ""


def _get_size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def compute_md5(path: Path) -> str:
    """The MD5 of a file's content."""
    with path.open("rb") as file:
        digest = hashlib.md5(usedforsecurity=False)
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
