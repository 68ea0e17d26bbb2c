"""Small runs on the digits, how to stop them, and how to compare what they leave."""

import json
import sys

import torch

from learnpool.lab.runs import checkpoint, directory
from learnpool.lab.runs.distributed import Ranks

ALONE = Ranks(0, 1, torch.device("cpu"))


SMALL = {
    "width": 0.05, "init": "kaiming", "start": "neutral", "epochs": 4, "rate": (0.02,), "pool": "gated", "dropout": 0.2,
    "pad": 1, "mirror": True, "train_size": 400, "batch": 40,
}  # fmt: skip


STEPS = 10  # in an epoch


PLATEAU = SMALL | {"schedule": "plateau", "rate": (0.02, 0.01, 0.001), "patience": 1}


class Stop(Exception):  # noqa: N818
    """As good as a kill, for a test in the same process."""


def stop_at(step):
    def watch(seen):
        if seen.step == step:
            raise Stop

    return watch


def rows(path):
    """Metrics without what a clock said."""
    return [{k: v for k, v in row.items() if "seconds" not in k} for row in directory.read_metrics(path)]


def weights(path):
    tensors, _ = checkpoint.load(path)
    return tensors


def assert_same_run(one, other):
    assert rows(one) == rows(other)
    ours, theirs = weights(one), weights(other)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def edit(path, **changes):
    """Change fields of a JSON record by hand; None removes one."""
    record = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in record.items() if value is not None}))


def command(run, out, *more):
    sets = [f"--set={k}={','.join(map(str, v)) if isinstance(v, tuple) else v}" for k, v in run.items() if k != "pool"]
    words = [sys.executable, "-m", "learnpool", "train", "--pool", run["pool"], "--preset", "modern", *sets]
    return [*words, "--out", str(out), "--threads", "1", *more]
