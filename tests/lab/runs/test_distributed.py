"""Several processes draw as one, and take their rows."""

import pytest
import torch
from torch import distributed, nn
from torch.nn import functional as F

from learnpool import StochasticPool2d
from learnpool.lab.data import DataError
from learnpool.lab.runs.batches import load_batches
from learnpool.lab.runs.distributed import GlobalBatchRandomness, Ranks
from learnpool.lab.runs.run import Run, RunError

PAIR = [Ranks(rank, 2, torch.device("cpu")) for rank in (0, 1)]
ALONE = Ranks(0, 1, torch.device("cpu"))


def drawn(module, x, ranks=None):
    torch.manual_seed(7)
    if ranks is None:
        return module(x)
    with GlobalBatchRandomness(ranks):
        return module(x[ranks.local_slice(len(x))])


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    "module",
    [nn.Dropout(0.3), nn.Dropout2d(0.3), StochasticPool2d(2), nn.Sequential(nn.Dropout(0.5), StochasticPool2d(3, 1))],
    ids=str,
)
def test_rows_of_two_are_the_whole(module, layout):
    x = torch.rand(8, 3, 6, 6).to(memory_format=layout)
    whole = drawn(module, x)
    assert not torch.equal(whole[:4] == 0, whole[4:] == 0) or not (whole == 0).any()
    torch.testing.assert_close(torch.cat([drawn(module, x, ranks) for ranks in PAIR]), whole)


def test_nothing_is_drawn_in_evaluation():
    x = torch.rand(4, 3)
    with GlobalBatchRandomness(PAIR[1]):
        assert torch.equal(nn.Dropout(0.5).eval()(x), x)
        assert torch.equal(F.dropout(x, 0.0), x)
        assert torch.rand(2, 3).shape == torch.rand((2, 3)).shape == (2, 3)


def test_shares_are_all_and_apart():
    for count in (1, 7, 8):
        for world in (1, 2, 3):
            parts = [
                list(range(count))[Ranks(rank, world, torch.device("cpu")).local_slice(count)] for rank in range(world)
            ]
            assert [row for part in parts for row in part] == list(range(count))


def test_two_see_the_batches_of_one():
    run = Run(batch=40, pad=1, mirror=True, train_size=200)
    shown = load_batches(run, None, ALONE)
    for (x, y), *parts in zip(*(shown.train_batches(3, ranks) for ranks in (ALONE, *PAIR)), strict=True):
        assert torch.equal(torch.cat([images for images, _ in parts]), x)
        assert torch.equal(torch.cat([labels for _, labels in parts]), y)
    for held in (shown.validation, shown.test):
        whole = torch.cat([labels for _, labels in shown.eval_batches(held, ALONE)])
        assert torch.equal(
            torch.cat([labels for ranks in PAIR for _, labels in shown.eval_batches(held, ranks)]), whole
        )


def test_what_one_process_lacks_all_raise(monkeypatch):
    """The data of another machine is not there: the first process has to say so, and nobody waits for anybody."""

    def gathered(errors, mine):
        errors[:] = [mine, DataError("mnist: none of its files found")]

    monkeypatch.setattr(distributed, "all_gather_object", gathered)
    with pytest.raises(DataError, match="^mnist: none of its files found$"):
        PAIR[0].raise_if_any_fails(lambda: 3)
    monkeypatch.setattr(distributed, "all_gather_object", lambda errors, mine: None)
    assert PAIR[0].raise_if_any_fails(lambda: 3) == ALONE.raise_if_any_fails(lambda: 3) == 3


def test_a_batch_that_cannot_be_shared():
    with pytest.raises(RunError, match="^batch: 25 images cannot be shared evenly by 2 processes; see --set batch=N$"):
        load_batches(Run(batch=25), None, PAIR[0])


def test_parts_of_a_batch_are_the_same_for_one_process_and_many():
    """Each part is shared by all, so that dropout, drawn for a whole part, meets the same images."""
    batch, parts = torch.arange(24), 3
    shares = [batch[ranks.local_rows(24, parts)].chunk(parts) for ranks in PAIR]
    assert [torch.cat(part).tolist() for part in zip(*shares, strict=True)] == [x.tolist() for x in batch.chunk(parts)]
    assert torch.equal(batch[ALONE.local_rows(24, parts)], batch)
