"""The demo: its runs are comparable, its files are complete, and its conclusion claims no more than the numbers."""

import json
from pathlib import Path

import pytest
import torch

from learnpool.lab import demo
from learnpool.lab.demo import Net, Result, Run, conclude, summarize, train, train_all

PARAMETERS = {"max": 0, "avg": 0, "half": 0, "mixed": 2, "gated": 18, "tree2": 54, "tree3": 126}  # in two 3×3 pools
IMAGES = 200  # one image is 0.5 %


def made(**errors):
    """Results with given errors, seed by seed."""
    return [
        Result(pool, seed, error, 2.0 if pool == "max" else 3.0, PARAMETERS.get(pool, 9), [], None)
        for pool, of_pool in errors.items()
        for seed, error in enumerate(of_pool)
    ]


def conclusion(**errors):
    return conclude(summarize(made(**errors), IMAGES), len(errors["max"]))


def test_interval_by_hand():
    # Differences −1, −2, −3: mean −2, standard deviation 1; t(0.975, 2) = 4.302653, over √3 is 2.484138.
    line = summarize(made(max=[5, 5, 5], gated=[4, 3, 2]), IMAGES)[1]
    assert (line.pool, line.mean, line.std, line.difference) == ("gated", 3, 1, -2)
    assert (line.low, line.high) == pytest.approx((-4.484138, 0.484138), abs=1e-6)
    assert line.times_max == 1.5


def test_intervals_widen_with_the_number_of_pools():
    # Two differences: t(1 − 0.05 / 4, 2) = 6.205347, over √3 is 3.582659.
    line = summarize(made(max=[5, 5, 5], gated=[4, 3, 2], half=[5, 6, 7]), IMAGES)[1]
    assert (line.low, line.high) == pytest.approx((-2 - 3.582659, -2 + 3.582659), abs=1e-6)


def test_pairs_are_of_one_seed():
    results = made(max=[1, 9, 5], gated=[2, 10, 6])
    shuffled = [results[k] for k in (2, 0, 1, 4, 5, 3)]
    line = summarize(shuffled, IMAGES)[1]
    assert line.difference == 1
    # Equal differences have no spread; one image (0.5 %) is taken, and 4.302653 · 0.5 / √3 is 1.242069.
    assert (line.low, line.high) == pytest.approx((1 - 1.242069, 1 + 1.242069), abs=1e-6)


def test_a_better_mean_alone_is_no_win():
    said = conclusion(max=[5.0, 5.0, 5.0], gated=[4.0, 3.0, 2.0], tree2=[5.0, 5.5, 4.5])
    assert said.startswith("No pool's test error differs significantly from max pooling's 5.00 % (")
    assert "over 3 seeds" in said
    assert "all 2 differences" in said


def test_equal_small_wins_are_no_certainty():
    assert conclusion(max=[5.0, 5.0, 5.0], gated=[4.5, 4.5, 4.5]).startswith("No pool's test error differs")


def test_a_significant_win_is_named():
    said = conclusion(max=[9.0, 9.5, 9.0], gated=[4.0, 4.5, 4.5], half=[9.0, 8.5, 9.5])
    assert "significantly better: gated by 4.83 points; not significantly different: half (" in said
    assert "worse" not in said


def test_a_significant_loss_is_named():
    said = conclusion(max=[4.0, 4.5, 4.5], gated=[9.0, 9.5, 9.0])
    assert "significantly worse: gated by 4.83 points (" in said
    assert "better" not in said
    assert "not significantly" not in said


@pytest.mark.parametrize("pool", demo.POOLS)
def test_all_pools_begin_with_the_same_network(pool):
    torch.manual_seed(7)
    base = Net("max").state_dict()
    torch.manual_seed(7)
    state = Net(pool).state_dict()
    for name, value in base.items():
        assert torch.equal(state[name], value), name
    assert sum(p.numel() for name, p in state.items() if name.startswith("pools.")) == PARAMETERS[pool]


def test_mixed_and_gated_begin_as_half():
    images = demo.digits()[0][:8]
    outputs = []
    for pool in ("half", "mixed", "gated"):
        torch.manual_seed(3)
        outputs.append(Net(pool)(images))
    torch.testing.assert_close(outputs[1], outputs[0])
    torch.testing.assert_close(outputs[2], outputs[0])


def test_split_is_fixed_stratified_and_apart():
    images, labels, test_images, test_labels = demo.digits()
    assert (len(images), len(test_images)) == (1257, 540)
    share = test_labels.bincount() / (labels.bincount() + test_labels.bincount())
    assert (share - 0.3).abs().max() < 0.01
    assert images.unique(dim=0).shape[0] + test_images.unique(dim=0).shape[0] == 1797
    assert torch.cat([images, test_images]).unique(dim=0).shape[0] == 1797


