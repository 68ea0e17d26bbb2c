import re

import pytest
import torch
from torch import nn

from cases import GATED, HALF, MIXED
from learnpool import Avg, Filter, Gate, Max, Min, Mix, Pool2d, Pool3d, StochasticPool1d, make_pool, parse
from learnpool.names import Part
from learnpool.tree import make_tree


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("max", [Part("max")]),
        ("avg", [Part("avg")]),
        ("stochastic", [Part("stochastic")]),
        ("half", [Part(HALF)]),
        ("mixed", [Part(MIXED)]),
        ("gated", [Part(GATED)]),
        ("filter", [Part(Filter())]),
        ("tree1", [Part(Filter())]),
        ("tree2", [Part(make_tree(2))]),
        ("tree12", [Part(make_tree(12))]),
        ("Gate(Filter, Mix(Max, Avg))", [Part(Gate(Filter(), Mix(Max(), Avg())))]),
        (
            "Gate( Filter() ,Mix(Max(),Avg(), a = .25, learn=False) )",
            [Part(Gate(Filter(), Mix(Max(), Avg(), 0.25, False)))],
        ),
        ("Mix(Max, Avg, 1e-1, True)", [Part(Mix(Max(), Avg(), 0.1))]),
        ("Mix(Max, Avg, learn=False, a=1)", [Part(Mix(Max(), Avg(), 1.0, False))]),
        ("Max", [Part(Max())]),
        ("Gate(Min, Avg)", [Part(Gate(Min(), Avg()))]),
        ("mixed:region_channel", [Part(MIXED, "region_channel")]),
        ("tree2:channel+gated", [Part(make_tree(2), "channel"), Part(GATED)]),
        ("tree3+gated:region", [Part(make_tree(3)), Part(GATED, "region")]),
        (" max + Gate(Max, Avg):net ", [Part("max"), Part(GATED, "net")]),
        ("gated+max+avg", [Part(GATED), Part("max"), Part("avg")]),
    ],
)
def test_names(text, parts):
    name = parse(text)
    assert list(name.parts) == parts
    assert parse(str(name)) == name
    assert eval(repr(name), {"parse": parse}) == name


def test_the_shortest_name_is_printed():
    assert str(parse("Gate(Max, Avg):channel+Gate(Filter, Filter)")) == "gated:channel+tree2"


def test_parts_are_pools_in_order_and_the_last_is_for_all_later_ones():
    assert [str(parse("tree2+gated").part(i)) for i in range(4)] == ["tree2", "gated", "gated", "gated"]
    assert [str(parse("gated+max+avg").part(i)) for i in range(4)] == ["gated", "max", "avg", "avg"]
    assert [str(parse("mixed").part(i)) for i in range(2)] == ["mixed", "mixed"]


