"""A user's mistake is a ValueError or TypeError in one line: who complains, what was wanted, what came."""

import pytest
import torch

from cases import GATED, MIXED, ODD, W, numbers
from learnpool import (
    Avg,
    Blur,
    BlurPool2d,
    Filter,
    Gate,
    GatedPool1d,
    GatedPool2d,
    GeMPool2d,
    LogSumExp,
    LogSumExpPool2d,
    Max,
    MaxBlurPool2d,
    MixedPool2d,
    Pool2d,
    Power,
    Soft,
    SoftPool2d,
    StochasticPool2d,
    TreePool2d,
    make_pool,
)
from learnpool import functional as LF
from learnpool.ops import cpu, stochastic

X = torch.randn(1, 3, 8, 8)
MASK = torch.randn(3, 3)
LIMIT = "padding must be at most half of kernel_size 3×3, got 2×2"
MANY = r"must be float16, bfloat16, float32 or float64, got"

CASES = {
    # dimensions of the input
    "2-D": (lambda: GatedPool2d(3)(torch.randn(8, 8)), ValueError, r"GatedPool2d: input must have 3 or 4 dimensions, got shape \[8, 8\]"),
    "5-D": (lambda: LF.gated_pool2d(torch.randn(1, 1, 1, 8, 8), MASK, 3), ValueError, "gated_pool2d: input must have 3 or 4 dimensions"),
    "4-D to 1d": (lambda: GatedPool1d(3)(X), ValueError, "GatedPool1d: input must have 2 or 3 dimensions"),
    "no channels": (lambda: GatedPool2d(3)(torch.randn(2, 0, 8, 8)), ValueError, r"GatedPool2d: only the batch may be empty, got shape \[2, 0, 8, 8\]"),
    "not a tensor": (lambda: GatedPool2d(3)([1, 2]), TypeError, "GatedPool2d: input must be a tensor, got list"),
    "function not a tensor": (lambda: LF.mixed_pool2d([1], 0.5, 3), TypeError, "mixed_pool2d: input must be a tensor, got list"),
    "stochastic not a tensor": (lambda: StochasticPool2d(3)(None), TypeError, "StochasticPool2d: input must be a tensor, got NoneType"),
    # windows
    "too large": (lambda: GatedPool2d(9)(X), ValueError, "GatedPool2d: window 9×9 with padding 0×0 and dilation 1×1 does not fit into input 8×8"),
    "too dilated": (lambda: LF.mixed_pool2d(X, 0.5, 3, 1, 0, 4), ValueError, "mixed_pool2d: window 3×3 .* dilation 4×4 does not fit"),
    "padding": (lambda: GatedPool2d(3, 1, 2), ValueError, f"GatedPool2d: {LIMIT}"),
    "padding in function": (lambda: LF.tree_pool2d(X, None, MASK[None], 3, 1, 2), ValueError, f"tree_pool2d: {LIMIT}"),
    "padding set later": (lambda: setattr(GatedPool2d(3), "padding", 2), ValueError, f"GatedPool2d: {LIMIT}"),
    "kernel of three": (lambda: Pool2d(ODD, (3, 3, 3)), ValueError, "Pool2d: kernel_size must be one int or 2"),
    "kernel of text": (lambda: MixedPool2d("3"), TypeError, "MixedPool2d: kernel_size must be an int or a tuple of 2 ints, got '3'"),
    "return_indices": (lambda: GatedPool2d(3, return_indices=True), ValueError, r"GatedPool2d: return_indices must be False \(a learned pool has no indices: .*\)"),
    "return_indices by place": (lambda: StochasticPool2d(3, 2, 0, 1, True), ValueError, "StochasticPool2d: return_indices must be False"),
    "ceil_mode": (lambda: GatedPool2d(3, 2, 0, 1, False, "no"), TypeError, "GatedPool2d: ceil_mode must be True or False, got 'no'"),
    "grid of None": (lambda: GatedPool2d(3, share="region", grid=(None, 4)), TypeError, "GatedPool2d: grid must be given in all 2 directions or in none"),
    "sparse": (lambda: GatedPool2d(3)(X.to_sparse()), TypeError, "GatedPool2d: input must be a strided tensor, got sparse_coo"),
    "too many leaves": (lambda: LF.tree_pool2d(X, torch.randn(4095, 1, 1), torch.randn(4096, 1, 1), 1), ValueError, "tree_pool2d: levels must be at most 12"),
    # dtypes of the input
    "integers": (lambda: GatedPool2d(3)(X.long()), TypeError, f"GatedPool2d: input {MANY} int64"),
    "complex": (lambda: LF.mixed_pool2d(X + 1j, torch.tensor(0.5), 3), TypeError, f"mixed_pool2d: input {MANY} complex64"),
    "bool": (lambda: StochasticPool2d(3)(X > 0), TypeError, f"StochasticPool2d: input {MANY} bool"),
    # parameters
    "small mask": (lambda: LF.gated_pool2d(X, torch.randn(2, 2), 3), ValueError, "gated_pool2d: mask must have 3×3 taps, got 2×2"),
    "flat mask": (lambda: LF.gated_pool2d(X, torch.randn(9), 3), ValueError, r"gated_pool2d: mask must broadcast against \[C, OH, OW, 3, 3\], got shape \[9\]"),
    "many axes": (lambda: LF.mixed_pool2d(X, torch.rand(1, 3, 2, 2), 3), ValueError, r"mixed_pool2d: a must broadcast against \[C, OH, OW\], got shape \[1, 3, 2, 2\]"),
    "mask of text": (lambda: LF.gated_pool2d(X, "mask", 3), TypeError, "gated_pool2d: mask must be a tensor, got str"),
    "no a": (lambda: LF.mixed_pool2d(X, None, 3), TypeError, "mixed_pool2d: a must be a tensor, got NoneType"),
    "other channels": (lambda: LF.gated_pool2d(X, torch.randn(5, 1, 1, 3, 3), 3), ValueError, r"gated_pool2d: mask must be for 3 channels and 2×2 regions \(or 1 of each\), got 5×1×1"),
    "other regions": (lambda: LF.mixed_pool2d(X, torch.rand(4, 4), 3), ValueError, r"mixed_pool2d: a must be for 3 channels and 2×2 regions \(or 1 of each\), got 1×4×4"),
    "layer for other channels": (lambda: GatedPool2d(3, share="channel", channels=5)(X), ValueError, "GatedPool2d: weight must be for 3 channels"),
    "three leaves": (lambda: LF.tree_pool2d(X, None, torch.randn(3, 3, 3), 3), ValueError, "tree_pool2d: leaves must be 1, 2, 4, 8, … filters, got 3"),
    "no leaves": (lambda: LF.tree_pool2d(X, None, torch.randn(0, 3, 3), 3), ValueError, "tree_pool2d: leaves must be 1, 2, 4, 8, … filters, got 0"),
    "few gates": (lambda: LF.tree_pool2d(X, MASK[None], torch.randn(4, 3, 3), 3), ValueError, "tree_pool2d: 4 leaves need 3 gates, got 1"),
    "gates of another dtype": (lambda: LF.tree_pool2d(X, MASK[None].double(), torch.randn(2, 3, 3), 3), TypeError, "tree_pool2d: gates and leaves must be of one dtype and device"),
    "gates and leaves apart": (lambda: LF.tree_pool2d(X, torch.randn(1, 3, 1, 1, 3, 3), torch.randn(2, 4, 1, 1, 3, 3), 3), ValueError, "tree_pool2d: gates and leaves must broadcast, got"),
    "missing weight": (lambda: LF.pool2d(X, ODD, None, torch.rand(1), 3), ValueError, "pool2d: the tree needs 4 rows of weight, got none"),
    "needless mix": (lambda: LF.pool2d(X, GATED, MASK[None], torch.rand(1), 3), ValueError, "pool2d: the tree needs 0 rows of mix, got shape"),
    "double mask": (lambda: LF.gated_pool2d(X, MASK.double(), 3), TypeError, "gated_pool2d: mask must be float32 like the input, got float64"),
    "half mask": (lambda: LF.gated_pool2d(X, MASK.half(), 3), TypeError, "gated_pool2d: mask must be float32 like the input, got float16"),
    "double layer": (lambda: GatedPool2d(3).double()(X), TypeError, "GatedPool2d: weight must be float32 like the input, got float64"),
    "integer a": (lambda: LF.mixed_pool2d(X, torch.tensor(1), 3), TypeError, "mixed_pool2d: a must be float32 like the input, got int64"),
    "mask elsewhere": (lambda: LF.gated_pool2d(X, MASK.to("meta"), 3), ValueError, "gated_pool2d: mask must be on the input's device cpu, got meta"),
    "layer elsewhere": (lambda: GatedPool2d(3, device="meta")(X), ValueError, "GatedPool2d: weight must be on the input's device cpu, got meta"),
    # names and trees
    "tree by name": (lambda: Pool2d("gated", 3), TypeError, "Pool2d: tree must be a tree such as .*, got 'gated'"),
    "tree by class": (lambda: LF.pool2d(X, MIXED.__class__, None, None, 3), TypeError, "pool2d: tree must be a tree such as"),
    "share": (lambda: GatedPool2d(3, share="rows"), ValueError, "GatedPool2d: share must be one of layer, region, channel, region_channel, net, got 'rows'"),
    "start": (lambda: GatedPool2d(3, start="zero"), ValueError, "GatedPool2d: start must be one of paper, neutral, spread, tournament, got 'zero'"),
    "std": (lambda: GatedPool2d(3, std=-1), ValueError, "GatedPool2d: std must be a number of at least 0, got -1"),
    "std of another start": (
        lambda: GatedPool2d(3, std=0.1),
        ValueError,
        "GatedPool2d: std is that of start='paper', got std=0.1 with start='spread'",
    ),
    "channels": (lambda: GatedPool2d(3, channels=0), ValueError, "GatedPool2d: channels must be at least 1, got 0"),
    "channels of text": (lambda: GatedPool2d(3, channels="3"), TypeError, "GatedPool2d: channels must be an int, got '3'"),
    "grid": (lambda: GatedPool2d(3, grid=(1, 2, 3)), ValueError, r"GatedPool2d: grid must be one int or 2, got \(1, 2, 3\)"),
    "dtype": (lambda: GatedPool2d(3, dtype=torch.int32), TypeError, f"GatedPool2d: dtype {MANY} torch.int32"),
    "levels": (lambda: TreePool2d(3, levels=0), ValueError, "TreePool2d: levels must be at least 1, got 0"),
    # leaves and gates
    "power of zero": (lambda: Power(0), ValueError, r"Power: p must be a number in \[1, 64\], got 0"),
    "negative power": (lambda: GeMPool2d(3, p=-1), ValueError, r"GeMPool2d: p must be a number in \[1, 64\], got -1"),
    "sharpness of a layer": (lambda: LogSumExpPool2d(3, r=0), ValueError, r"LogSumExpPool2d: r must be a number in \[0.1, 100\], got 0"),
    "a number of text": (lambda: SoftPool2d(3, beta="1"), TypeError, "SoftPool2d: beta must be a finite float32 number, got '1'"),
    "a switch of a layer": (lambda: GeMPool2d(3, absolute=1), TypeError, "GeMPool2d: absolute must be True or False, got 1"),
    "power of text": (lambda: Power("3"), TypeError, r"Power: p must be a number in \[1, 64\], got '3'"),
    "no sharpness": (lambda: LogSumExp(0), ValueError, r"LogSumExp: r must be a number in \[0.1, 100\], got 0"),
    "soft of NaN": (lambda: Soft(float("nan")), ValueError, "Soft: beta must be a finite float32 number, got nan"),
    "soft of 1e39": (lambda: Soft(1e39), ValueError, r"Soft: beta must be a finite float32 number, got 1e\+39"),
    "filter of three": (lambda: Pool2d(Filter([1, 2, 3], learn=False), 3, 2), ValueError, "Pool2d: fixed values must be 9, one for each tap of 3×3, got 3"),
    "filter of other rows": (lambda: Pool2d(Filter([[1, 2], [3, 4], [5, 6]], learn=False), (2, 3)), ValueError, "Pool2d: values of Filter must be 2×3, got 3×2"),
    "filter of other rows in a function": (lambda: LF.pool2d(X, Filter([[1, 2], [3, 4], [5, 6]], learn=False), None, None, (2, 3)), ValueError, "pool2d: values of Filter must be 2×3, got 3×2"),
    "blur of minus one": (lambda: Blur([1, -1]), ValueError, r"Blur: values must be at least 0 and not all 0, got \[1.0, -1.0\]"),
    "by of text": (lambda: Gate(Max(), Avg(), by="max"), TypeError, r"Gate: by must be a tree such as Std\(\), got 'max'"),
    "bias without by": (lambda: Gate(Max(), Avg(), bias=True), ValueError, "Gate: bias=True needs a tree that decides"),
    "no number given": (lambda: LF.pool2d(X, Soft(), None, None, 3), ValueError, "pool2d: the tree needs 1 row of mix, got none"),
    "name of a bad leaf": (lambda: make_pool("Power(0)", 3), ValueError, r"pool 'Power\(0\)': bad Power at column 1; Power: p must be"),
    # borders
    "border": (lambda: BlurPool2d(3, border="same"), ValueError, "BlurPool2d: border must be one of existing, zeros, reflect, got 'same'"),
    "border of a maximum": (lambda: MaxBlurPool2d(3, border=None), ValueError, "MaxBlurPool2d: border must be one of existing, zeros, reflect, got None"),
    "reflected 2-D": (lambda: BlurPool2d(3, 2, 1, border="reflect")(X[0, 0]), ValueError, r"BlurPool2d: input must have 3 or 4 dimensions, got shape \[8, 8\]"),
    "reflected list": (lambda: BlurPool2d(3, 2, 1, border="reflect")([1]), TypeError, "BlurPool2d: input must be a tensor, got list"),
    "nothing to reflect": (lambda: BlurPool2d(3, 2, 1, border="reflect")(X[..., :1]), ValueError, "BlurPool2d: border='reflect' needs an input of at least 2×2, got 8×1"),
    # arguments
    "unknown argument": (lambda: GeMPool2d(3, P=3), TypeError, "GeMPool2d: got an unexpected keyword argument 'P'"),
    "no kernel": (lambda: GeMPool2d(), TypeError, "GeMPool2d: missing a required argument: 'kernel_size'"),
    "no kernel of a tree": (lambda: Pool2d(ODD), TypeError, "Pool2d: missing a required argument: 'kernel_size'"),
    "sharing of nothing": (lambda: MaxBlurPool2d(2, share="layer"), TypeError, "MaxBlurPool2d: got an unexpected keyword argument 'share'"),
    "a of a layer": (lambda: MixedPool2d(3, a=2), ValueError, r"MixedPool2d: a must be a number in \[0, 1\], got 2"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_one_clear_line(case):
    action, error, message = CASES[case]
    with pytest.raises(error, match=f"^{message}") as caught:
        action()
    assert type(caught.value) is error
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_operator_checks_for_itself(device):
    """``torch.ops`` can be called by anyone. A compiled kernel refuses with PyTorch's RuntimeError, Python in our words."""
    window = W(3, 2, 1).of()
    x, weight, mix = (t.to(device) for t in (X, torch.randn(1, 1, 1, 1, 3, 3), torch.empty(0, 1, 1, 1)))
    worded = device == "meta" or not cpu.CPU.live

    def refused(error, message):
        return (
            pytest.raises(error, match=f"^learnpool::{message}")
            if worded
            else pytest.raises(RuntimeError, match="learnpool")
        )

    def pool(x=x, weight=weight, mix=mix, program=GATED.program, window=None):
        return torch.ops.learnpool.pool(x, weight, mix, program, *(window or numbers(W(3, 2, 1).of())))

    assert pool().shape == (1, 3, 4, 4)
    bad = {
        "invalid program: node 0 has code 99": {"program": (99, 0, 1)},
        "invalid program: its nodes need 3 places": {"program": (4, 0)},
        "the tree needs 0 rows of weight": {"program": (0,)},
        "weight must have 6 dimensions": {"weight": weight[0]},
        "weight must have 3×3 taps": {"weight": weight[..., :2]},
        "stride must have 2 numbers": {"window": ((3, 3), (2,), *numbers(window)[2:])},
        "padding must be at most half": {"window": ((3, 3), (2, 2), (2, 2), *numbers(window)[3:])},
        "kernel must have 1, 2 or 3 numbers": {"window": ((1,) * 4, (1,) * 4, (0,) * 4, (1,) * 4, False, False)},
        "kernel_size must be at least 1": {"window": ((0, 3), *numbers(window)[1:])},
    }
    for message, change in bad.items():
        with refused(ValueError, f"pool: {message}"):
            pool(**change)
    grad = torch.randn(1, 3, 4, 4, device=device)

    def backward(grad):
        mask = [True, True, True]
        return torch.ops.learnpool.pool_backward(grad, x, weight, mix, GATED.program, *numbers(window), mask)

    assert backward(grad)[0].shape == X.shape
    with refused(ValueError, r"pool_backward: grad must have the output's shape \[1, 3, 4, 4\]"):
        backward(grad[..., :3])
    with refused(TypeError, f"pool_backward: grad must be float32 on {device} like the input"):
        backward(grad.double())


def test_the_stochastic_operator_checks_for_itself():
    draw, seed = numbers(W(3, 2, 1).of())[:5], torch.tensor([1])
    assert torch.ops.learnpool.stochastic_pool(X, seed, *draw).shape == (1, 3, 4, 4)
    for kernel in (torch.ops.learnpool.stochastic_pool, stochastic.pool):
        with pytest.raises((ValueError, RuntimeError), match="seed must have .* for each of 1 images"):
            kernel(X, torch.tensor([1, 2]), *draw)
        with pytest.raises((TypeError, RuntimeError), match="seed must"):
            kernel(X, seed.int(), *draw)
    grad = torch.zeros(1, 3, 4, 3)
    for backward in (torch.ops.learnpool.stochastic_pool_backward, stochastic.pool_backward):
        with pytest.raises((ValueError, RuntimeError), match="grad must have the output's shape"):
            backward(grad, X, seed, *draw)
