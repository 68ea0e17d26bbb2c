"""Give new parameters to optimizers that exist already."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ..formatting import format_count
from .replacements import Replacement, iter_neighbours


@dataclass
class GroupUpdate:
    """Parameters for one group of an optimizer, not yet added to it."""

    optimizer: torch.optim.Optimizer
    group: dict[str, Any]  # of their neighbours
    names: list[str] = field(default_factory=list)
    parameters: list[nn.Parameter] = field(default_factory=list)
    is_applied: bool = False

    @property
    def has_scheduler(self) -> bool:
        return hasattr(self.optimizer.step, "_wrapped_by_lr_sched")

    @property
    def joins_group(self) -> bool:
        """A scheduler knows only the groups it was made with; and without decay no new group is needed."""
        return self.has_scheduler or not self.group.get("weight_decay")

    @property
    def note(self) -> str:
        count = sum(p.numel() for p in self.parameters)
        number = next(i for i, group in enumerate(self.optimizer.param_groups) if group is self.group)
        text = f"{type(self.optimizer).__name__}: {format_count(count, 'parameter')} "
        if not self.joins_group:
            return f"{text}in a new group with the settings of group {number}, but without weight decay"
        decay = f", with its weight decay {self.group['weight_decay']:g}" if self.group.get("weight_decay") else ""
        return f"{text}joined group {number}{decay}{' (a scheduler is attached)' if decay else ''}"

    def apply(self) -> None:
        """Add the parameters to their neighbours' group, or to a new one of the same settings without weight decay."""
        named = "param_names" in self.group
        if self.joins_group:
            self.group["params"] += self.parameters
            if named:
                self.group["param_names"] += self.names
        else:
            settings = {key: value for key, value in self.group.items() if key not in ("params", "param_names")}
            params: Any = list(zip(self.names, self.parameters, strict=True)) if named else list(self.parameters)
            self.optimizer.add_param_group({**settings, "weight_decay": 0.0, "params": params})
        self.is_applied = True

    def undo(self) -> None:
        if not self.is_applied:
            return
        if self.joins_group:
            for key in {"params", "param_names"} & {*self.group}:
                del self.group[key][-len(self.parameters) :]
        else:
            ours = self.parameters[0]
            groups = self.optimizer.param_groups
            groups[:] = [group for group in groups if all(p is not ours for p in group["params"])]


def check_optimizers(model: nn.Module, optimizers: Any) -> list[torch.optim.Optimizer]:
    """The optimizers as a list; each has to own some of the model's parameters."""
    optimizers = [] if optimizers is None else optimizers
    optimizer_list = list(optimizers) if isinstance(optimizers, Iterable) else [optimizers]
    own = {id(p) for p in model.parameters()}
    for optimizer in optimizer_list:
        name = type(optimizer).__name__
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(f"convert: optimizers must be torch optimizers, got {name}")
        if isinstance(optimizer, torch.optim.LBFGS):
            raise ValueError("convert: LBFGS takes its parameters once; make it after convert")
        if not any(id(p) in own for group in optimizer.param_groups for p in group["params"]):
            raise ValueError(f"convert: this {name} owns no parameter of {type(model).__name__}")
    return optimizer_list


def plan_group_updates(
    model: nn.Module, replacements: list[Replacement], optimizers: list[torch.optim.Optimizer]
) -> list[GroupUpdate]:
    """What each optimizer will get: a pool's parameters go where those of its nearest neighbours are."""
    if not optimizers:
        return []
    groups_by_id = {
        id(p): (optimizer, group)
        for optimizer in reversed(optimizers)
        for group in optimizer.param_groups
        for p in group["params"]
    }
    updates: dict[int, GroupUpdate] = {}
    seen = set(groups_by_id)
    for replacement in replacements:
        for name, parameter in replacement.new.named_parameters():
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            near = next(tensor for tensor in iter_neighbours(model, replacement.site) if id(tensor) in groups_by_id)
            optimizer, group = groups_by_id[id(near)]
            update = updates.setdefault(id(group), GroupUpdate(optimizer, group))
            update.names.append(f"{replacement.site.new_name}.{name}")
            update.parameters.append(parameter)
    return list(updates.values())
