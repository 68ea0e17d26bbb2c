"""The batching rules of the operators, against a loop."""

import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from cases import ODD, SHARES, W, call, distinct, numbers, parameters


@pytest.mark.parametrize("share", SHARES)
def test_vmap_of_the_operators_against_a_loop(share):
    """Every combination of what is a batch and what is not; without the fallback's warning, which is an error here."""
    window = W(3, 2, 1).of()
    x, (weight, mix) = distinct(2, 2, 3, 7, 6), parameters(ODD, window, share, 3, (7, 6))
    grad = torch.randn_like(call(x[0], weight, mix, ODD, window))
    batches = [x, torch.stack([weight, -weight]), torch.stack([mix, mix / 2]), torch.stack([grad, grad * 2])]
    singles = [x[0], weight, mix, grad]
    for which in range(1, 16):
        at = tuple(0 if which >> i & 1 else None for i in range(4))
        given = [many if b == 0 else one for many, one, b in zip(batches, singles, at, strict=True)]

        def both(x, weight, mix, grad):
            rest = (ODD.program, *numbers(window), [True, True, True])
            backward = torch.ops.learnpool.pool_backward(grad, x, weight, mix, *rest)
            return call(x, weight, mix, ODD, window), *backward

        found = torch.vmap(both, at)(*given)
        members = [both(*(t[i] if b == 0 else t for t, b in zip(given, at, strict=True))) for i in range(2)]
        assert_close(found, tuple(torch.stack(each) for each in zip(*members, strict=True)))


def test_what_is_shared_becomes_images_and_what_is_not_becomes_channels():
    """One call of the operator for the whole batch, with as many images, or channels, as there are members."""
    window = W(3, 2, 1).of()
    x, (weight, mix) = distinct(4, 2, 3, 7, 6), parameters(ODD, window, "layer", 3, (7, 6))
    for at, shape in (((0, None, None), [8, 3, 7, 6]), ((0, 0, None), [2, 12, 7, 6]), ((None, 0, 0), [2, 12, 7, 6])):
        seen = []

        class Record(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None, seen=seen):
                if func is torch.ops.learnpool.pool.default:
                    seen.append(list(args[0].shape))
                return func(*args, **(kwargs or {}))

        given = (x if at[0] == 0 else x[0], torch.stack([weight] * 4), torch.stack([mix] * 4))
        given = (given[0], *(many if b == 0 else many[0] for many, b in zip(given[1:], at[1:], strict=True)))
        with Record():
            torch.vmap(lambda *tensors: call(*tensors, ODD, window), at)(*given)
        assert seen == [shape]
