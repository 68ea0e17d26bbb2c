"""Timing on a GPU, with a clock in place of its events."""

import pytest
import torch

from learnpool.lab.bench import clock


class Event:
    """An event whose time is the number of operations queued before it."""

    queue: list = []

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.time = len(self.queue)

    def elapsed_time(self, other):
        return float(other.time - self.time)


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(Event, "queue", [])
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "device", lambda device: torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: Event.queue.append("synchronize"))

    class Filler:
        def zero_(self):
            Event.queue.append("fill")

    monkeypatch.setattr(clock, "make_cache_filler", lambda device: Filler())
    return Event.queue


def test_each_call_lies_between_two_events_and_finds_a_cold_cache(gpu):
    seconds = clock.time_call(lambda: gpu.extend(["kernel", "kernel"]), 3, "cuda")
    assert seconds == pytest.approx(2e-3)  # two milliseconds of an event each: filling the cache is not timed
    assert gpu == ["fill", "kernel", "kernel"] * 3 + ["synchronize"]


def test_the_processor_is_timed_by_its_own_clock():
    calls = []
    assert clock.time_call(lambda: calls.append(1), 3) > 0
    assert len(calls) == 3


def test_the_filler_is_larger_than_any_cache(monkeypatch):
    monkeypatch.setattr(clock, "CACHE", 1024)
    clock.make_cache_filler.cache_clear()
    assert clock.make_cache_filler(torch.device("cpu")).numel() == 1024
    clock.make_cache_filler.cache_clear()


def test_a_gpu_that_is_not_here(learnpool):
    for command in (("bench", "pools"), ("bench", "net")):
        status, _, error = learnpool(*command, "--device", "cuda:99")
        assert (status, len(error.splitlines())) == (2, 1)
        assert "--device: wanted cuda:99" in error
