"""``learnpool compare``: what it trains, what it says and writes, and what it refuses."""

import json
import linecache
import shlex
import shutil
import sys

import pytest
from PIL import Image

from learnpool.lab import progress
from learnpool.lab.comparison import compare as lab
from learnpool.lab.comparison.comparison import format_command, read_comparison
from learnpool.lab.data import load
from learnpool.lab.launch import loop, processes
from learnpool.lab.runs import directory, networks
from learnpool.lab.runs.presets import preset
from learnpool.lab.runs.run import Run, RunError
from learnpool.nets import small
from runs import edit

pytestmark = pytest.mark.trains

TINY = ["--set", "width=0.05", "--set", "batch=40", "--epochs", "1", "--train-size", "120", "--jobs", "1"]


def test_a_plan_has_every_pool_and_seed_in_one_setting():
    runs = lab.plan("modern", ["cifar10"], ["max", "gated", "tree2+gated"], 2, epochs=7)
    assert [(run.pool, run.seed) for run in runs] == [(p, s) for p in ("max", "gated", "tree2+gated") for s in (0, 1)]
    assert runs[3] == preset("modern", "cifar10", pool="gated", seed=1, epochs=7)


def test_numbers_are_those_of_the_runs(comparison):
    out, runs = comparison
    record = json.loads((out / "compare.json").read_text())
    assert record["runs"] == [run.id for run in runs]
    assert (record["baseline"], record["seeds"], record["images"]["test"]) == ("max", [0, 1], 540)
    for pool in record["pools"]:
        errors = [
            json.loads((out / run.id / "result.json").read_text())["test_error"]
            for run in runs
            if run.pool == pool["pool"]
        ]
        assert pool["errors"] == errors
    assert [pool["pool_parameters"] for pool in record["pools"]] == [0, 0, 2, 18, 27 * 6]
    compared = read_comparison([out / run.id for run in runs])
    assert record["answer"] == list(compared.answer)
    changes = [e - b for b, e in zip(*(record["pools"][k]["errors"] for k in (0, 3)), strict=True)]
    against = record["pools"][3]["against"]
    assert against["difference"] == pytest.approx(sum(changes) / 2)
    assert against["low"] < against["difference"] < against["high"]
    assert 0.95 <= against["confidence"] <= 1 - 0.05 / 4
    labels = load("digits").test.labels
    assert record["chance"] == pytest.approx(100 - 100 * int(labels.bincount().max()) / len(labels))


def test_what_to_know_before_reading_the_numbers_comes_first(comparison):
    """Two epochs on 120 images leave this network where it began."""
    out, runs = comparison
    compared = read_comparison([out / run.id for run in runs])
    assert compared.caveats.unlearned
    assert compared.answer[0].startswith("Nothing can be said about pools yet: with max the network has ")
    assert "more seed" not in " ".join(compared.answer)
    assert compared.answer == compared.caveats.sentences


def test_an_older_result_without_a_chance_level(comparison, tmp_path):
    out, runs = comparison
    for run in runs[:4]:
        shutil.copytree(out / run.id, tmp_path / run.id)
        edit(tmp_path / run.id / "result.json", chance_error=None, digest=None)
    assert read_comparison([tmp_path / run.id for run in runs[:4]]).chance_error == 90


def test_one_seed_is_trained_and_reported_without_an_interval(learnpool, tmp_path):
    status, text, error = learnpool("compare", "--pools", "max,half", "--seeds", "1", "--out", str(tmp_path), *TINY)
    assert status == 0, error
    assert "in one seed, which may be chance" in text
    assert "…" not in text.split("Written")[0]
    record = json.loads((tmp_path / "compare.json").read_text())
    assert [pool["spread"] for pool in record["pools"]] == [None, None]
    assert list(record["pools"][1]["against"]) == ["difference"]
    assert "One seed has no interval" in (tmp_path / "report.html").read_text()
    (run,) = {path.parent for path in tmp_path.glob("*-half-*/result.json")}
    assert run.name in record["runs"]


