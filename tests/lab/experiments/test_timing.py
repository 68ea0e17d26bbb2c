"""The page of the timing experiment, from a record written by hand."""

import json

import pytest
import torch

from learnpool.lab.experiments import timing
from learnpool.lab.experiments.experiment import Scale
from learnpool.lab.experiments.results import Results


def test_ratios_are_those_of_the_medians(tmp_path):
    scale = Scale("cpu", 1, ("cifar10",), {"batch": 10})
    milliseconds = {"max": [10, 20, 30], "mixed": [11, 19, 36], "gated": [30, 12, 22], "tree2+max": [9, 18, 27]}
    milliseconds["tree+gated"] = [10, 20, 30]
    record = {
        "date": "2026-01-02", "versions": {"torch": "2"}, "hardware": {"cpu": "a processor", "cores": 2, "load": 0.0},
        "kernel": {"live": True, "detail": "avx2"}, "threads": 1, "pools": {name: name for name in milliseconds},
        "settings": {"data": "cifar10", "batch": 10, "width": 0.25, "channels_last": True},
        "seconds": {name: [value / 1e3 for value in values] for name, values in milliseconds.items()},
    }  # fmt: skip
    name = f"timing-cifar10-0.25-10-channels_last-{torch.get_num_threads()}.json"
    (tmp_path / name).write_text(json.dumps(record))
    page = timing.build_page(scale, Results(tmp_path))
    rows = {row[0].text: row[1:] for row in page.parts[0].rows}
    assert [cell.text for cell in rows["Gated max-avg"]] == ["4.16", "1.07", "2.200", "1.10"]
    assert rows["Gated max-avg"][3].note == "0.67 … 1.87"  # the middle half of 0.6, 0.73, 3 by rounds
    assert [cell.text for cell in rows["Mixed max-avg"]][2:] == ["1.900", "0.95"]
    assert page.data["ratios"]["tree2+max"] == pytest.approx(0.9)
    assert page.answer == [
        "The slowest takes 1.10 times the time of the network with max pooling; the paper's took 1.14 times."
    ]
    assert "Medians of 3 rounds" in page.parts[0].caption
