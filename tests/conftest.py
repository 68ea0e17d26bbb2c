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
