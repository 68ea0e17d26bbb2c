"""Which form a call takes where, and that private names of torch are in one file."""

import re
from pathlib import Path

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, vmap

import learnpool
from learnpool.ops import transforms
from learnpool.ops.transforms import Form, choose_form

SOURCE = Path(learnpool.__file__).parent
PRIVATE = re.compile(
    r"\btorch(?:\.\w+)*?\._[a-zA-Z]\w*|\bfrom torch(?:\.\w+)*\._\w+|\bfrom torch[\w.]* import .*\b_\w+"
    r"|import _\w+ as|\._dynamo_\w+|\bnn\.\w+\._(?!_|replicate_for_data)\w+|\b_orig_mod\b|\._compiled_\w+|\._schema\b"
)


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_private_names_of_torch_are_in_one_file(path):
    if path.name != "transforms.py":
        assert PRIVATE.findall(path.read_text()) == []


def test_every_private_name_has_its_reason():
    table, code = Path(transforms.__file__).read_text().split("from __future__", 1)
    names = {name.rsplit(".", 1)[-1] for name in PRIVATE.findall(code)} - {"_C"}
    names |= set(re.findall(r"(?:getattr\([\w.]+, |_require\()\"(?:[\w.]*\.)?(_\w+)\"", code))
    assert names
    for name in names:
        assert re.search(rf"\b{name[:28]}", table), name


def test_a_torch_without_a_private_name_is_refused_in_one_sentence():
    wanted = re.escape(f"learnpool: wanted a torch with torch._C._nothing, got torch {torch.__version__}")
    with pytest.raises(ImportError, match=f"^{wanted}$"):
        transforms._require("_C._nothing")


def test_forms():
    x = torch.randn(1, requires_grad=True)
    assert choose_form(x) is Form.EAGER
    assert choose_form(x.detach()) is Form.NO_GRAD
    assert choose_form() is Form.OPERATOR
    with torch.no_grad():
        assert choose_form(x) is Form.NO_GRAD
    with torch.inference_mode():
        assert choose_form(x) is Form.NO_GRAD
    with forward_ad.dual_level():
        assert choose_form(x) is Form.FORWARD_MODE
    forms = []

    def look(x):
        forms.append(choose_form(x))
        return x.sum()

    vmap(look)(torch.randn(2, 3))
    grad(look)(torch.randn(3))
    grad(lambda x: grad(look)(x).sum())(torch.randn(3))
    torch.jit.trace(look, torch.randn(3), check_trace=False)
    torch.compile(look, backend="eager")(torch.randn(3))
    assert forms == [Form.OPERATOR, Form.FUNCTION, Form.NESTED, Form.TORCHSCRIPT, Form.OPERATOR]
