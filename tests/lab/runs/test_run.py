"""The description of a run: frozen, checked, equal where it means the same; and the presets."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from learnpool.lab.runs.presets import PRESETS, preset
from learnpool.lab.runs.run import Run, RunError, make_run, parse_run
from learnpool.lab.runs.schedule import make_schedule
from learnpool.lab.runs.studies import read_study


def test_a_run_is_frozen():
    run = Run(pool="gated")
    with pytest.raises(ValidationError):
        run.pool = "max"


@pytest.mark.parametrize(
    ("data", "message"), [("", "wanted the name of a data set"), ("caf\udce9", "wanted a path in UTF-8")]
)
def test_data_that_no_run_can_have(data, message):
    with pytest.raises(RunError, match=f"^run: data: {message}"):
        make_run({"data": data})


def test_equal_runs_share_an_id():
    assert (
        Run(pool="tree2 + gated", rate=(1,), data="./folder/").id
        == Run(pool="tree2+gated", rate=(1.0,), data="folder").id
    )
    ids = {Run().id, Run(seed=1).id, Run(pool="avg").id, Run(dropout=0.4).id, Run(rate=(0.2,)).id}
    assert len(ids) == 5


OTHERS = {
    "data": "mnist", "pool": "gated", "seed": 1, "net": "package.module:function", "width": 2, "extra_convs": 1,
    "dropout": 0.1, "head_steps": 5, "init": "kaiming", "start": "neutral", "prepare": "gcn", "pad": 1, "mirror": True,
    "image_size": 64, "skip_broken": True, "train_size": 10, "validation": 10, "loss": "hinge", "epochs": 2, "batch": 8,
    "schedule": "plateau", "rate": (0.3,), "patience": 3, "warmup": 0.5, "momentum": 0.5, "nesterov": True, "decay": 0,
    "factors": "dsn", "pool_rate": 0.5, "pool_decay": True, "precision": "bfloat16", "channels_last": True,
    "compile": True, "milestones": (0.5,), "resize": 256, "min_area": 0.5, "accumulate": 2, "norm": "batch",
    "smoothing": 0.1, "alternate": True, "norm_rate": 2, "replace": "strided",
}  # fmt: skip


@pytest.mark.parametrize("name", Run.model_fields)
def test_every_field_is_in_the_id(name):
    """One that were not could change a result inside a directory that is another's."""
    needs = {"milestones": {"schedule": "step", "rate": (2.0, 1.0)}, "alternate": {"mirror": True}}.get(name, {})
    usual = Run(**needs, milestones=(0.25,)) if "schedule" in needs else Run(**needs)
    assert Run(**needs | {name: OTHERS[name]}).id != usual.id


def test_a_new_field_leaves_older_ids_alone():
    """Those of published runs, whose descriptions are older than some fields."""
    studies = sorted((Path(__file__).parents[3] / "docs/results").rglob("*.jsonl"))
    lines = [line for path in studies for line in read_study(path).values() if "run" in line]
    assert len(lines) > 150
    assert any("accumulate" not in line["run"] for line in lines)
    for line in lines:
        assert parse_run(json.dumps(line["run"])).id == line["id"]


def test_the_id_is_a_file_name_to_read():
    run = Run(data="/photos/of cats", pool="Gate(Filter,Mix(Max,Avg,a=0.3)):channel+gated")
    assert run.id.startswith("of_cats-Gate_Filter_Mix_Max_Avg_a_0.3_channel+gated-0-")
    assert "/" not in run.id
    assert len(Run(pool="Gate(" * 50 + "Max" + ",Avg)" * 50).id) < 80


