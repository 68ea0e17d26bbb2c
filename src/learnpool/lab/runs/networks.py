"""The network of a run, and its groups of parameters for an optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ... import parameter_groups
from ...nets.alexnet import alexnet
from ...nets.dsn import DSN, STRIDED, TABLES, Table, dsn
from ...nets.fast import fast
from ...nets.googlenet import GoogLeNet, googlenet
from ...nets.resnet9 import resnet9
from . import user_networks
from .run import OWN_NETS, Run, RunError

Supervised = DSN | GoogLeNet  # have classifiers on the way, ``heads``, until ``remove_heads``


def make_table(run: Run, image: Sequence[int], classes: int) -> Table:
    """The network's table for a run's images, ``[channels, height, width]``."""
    channels, height, width = image
    return TABLES.get(run.data, Table((height, width), channels, classes))


def build(run: Run, table: Table, seed: int, make: Any = None) -> nn.Module:
    """The untrained network; the pools change no other start value.

    ``make`` is the function of a user's network; it is imported by its name in the run if it is not given.
    """
    if run.net not in OWN_NETS and make is None:
        make = user_networks.import_function(run.net)  # before the seed: a module may draw when it is imported
    torch.manual_seed(seed)
    if run.net not in OWN_NETS:
        return user_networks.build_user_network(run, table, make)
    try:
        return build_own(run, table)
    except (ValueError, RuntimeError) as error:  # two pools that cannot be tied, an image too small, too many channels
        raise RunError(str(error).partition("\n")[0]) from None


def build_own(run: Run, table: Table) -> nn.Module:
    """One of our networks; with ``replace`` the variant with strided convolutions, converted."""
    if run.replace == "max":
        return _build_own(run, table)
    net = _build_own(run.model_copy(update={"pool": STRIDED}), table)
    user_networks.convert_places(run, net, torch.zeros(1, table.channels, *table.image))
    return net


def _build_own(run: Run, table: Table) -> nn.Module:
    options: dict[str, Any] = {"width": run.width, "start": run.start}
    if run.net in ("resnet9", "fast"):
        make = resnet9 if run.net == "resnet9" else fast
        return make(table.classes, pools=run.pool, size=table.image, channels=table.channels, **options)
    options["dropout"], supervise = run.dropout, run.head_steps > 0
    if run.net == "dsn":
        options |= {"extra_convs": run.extra_convs, "init": run.init, "norm": run.norm}
        return dsn(table, run.pool, supervise=supervise, **options)
    height, width = table.image
    if height != width:
        raise ValueError(f"net: {run.net} takes square images, got {height}×{width}")
    options |= {"size": height, "channels": table.channels, "init": "kaiming" if run.init == "kaiming" else "caffe"}
    if run.net == "alexnet":
        return alexnet(table.classes, pools=run.pool, **options)
    return googlenet(table.classes, pool=run.pool, batch_norm=run.net == "googlenet-bn", supervise=supervise, **options)


def make_parameter_groups(run: Run, model: nn.Module) -> list[dict[str, Any]]:
    """Groups for an optimizer; ``factor`` is a multiple of the common rate."""
    pool_decay = run.decay if run.pool_decay else 0.0
    if run.factors == "dsn" and isinstance(model, DSN):
        groups = model.parameter_groups(run.decay, pool_decay)
    else:
        vectors = 2.0 if run.factors == "caffe" else 1.0
        others, pools = (group["params"] for group in parameter_groups(model))
        shifts = {id(m.bias) for m in model.modules() if isinstance(m, nn.BatchNorm2d)} if run.norm_rate != 1 else set()
        flat = [p for p in others if p.dim() <= 1]
        groups = [
            {"name": "weights", "params": [p for p in others if p.dim() > 1], "weight_decay": run.decay},
            {"name": "biases", "params": [p for p in flat if id(p) not in shifts], "factor": vectors},
            {"name": "norms", "params": [p for p in flat if id(p) in shifts], "factor": run.norm_rate},
            {"name": "pools", "params": pools, "weight_decay": pool_decay},
        ]
    for group in groups:
        group.setdefault("weight_decay", 0.0)
        group["factor"] = group.get("factor", 1.0) * (run.pool_rate if group["name"] == "pools" else 1.0)
    return [group for group in groups if group["params"]]
