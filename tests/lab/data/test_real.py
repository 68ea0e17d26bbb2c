"""The real files, where $LEARNPOOL_DATA_DIR has them; skipped by name otherwise."""

import os
from pathlib import Path

import pytest
import torch

from learnpool.lab.data import DataError, hold_out, load, prepare
from learnpool.lab.data.check import check
from learnpool.lab.data.preparation import ZCA_BIAS, gcn

WHERE = os.environ.get("LEARNPOOL_DATA_DIR")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not WHERE, reason="LEARNPOOL_DATA_DIR is not set")]

SHAPES = {
    "mnist": ((60_000, 1, 28, 28), (10_000, 1, 28, 28)),
    "fashion-mnist": ((60_000, 1, 28, 28), (10_000, 1, 28, 28)),
    "cifar10": ((50_000, 3, 32, 32), (10_000, 3, 32, 32)),
    "cifar100": ((50_000, 3, 32, 32), (10_000, 3, 32, 32)),
    "svhn": ((73_257, 3, 32, 32), (26_032, 3, 32, 32)),
}


def real(name):
    if check_missing(name):
        pytest.skip(f"{name} is not in {WHERE}")
    return load(name, Path(WHERE))


def check_missing(name):
    try:
        load(name, Path(WHERE))
    except DataError as error:
        return "none of its files" in str(error)
    return False


@pytest.mark.parametrize("name", SHAPES)
def test_it_is_read_and_verified(name):
    data = real(name)
    assert (tuple(data.train.images.shape), tuple(data.test.images.shape)) == SHAPES[name]
    report = check(name, Path(WHERE))
    assert report.problems == []
    assert all(state != "checksum wrong" for _, _, state in report.files)


def test_known_means():
    """The means everybody uses: 0.1307 for MNIST, 0.4914 0.4822 0.4465 for CIFAR10."""
    for name, means in (("mnist", [0.1307]), ("cifar10", [0.4914, 0.4822, 0.4465])):
        images = real(name).train.images
        ours = images.to(torch.float64).mean((0, 2, 3)) / 255
        torch.testing.assert_close(ours, torch.tensor(means, dtype=torch.float64), rtol=0, atol=6e-5)


def test_zca_of_cifar10(tmp_path):
    """The covariance of what comes out is Λ / (Λ + 0.1) in the eigenbasis of what goes in."""
    data = real("cifar10")
    train, held = hold_out(data, seed=0)
    few = train.take(torch.arange(6_000))
    ours, _ = prepare("gcn-zca", few, held, cache_dir=tmp_path)
    before, after = (torch.cov(x.flatten(1).T.double(), correction=0) for x in (gcn(few.images), ours))
    values, vectors = torch.linalg.eigh(before)
    expected = (vectors * (values / (values + ZCA_BIAS))) @ vectors.T
    torch.testing.assert_close(after, expected, rtol=0, atol=2e-3)
