"""Whatever arguments a layer, a name or convert is given: it does as ``nn.MaxPool2d`` does, or refuses in one line."""

import hypothesis.strategies as st
import torch
from hypothesis import given, settings
from torch import nn
from torch.nn import functional as F

import learnpool
from learnpool import AdaptivePool2d, GatedPool2d, MixedPool2d, StochasticPool2d, TreePool2d
from learnpool.sharing import SHARES
from learnpool.starts import STARTS

LAYERS = [GatedPool2d, MixedPool2d, StochasticPool2d, TreePool2d]
ODD = st.sampled_from([None, -1, 0, 1.5, True, "3", (), (2,), (2, 3, 4), [2, 2], float("nan"), 2**40])
SIZES = st.integers(0, 4) | st.tuples(st.integers(0, 4), st.integers(0, 4))
WINDOWS = st.fixed_dictionaries(
    {"kernel_size": SIZES | ODD},
    optional={"stride": SIZES | ODD, "padding": SIZES | ODD, "dilation": SIZES | ODD, "ceil_mode": st.booleans()},
)
GOOD = st.fixed_dictionaries(
    {"kernel_size": st.integers(1, 4)},
    optional={
        "stride": st.integers(1, 4), "padding": st.integers(0, 2), "dilation": st.integers(1, 3),
        "ceil_mode": st.booleans(),
    },
)  # fmt: skip
OPTIONS = st.fixed_dictionaries(
    {},
    optional={"share": st.sampled_from([*SHARES, "room", 3]), "start": st.sampled_from([*STARTS, "nowhere", None])},
)
SHAPES = st.lists(st.integers(0, 9), min_size=2, max_size=5)
REFUSALS = (ValueError, TypeError, RuntimeError)


def attempt(call):
    """What a call gives, or the error with which it refuses; any other error is a failure."""
    try:
        return call()
    except REFUSALS as error:
        refusal = error
    assert len(str(refusal).splitlines()) == 1
    return refusal


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(LAYERS), GOOD, SHAPES)
def test_a_window_that_max_pooling_takes_gives_its_size(layer, window, shape):
    x = torch.rand(shape)
    with torch.no_grad():
        try:
            theirs = nn.MaxPool2d(**window)(x)
        except Exception:
            assert isinstance(attempt(lambda: layer(**window)(x)), REFUSALS)
            return
        ours = layer(**window)(x)
    assert ours.shape == theirs.shape
    assert torch.isfinite(ours).all() or layer is not MixedPool2d


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(LAYERS), WINDOWS, OPTIONS, SHAPES)
def test_odd_arguments_are_refused_in_one_line(layer, window, options, shape):
    made = attempt(lambda: layer(**window, **({} if layer is StochasticPool2d else options)))
    if isinstance(made, nn.Module):
        with torch.no_grad():
            assert isinstance(attempt(lambda: made(torch.rand(shape))), (torch.Tensor, *REFUSALS))


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="gatedmixfilrhvs+:0123()=.,GFMA ", max_size=24) | st.text(max_size=12))
def test_any_text_is_a_pools_name_or_is_refused_in_one_line(text):
    parsed = attempt(lambda: learnpool.parse(text))
    if isinstance(parsed, ValueError):
        assert str(parsed).startswith("pool ")
        return
    assert learnpool.parse(str(parsed)) == parsed
    assert isinstance(attempt(lambda: learnpool.make_pool(text, 2)), (nn.Module, *REFUSALS))


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 4), st.integers(1, 4), st.sampled_from(["gated", "mixed", "tree2", "half", "filter", "avg"]))
def test_a_converted_network_runs_where_the_old_one_did(kernel, stride, name):
    net = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.MaxPool2d(kernel, stride))
    x = torch.rand(1, 2, 9, 7)
    shape = net(x).shape
    learnpool.convert(net, name)
    assert net(x).shape == shape
    learnpool.restore(net)
    assert isinstance(net[1], nn.MaxPool2d)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 5) | st.tuples(st.integers(0, 5), st.integers(0, 5)) | ODD)
def test_any_output_size_is_that_of_adaptive_max_pooling_or_refused(size):
    x = torch.rand(2, 3, 6, 5)
    made = attempt(lambda: AdaptivePool2d(learnpool.Mix(learnpool.Max(), learnpool.Avg()), size)(x))
    if isinstance(made, torch.Tensor) and size is not None:  # None keeps a size, as a part of a tuple does
        assert made.shape == F.adaptive_max_pool2d(x, size).shape
