"""Finished runs of a directory or its study, read once, and what is measured of their networks afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from .. import files
from ..comparison.caveats import find_caveats
from ..comparison.comparison import FinishedRun, read_line, read_run, read_training
from ..comparison.summary import PoolSummary, summarize
from ..runs import directory
from ..runs.run import Run
from ..runs.studies import get_study_path, read_study


class Results:
    """The finished runs in ``out``, and in the study that stands for it.

    ``announce`` is called with the name of each run or file before it is measured.
    """

    def __init__(self, out: Path, data_dir: Path | None = None, announce: Callable[[str], None] | None = None) -> None:
        self.out, self.data_dir = out, data_dir
        self.announce = announce or (lambda name: None)
        self._find = cache(self._read)
        path = get_study_path(out)
        self.study = read_study(path) if path.exists() else {}

    def find(self, run: Run) -> FinishedRun | None:
        """A finished run; None if it is not finished."""
        return self._find(run)

    def find_all(self, runs: Iterable[Run]) -> list[FinishedRun]:
        """Those of the runs that are finished."""
        return [entry for run in runs if (entry := self.find(run))]

    def _read(self, run: Run) -> FinishedRun | None:
        path = self.out / run.id
        if directory.read_result(path) is not None:
            return read_run(path)
        return read_line(self.out, self.study[run.id]) if run.id in self.study else None

    def summarize(self, groups: Mapping[str, Sequence[Run]]) -> dict[str, PoolSummary]:
        """Summaries of groups over the seeds finished by them and by the first, their baseline; none without it."""
        finished = {label: entries for label, runs in groups.items() if (entries := self.find_all(runs))}
        baseline = next(iter(groups), None)
        if baseline not in finished:
            return {}
        scores = {label: {e.run.seed: e.score for e in entries} for label, entries in finished.items()}
        scores = {label: seeds for label, seeds in scores.items() if seeds.keys() & scores[baseline].keys()}
        images = finished[baseline][0].result.images["test"]
        return {summary.pool: summary for summary in summarize(scores, images)}

    def list_caveats(self, groups: Mapping[str, Sequence[Run]]) -> list[str]:
        """What to know before reading the numbers of these groups, all finished; the first is the baseline."""
        entries = {label: self.find_all(runs) for label, runs in groups.items()}
        if not entries:
            return []
        first = next(iter(entries.values()))[0]
        trained = [read_training(label, runs) for label, runs in entries.items()]
        return list(find_caveats(trained, first.chance_error, first.result.images["test"]).sentences)

    def measure(self, run: Run, name: str, make: Callable[[FinishedRun], Any]) -> Any:
        """The value of ``make(run)``, cached as ``name.json`` in the run's directory; None if it is unfinished."""
        entry = self.find(run)
        if entry is None:
            return None
        if name in entry.measured:
            return entry.measured[name]
        return self._read_or_make(entry.path / f"{name}.json", run.id, lambda: make(entry))

    def _read_or_make(self, path: Path, name: str, make: Callable[[], Any]) -> Any:
        if not path.exists():
            self.announce(name)
            files.write_json(path, make())
        return files.read_json(path)

    def measure_groups(
        self, groups: Mapping[str, Sequence[Run]], name: str, make: Callable[[FinishedRun], Any]
    ) -> dict[str, dict[int, Any]]:
        """``measure`` by group and seed, for the seeds that all groups have finished; groups without any are left out.

        So that means over seeds are of the same seeds.
        """
        finished = {label: {run.seed: run for run in runs if self.find(run)} for label, runs in groups.items()}
        finished = {label: runs for label, runs in finished.items() if runs}
        shared = set.intersection(*(set(runs) for runs in finished.values())) if finished else set()
        return {
            label: {seed: self.measure(runs[seed], name, make) for seed in sorted(shared)}
            for label, runs in finished.items()
            if shared
        }

    def measure_once(self, name: str, make: Callable[[], Any]) -> Any:
        """The value of ``make()``, cached as ``name.json`` beside the runs."""
        if name in self.study:
            return self.study[name]["value"]
        return self._read_or_make(self.out / f"{name}.json", name, make)
