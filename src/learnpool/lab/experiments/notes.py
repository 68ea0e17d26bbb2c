"""How runs differ from the paper's recipe, and why, in words, from the two descriptions themselves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from ..runs.presets import SMALL_NETS, preset
from ..runs.run import OWN_NETS, Run
from .experiment import LABELS, fix_unused_fields

SCHEDULES = {
    "plateau": "steps on a plateau of the validation error",
    "step": "steps at fixed places",
    "onecycle": "one cycle of the learning rate",
}
WORDS: dict[str, Callable[[Any, Any], str]] = {
    "width": lambda theirs, ours: f"{ours:g} of the paper's channels in every layer",
    "train_size": lambda theirs, ours: "all training images" if ours is None else f"{ours:,} training images, not all",
    "epochs": lambda theirs, ours: f"{ours} epochs, not {theirs}",
    "image_size": lambda theirs, ours: f"images of {ours} pixels, not {theirs}",
    "precision": lambda theirs, ours: f"computed in {ours}, not {theirs}",
    "dropout": lambda theirs, ours: f"dropout {ours:g}, not {theirs:g}",
    "head_steps": lambda theirs, ours: "no deep supervision" if not ours else f"deep supervision for {ours:,} steps",
    "init": lambda theirs, ours: f"{ours.capitalize()} start values of the convolutions, not the authors'",
    "schedule": lambda theirs, ours: f"{SCHEDULES[ours]}, not {SCHEDULES[theirs]}",
    "rate": lambda theirs, ours: f"learning rate {_format_rates(ours)}, not {_format_rates(theirs)}",
    "min_area": lambda theirs, ours: f"random crops of {ours:g} of the area or more, not of one size",
    "decay": lambda theirs, ours: f"weight decay {ours:g}, not {theirs:g}",
    "prepare": lambda theirs, ours: f"images prepared by {ours}, not {theirs}",
    "loss": lambda theirs, ours: f"{ours} loss, not {theirs}",
    "batch": lambda theirs, ours: f"batches of {ours}, not {theirs}",
    "nesterov": lambda theirs, ours: "Nesterov's momentum",
    "factors": lambda theirs, ours: f"one learning rate for all parameters, not {theirs.upper()}'s multiples",
    "start": lambda theirs, ours: f"masks and filters start {ours}, not N(0, 0.5)",
    "pool_rate": lambda theirs, ours: f"their parameters learn at {ours:g} times the common rate",
    "pool_decay": lambda theirs, ours: "and are decayed" if ours else "and are not decayed",
    "net": lambda theirs, ours: f"{ours}",
}
REASONS = {
    "Another network than the paper's": ("net",),
    "To take minutes, not days": ("width", "train_size", "epochs", "image_size", "precision", "dropout"),
    "So that the pools learn": ("start", "pool_rate", "pool_decay"),
    "As networks are trained today": (
        "head_steps", "init", "schedule", "rate", "batch", "decay", "nesterov", "factors", "prepare", "min_area",
        "loss",
    ),
}  # fmt: skip
UNMENTIONED = {
    "data", "pool", "seed", "channels_last", "pad", "mirror", "extra_convs", "patience", "validation", "milestones",
    "resize", "replace",
}  # fmt: skip
OF_OWN_NETS = {"width", "dropout", "head_steps", "init", "factors"}  # mean nothing to a user's network


def describe_differences(runs: Sequence[Run], skip: Collection[str] = ()) -> list[str]:
    """A sentence for each reason why these runs are not as the paper's recipe for their data, with all that it changed.

    ``skip``: fields that the page itself is about.
    """
    sets = list(dict.fromkeys(run.data for run in runs))
    places: dict[tuple[str, str], list[str]] = {}  # the data sets of a change, by its field and words
    for data in sets:
        for change in _list_changes([run for run in runs if run.data == data], skip):
            places.setdefault(change, []).append(LABELS.get(data, data))
    reasons = {field: reason for reason, fields in REASONS.items() for field in fields}
    sentences: dict[str, list[str]] = {reason: [] for reason in (*REASONS, "Also")}
    for (field, words), where in places.items():
        limits = "" if len(where) == len(sets) else f" ({', '.join(where)})"
        sentences[reasons.get(field, "Also")].append(words + limits)
    return [f"{reason}: {'; '.join(changes)}." for reason, changes in sentences.items() if changes]


def _list_changes(runs: Sequence[Run], skip: Collection[str]) -> Iterator[tuple[str, str]]:
    """Fields in which the runs on one data set differ from the paper's recipe, by the run that uses most fields."""
    run = min(runs, key=lambda run: len(fix_unused_fields(run.pool)))
    if run.net in SMALL_NETS:
        yield "net", f"{run.net}, for which it has no recipe"
        return
    unused = fix_unused_fields(run.pool).keys()
    net = {"net": run.net} if run.net in OWN_NETS else {}
    paper = preset("paper", run.data, pool=run.pool, seed=run.seed, **net)
    unmentioned = {*UNMENTIONED, *skip, *unused, *(() if net else OF_OWN_NETS)}
    unmentioned |= {"pool_decay"} if "pool_rate" in unused else set()
    for name in Run.model_fields:
        theirs, ours = getattr(paper, name), getattr(run, name)
        if theirs != ours and name not in unmentioned:
            yield name, WORDS[name](theirs, ours) if name in WORDS else f"{name} {ours}"


def _format_rates(rates: Sequence[float]) -> str:
    """``0.025, then 0.0125``; of many the first and the last."""
    shown = [f"{rate:g}" for rate in rates]
    return ", then ".join(shown if len(shown) < 4 else [shown[0], "…", shown[-1]])
