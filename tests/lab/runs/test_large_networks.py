"""AlexNet and GoogLeNet as networks of a run: built from its fields, trained on a folder, resumed, loaded."""

import pytest
import torch

import learnpool
from data_files import write_folder, write_imagenet, write_photos
from learnpool.lab.data import ImageError
from learnpool.lab.runs import networks
from learnpool.lab.runs.batches import load_batches
from learnpool.lab.runs.presets import preset
from learnpool.lab.runs.run import Run, RunError
from learnpool.lab.runs.train import train
from learnpool.nets import GoogLeNet
from learnpool.nets.dsn import Table
from runs import ALONE, Stop, assert_same_run, stop_at

pytestmark = pytest.mark.trains

TINY = {"width": 0.05, "image_size": 40, "batch": 8, "epochs": 2, "validation": 4}
PHOTOS = Table((40, 40), 3, 2)


@pytest.fixture
def photos(tmp_path):
    return str(write_folder(tmp_path / "photos", {"train/cat": 12, "train/dog": 12, "val/cat": 3, "val/dog": 2}))


@pytest.mark.parametrize(
    ("net", "pool", "learned"),
    [("alexnet", "tree2+gated", 45), ("alexnet", "max", 0), ("googlenet", "gated", 36), ("googlenet-bn", "gated", 36)],
)
def test_pools_by_name(net, pool, learned):
    run = preset("cpu", "photos", net=net, pool=pool, **TINY)
    model = networks.build(run, PHOTOS, 0)
    plain = networks.build(run.model_copy(update={"pool": "max"}), PHOTOS, 0)
    count, fewer = (sum(p.numel() for p in each.parameters()) for each in (model, plain))
    assert count - fewer == learned
    own = plain.state_dict()
    assert all(torch.equal(own[name], value) for name, value in model.state_dict().items() if name in own)


@pytest.mark.parametrize(
    ("net", "pool"), [("alexnet", "tree2+gated"), ("googlenet", "half"), ("googlenet-bn", "gated")]
)
def test_trained_stopped_and_loaded(net, pool, photos, tmp_path):
    run = preset("cpu", photos, net=net, pool=pool, **TINY)
    result = train(run, tmp_path / "whole")
    with pytest.raises(Stop):
        train(run, tmp_path / "parts", watch=stop_at(3))  # in the second epoch
    train(run, tmp_path / "parts")
    assert_same_run(tmp_path / "whole" / run.id, tmp_path / "parts" / run.id)
    model = learnpool.load(tmp_path / "whole" / run.id)
    assert not getattr(model, "heads", None)  # for training alone
    assert result.parameters == sum(p.numel() for p in model.parameters())
    assert model(torch.zeros(1, 3, 40, 40)).shape == (1, 2)
    assert model.classes == ("cat", "dog")


def test_classifiers_on_the_way_are_there_as_long_as_the_run_says(photos, tmp_path):
    run = preset("cpu", photos, net="googlenet", **TINY | {"head_steps": 1})
    model = networks.build(run, PHOTOS, 0)
    assert isinstance(model, GoogLeNet)
    assert list(model.heads) == ["4a", "4d"]
    assert not networks.build(run.model_copy(update={"head_steps": 0}), PHOTOS, 0).heads
    train(run, tmp_path / "runs")


def test_rates_as_caffes():
    run = preset("paper", "photos", net="alexnet", pool="gated", width=0.05)
    groups = {group["name"]: group for group in networks.make_parameter_groups(run, networks.build(run, PHOTOS, 0))}
    assert {name: (group["factor"], group["weight_decay"]) for name, group in groups.items()} == {
        "weights": (1, 5e-4), "biases": (2, 0), "pools": (1, 5e-4),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("net", "table", "message"),
    [
        ("alexnet", Table((40, 48), 3, 2), "^net: alexnet takes square images, got 40×48$"),
        ("googlenet", Table((16, 16), 3, 2), "^googlenet: size must be larger for 4 pools, got 16$"),
    ],
)
def test_images_that_do_not_fit(net, table, message):
    with pytest.raises(RunError, match=message):
        networks.build(Run(net=net), table, 0)


def test_stride_2_convolutions_are_dsns():
    with pytest.raises(RunError, match="conv"):
        networks.build(Run(net="alexnet", pool="conv"), PHOTOS, 0)


def test_official_files_of_imagenet_from_a_run_to_a_prediction(tmp_path):
    """A truncated image, a grey one, a CMYK one and a PNG with alpha are among the 60."""
    broken = write_photos(tmp_path / "photos")
    write_imagenet(tmp_path / "data/imagenet", tmp_path / "photos")
    run = preset("cpu", "imagenet", net="alexnet", pool="tree2+gated", **TINY)
    with pytest.raises(ImageError, match=f"ILSVRC2012_img_train.tar:{broken.name}: wanted an image"):
        train(run, tmp_path / "runs", data_dir=tmp_path / "data")
    run = run.model_copy(update={"skip_broken": True})
    result = train(run, tmp_path / "runs", data_dir=tmp_path / "data", workers=1)
    assert result.images == {"train": 25, "validation": 4, "test": 30}
    assert [name.rpartition(":")[2] for name in result.skipped] == [broken.name]
    model = learnpool.load(tmp_path / "runs" / run.id)
    assert model.classes == ("n00", "n01", "n02")
    test = [tmp_path / f"photos/val/n00/val_0{number}.JPEG" for number in (1, 2, 3)]
    whole = load_batches(run, tmp_path / "data", ALONE)
    ((images, _),) = whole.test.iter_batches([torch.tensor([3, 6, 9])], slice(None), None)  # the same, in order of name
    torch.testing.assert_close(model.predict(test).probabilities, model(images).softmax(1))
