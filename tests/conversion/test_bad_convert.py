"""A mistake in a call of convert is one clear line, and the model stays as it was."""

import pytest
import torch
from torch import nn

from learnpool import GatedPool2d, convert
from networks import assert_unchanged, modules, take_snapshot

ONE = GatedPool2d(3)


class Fails(nn.Module):
    def forward(self, x):
        raise ValueError("one\ntwo")


BAD = {
    "no pools": (lambda: (nn.Sequential(nn.ReLU()), {}), ValueError, "convert: Sequential has no pools"),
    "not a model": (lambda: ([], {}), TypeError, "convert: model must be an nn.Module, got list"),
    "pool name": (lambda: (modules(), {"pool": "gatde"}), ValueError, r"pool 'gatde': unknown pool 'gatde' \(did you mean 'gated'\?\)"),
    "pool class": (lambda: (modules(), {"pool": GatedPool2d}), TypeError, "convert: pool must be a pool's name, a tree or a function"),
    "pool number": (lambda: (modules(), {"pool": 3}), TypeError, "convert: pool must be a pool's name"),
    "function's result": (lambda: (modules(), {"pool": lambda old: 3}), TypeError, "convert: the function must return a layer"),
    "function's one layer": (lambda: (modules(), {"pool": lambda old: ONE}), ValueError, r"convert: the function gave one layer for two pools \(6\)"),
    "function's lazy layer": (lambda: (modules(), {"pool": lambda old: GatedPool2d(3, share="channel")}), ValueError, "convert: the function's layer for 3 has no sizes yet"),
    "function fails": (lambda: (modules(), {"pool": lambda old: GatedPool2d(old.kernel_size, old.nothing)}), AttributeError, "nothing"),
    "only": (lambda: (modules(), {"only": "pool9"}), ValueError, "convert: no pool matches only='pool9'; the pools are: 3, 6, 7, 8"),
    "skip": (lambda: (modules(), {"skip": ["3", "pool9"]}), ValueError, "convert: no pool matches skip='pool9'"),
    "only a number": (lambda: (modules(), {"only": 3}), TypeError, "convert: only takes name patterns and functions of a layer, got 3"),
    "first without a convolution": (lambda: (modules(), {"pool": "mixed", "replace": ("global",), "first": "3"}), ValueError, r"^convert: no pool matches first='3'; replace=\('global',\) finds no strided convolution$"),
    "all skipped": (lambda: (modules(), {"skip": "*"}), ValueError, "convert: nothing to replace in Sequential: 3, 6: your choice: skip=; 7, 8: "),
    "only a left one": (lambda: (modules(), {"only": "8"}), ValueError, "convert: nothing to replace in Sequential: 3, 6: your choice"),
    "replace": (lambda: (modules(), {"replace": ("min",)}), ValueError, r"convert: replace must be a tuple of 'max', 'avg', 'global', 'strided', 'shortcut', got \('min',\)"),
    "replace text": (lambda: (modules(), {"replace": "max"}), ValueError, "convert: replace must be a tuple"),
    "min_channels": (lambda: (modules(), {"min_channels": 0}), ValueError, "^convert: min_channels must be at least 1, got 0$"),
    "min_channels of text": (lambda: (modules(), {"min_channels": "3"}), TypeError, "^convert: min_channels must be an int, got '3'$"),
    "share": (lambda: (modules(), {"share": "chanel"}), ValueError, "convert: share must be one of layer, region"),
    "share twice": (lambda: (modules(), {"pool": "gated:region", "share": "channel"}), ValueError, "share 'region' differs from share='channel'"),
    "no example": (lambda: (modules(), {"share": "channel"}), ValueError, "convert: share='channel' needs sizes: give example=, an input of the network"),
    "start": (lambda: (modules(), {"start": "sane"}), ValueError, "convert: start must be one of .*same, got 'sane'"),
    "meta": (lambda: (modules().to("meta"), {"start": "same"}), ValueError, 'convert: start="same" sets values, and a model on the meta device has none; give start="spread"'),
    "strided, meta": (lambda: (nn.Sequential(nn.Conv2d(3, 4, 3, 2)).to("meta"), {"pool": "filter", "replace": ("strided",)}), ValueError, 'convert: start="same" sets values, and a model on the meta device has none; give start="spread"'),
    "example": (lambda: (modules(), {"example": torch.randn(1, 2, 36, 36)}), ValueError, r"convert: the model does not take the example \[1, 2, 36, 36\]: RuntimeError"),
    "flat example": (lambda: (modules(), {"example": torch.randn(3, 36)}), ValueError, r"convert: the model does not take the example \[3, 36\]"),
    "example of a list": (lambda: (modules(), {"example": ([torch.randn(3, 36, 36)], 2)}), ValueError, r"convert: the model does not take the example \[\[3, 36, 36\]\], 2: TypeError"),
    "error of many lines": (lambda: (Fails(), {"example": torch.randn(3, 36)}), ValueError, r"^convert: the model does not take the example \[3, 36\]: ValueError: one$"),
    "not enough examples": (lambda: (modules(), {"example": ()}), ValueError, "convert: the model does not take the example : TypeError"),
    "example of text": (lambda: (modules(), {"example": "x"}), ValueError, "convert: the model does not take the example x: TypeError"),
    "lazy": (lambda: (nn.Sequential(nn.LazyConv2d(4, 3), nn.MaxPool2d(2)), {"example": torch.randn(1, 3, 9, 9)}), ValueError, "convert: the example would give lazy layers their sizes; run the network once before"),
    "lazy convolution": (lambda: (nn.Sequential(nn.LazyConv2d(4, 3, 2)), {"pool": "filter", "replace": ("strided",)}), ValueError, "0: lazy, without its sizes: run the network once before"),
    "foreign optimizer": (lambda: (modules(), {"optimizers": torch.optim.SGD(modules().parameters(), 0.1)}), ValueError, "convert: this SGD owns no parameter of Sequential"),
    "no optimizer": (lambda: (modules(), {"optimizers": 0.1}), TypeError, "convert: optimizers must be torch optimizers, got float"),
    "the pool itself": (lambda: (nn.MaxPool2d(2), {}), ValueError, "convert: nothing to replace in MaxPool2d: the model: it is the whole model: nothing holds it"),
    "dilated to avg": (lambda: (nn.Sequential(nn.MaxPool2d(2, dilation=2)), {"pool": "avg"}), ValueError, "convert: 0 has dilation 2×2, which nn.AvgPool has not"),
    "scripted": (lambda: (torch.jit.script(nn.Sequential(nn.MaxPool2d(2))), {}), ValueError, "convert: nothing to replace in RecursiveScriptModule: 0: compiled by TorchScript"),
    "strided, scripted": (lambda: (torch.jit.script(nn.Sequential(nn.Conv2d(3, 4, 3, 2))), {"pool": "filter", "replace": ("strided",)}), ValueError, "^convert: convert the network first, then script or trace it$"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*")
def test_a_mistake_is_one_clear_line_and_changes_nothing(case):
    make, error, message = BAD[case]
    net, options = make()
    snapshot = take_snapshot(net) if isinstance(net, nn.Module) else None
    with pytest.raises(error, match=message) as caught:
        convert(net, **options)
    assert "\n" not in str(caught.value)
    if snapshot is not None:
        assert_unchanged(net, snapshot)
