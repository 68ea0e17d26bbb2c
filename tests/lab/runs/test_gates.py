"""Under the presets' start and rate, gates of every kind of tree leave one half; from a neutral start they do not."""

import pytest

from learnpool.lab.runs.presets import preset
from learnpool.lab.runs.train import train

pytestmark = pytest.mark.trains


def measure_entropies(tmp_path, pool, **changes):
    """The entropy of each gate after training on the digits, in bits: 1 is undecided."""
    small = {"net": "learnpool.nets:small", "epochs": 8, "rate": (0.1,), "pad": 0}
    result = train(preset("cpu", "digits", pool=pool, **(small | changes)), tmp_path, threads=1)
    return {name: value for name, value in result.pools.items() if name.endswith(".entropy")}


@pytest.mark.parametrize("pool", ["gated", "tree2", "tree3", "tree2+max", "tree3+gated", "Gate(Filter,Mix(Max,Avg))"])
def test_gates_move(pool, tmp_path):
    entropies = measure_entropies(tmp_path, pool)
    first = [value for name, value in entropies.items() if name.startswith("pool1.")]
    assert min(first) < 0.985, entropies


def test_gates_begin_undecided(tmp_path):
    entropies = measure_entropies(tmp_path, "tree3+gated", epochs=1, rate=(1e-9,))
    assert min(entropies.values()) > 0.995, entropies


def test_gates_of_a_tree_with_a_neutral_start_do_not_move(tmp_path):
    entropies = measure_entropies(tmp_path, "tree3", start="neutral", pool_rate=1.0)
    assert min(entropies.values()) > 0.99, entropies
