"""How a run differs from the paper's recipe, in words, from the two descriptions themselves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from ..runs.presets import preset
from ..runs.run import OWN_NETS, Run
from .experiment import fix_unused_fields

SCHEDULES = {"plateau": "steps on a plateau of the validation error", "step": "steps at fixed places"}
WORDS: dict[str, Callable[[Any, Any], str]] = {
    "width": lambda theirs, ours: f"{ours:g} of the paper's channels in every layer",
    "train_size": lambda theirs, ours: "all training images" if ours is None else f"{ours:,} training images, not all",
    "epochs": lambda theirs, ours: f"{ours} epochs, not {theirs}",
    "head_steps": lambda theirs, ours: "no deep supervision" if not ours else f"deep supervision for {ours:,} steps",
    "init": lambda theirs, ours: f"{ours.capitalize()} start values of the convolutions, not the authors'",
    "start": lambda theirs, ours: f"pools start {ours}, not N(0, 0.5) as the paper's",
    "schedule": lambda theirs, ours: f"one cycle of the learning rate, not {SCHEDULES[theirs]}",
    "image_size": lambda theirs, ours: f"images of {ours} pixels, not {theirs}",
    "min_area": lambda theirs, ours: f"random crops of {ours:g} of the area or more, not of one size",
    "decay": lambda theirs, ours: f"weight decay {ours:g}, not {theirs:g}",
    "prepare": lambda theirs, ours: f"images prepared by {ours}, not {theirs}",
    "loss": lambda theirs, ours: f"{ours} loss, not {theirs}",
    "dropout": lambda theirs, ours: f"dropout {ours:g}, not {theirs:g}",
    "batch": lambda theirs, ours: f"batches of {ours}, not {theirs}",
    "nesterov": lambda theirs, ours: "Nesterov's momentum",
    "factors": lambda theirs, ours: f"one learning rate for all parameters, not {theirs.upper()}'s multiples",
    "pool_decay": lambda theirs, ours: "no weight decay of the pools' parameters",
    "pool_rate": lambda theirs, ours: f"the pools learn at {ours:g} times the common rate",
    "precision": lambda theirs, ours: f"computed in {ours}, not {theirs}",
    "net": lambda theirs, ours: f"another network: {ours}",
}
UNMENTIONED = {
    "data",
    "pool",
    "seed",
    "rate",
    "channels_last",
    "pad",
    "mirror",
    "extra_convs",
    "patience",
    "validation",
    "milestones",
    "resize",
}
OF_OWN_NETS = {"width", "dropout", "head_steps", "init", "factors"}  # mean nothing to a user's network


def describe_differences(runs: Sequence[Run], skip: Collection[str] = ()) -> list[str]:
    """Each field in which these runs are not as the paper's recipe for their data, from one whose pools learn;
    ``skip``: fields that the page itself is about.
    """
    if not runs:
        return []
    run = next((run for run in runs if not fix_unused_fields(run.pool)), runs[0])
    net = {"net": run.net} if run.net in OWN_NETS else {}
    paper = preset("paper", run.data, pool=run.pool, seed=run.seed, **net)
    unmentioned = {*UNMENTIONED, *skip, *(() if net else OF_OWN_NETS)}
    changed = [
        name for name in Run.model_fields if getattr(run, name) != getattr(paper, name) and name not in unmentioned
    ]
    return [
        WORDS[name](getattr(paper, name), getattr(run, name)) if name in WORDS else f"{name}: {getattr(run, name)}"
        for name in changed
    ]
