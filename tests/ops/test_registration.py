"""The table of operators: what PyTorch knows about each."""

import inspect
import subprocess
import sys

import pytest
import torch

from learnpool import GatedPool2d, decompositions
from learnpool.ops import registration
from learnpool.ops.registration import OPERATORS

EACH = pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)


@EACH
def test_every_operator_is_registered_with_everything(op):
    packet = getattr(torch.ops.learnpool, op.name).default
    assert str(packet._schema) == f"learnpool::{op.name}{op.schema}"
    for key in ("CompositeExplicitAutograd", "Autograd", "FuncTorchBatched"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(packet.name(), key), key
    assert decompositions()[packet] is op.decomposition


@EACH
def test_functions_of_an_operator_take_its_arguments(op):
    arguments = [a.name for a in getattr(torch.ops.learnpool, op.name).default._schema.arguments]
    for function in (op.kernel, op.fake, op.decomposition, *op.forms.values()):
        inspect.signature(function).bind(*arguments)
    inspect.signature(op.vmap).bind("info", "axes", *arguments)
    assert all("Tensor" in part for part in op.schema[1:].split(", ")[: op.tensors])


def test_an_ordinary_call_is_one_node_of_autograd(monkeypatch):
    """Applied directly: the dispatcher's autograd kernel is not entered."""
    layer, x = GatedPool2d(3, 2), torch.randn(1, 2, 7, 7, requires_grad=True)
    forms = []
    choose = registration.choose_form
    monkeypatch.setattr(registration, "choose_form", lambda *tensors: forms.append(choose(*tensors)) or forms[-1])
    assert layer(x).grad_fn.name() == "learnpool_poolBackward"
    with torch.no_grad():
        assert layer(x).grad_fn is None
    assert forms == [registration.Form.EAGER, registration.Form.NO_GRAD]


def test_python_has_them_where_the_library_is_absent():
    code = """import os
os.environ["LEARNPOOL_CPU_LIBRARY"] = "nowhere.so"
import torch, learnpool
from learnpool.ops import cpu
assert not cpu.CPU.live
layer = learnpool.GatedPool2d(3, 2, 1)
layer(torch.randn(1, 2, 8, 8)).sum().backward()
print(torch.ops.learnpool.pool.default._schema, layer.weight.grad.shape)"""
    expected = f"{torch.ops.learnpool.pool.default._schema} torch.Size([1, 1, 1, 1, 3, 3])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == expected