def test_a_run_survives_its_file():
    run = preset("paper", "cifar10", pool="tree3+gated", train_size=1000)
    assert parse_run(run.model_dump_json()) == run
    assert parse_run(json.dumps(run.model_dump(mode="json"))).id == run.id


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"width": 0}, r"^run: width: input should be greater than 0, got 0$"),
        ({"pool": "gatd"}, r"^run: pool 'gatd': unknown pool 'gatd' \(did you mean 'gated'\?\)"),
        ({"width": float("nan")}, r"^run: width: .*, got nan$"),
        ({"epochs": 2.5}, r"^run: epochs: input should be a valid integer, got 2.5$"),
        ({"epochs": True}, r"^run: epochs: input should be a valid integer, got True$"),
        ({"loss": "mse"}, r"^run: loss: input should be 'hinge' or 'softmax', got 'mse'$"),
        ({"pool": "gatet"}, r"unknown pool 'gatet' \(did you mean 'gated'\?\)"),
        ({"dropuot": 0.1}, r"^run: unknown field 'dropuot' \(did you mean 'dropout'\?\); known: data, pool, seed"),
        ({"rate": (0.1, 0.2)}, r"^run: rate: onecycle has one peak, got 2 rates$"),
        ({"rate": ()}, r"^run: rate: "),
        ({"seed": -1}, r"^run: seed: "),
        ({"rate": (1e308,)}, r"^run: rate.0: input should be less than or equal to 1000000000000000, got 1e\+308$"),
        ({"width": 1e300}, r"^run: width: input should be less than or equal to"),
        ({"decay": 1e300}, r"^run: decay: "),
        ({"dropout": float("nan")}, r"^run: dropout: "),
        ({"extra_convs": 10**9}, r"^run: extra_convs: "),
        ({"image_size": 10**9}, r"^run: image_size: "),
        ({"epochs": 10**400}, r"^run: epochs: "),
        ({"data": "photos-\udcff"}, r"^run: data: "),
        (
            {"net": "module"},
            r"^run: net: wanted dsn, .*, timm:NAME, torchvision:NAME or package.module:function, got 'module'$",
        ),
        ({"net": "a.b:c", "head_steps": 5}, r"^run: net: a.b:c has no heads for head_steps$"),
        ({"net": "alexnet", "head_steps": 5}, r"^run: net: alexnet has no heads for head_steps$"),
        ({"net": "googlenet", "factors": "dsn"}, r"^run: net: googlenet has not DSN's factors$"),
        ({"schedule": "step", "rate": (2, 1)}, r"^run: milestones: wanted 1 between 2 rates, got 0$"),
        ({"net": "fast", "norm": "batch"}, r"^run: norm: fast has its own normalisation or none$"),
        ({"loss": "hinge", "smoothing": 0.1}, r"^run: smoothing: wanted the softmax loss, got hinge$"),
        (
            {"replace": "strided,min"},
            r"^run: replace: wanted some of max,avg,global,strided,.*, got 'strided,min'$",
        ),
        ({"alternate": True}, r"^run: alternate: wanted mirror too$"),
        ({"factors": "dsn", "norm_rate": 2}, r"^run: norm_rate: wanted plain or caffe factors, got dsn$"),
        ({"resize": 100}, r"^run: resize: wanted at least image_size, 128, got 100$"),
        ({"min_area": 0}, r"^run: min_area"),
        ({"milestones": (0.5,)}, r"^run: milestones: onecycle has none$"),
        (
            {"schedule": "step", "rate": (3, 2, 1), "milestones": (0.5, 0.2)},
            r"^run: milestones: wanted them in order, got \(0.5, 0.2\)$",
        ),
        ({"nesterov": True, "momentum": 0}, r"^run: nesterov: wanted a momentum above 0$"),
    ],
)
def test_mistakes_are_one_line(values, message):
    with pytest.raises(RunError, match=message) as caught:
        make_run(values)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_run():
    with pytest.raises(RunError, match="^run: "):
        parse_run('{"pool": 3}')
    with pytest.raises(RunError, match="^run: "):
        parse_run("not json")


