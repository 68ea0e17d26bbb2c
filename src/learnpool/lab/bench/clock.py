"""Seconds of a call, on the CPU or on a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

CACHE = 256 * 2**20  # bytes, more than the L2 cache of any GPU


def time_call(call: Callable[[], object], calls: int = 1, device: str = "cpu") -> float:
    """Seconds per call; on a GPU between two events, after everything that was queued before."""
    if torch.device(device).type != "cpu":
        return time_on_gpu(call, calls, torch.device(device))
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def time_on_gpu(call: Callable[[], object], calls: int, device: torch.device) -> float:
    """Seconds per call by events; before each call the L2 cache is filled with something else."""
    with torch.cuda.device(device):
        events: list[tuple[Any, Any]] = []
        for _ in range(calls):
            make_cache_filler(device).zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            events.append((start, end))
        torch.cuda.synchronize(device)
    return sum(float(start.elapsed_time(end)) for start, end in events) / calls / 1e3


@lru_cache(maxsize=8)
def make_cache_filler(device: torch.device) -> Tensor:
    """Memory larger than the cache."""
    return torch.empty(CACHE, dtype=torch.int8, device=device)
