"""Why gated pools are better: what is compared, and that its baselines are the confirmed runs."""

import re

from learnpool import GatedPool2d
from learnpool.lab.experiments import confirmation, why
from learnpool.lab.experiments.experiment import Scale
from learnpool.lab.experiments.results import Results
from learnpool.lab.runs.run import Run
from learnpool.lab.runs.train import train
from learnpool.lab.runs.trained import restore_run

SCALE = Scale("cpu", 4, ("cifar10+",), {"net": why.NET})


def test_the_confirmed_runs_are_not_trained_again():
    (block,) = confirmation.list_blocks(SCALE)
    confirmed = {run for runs in confirmation.group_runs(SCALE, block).values() for run in runs}
    shared = [row.label for row in why.TABLE.rows if set(why.TABLE.list_runs(SCALE, "cifar10+", row)) <= confirmed]
    assert shared == ["Max", "Fixed half", "Gated"]


def test_every_row_has_runs_of_its_own():
    runs = why.plan(SCALE)
    assert len(runs) == len(set(runs)) == 4 * len(why.TABLE.rows)
    assert {run.seed for run in runs} == {105, 106, 107, 108}
    assert [run.pool_rate for run in runs if run.pool == "gated"] == [3.0] * 4 + [1.0] * 4 + [0.0] * 4


def test_masks_are_read_from_the_networks(tmp_path):
    run = Run(data="digits", pool="gated", net="learnpool.nets:small", epochs=1, batch=40, train_size=120)
    train(run, tmp_path, threads=1)
    entry = Results(tmp_path).find(run)
    network, _ = restore_run(entry.path)
    gates = [module for module in network.modules() if isinstance(module, GatedPool2d)]
    assert len(gates) == 2
    masks = why.measure_masks(entry)
    assert [len(mask) for mask in masks] == [gate.weight.numel() for gate in gates]
    assert masks[1] == gates[1].weight.flatten().tolist()


def test_the_mean_mask_by_hand():
    masks = [[[1.0, 2.0], [0.0]], [[3.0, -2.0], [1.0]]]  # two networks of two pools
    assert why.average(masks) == [[2.0, 0.0], [0.5]]


def test_the_picture_has_every_pool_and_number():
    mask = [0.25, -0.5, 0.0] * 3
    figure = why.draw_masks([[mask, [2 * v for v in mask]], [mask, mask]])
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", figure.svg)
    assert {"pool 1", "pool 2", "0.25", "−0.50", "−0.75"} <= set(texts)
    assert "2 seeds" in figure.caption
