"""Memory that is handed out uninitialised is NaN in every test, so that a cell nobody wrote cannot pass.

Tests run side by side, so each process, and each that it starts, has one thread: on busy cores two threads that wait
for each other can take thirty times as long.

Compiled graphs are kept in a directory of this run alone: the common cache may hold what was compiled for another
setting of the processor, or what a killed process left.
"""

import atexit
import os
import shutil
import sys
import tempfile

import pytest
import torch

COMPILED = tempfile.mkdtemp(prefix="learnpool-compiled-")
os.environ["TORCHINDUCTOR_CACHE_DIR"] = COMPILED
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)  # before fixtures of a module or a session
atexit.register(shutil.rmtree, COMPILED, ignore_errors=True)


@pytest.fixture(autouse=True)
def _nan_in_fresh_memory():
    torch.set_num_threads(1)  # whatever the test before left
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="session")
def kernel():
    """Without the compiled library its tests would compare the reference with itself."""
    from learnpool.ops import cpu

    if not cpu.CPU.live and os.environ.get("LEARNPOOL_REQUIRE_KERNELS") == "1":
        pytest.fail(f"the CPU kernel is required here: {cpu.CPU.detail}")
    if not cpu.CPU.live:
        pytest.skip(f"no CPU kernel: {cpu.CPU.detail}")


@pytest.fixture
def learnpool(monkeypatch, capsys):
    """Call the command line in this process: exit status, stdout, stderr."""
    from learnpool.cli import main

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["learnpool", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        output = capsys.readouterr()
        return stop.value.code, output.out, output.err

    return call


@pytest.fixture
def small_sources(monkeypatch):
    """The official data sets, as small as the files that ``data_files`` writes."""
    from data_files import shrink_sources

    shrink_sources(monkeypatch)


@pytest.fixture
def server(monkeypatch):
    """A file server in this process."""
    from file_server import serve

    with serve(monkeypatch) as server:
        yield server


@pytest.fixture
def published(server, monkeypatch):
    """The names of Fashion-MNIST's files, which ``server`` has."""
    from file_server import publish_fashion_mnist

    return publish_fashion_mnist(server, monkeypatch)


@pytest.fixture(scope="session")
def comparison(tmp_path_factory):
    """The directory of a small comparison, and its runs: five pools, two seeds, one of them interrupted."""
    from learnpool.lab.comparison import compare
    from learnpool.lab.runs.train import train
    from runs import SMALL, Stop, stop_at

    out = tmp_path_factory.mktemp("comparison")
    changes = {k: v for k, v in SMALL.items() if k != "pool"} | {"epochs": 2, "train_size": 120}
    runs = compare.plan("cpu", ["digits"], ["max", "half", "mixed", "gated", "tree2:channel+max"], 2, **changes)
    with pytest.raises(Stop):
        train(runs[0], out, threads=1, watch=stop_at(4))
    compare.compare(runs, out, jobs=1)
    return out, runs


def pytest_addoption(parser):
    parser.addoption("--torch-table", metavar="FILE", help="write what works with PyTorch as a table")


def pytest_configure(config):
    if path := config.getoption("--torch-table"):
        from torch_table import Table

        config.pluginmanager.register(Table(path))
