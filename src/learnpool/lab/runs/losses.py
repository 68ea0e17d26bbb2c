"""What training minimises: the loss of the output, and of the classifiers on the way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor
from torch.nn import functional as F

from ...nets.dsn import Votes
from .run import Run

HEAD_WEIGHT = 0.3  # of each of GoogLeNet's classifiers on the way

Loss = Callable[..., Tensor]  # of votes and labels


def squared_hinge(votes: Tensor, labels: Tensor) -> Tensor:
    """``Σ_c max(0, 1 − y_c s_c)²`` with y = 1 for the label and −1 for the rest, averaged over images: an L2-SVM."""
    sign = 2 * F.one_hot(labels, votes.shape[1]) - 1
    return F.relu(1 - sign * votes).square().sum(1).mean()


LOSSES: dict[str, Loss] = {"hinge": squared_hinge, "softmax": F.cross_entropy}


def compute_loss(run: Run, output: Tensor | Votes, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of what a network says in training, and its votes.

    DSN's heads have a squared hinge whatever the loss of the output, GoogLeNet's 0.3 times the loss of the output.
    """
    votes, heads = output if isinstance(output, Votes) else (output, [])
    compute = partial(LOSSES[run.loss], label_smoothing=run.smoothing) if run.smoothing else LOSSES[run.loss]
    loss = compute(votes.float(), labels)
    for head in heads:
        if run.net == "dsn":
            loss = loss + squared_hinge(head.float(), labels)
        else:
            loss = loss + HEAD_WEIGHT * compute(head.float(), labels)
    return loss, votes
