"""``min Σ ‖pool(x) − y‖²`` over the parameters of a pool, or of several pools that share theirs."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from ..parameters import TreeParameters
from ..program import Kind

SEARCH, STEPS = 25, 150  # iterations of a first look from each start, and of the fit
GOAL = 0.01  # of the norm: a gate that fits more closely is so near 0 or 1 that it can hardly learn any more
DRAWS = 6  # random starts of a tree with filters, whose error has many valleys
Pair = tuple[int, Tensor, Tensor]  # which pool, what reaches it, what it should give


@torch.no_grad()
def fit(pools: Sequence[nn.Module], pairs: Sequence[Pair]) -> None:
    """Set the pools to the parameters with the least squared error; keep the current ones if none are better.

    Works on copies in float32, so that gradients, hooks and dtypes of the pools themselves are left alone. Seeds
    torch's generator: the caller has to restore it.
    """
    nonempty = [pair for pair in pairs if len(pair[1])]
    subset = nonempty[:: max(1, len(nonempty) // 2)]  # the search may be rough
    current = copy.deepcopy(nn.ModuleList(pools)).float().requires_grad_()
    best = min(
        (minimise(trial, subset, SEARCH) for trial in make_starts(current)),
        key=lambda trial: compute_error(trial, subset),
    )
    best = snap_mixes(minimise(best, nonempty, STEPS), nonempty)
    if compute_error(best, nonempty) < compute_error(current, nonempty):
        for parameter, value in zip(nn.ModuleList(pools).parameters(), best.parameters(), strict=True):
            parameter.copy_(value)


def make_starts(current: nn.ModuleList) -> list[nn.ModuleList]:
    """Starting points: the current parameters, neutral ones, and a few random draws for trees with filters."""
    trials = [copy.deepcopy(current)]
    if not all(isinstance(pool, TreeParameters) and not is_parametrized(pool) for pool in current):
        return trials
    filters = any(pool.program.find_rows(Kind.DOT) for pool in current if isinstance(pool, TreeParameters))
    for seed in range(1 + DRAWS * filters):
        trial = copy.deepcopy(current)
        torch.manual_seed(seed)
        for pool in trial:
            assert isinstance(pool, TreeParameters)
            pool.start, pool.std = "paper" if seed else "neutral", 0.5
            pool.reset_parameters()
        trials.append(trial)
    return trials


def minimise(trial: nn.ModuleList, pairs: Sequence[Pair], steps: int) -> nn.ModuleList:
    """The trial after at most ``steps`` iterations of L-BFGS, fewer if it reaches the goal."""
    optimizer = torch.optim.LBFGS(
        trial.parameters(), max_iter=steps, tolerance_grad=1e-9, tolerance_change=1e-12, line_search_fn="strong_wolfe"
    )

    def closure() -> float:
        optimizer.zero_grad()
        value = compute_error(trial, pairs, backward=True)
        if value < GOAL**2:
            raise GoalReached
        return value

    with torch.enable_grad(), suppress(GoalReached):  # raised where the trial has the parameters that reach it
        optimizer.step(closure)
    return trial


class GoalReached(Exception):  # noqa: N818
    """The error is below ``GOAL``: stop iterating."""


def snap_mixes(trial: nn.ModuleList, pairs: Sequence[Pair]) -> nn.ModuleList:
    """The trial with proportions in [0, 1], and at 0 or 1 if that fits no worse: there a mix is exactly one side."""
    rounded = copy.deepcopy(trial)
    for clamped, snapped in zip(trial, rounded, strict=True):
        if isinstance(clamped._parameters.get("mix"), Tensor):
            clamped.mix.clamp_(0, 1)  # type: ignore[operator]
            snapped.mix.round_().clamp_(0, 1)  # type: ignore[operator]
    return rounded if compute_error(rounded, pairs) <= compute_error(trial, pairs) else trial


def compute_error(trial: nn.ModuleList, pairs: Sequence[Pair], backward: bool = False) -> float:
    """``Σ ‖pool(x) − y‖² / Σ ‖y‖²``, with gradients if asked."""
    scale = sum(float(y.float().square().sum()) for _, _, y in pairs) or 1.0
    total = 0.0
    for place, x, y in pairs:
        part = (trial[place](x.float()) - y.float()).square().sum() / scale
        if backward:
            part.backward()
        total += float(part.detach())
    return total if math.isfinite(total) else math.inf
