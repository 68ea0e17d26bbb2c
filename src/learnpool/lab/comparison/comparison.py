"""The finished runs of one comparison, read from their directories alone."""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..runs import checkpoint, directory
from ..runs.directory import Result
from ..runs.presets import PRESETS, preset
from ..runs.run import Run, RunError, parse_run
from .answer import compose_answer
from .caveats import Caveats, PoolTraining, find_caveats
from .summary import PoolSummary, RunScore, Verdict, summarize


@dataclass(frozen=True)
class FinishedRun:
    """A finished run: everything in its directory but the weights."""

    path: Path
    run: Run
    result: Result
    metrics: list[dict[str, Any]]
    starts: list[dict[str, Any]]  # where and when it was begun and resumed
    classes: tuple[str, ...]
    digest: str  # of the images
    measured: Mapping[str, Any] = field(default_factory=dict)  # of its network, where it is known without the weights

    @property
    def chance_error(self) -> float:
        """The error of guessing, in %; as if all classes were equally frequent where an older result does not say."""
        known = self.result.chance_error
        return 100 * (1 - 1 / len(self.classes)) if known is None else known

    @property
    def score(self) -> RunScore:
        """An epoch takes its median; on CPUs in CPU time, so that another program on the machine does not count."""
        clock = "cpu_seconds" if self.starts[-1]["device"] == "cpu" else "seconds"
        r, epoch = self.result, statistics.median(row[clock] for row in self.metrics)
        return RunScore(r.test_error, epoch, r.pool_parameters, r.parameters, r.memory)


@dataclass(frozen=True)
class Comparison:
    """One network with several pools; the first is the baseline."""

    runs: tuple[FinishedRun, ...]
    pools: tuple[PoolSummary, ...]

    @property
    def first(self) -> FinishedRun:
        return self.runs[0]

    @property
    def seeds(self) -> list[int]:
        return sorted({finished.run.seed for finished in self.runs})

    @property
    def skipped(self) -> list[str]:
        """Images that were left out, as they do not decode."""
        return sorted({name for finished in self.runs for name in finished.result.skipped})

    @property
    def chance_error(self) -> float:
        """The error of guessing, in %."""
        return self.first.chance_error

    def get_runs(self, pool: str) -> list[FinishedRun]:
        return [finished for finished in self.runs if finished.run.pool == pool]

    @property
    def answer(self) -> tuple[str, ...]:
        """The verdict, its figures, then what to know about them.

        That nothing was learned comes before all else, and then a verdict follows only if some pool differs clearly.
        """
        starts = [start["versions"] for finished in self.runs for start in finished.starts]
        versions = sorted({f"learnpool {of['learnpool']} with torch {of['torch']}" for of in starts})
        mixed = f"Not all else was equal: these runs are of {' and '.join(versions)}."
        caveats = self.caveats
        sentences = compose_answer(self.pools)
        parts = [sentences, caveats.sentences]
        if caveats.unlearned:
            verdicts = {summary.difference.verdict for summary in self.pools if summary.difference}
            parts = [caveats.sentences, () if verdicts == {Verdict.NOT_SIGNIFICANT} else sentences]
        return *parts[0], *parts[1], *([mixed] if len(versions) > 1 else [])

    @property
    def caveats(self) -> Caveats:
        """Why the numbers may say nothing about pools."""
        training = [read_training(summary.pool, self.get_runs(summary.pool)) for summary in self.pools]
        return find_caveats(training, self.chance_error, self.first.result.images["test"])


def read_comparison(paths: Sequence[Path]) -> Comparison:
    """The comparison of the runs in these directories, in their order; RunError if they do not belong together."""
    runs = tuple(read_run(path) for path in paths)
    common = {str(finished.run.model_copy(update={"pool": "", "seed": 0})) for finished in runs}
    if len(common) != 1:
        raise RunError("compare: the runs differ in more than pool and seed")
    if odd := next((finished for finished in runs if finished.digest != runs[0].digest), None):
        raise RunError(f"compare: {odd.path} was trained on other images than {runs[0].path}; give another --out")
    scores: dict[str, dict[int, RunScore]] = {}
    for finished in runs:
        scores.setdefault(finished.run.pool, {})[finished.run.seed] = finished.score
    baseline, *others = scores
    for pool in others:
        wanted, got = sorted(scores[baseline]), sorted(scores[pool])
        if got != wanted:
            raise RunError(f"compare: {pool} wants the seeds of {baseline}, {wanted}, got {got}")
    return Comparison(runs, tuple(summarize(scores, runs[0].result.images["test"])))


