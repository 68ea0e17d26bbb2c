"""Memory that is handed out uninitialised is NaN in every test, so that a cell nobody wrote cannot pass."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _nan_in_fresh_memory():
    torch.set_num_threads(1)  # tests run side by side
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)


def pytest_addoption(parser):
    parser.addoption("--torch-table", metavar="FILE", help="write what works with PyTorch as a table")


def pytest_configure(config):
    if path := config.getoption("--torch-table"):
        from torch_table import Table

        config.pluginmanager.register(Table(path))