def test_share_is_for_parts_without_a_suffix():
    assert [p.share for p in parse("tree2+gated:region", "region").parts] == ["region", "region"]
    assert [p.share for p in parse("max+gated", "channel").parts] == ["layer", "channel"]
    with pytest.raises(ValueError, match="share 'region' differs from share='channel' at column 13; give one of them$"):
        parse("tree2+gated:region", "channel")
    with pytest.raises(ValueError, match="^pool 'gated': unknown share 'row'; known: layer, region, channel"):
        parse("gated", "row")
    with pytest.raises(
        ValueError, match=r"^pool 'gated': unknown share 'chanel' \(did you mean 'channel'\?\); known: "
    ):
        parse("gated", "chanel")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no pool at column 1; known: max, avg, half"),
        (
            "gatd",
            r"unknown pool 'gatd' \(did you mean 'gated'\?\) at column 1; known: max, avg, half, stochastic, mixed",
        ),
        ("max+nonsense", "unknown pool 'nonsense' at column 5; known: "),
        ("tree0", "unknown pool 'tree0'"),
        ("tree13", "'tree13' is too deep at column 1; a tree has at most 12 levels"),
        ("mixed:rows", "unknown share 'rows' at column 7; known: layer, region, channel, region_channel, net"),
        ("mixed:", "unknown share 'the end' at column 7"),
        ("max:channel", "'max' has no parameters to share at column 5"),
        ("half:channel", "'half' has no parameters to share at column 6"),
        ("Max:channel", "'Max' has no parameters to share at column 5"),
        ("Mix(Max, Avg, learn=False, True)", "unexpected 'True' at column 28"),
        ("max+avg gated", "unexpected 'gated' at column 9; wanted ':', '[+]' or the end"),
        ("gated!", "unexpected '!' at column 6; wanted ':', '[+]' or the end"),
        ("+gated", r"unexpected '\+' at column 1"),
        ("Gate", r"unfinished at column 5; wanted '\('"),
        ("Gate(Max", "unfinished at column 9; wanted ','"),
        ("Gate(Max)", r"unexpected '\)' at column 9; wanted ','"),
        ("Gate(Max, Avg, Avg)", "unexpected 'Avg' at column 16; Gate has the options by and bias, once each"),
        ("Gate(Max, Avg, by=3)", "unexpected '3' at column 19; wanted Avg, Blur"),
        ("Gate(Max, Avg, bias=True)", "bad Gate at column 1; Gate: bias=True needs a tree that decides, by=…"),
        ("Max(3)", r"unexpected '3' at column 5; wanted '\)'"),
        ("Power(p=0.5)", r"bad Power at column 1; Power: p must be a number in \[1, 64\], got 0.5"),
        ("LogSumExp(0)", r"bad LogSumExp at column 1; LogSumExp: r must be a number in \[0.1, 100\], got 0.0"),
        ("Soft(beta=x)", "unexpected 'x' at column 11; wanted beta=NUMBER or learn=True or learn=False"),
        ("Filter(values=[1, a])", "unexpected 'a' at column 19; wanted a number"),
        ("Filter([1, 2])", "bad Filter at column 1; Filter: values and learn=False belong together"),
        ("Rank(values=[1 2])", "unexpected '2' at column 16; wanted ',' or ']'"),
        ("Gate(Max, gated)", r"unexpected 'gated' \(did you mean 'Gate'\?\) at column 11; wanted Avg, Blur, Filter"),
        ("Gated", r"unknown pool 'Gated' \(did you mean 'gated'\?\) at column 1"),
        ("MAX", r"unknown pool 'MAX' \(did you mean 'max'\?\)"),
        ("Tree3", r"unknown pool 'Tree3' \(did you mean 'tree3'\?\)"),
        ("STOCASTIC", r"unknown pool 'STOCASTIC' \(did you mean 'stochastic'\?\)"),
        ("Gate(max, Avg)", r"unexpected 'max' \(did you mean 'Max'\?\) at column 6"),
        ("gate(Max, Avg)", r"unknown pool 'gate' \(did you mean 'Gate'\?\)"),
        ("mixed:Channel", r"unknown share 'Channel' \(did you mean 'channel'\?\) at column 7"),
        ("mixed:regoin", r"unknown share 'regoin' \(did you mean 'region'\?\)"),
        ("Mix(Max, Avg, a=2)", r"a=2 at column 17; a lies in \[0, 1\]"),
        ("Mix(Max, Avg, b=2)", "unexpected 'b' at column 15; Mix has the options a and learn"),
        ("Mix(Max, Avg, a=0.5, a=0.5)", "unexpected 'a' at column 22"),
        ("Mix(Max, Avg, learn=maybe)", "unexpected 'maybe' at column 21"),
    ],
)
def test_a_bad_name_points_at_the_place(text, message):
    with pytest.raises(ValueError, match="^" + re.escape(f"pool {text!r}: ") + message) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_not_a_string():
    with pytest.raises(TypeError, match="^parse: a pool's name must be a string, got 3$"):
        parse(3)


def test_layers_by_name():
    x = torch.randn(1, 3, 9, 9)
    assert isinstance(make_pool("max", 3, 2, 1, ceil_mode=True, dilation=2), nn.MaxPool2d)
    average = make_pool("avg", 3, 2, 1, ceil_mode=True)
    assert isinstance(average, nn.AvgPool2d)
    assert not average.count_include_pad
    assert isinstance(make_pool("stochastic", 2, dims=1), StochasticPool1d)
    assert isinstance(make_pool("gated", 2, dims=3), Pool3d)
    layer = make_pool("tree2+gated", 3, 2, 1, index=1, share="channel", channels=3, count_include_pad=True)
    assert isinstance(layer, Pool2d)
    assert (layer.tree, layer.share, layer.count_include_pad, layer.padding) == (GATED, "channel", True, 1)
    assert layer(x).shape == (1, 3, 5, 5)
    assert (
        make_pool("gated", 3, dilation=2, ceil_mode=True).window == Pool2d(GATED, 3, dilation=2, ceil_mode=True).window
    )
    with pytest.raises(ValueError, match="dims must be 1, 2 or 3, got 4"):
        make_pool("gated", 2, dims=4)
    for name in ("max", "avg", "stochastic", "gated"):
        with pytest.raises(TypeError, match=f"^pool '{name}': unknown option 'strat'; known: "):
            make_pool(name, 2, strat="neutral")
    with pytest.raises(ValueError, match="has neither dilation nor return_indices"):
        make_pool("avg", 2, dilation=2)
