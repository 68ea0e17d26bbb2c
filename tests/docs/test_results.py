"""What docs/results says is what its files say, and the files are of the presets as they are."""

import json
from pathlib import Path

from cpu_table import Bench, lines
from learnpool.lab.runs.directory import Result, read_metrics, read_result
from learnpool.lab.runs.presets import preset
from learnpool.lab.runs.run import parse_run

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_the_baseline_is_the_cpu_presets():
    directory = RESULTS / "baseline"
    run, result = parse_run((directory / "run.json").read_text(encoding="utf-8")), read_result(directory)
    assert isinstance(result, Result)
    assert run == preset("cpu", "cifar10")
    assert result.id == run.id
    metrics = read_metrics(directory)
    assert (len(metrics), metrics[-1]["test_error"]) == (run.epochs, result.test_error)
    assert result.cpu_seconds < 30 * 60
    (start,) = json.loads((directory / "env.json").read_text(encoding="utf-8"))["starts"]
    assert start["threads"] == 1
    told = (RESULTS / "README.md").read_text(encoding="utf-8")
    for number in (f"{result.test_error:.2f} % test error", f"{result.parameters:,} parameters"):
        assert number in told
    assert f"{result.cpu_seconds / 60:.1f} minutes of CPU time" in told


def test_the_page_of_the_pools_is_what_their_files_say():
    assert (RESULTS / "cpu.md").read_text(encoding="utf-8").splitlines() == list(lines())
    nchw = Bench("nchw")
    said = (f"{nchw.ratio(pool):.2f}" for pool in ("mixed", "gated", "tree3"))
    front = " ".join((RESULTS.parents[1] / "README.md").read_text(encoding="utf-8").split())
    words = "a mixed pool takes {}, a gated one {} and a three-level tree {} of the time of `nn.MaxPool2d`"
    assert words.format(*said) in front