def read_run(path: Path) -> FinishedRun:
    """The run in a directory; RunError if it is not done or has lost a file."""
    result = directory.read_result(path) if path.is_dir() else None
    if result is None:
        raise RunError(f"compare: {path} is not the directory of a run that is done")
    run = directory.read_description(path)
    saved = checkpoint.read_record(path)
    metrics = directory.read_metrics(path)
    if saved is None or not metrics:
        raise RunError(f"compare: {path} has lost its {'metrics' if saved else 'checkpoint'}; remove it to train again")
    if saved.get("run", run.id) != run.id:
        raise RunError(f"compare: {path / 'run.json'} is not the description this run was trained with")
    if len(metrics) != result.epochs:
        raise RunError(f"compare: {path / 'metrics.jsonl'}: wanted {result.epochs} epochs, got {len(metrics)}")
    return FinishedRun(path, run, result, metrics, directory.read_starts(path), tuple(saved["classes"]), saved["data"])


def read_line(out: Path, line: Mapping[str, Any]) -> FinishedRun:
    """The run of a line of a study that stands for the directory ``out``; RunError if it is not complete."""
    try:
        result = directory.make_result({**line["result"], "id": line["id"]})
        known = tuple(line["classes"]), line["data"], line["measured"]
    except (KeyError, TypeError, ValueError):
        raise RunError(f"{out}.jsonl: the line of {line['id']} is damaged") from None
    run = parse_run(json.dumps(line["run"]))
    return FinishedRun(out / line["id"], run, result, line["metrics"], line["starts"], *known)


def read_training(pool: str, runs: Sequence[FinishedRun]) -> PoolTraining:
    """How the runs of one pool trained."""
    return PoolTraining(
        pool,
        [finished.result.test_error for finished in runs],
        [[row["train_error"] for row in finished.metrics] for finished in runs],
        [{k: v for k, v in finished.result.pools.items() if k.endswith(".entropy")} for finished in runs],
    )


def format_command(runs: Sequence[Run], out: str | None = None, data_dir: str | None = None) -> str:
    """The ``learnpool compare`` that gives these runs: the preset that is nearest, what differs from it, and where."""
    run = runs[0]
    pools, seeds = list(dict.fromkeys(r.pool for r in runs)), {r.seed for r in runs}
    changes = {name: found for name in PRESETS if (found := _find_changes(name, run)) is not None}
    name = min(changes, key=lambda name: len(changes[name]))
    words = ["learnpool", "compare", "--data", run.data, "--pools", ",".join(pools), "--seeds", str(len(seeds))]
    words += ["--preset", name, *(["--model", run.net] if run.net != "dsn" else [])]
    for changed, value in changes[name].items():
        words += ["--set", f"{changed}={_format_value(value)}"]
    words += ["--data-dir", data_dir] if data_dir is not None else []
    return shlex.join([*words, *(["--out", out] if out is not None else [])])


def _find_changes(name: str, run: Run) -> dict[str, Any] | None:
    """The fields in which a run is not as its preset has it; None if that preset has no recipe for its network."""
    try:
        usual = preset(name, run.data, pool=run.pool, seed=run.seed, net=run.net)
    except RunError:
        return None
    changes = {field: getattr(run, field) for field in Run.model_fields if getattr(run, field) != getattr(usual, field)}
    return changes | ({"rate": run.rate} if "schedule" in changes else {})  # a preset's rates are for its own schedule


def _format_value(value: Any) -> str:
    """A field's value as ``--set`` reads it."""
    if isinstance(value, tuple):
        return ",".join(map(repr, value))
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
