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
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from .catalog import SOURCES
from .loading import describe_unknown
from .source import Remote
from .split import DataError

BLOCK = 1 << 18
MAX_IDLE_ATTEMPTS = 4  # in a row that bring nothing
PAUSE = 1.0  # seconds before a further attempt, doubled each time
TIMEOUT = 30.0

Advance = Callable[[int], None]  # called with the number of bytes that are there by now


class MirrorError(Exception):
    """This mirror has not got the file."""


def fetch_dataset(
    name: str, data_dir: Path, mirror: str | None = None, extra: bool = True, quiet: bool = False
) -> list[Path]:
    """The files of a data set, verified and in place: ``DATA_DIR/NAME/FILE``."""
    if name == "digits":
        raise DataError("digits: nothing to fetch, they are part of scikit-learn")
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
            paths.append(fetch_file(remote, data_dir / name, partial(_update_bar, bar, task), mirror))
    return paths


def _update_bar(bar: Progress, task: TaskID, size: int) -> None:
    bar.update(task, completed=size)


def fetch_file(remote: Remote, folder: Path, advance: Advance = lambda size: None, mirror: str | None = None) -> Path:
    """The file, verified and in place; nothing is fetched if it is there already."""
    if mirror and not mirror.startswith(("http://", "https://")):
        raise DataError(f"--mirror: wanted an address that begins with http:// or https://, got {mirror!r}")
    target = folder / remote.file
    if target.is_file() and compute_md5(target) == remote.md5:
        advance(remote.size)
        return target
    folder.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    reasons = []
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
    """Bring ``part`` to the published content. One from an earlier call may be of other content: start over, once."""
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
    """Add to ``part`` until it has its size or the server has no more; try again while attempts bring something."""
    idle, most = 0, 0
    while True:
        there = _get_size(part)
        if there > most:
            most, idle = there, 0
        if there >= remote.size:
            return
        problem = _try_once(url, remote.size, part, advance)
        if not problem:
            return
        if _get_size(part) <= most:
            idle += 1
        if idle == MAX_IDLE_ATTEMPTS:
            kept = f"; {part} is kept, to be resumed" if _get_size(part) else ""
            raise MirrorError(f"wanted {remote.size:,} bytes, got {_get_size(part):,} ({problem}){kept}")
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
        there = 0
        if response.status == http.HTTPStatus.PARTIAL_CONTENT:  # else the range was ignored: all of it comes
            there, answer = before, response.headers.get("Content-Range", "")
            if not answer.startswith(f"bytes {before}-"):
                part.unlink(missing_ok=True)
                return f"asked for the bytes from {before:,} on, got {answer or 'an unknown range'}"
        return _receive(response, part, there, size, advance)


def _receive(response: http.client.HTTPResponse, part: Path, there: int, size: int, advance: Advance) -> str:
    """Write what comes at ``there``, up to ``size`` in all. Returns what went wrong, or nothing."""
    with part.open("r+b" if there else "wb") as file:
        file.seek(there)
        while there < size:
            try:
                block = response.read(min(BLOCK, size - there))
            except (OSError, http.client.HTTPException) as error:
                return str(error) or type(error).__name__
            if not block:
                complete = response.length == 0 and "Content-Length" in response.headers
                return "" if complete else "the connection ended early"
            file.write(block)
            there += len(block)
            advance(there)
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
