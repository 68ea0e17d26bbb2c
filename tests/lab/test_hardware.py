"""The machine of a result: what is recorded, how it is printed, and how many threads torch uses."""

import io
import os
import platform
import subprocess
import sys

import pytest
import torch
from rich.console import Console

import learnpool
from learnpool.lab import hardware

MACHINE = {
    "date": "2026-01-31T12:00:00+00:00",
    "versions": {"learnpool": "0.1.0", "python": "3.11.7", "torch": "2.9.0", "package": "0123456789abcdef"},
    "hardware": {"cpu": "Example CPU", "cores": 4, "load": 0.25},
    "kernel": {"live": True, "detail": "AVX2"},
}


def test_describe_machine_names_versions_and_cores():
    machine = hardware.describe_machine()
    assert machine.keys() == MACHINE.keys()
    assert all(machine[key].keys() == MACHINE[key].keys() for key in ("versions", "hardware", "kernel"))
    assert machine["versions"]["learnpool"] == learnpool.__version__
    assert machine["hardware"]["cores"] == hardware.count_cores() >= 1


def test_the_hash_of_the_package_changes_with_its_code(tmp_path, monkeypatch):
    path = tmp_path / "package" / "lab" / "hardware.py"
    path.parent.mkdir(parents=True)
    monkeypatch.setattr(hardware, "__file__", str(path))
    hashes = set()
    for text in ("a = 1\n", "a = 2\n"):
        path.write_text(text)
        hashes.add(hardware.hash_package.__wrapped__())
    (tmp_path / "package" / "notes.txt").write_text("no code")
    assert hardware.hash_package.__wrapped__() in hashes
    path.rename(path.with_name("software.py"))
    hashes.add(hardware.hash_package.__wrapped__())
    assert len(hashes) == 3


def test_a_machine_in_one_line():
    expected = "Example CPU, 4 cores, load 0.25 at the start; compiled kernel (AVX2); torch 2.9.0; 2026-01-31"
    assert hardware.format_machine(MACHINE) == expected
    reference = MACHINE | {"kernel": {"live": False, "detail": "not built"}}
    assert "; reference (not built); " in hardware.format_machine(reference)


@pytest.mark.parametrize(("load", "warns"), [(None, False), (2.0, False), (2.1, True)])
def test_a_load_above_half_of_the_cores_is_a_warning(load, warns):
    console = Console(file=io.StringIO(), width=200)
    hardware.warn_if_busy(console, MACHINE | {"hardware": {"cpu": "", "cores": 4, "load": load}})
    assert ("The machine was busy" in console.file.getvalue()) == warns


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no affinity")
def test_cores_are_those_this_process_may_use(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3, 5})
    assert hardware.count_cores() == 3


def test_a_processor_without_a_name_is_named_by_its_architecture(monkeypatch):
    def refuse(path):
        raise OSError

    monkeypatch.setattr(hardware.Path, "read_text", refuse)
    monkeypatch.setattr(hardware.platform, "processor", lambda: "")
    monkeypatch.setattr(hardware.platform, "machine", lambda: "riscv64")
    assert hardware.read_processor_name() == "riscv64"


def test_peak_memory_is_in_bytes():
    pytest.importorskip("resource")
    before = hardware.read_peak_memory()
    block = torch.ones(2**26, dtype=torch.uint8)  # 64 MiB, written
    assert hardware.read_peak_memory() >= max(before, block.numel())


def test_threads_are_restored_after_an_error():
    before, inside = torch.get_num_threads(), []

    @hardware.use_threads(before + 1)
    def fail():
        inside.append(torch.get_num_threads())
        raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (inside, torch.get_num_threads()) == ([before + 1], before)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_memory_that_was_freed_is_used_again():
    code = """
import resource, torch
from learnpool.lab import hardware
hardware.keep_memory()
def count_page_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros(25_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
first, *others = [count_page_faults() for _ in range(6)]
assert min(others) < 1 + first / 10, (first, others)  # a busy system may take pages back in between
"""
    subprocess.run([sys.executable, "-c", code], check=True)
