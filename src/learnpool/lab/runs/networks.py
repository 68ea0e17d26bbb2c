"""The network of a run, and its groups of parameters for an optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ... import parameter_groups
from ...nets.dsn import DSN, TABLES, Table, dsn
from . import user_networks
from .run import Run, RunError


def make_table(run: Run, image: Sequence[int], classes: int) -> Table:
    """The network's table for a run's images, ``[channels, height, width]``."""
    channels, height, width = image
    return TABLES.get(run.data, Table((height, width), channels, classes))


def build(run: Run, table: Table, seed: int, make: Any = None) -> nn.Module:
    """The untrained network; the pools change no other start value.

    ``make`` is the function of a user's network; it is imported by its name in the run if it is not given.
    """
    if run.net != "dsn" and make is None:
        make = user_networks.import_function(run.net)  # before the seed: a module may draw when it is imported
    torch.manual_seed(seed)
    if run.net != "dsn":
        return user_networks.build_user_network(run, table, make)
    options: dict[str, Any] = {"width": run.width, "extra_convs": run.extra_convs, "supervise": run.head_steps > 0}
    try:
        return dsn(table, run.pool, **options, dropout=run.dropout, init=run.init, start=run.start)
    except (ValueError, RuntimeError) as error:  # two pools that cannot be tied, an image too small, too many channels
        raise RunError(str(error).partition("\n")[0]) from None


def make_parameter_groups(run: Run, model: nn.Module) -> list[dict[str, Any]]:
    """Groups for an optimizer; ``factor`` is a multiple of the common rate."""
    pool_decay = run.decay if run.pool_decay else 0.0
    if run.factors == "dsn" and isinstance(model, DSN):
        groups = model.parameter_groups(run.decay, pool_decay)
    else:
        others, pools = (group["params"] for group in parameter_groups(model))
        groups = [
            {"name": "weights", "params": [p for p in others if p.dim() > 1], "weight_decay": run.decay},
            {"name": "biases", "params": [p for p in others if p.dim() <= 1], "weight_decay": 0.0},
            {"name": "pools", "params": pools, "weight_decay": pool_decay},
        ]
    for group in groups:
        group["factor"] = group.get("factor", 1.0) * (run.pool_rate if group["name"] == "pools" else 1.0)
    return [group for group in groups if group["params"]]