def test_a_table_never_breaks_a_name(comparison, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    out, runs = comparison
    table = lab.format_comparison(read_comparison([out / run.id for run in runs]))
    rows = table.splitlines()
    assert [row.split()[0] for row in rows[:6]] == ["pool", "max", "half", "mixed", "gated", "tree2:channel+max"]


def test_the_time_is_the_median_epoch_of_the_processor(comparison):
    out, runs = comparison
    first = read_comparison([out / run.id for run in runs]).first
    seconds = [row["cpu_seconds"] for row in first.metrics]
    assert first.score.seconds == pytest.approx(sum(seconds) / 2)


def test_more_seeds_train_only_what_is_missing(comparison, learnpool, monkeypatch, tmp_path):
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    words = ["compare", "--pools", "max,half", "--out", str(tmp_path), *TINY]
    status, text, error = learnpool(*words, "--seeds", "2")
    assert status == 0, error
    assert "of 4 runs" in error
    assert text.splitlines()[-1] == f"Written: {tmp_path / 'report.html'}"
    assert "\nhalf " in text
    started, begun = processes.start_worker, []
    monkeypatch.setattr(processes, "start_worker", lambda run, *rest: begun.append(run) or started(run, *rest))
    status, text, error = learnpool(*words, "--seeds", "3", "--json")
    assert (status, error) == (0, "")
    assert [(run.pool, run.seed) for run in begun] == [("max", 2), ("half", 2)]
    record = json.loads(text)
    assert record["seeds"] == [0, 1, 2]
    assert record == json.loads((tmp_path / "compare.json").read_text())
    begun.clear()
    expected = "\n".join([*record["answer"], f"Written: {tmp_path / 'report.html'}"]) + "\n"
    status, text, error = learnpool(*words, "--seeds", "3", "--quiet")
    assert (status, text, error, begun) == (0, expected, "", [])


def test_a_report_is_replaced_only_by_one_that_says_all_it_did(tmp_path):
    def plan(pools, seeds, **changes):
        return lab.plan("cpu", ["digits"], pools, seeds, **changes)

    def write(runs, ending):
        record = {"baseline": runs[0].pool, "runs": [run.id for run in runs]}
        (tmp_path / f"compare{ending}.json").write_text(json.dumps(record))
        (tmp_path / f"report{ending}.html").touch()

    first = plan(["max", "half"], 2)
    assert lab.choose_ending(first, tmp_path, "") == ""
    write(first, "")
    assert lab.choose_ending(first, tmp_path, "") == ""
    assert lab.choose_ending(plan(["max", "half"], 3), tmp_path, "") == ""  # more seeds
    assert lab.choose_ending(plan(["max", "half", "gated"], 2), tmp_path, "") == ""  # more pools
    for other in (["max", "gated"], ["half", "max"]):  # not the same runs, not the same baseline
        assert lab.choose_ending(plan(other, 2), tmp_path, "") == f"-{'-'.join(other)}"
    assert lab.choose_ending(first, tmp_path, "-mnist") == "-mnist"
    longer = plan(["max", "half"], 2, epochs=3)
    assert lab.choose_ending(longer, tmp_path, "") == "-max-half"
    write(longer, "-max-half")
    unlike = lab.choose_ending(plan(["max", "half"], 2, epochs=4), tmp_path, "")
    assert unlike.startswith("-max-half-")
    assert len(unlike) == len("-max-half-01234567")
    (tmp_path / "compare.json").write_text("damaged")
    assert lab.choose_ending(first, tmp_path, "") != ""
    (tmp_path / "compare.json").unlink()
    assert lab.choose_ending(first, tmp_path, "") != ""  # a page we know nothing of


def test_several_data_sets_have_a_report_each(photos, learnpool):
    words = "compare --data digits,photos --pools max,gated --seeds 2 --set batch=8 --set image_size=8 --set width=0.05"
    words += " --epochs 1 --train-size 20 --out runs"
    status, text, error = learnpool(*words.split())
    assert status == 0, error
    for data in ("digits", "photos"):
        record = json.loads((photos / "runs" / f"compare-{data}.json").read_text())
        assert (record["data"], len(record["runs"])) == (data, 4)
        assert f"\n{data}: {record['answer'][0]}\n" in text
        assert f"Does another pool help on {data}?" in (photos / "runs" / f"report-{data}.html").read_text()
    status, text, error = learnpool(*words.split(), "--json")
    assert ([record["data"] for record in json.loads(text)], error) == (["digits", "photos"], "")


def test_the_command_in_the_report_gives_the_same_runs(comparison, learnpool, monkeypatch):
    _, runs = comparison
    strange = lab.plan(
        "paper", ["a folder/$x"], ["max", "gated"], 2, net="some.module:net", schedule="onecycle", rate=(0.1,),
        mirror=True, train_size=50, decay=0.0, warmup=0.0,
    )  # fmt: skip
    trees = lab.plan("cpu", ["digits"], ["max", "Gate(Filter,Mix(Max,Avg,a=0.3))+gated", "Gate(Max,Filter)"], 2)
    strided = lab.plan("cpu", ["digits"], ["conv", "gated"], 2, net="resnet9", replace="strided,global")
    for wanted in (runs, strange, trees, strided, lab.plan("paper", ["cifar10"], ["max", "tree3+gated", "conv"], 3)):
        asked = []
        monkeypatch.setattr(lab, "compare", lambda runs, *rest, asked=asked, **options: asked.extend(runs) or 1 / 0)
        with pytest.raises(ZeroDivisionError):
            learnpool(*shlex.split(format_command(wanted))[1:])
        assert asked == wanted


@pytest.mark.parametrize("net", ["dsn", "resnet9"])
@pytest.mark.parametrize("kinds", ["strided", "strided,global", "max,avg"])
def test_other_places_are_compared_with_the_network_as_it_is(net, kinds, learnpool, monkeypatch):
    asked = []
    monkeypatch.setattr(lab, "compare", lambda runs, *rest, **options: asked.extend(runs) or 1 / 0)
    for words in ((), ("--replace", kinds), ("--set", f"replace={kinds}")):
        with pytest.raises(ZeroDivisionError):
            learnpool("compare", "--model", net, "--seeds", "1", *words)
    assert [run.pool for run in asked[:6]] == ["max", "avg", "half", "mixed", "gated", "tree2"]
    assert asked[6:10] == asked[10:]
    assert [run.pool for run in asked[10:]] == ["conv", "half", "mixed", "gated"]
    for run in asked[10:] if "avg" not in kinds else ():
        networks.build(run, networks.make_table(run, (1, 28, 28), 10), seed=0)


NETWORK = """
from torch import nn
def net(classes, channels):
    return nn.Sequential(nn.Conv2d(channels, 4, 3), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Flatten(), nn.LazyLinear(classes))
"""


@pytest.fixture
def photos(monkeypatch, tmp_path):
    """A folder of two classes, and a network of the user's beside it."""
    for name, shade in (("dark", 30), ("light", 220)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for k in range(15):
            Image.new("RGB", (12, 12), (shade, shade + k, shade)).save(tmp_path / "photos" / name / f"{k}.png")
    (tmp_path / "own_network.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("own_network", None)


def test_a_network_and_a_folder_of_the_users(photos, learnpool):
    words = "compare --data photos --model own_network:net --pools max,gated,tree2 --seeds 2 --epochs 1 --jobs 1"
    status, text, error = learnpool(*words.split(), "--set", "batch=8", "--set", "image_size=12", "--out", "runs")
    assert status == 0, error
    record = json.loads((photos / "runs" / "compare.json").read_text())
    assert [pool["pool_parameters"] for pool in record["pools"]] == [0, 9, 27]
    page = (photos / "runs" / "report.html").read_text()
    assert "own_network:net" in page
    assert "2: dark, light" in page
    assert "--model own_network:net" in page
    assert "Written: runs/report.html" in text


OWN = "compare --data photos --model own_network:net --pools max,gated --seeds 2 --epochs 1 --jobs 1 --out runs"


def test_what_was_done_with_another_network_or_folder_is_not_reused(photos, learnpool):
    """Runs are found by their description, which knows neither the user's code nor the folder's images."""
    words = [*OWN.split(), "--quiet", "--set", "batch=8", "--set", "image_size=12"]
    status, text, error = learnpool(*words)
    assert status == 0, error
    network = photos / "own_network.py"
    network.write_text(f"# nothing new\n{NETWORK}")
    linecache.checkcache()
    assert learnpool(*words) == (0, text, "")
    network.write_text(NETWORK.replace("nn.ReLU()", "nn.Tanh()"))
    linecache.checkcache()
    status, _, error = learnpool(*words)
    assert status == 2
    assert error.endswith(": own_network:net is not what this run began with; give another --out\n")
    network.write_text(NETWORK)
    linecache.checkcache()
    (photos / "photos" / "dark" / "3.png").unlink()
    status, _, error = learnpool(*words)
    assert status == 2
    assert error.endswith(": photos is not what this run began with; give another --out\n")
    alone = "train --data photos --model own_network:net --epochs 1 --set batch=8 --set image_size=12 --out runs"
    status, _, error = learnpool(*alone.split())
    assert (status, "photos is not what this run began with" in error) == (2, True)


def test_images_that_are_skipped_are_named(photos, learnpool):
    broken = photos / "photos" / "dark" / "3.png"
    broken.write_bytes(b"")
    words = "compare --data photos --pools max,half --set width=0.05 --set batch=8 --set image_size=16 --out runs"
    words = f"{words} --seeds 2 --epochs 1 --jobs 1 --set skip_broken=true".split()
    named = "learnpool: skipped 1 image that cannot be decoded: photos/dark/3.png\n"
    status, _, error = learnpool(*words)
    assert status == 0, error
    assert error.endswith(named)
    assert learnpool(*words)[2].endswith(named)  # all done before
    assert learnpool(*words, "--quiet")[2] == ""
    assert json.loads(learnpool(*words, "--json")[1])["skipped"] == ["photos/dark/3.png"]
    assert "1 image that cannot be decoded: photos/dark/3.png" in (photos / "runs" / "report.html").read_text()
    words = "train --data photos --set width=0.05 --set batch=8 --set image_size=16 --epochs 1 --set skip_broken=true"
    assert learnpool(*words.split(), "--workers", "0")[2].endswith(named)


def test_two_at_once_in_one_directory(learnpool, tmp_path):
    with directory.lock(tmp_path, "ours"):
        status, _, error = learnpool("compare", "--out", str(tmp_path), *TINY)
    message = "another command is training here; wait, or give another --out"
    assert (status, error) == (2, f"learnpool: {tmp_path}: {message}\n")
    assert not list(tmp_path.iterdir())


def test_a_run_that_is_done_but_lost_its_checkpoint_is_named(comparison, tmp_path):
    out, runs = comparison
    shutil.copytree(out / runs[0].id, tmp_path / runs[0].id)
    (tmp_path / runs[0].id / "last.json").unlink()
    with pytest.raises(RunError, match="has lost its checkpoint; remove it to train again$"):
        loop.read_finished(runs[:1], tmp_path)


def test_a_lost_file_of_a_run_is_named(comparison, learnpool, tmp_path):
    out, runs = comparison
    for name, message in (
        ("env.json", "env.json is missing"),
        ("metrics.jsonl", "metrics"),
        ("last.json", "checkpoint"),
    ):
        shutil.copytree(out, tmp_path / name)
        (tmp_path / name / runs[0].id / name).unlink()
        with pytest.raises(RunError, match=message):
            read_comparison([tmp_path / name / run.id for run in runs])


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("--seeds 0", "--seeds: wanted at least 1, got 0"),
        ("--device tpu", "--device: wanted cpu or cuda, got 'tpu'"),
        ("--pools max", "--pools: wanted at least two to compare, got max"),
        ("--pools max,max", "--pools: wanted at least two to compare, got max"),
        ("--pools ,", "--pools: wanted at least two to compare, got none"),
        ("--pools max,gatet", "unknown pool 'gatet' (did you mean 'gated'?)"),
        ("--data imagenett", "no folder and no data set 'imagenett'"),
        ("--data photo/", "no folder and no data set 'photo' (did you mean 'photos'?)"),
        ("--data here/photos", "no such folder: here/photos"),
        ("--data file", "file: wanted a folder of images, got a file"),
        ("--data mnist --data-dir .", "mnist: none of its files found in ."),
        ("--data photos", "photos: wanted a folder for each of at least two classes, got 1: only"),
        ("--model nowhere:net", "net: cannot import nowhere"),
        ("--model json:net", "net: json has no function net"),
        ("--model json", "or package.module:function, got 'json'"),
        ("--preset fast", "preset: wanted one of paper, modern, cpu, got 'fast'"),
        ("--set dropuot=0.1", "unknown field 'dropuot'"),
        ("--set pool=gated", "--set: pool is part of what is compared"),
        ("--out file", "Not a directory: file"),
        ("--out file/runs", "Not a directory: file/runs"),
        ("--jobs 0", "learnpool: --jobs: "),
        ("--ray 127.0.0.1:1", "--ray: cannot join the cluster at '127.0.0.1:1': Connection refused"),
    ],
)
def test_a_mistake_is_one_line(words, part, learnpool, monkeypatch, tmp_path):
    if words.startswith("--ray"):
        pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "photos" / "only").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "only" / "1.png")
    status, text, error = learnpool("compare", "--quiet", *TINY, *words.split())
    assert (status, text) == (2, "")
    assert error.startswith("learnpool: ")
    assert part in error
    assert error.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"file", "photos"}  # not even an empty directory


