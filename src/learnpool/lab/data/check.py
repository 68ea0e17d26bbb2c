"""``learnpool data check``: what is there, whether it is what was published, and how many images of each class."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ...formatting import escape_control_characters
from .catalog import SOURCES
from .decoding import find_problems
from .fetch import compute_md5
from .loading import describe_missing, load
from .source import Source
from .split import DataError, Folder


@dataclass
class DataReport:
    """A data set's files with their state, its splits with their images of each class, and what is wrong."""

    name: str
    files: list[tuple[str, int, str]] = field(default_factory=list)  # path, bytes, what its checksum says
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    missing: bool = False


def check(name: str, data_dir: Path, workers: int = 0) -> DataReport:
    """Sizes, checksums where one is published, and the images of each class; every file of a folder is decoded."""
    report = DataReport(name)
    try:
        if name in SOURCES:
            _check_files(report, SOURCES[name], data_dir)
        data = None if report.missing else load(name, data_dir)
    except DataError as error:
        report.problems += [str(error)] if str(error) not in report.problems else []
        return report
    if data is None:
        return report
    splits = {"train": data.train, "test": data.test, "extra": getattr(data, "extra", None)}
    for title, split in splits.items():
        if split is not None:
            counts = torch.bincount(split.labels, minlength=len(data.classes)).tolist()
            report.counts[title] = dict(zip(data.classes, counts, strict=True))
    if isinstance(data, Folder):
        for files in (data.train, data.test):
            report.problems += filter(None, find_problems(files, workers))
    return report


def check_all(names: Sequence[str], data_dir: Path) -> list[DataReport]:
    """Reports on ``names``, which have to be there; without names, on every official set that is."""
    if not names:
        reports = [report for report in (check(name, data_dir) for name in SOURCES) if not report.missing]
        if not reports:
            raise DataError(f"no data set found in {data_dir}; see learnpool data get, or give --data-dir")
        return reports
    reports = [check(name, data_dir) for name in names]
    for report in reports:
        if report.missing:
            report.problems.append(describe_missing(SOURCES[report.name], data_dir))
    return reports


def format_reports(reports: Sequence[DataReport]) -> str:
    """A few lines for each data set, its problems last."""
    lines = []
    for report in reports:
        lines.append(f"{report.name}: {'wrong' if report.problems else 'right'}")
        lines += [f"  {path}  {size:,} bytes, {state}" for path, size, state in report.files]
        for split, counts in report.counts.items():
            fewest, most = min(counts.values()), max(counts.values())
            each = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
            lines.append(f"  {split}: {sum(counts.values()):,} images, {each} of each of {len(counts)} classes")
        lines += [f"  {problem}" for problem in report.problems]
    return "\n".join(map(escape_control_characters, lines))


def _check_files(report: DataReport, source: Source, data_dir: Path) -> None:
    files = source.find_files(data_dir)
    report.missing = not files
    for path in files:
        state, problem = _check_file(source, path)
        report.files.append((str(path), path.stat().st_size, state))
        report.problems += [problem] if problem else []


def _check_file(source: Source, path: Path) -> tuple[str, str]:
    """What the checksum of a file says, and what is wrong; a file packed differently is judged by its content."""
    published, md5 = source.get_checksum(path.name), compute_md5(path)
    if md5 == published:
        return "checksum right", ""
    try:
        contents = {name: hashlib.md5(data, usedforsecurity=False) for name, data in source.iter_contents(path)}
    except DataError as error:
        return "broken", str(error)
    checksums = {name: source.get_checksum(name) for name in contents}
    for name, content in contents.items():
        if checksums[name] not in (None, content.hexdigest()):
            return "content wrong", f"{path}: wanted {name} of MD5 {checksums[name]} inside, got {content.hexdigest()}"
    if contents and all(checksums.values()):
        return "content right, packed differently than the published file", ""
    if published is None:
        return "no published checksum", ""
    return "checksum wrong", f"{path}: wanted MD5 {published}, got {md5}"