def test_max_baseline_is_a_good_one():
    assert train(Run("max", 0, demo.EPOCHS), lambda: None).error < 3


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The demo on few images, one epoch, two seeds: its directory and its record."""
    images, labels, test_images, test_labels = demo.digits()
    few = images[:128], labels[:128], test_images[:IMAGES], test_labels[:IMAGES]
    out = tmp_path_factory.mktemp("demo") / "new" / "directory"
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "digits", lambda: few)
        demo.demo(out, seeds=2, jobs=1, epochs=1)
    assert torch.get_num_threads() == before + 1  # as the caller had it
    torch.set_num_threads(before)
    return out, json.loads((out / "results.json").read_text(encoding="utf-8"))


def test_files_are_complete(finished):
    out, _ = finished
    assert sorted(path.name for path in out.iterdir()) == ["demo.png", "results.json"]
    assert (out / "demo.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_record_holds_every_run_and_where_it_was_made(finished):
    _, record = finished
    assert record["seeds"] == [0, 1]
    assert [(r["pool"], r["seed"]) for r in record["runs"]] == [(p, s) for p in demo.POOLS for s in (0, 1)]
    assert {r["pool"]: r["parameters"] for r in record["runs"]} == PARAMETERS
    assert all(0 <= r["error"] <= 100 and r["error"] % (100 / IMAGES) == 0 for r in record["runs"])
    assert all(r["seconds"] > 0 for r in record["runs"])
    assert record["images"] == {"train": 128, "test": IMAGES}
    assert record["versions"]["torch"] == torch.__version__
    assert record["hardware"]["processes"] == 1
    assert record["hardware"]["cpu"]
    assert record["date"].endswith("+00:00")


def test_record_agrees_with_its_summary(finished):
    _, record = finished
    results = [Result(**run) for run in record["runs"]]
    lines = summarize(results, IMAGES)
    assert [vars(line) for line in lines] == record["pools"]
    assert conclude(lines, 2) == record["conclusion"]


def test_record_says_what_was_learned(finished):
    _, record = finished
    mixed = next(r for r in record["runs"] if r["pool"] == "mixed")
    assert [0 <= pool["a"] <= 1 for pool in mixed["learned"]] == [True, True]
    assert mixed["learned"][0]["mix"] != mixed["learned"][1]["mix"]
    gated = next(r for r in record["runs"] if r["pool"] == "gated")
    mask = torch.tensor(gated["learned"][0]["weight"])
    assert mask.shape == (1, 1, 1, 1, 3, 3)
    assert mask.abs().max() > 0
    channel, gates = gated["gate_map"]
    assert 0 <= channel < demo.CHANNELS
    assert torch.tensor(gates).shape == (4, 4)
    assert 0 < torch.tensor(gates).min() < torch.tensor(gates).max() < 1


def test_table_and_conclusion_are_printed(monkeypatch, capsys, tmp_path):
    results = made(**{pool: [2.0, 2.5] for pool in demo.POOLS})
    gates = (0, [[0.5] * 4] * 4)
    learned = [{"a": 0.5, "weight": [[[[[[0.0] * 3] * 3]]]]}] * 2
    full = [Result(r.pool, r.seed, r.error, r.seconds, r.parameters, learned, gates) for r in results]
    monkeypatch.setattr(demo, "train_all", lambda runs, jobs, advance: list(reversed(full)))
    monkeypatch.setenv("COLUMNS", "100")
    demo.demo(tmp_path, seeds=2, jobs=1, epochs=1)
    text = " ".join(capsys.readouterr().out.split())
    for row in ("max │ 2.25 ± 0.35 │ │ 0 │ 2.0 │ 1.0", "tree3 │ 2.25 ± 0.35 │ 0.00", "│ 126 │ 3.0 │ 1.5"):
        assert row in text
    assert "No pool's test error differs significantly from max pooling's 2.25 %" in text
    assert "all pools but max and avg run" in text


def test_a_failed_run_leaves_no_result(monkeypatch, tmp_path):
    def broken(run, advance):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "train", broken)
    with pytest.raises(KeyboardInterrupt):
        demo.demo(tmp_path, seeds=2, jobs=1, epochs=1)
    assert list(Path(tmp_path).iterdir()) == []


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_processes():
    runs = [Run(pool, seed, 2) for pool in ("max", "gated", "tree3") for seed in (0, 1)]
    steps = []
    alone = train_all(runs, 1, lambda: None)
    spread = sorted(train_all(runs, 2, lambda: steps.append(1)), key=lambda r: (demo.POOLS.index(r.pool), r.seed))
    assert [(r.pool, r.seed, r.error, r.learned) for r in spread] == [
        (r.pool, r.seed, r.error, r.learned) for r in alone
    ]
    assert len(steps) == 12


@pytest.mark.slow
def test_a_dead_process_is_an_error_not_a_hang():
    with pytest.raises(ChildProcessError, match="a training process died"):
        train_all([Run("max", 0, 1), Run("no such pool", 0, 1)], 2, lambda: None)