def test_the_directory_of_another_run(learnpool, tmp_path):
    run = lab.plan("cpu", ["digits"], ["max", "half"], 2, width=0.05, batch=40, epochs=1, train_size=120)[0]
    (tmp_path / run.id).mkdir()
    (tmp_path / run.id / "run.json").write_text(Run(seed=7).model_dump_json())
    status, _, error = learnpool(
        "compare", "--quiet", "--pools", "max,half", "--seeds", "2", "--out", str(tmp_path), *TINY
    )
    assert status == 2
    assert error == f"learnpool: {tmp_path / run.id}: the directory of another run; give another --out\n"


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_training_that_diverges_is_one_line_and_status_1(quiet, learnpool, tmp_path):
    words = "compare --pools max,half --seeds 2 --set rate=1e9"
    status, _, error = learnpool(*words.split(), *quiet, *TINY, "--out", str(tmp_path))
    assert status == 1
    *progress, last = error.splitlines()  # on a busy machine it has lasted long enough to say how far it is
    assert "a lower rate may help" in last
    assert all(line.startswith("training: ") for line in progress)


def test_the_small_network():
    import torch

    for size in ((8, 8), (28, 27)):
        assert small(7, 3, size)(torch.zeros(2, 3, *size)).shape == (2, 7)
    model = small(10, 1, (8, 8))
    assert list(dict(model.named_children())) == [
        "conv1",
        "conv2",
        "pool1",
        "conv3",
        "conv4",
        "pool2",
        "flat",
        "linear",
    ]
