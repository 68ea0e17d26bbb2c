"""Complete recipes: ``paper``, ``modern`` and ``cpu``. A preset is nothing but the fields of a run.

The networks for large images have recipes of their own, those of Caffe's replications, which the paper's authors used:
AlexNet in 450,000 steps of 256 images, GoogLeNet in 250 epochs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...parsing import suggest
from .run import OWN_NETS, SUPERVISED_NETS, Run, RunError, make_run

DIGITS = ("digits", "mnist", "svhn")  # a mirrored digit is not a digit
PREPARED = {"cifar10": "gcn-zca", "cifar100": "gcn-zca", "svhn": "gcn-lcn"}

SMALL_NETS = ("resnet9", "fast")  # other networks for small images
IMAGE_SIZES = {"alexnet": 227, "googlenet": 224, "googlenet-bn": 224}
GOOGLENET: dict[str, Any] = {
    "dropout": 0.4,
    "epochs": 250,
    "rate": tuple(round(0.01 * 0.96**step, 8) for step in range(32)),  # 4 % lower every 8 epochs
    "milestones": tuple(8 * step / 250 for step in range(1, 32)),
    "decay": 2e-4,
}
PAPER_RECIPES: dict[str, dict[str, Any]] = {
    "alexnet": {
        "dropout": 0.5,
        "epochs": 90,
        "rate": (1e-2, 1e-3, 1e-4, 1e-5, 1e-6),
        "milestones": tuple(step / 450 for step in (120, 230, 330, 430)),  # thousands of steps
        "decay": 5e-4,
    },
    "googlenet": GOOGLENET,
    "googlenet-bn": GOOGLENET,
}


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


def adapt(name: str, net: str, data: str) -> dict[str, Any]:
    """Preset overrides for networks other than DSN."""
    if net not in OWN_NETS:
        return {"factors": "plain", "head_steps": 0}
    if net in SMALL_NETS:
        if name == "paper":
            raise RunError(f"preset: paper has no recipe for {net}; see modern and cpu")
        return {"precision": "bfloat16"} | (adapt_resnet9(name) if net == "resnet9" else adapt_fast(name, data))
    fields: dict[str, Any] = {
        "image_size": IMAGE_SIZES[net],
        "resize": 256 if net == "alexnet" else None,  # 8/7 of 224 is 256 anyway
        "mirror": True,
        "pad": 0,
        "loss": "softmax",
        "head_steps": 10_000_000 if net in SUPERVISED_NETS else 0,  # to the end: as many as Caffe's replication trains
    }
    if name == "paper":
        return fields | {"prepare": "mean", "factors": "caffe", "batch": 256, "schedule": "step"} | PAPER_RECIPES[net]
    rate = 0.05 if net == "googlenet-bn" else 0.01  # lower without normalisation; chosen, not tuned
    fields |= {"factors": "plain", "batch": 64, "rate": (rate,), "min_area": 0.25}
    return fields | ({"image_size": 112, "resize": None} if name == "cpu" else {})


def adapt_resnet9(name: str) -> dict[str, Any]:
    """ResNet-9 on CIFAR10; ``cpu`` is a quarter as wide."""
    length = {"width": 0.25, "epochs": 10} if name == "cpu" else {"epochs": 24}
    return length | {"batch": 128, "rate": (0.1,), "decay": 5e-4}


def adapt_fast(name: str, data: str) -> dict[str, Any]:
    """After the CIFAR10 speed record's recipe; ``cpu`` is half as wide."""
    return ({"width": 0.5} if name == "cpu" else {}) | {
        "epochs": 17,
        "batch": 512,
        "rate": (0.75,),
        "warmup": 0.2,
        "momentum": 0.85,
        "decay": 1.3e-3,
        "norm_rate": 64.0,
        "smoothing": 0.2,
        "pad": 1 if data == "digits" else 2,
        "alternate": data not in DIGITS,
    }


PRESETS: dict[str, Callable[[str], dict[str, Any]]] = {"paper": paper, "modern": modern, "cpu": cpu}


def preset(name: str, /, data: str, **changes: Any) -> Run:
    """The run of a preset for a data set, with some fields changed.

    >>> preset("cpu", "cifar10", pool="gated", seed=1).width
    0.25
    """
    if name not in PRESETS:
        raise RunError(f"preset: wanted one of {', '.join(PRESETS)}, got {name!r}{suggest(name, [*PRESETS])}")
    fields = PRESETS[name](data)
    if (net := changes.get("net", "dsn")) != "dsn":
        fields |= adapt(name, net, data)
    if "schedule" in changes and "rate" not in changes and changes["schedule"] != fields.get("schedule", "onecycle"):
        raise RunError(f"rate: the rates of {name} are for its own schedule; give rate with schedule")
    if not changes.get("mirror", True):
        fields.pop("alternate", None)
    if "image_size" in changes:
        fields.pop("resize", None)  # of the preset's own size
    if changes.get("schedule", "step") != "step":
        fields.pop("milestones", None)
    return make_run(fields | {"data": data} | changes)
