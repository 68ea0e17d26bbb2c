"""Complete recipes: ``paper``, ``modern`` and ``cpu``. A preset is nothing but the fields of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...names import suggest
from .run import Run, RunError, make_run

DIGITS = ("digits", "mnist", "svhn")  # a mirrored digit is not a digit
PREPARED = {"cifar10": "gcn-zca", "cifar100": "gcn-zca", "svhn": "gcn-lcn"}


def paper(data: str) -> dict[str, Any]:
    """DSN's recipe with this paper's schedule: rates that step down on a plateau, heads for 50k steps, 400 epochs."""
    return {
        "prepare": PREPARED.get(data, "mean"),
        "loss": "hinge" if data == "cifar10" else "softmax",
        "head_steps": 50_000,
        "epochs": 400,
        "schedule": "plateau",
        "rate": (0.025, 0.0125, 0.0001),
        "factors": "dsn",
        "pool_decay": True,
    }


def modern(data: str) -> dict[str, Any]:
    """Kaiming start, one cycle of the rate, pools that learn three times as fast and are not decayed."""
    return {
        "init": "kaiming",
        "start": "spread",
        "pool_rate": 3.0,
        "epochs": 60,
        "batch": 64,
        "rate": (0.02,),
        "nesterov": True,
        "channels_last": True,
    } | augmentation(data)


def augmentation(data: str) -> dict[str, Any]:
    """Crops of the padded image, and mirrored ones where a mirrored image is still one of its class."""
    return {"pad": 1 if data == "digits" else 4, "mirror": data not in DIGITS}


def cpu(data: str) -> dict[str, Any]:
    """``modern`` with a quarter of the channels: CIFAR10 in half an hour on one core."""
    return modern(data) | {"width": 0.25, "dropout": 0.1, "epochs": 40 if data == "digits" else 16}


PRESETS: dict[str, Callable[[str], dict[str, Any]]] = {"paper": paper, "modern": modern, "cpu": cpu}


def preset(name: str, data: str, **changes: Any) -> Run:
    """The run of a preset for a data set, with some fields changed.

    >>> preset("cpu", "cifar10", pool="gated", seed=1).width
    0.25
    """
    if name not in PRESETS:
        raise RunError(f"preset: wanted one of {', '.join(PRESETS)}, got {name!r}{suggest(name, [*PRESETS])}")
    fields = PRESETS[name](data)
    if changes.get("net", "dsn") != "dsn":
        fields |= {"factors": "plain", "head_steps": 0}
    if "schedule" in changes and "rate" not in changes and changes["schedule"] != fields.get("schedule", "onecycle"):
        raise RunError(f"rate: the rates of {name} are for its own schedule; give rate with schedule")
    return make_run(fields | {"data": data} | changes)
