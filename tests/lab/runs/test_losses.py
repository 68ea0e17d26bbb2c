"""What training minimises: of the output, and of the classifiers on the way."""

import pytest
import torch
from torch.nn import functional as F

from learnpool.lab.runs.losses import compute_loss, squared_hinge
from learnpool.lab.runs.run import Run
from learnpool.nets import Votes

LABELS = torch.tensor([0, 2])


def make_votes():
    torch.manual_seed(0)
    return Votes(torch.randn(2, 3), [torch.randn(2, 3), torch.randn(2, 3)])


def test_squared_hinge():
    votes = torch.tensor([[2.0, 0.5, -3.0], [0.0, 0.0, 0.0]])
    # 0 + 1.5² + 0 for the first image; three times 1 for the second.
    assert squared_hinge(votes, torch.tensor([0, 1])).item() == pytest.approx((2.25 + 3) / 2)


@pytest.mark.parametrize("loss", ["hinge", "softmax"])
def test_without_heads_it_is_the_loss_of_the_output(loss):
    votes = make_votes().votes
    value, same = compute_loss(Run(loss=loss), votes, LABELS)
    assert same is votes
    assert value == {"hinge": squared_hinge, "softmax": F.cross_entropy}[loss](votes, LABELS)


def test_heads_of_dsn_have_a_squared_hinge_whatever_the_output_has():
    output = make_votes()
    value, votes = compute_loss(Run(loss="softmax"), output, LABELS)
    assert votes is output.votes
    expected = F.cross_entropy(votes, LABELS) + sum(squared_hinge(head, LABELS) for head in output.heads)
    torch.testing.assert_close(value, expected)


def test_heads_of_googlenet_have_three_tenths_of_the_outputs_loss():
    output = make_votes()
    value, votes = compute_loss(Run(net="googlenet"), output, LABELS)
    expected = F.cross_entropy(votes, LABELS) + 0.3 * sum(F.cross_entropy(head, LABELS) for head in output.heads)
    torch.testing.assert_close(value, expected)


def test_smoothing_shares_a_part_of_the_label_among_all_classes():
    votes = make_votes().votes
    value, _ = compute_loss(Run(smoothing=0.3), votes, LABELS)
    wanted = 0.7 * F.one_hot(LABELS, 3) + 0.1
    torch.testing.assert_close(value, -(wanted * votes.log_softmax(1)).sum(1).mean())
