"""A training step of a pool is one operator forward and one backward: nothing is computed around them."""

from collections import Counter

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from cases import distinct
from learnpool import make_pool
from learnpool.names import TREES

NAMES = [
    *TREES, "maxblur", "tree2", "tree3", "Std", "Gate(Max, Avg, by=Std, bias=True)", "gated:channel", "gem:channel",
]  # fmt: skip
ALLOCATIONS = {"aten::new_empty", "aten::empty"}  # parameters without rows
VIEWS = {"aten::detach"}  # where autograd stores a gradient

pytestmark = pytest.mark.usefixtures("kernel")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_a_training_step_runs_one_operator_each_way(name, layout):
    torch.use_deterministic_algorithms(False)  # fresh memory is not filled
    x = distinct(2, 8, 16, 16, dtype=torch.float32).to(memory_format=layout).requires_grad_()
    layer, grad = make_pool(name, 3, 2, 1), torch.ones(2, 8, 8, 8).to(memory_format=layout)

    def step():
        x.grad = None
        layer.zero_grad()
        layer(x).backward(grad)

    step()  # parameters get their sizes
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        step()
    calls = Counter(event.name for event in profiler.events())
    pools = 2 if name == "maxblur" else 1  # the maximum, and the filter
    assert (calls["learnpool::pool"], calls["learnpool::pool_backward"]) == (pools, pools)
    assert {call for call in calls if call.startswith("aten::")} <= ALLOCATIONS | VIEWS