def test_the_paper_is_the_papers():
    run = preset("paper", "cifar10", pool="gated")
    assert (run.rate, run.schedule, run.patience, run.epochs) == ((0.025, 0.0125, 0.0001), "plateau", 10, 400)
    assert (run.momentum, run.decay, run.batch, run.dropout, run.width) == (0.9, 5e-4, 100, 0.5, 1)
    assert (run.head_steps, run.factors, run.init, run.start, run.pool_decay) == (50_000, "dsn", "dsn", "paper", True)
    assert (run.loss, run.prepare, run.pad, run.mirror) == ("hinge", "gcn-zca", 0, False)
    others = {data: preset("paper", data) for data in ("mnist", "cifar100", "svhn")}
    assert {run.loss for run in others.values()} == {"softmax"}
    assert [run.prepare for run in others.values()] == ["mean", "gcn-zca", "gcn-lcn"]


@pytest.mark.parametrize(("net", "decay", "epochs"), [("alexnet", 5e-4, 90), ("googlenet-bn", 2e-4, 250)])
def test_the_papers_recipe_for_large_images(net, decay, epochs):
    run = preset("paper", "photos", net=net, pool="gated")
    assert (run.batch, run.decay, run.epochs, run.schedule, run.factors) == (256, decay, epochs, "step", "caffe")
    schedule = make_schedule(run, 450_000, {})
    if net == "alexnet":
        places = (0, 119_999, 120_000, 230_000, 330_000, 430_000, 449_999)
        assert [schedule.rate_at(step) for step in places] == [1e-2, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-6]
    else:  # 4 % lower every 8 epochs
        assert schedule.rate_at(8 * 450_000 // 250) == pytest.approx(0.01 * 0.96)
        assert schedule.rate_at(449_999) == pytest.approx(0.01 * 0.96**31, rel=1e-4)
    assert (run.head_steps > 0) == (net != "alexnet")
    assert run.crop.short == preset("modern", "photos", net=net).crop.short == 256
    assert preset("cpu", "photos", net=net, image_size=64).crop.short == 73
    assert preset("paper", "photos", net=net, schedule="onecycle", rate=(0.1,)).milestones == ()


def test_modern_is_the_same_for_all_pools():
    for pool in ("max", "gated", "tree3+gated"):
        run = preset("modern", "cifar10", pool=pool)
        assert (run.init, run.start, run.schedule, run.pool_decay) == ("kaiming", "spread", "onecycle", False)
        assert run.pool_rate == 3
        assert run == preset("modern", "cifar10").model_copy(update={"pool": pool})
    assert not preset("modern", "mnist").mirror


def test_cpu_is_small():
    assert 0.125 <= preset("cpu", "cifar10").width <= 0.25


@pytest.mark.parametrize("net", ["resnet9", "fast"])
def test_networks_for_small_images_have_recipes(net):
    narrow, wide = (preset(name, "cifar10", net=net) for name in ("cpu", "modern"))
    assert narrow.width < wide.width == 1
    assert (narrow.batch, narrow.rate, narrow.decay) == (wide.batch, wide.rate, wide.decay)
    with pytest.raises(RunError, match=f"^preset: paper has no recipe for {net}; see modern and cpu$"):
        preset("paper", "cifar10", net=net)


@pytest.mark.parametrize("data", ["mnist", "digits"])
def test_digits_are_never_mirrored(data):
    run = preset("cpu", data, net="fast")
    assert not run.mirror
    assert not run.alternate


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_takes_changes(name):
    run = preset(name, "digits", pool="mixed", seed=3, epochs=2)
    assert (run.data, run.pool, run.seed, run.epochs) == ("digits", "mixed", 3, 2)
    assert preset(name, "digits", net="package.module:function").net == "package.module:function"


def test_presets_refuse():
    with pytest.raises(RunError, match="^preset: wanted one of paper, modern, cpu, got 'fast'$"):
        preset("fast", "digits")
    with pytest.raises(RunError, match="^rate: the rates of paper are for its own schedule; give rate with schedule$"):
        preset("paper", "digits", schedule="onecycle")
