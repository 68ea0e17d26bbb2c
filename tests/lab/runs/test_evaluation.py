"""Evaluation: one view is the run's own test error, ten are an average; classes go by name; any network."""

import json
import shutil
import sys

import pytest
import torch
from torch import nn

from data_files import write_imagenet, write_photos
from learnpool.lab import data
from learnpool.lab.runs.evaluation import evaluate, evaluate_checkpoint, translate_labels
from learnpool.lab.runs.presets import preset
from learnpool.lab.runs.train import train
from learnpool.lab.runs.trained import restore_run

pytestmark = pytest.mark.trains

TINY = {"width": 0.05, "image_size": 40, "batch": 8, "epochs": 1, "validation": 4, "skip_broken": True, "rate": (0.05,)}
CODE = """
from torch import nn

def small():
    return nn.Sequential(nn.Conv2d(3, 4, 5, stride=4), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Flatten(), nn.Linear(64, 3))
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run, its directory and the photos it was trained on."""
    root = tmp_path_factory.mktemp("evaluation")
    write_photos(root / "photos")
    run = preset("cpu", str(root / "photos"), net="alexnet", pool="gated", **TINY)
    return train(run, root / "runs"), root / "runs" / run.id, root / "photos"


def test_a_run_is_judged_by_its_own_data_unless_others_are_named(trained, learnpool, tmp_path):
    result, path, _ = trained
    status, text, error = learnpool(
        "evaluate", str(path), "--json", "--workers", "0", "--out", str(tmp_path / "a.html")
    )
    assert status == 0, error
    assert json.loads(text)["top1"] == pytest.approx(result.test_error)
    torch.save({}, tmp_path / "model.pt")
    status, _, error = learnpool("evaluate", str(tmp_path / "model.pt"))
    assert (status, "wanted the data that" in error) == (2, True)
    status, _, error = learnpool("evaluate", "gone/run")
    assert (status, error) == (2, "learnpool: evaluate: no such file or directory: gone/run\n")


def test_one_view_is_the_test_error_of_the_run(trained):
    result, path, photos = trained
    evaluation = evaluate_checkpoint(path, str(photos))
    assert evaluation.tally.errors.top1 == result.test_error
    assert evaluation.tally.images == 30
    assert result.test_error_top5 is None  # of three classes
    workers = evaluate_checkpoint(path, str(photos), workers=2, threads=1)
    assert torch.equal(workers.tally.confusion, evaluation.tally.confusion)


def test_ten_views_are_the_mean_of_ten_probabilities(trained):
    _, path, photos = trained
    network, predictor = restore_run(path)
    test, classes = data.load_test(str(photos))
    evaluation = evaluate(predictor, test, classes, views=10)
    expected = torch.zeros(3, 3, dtype=torch.int64)
    for file, label in zip(test.paths, test.labels.tolist(), strict=True):
        views = predictor.run.crop.take_views(data.read_image(file, "RGB"), 10)
        with torch.no_grad():
            mean = sum(network(predictor.preparation(view[None])).softmax(1) for view in views) / 10
        expected[label, int(mean.argmax())] += 1
    assert torch.equal(evaluation.tally.confusion, expected)
    assert evaluation.describe().endswith("% top-1 error on 30 images, ten views of each")


def test_classes_go_by_name(trained, tmp_path):
    """A folder with two of the classes, and the official files without the training images."""
    _, path, photos = trained
    shutil.copytree(photos / "val/n01", tmp_path / "some/n01")
    shutil.copytree(photos / "val/n02", tmp_path / "some/n02")
    whole, some = evaluate_checkpoint(path, str(photos)), evaluate_checkpoint(path, str(tmp_path / "some"))
    assert some.tally.images == 20  # all of them: nothing is held back
    assert torch.equal(some.tally.confusion[1:], whole.tally.confusion[1:])
    write_imagenet(tmp_path / "imagenet", photos)
    (tmp_path / "imagenet/ILSVRC2012_img_train.tar").unlink()
    official = evaluate_checkpoint(path, "imagenet", data_dir=tmp_path)
    assert torch.equal(official.tally.confusion, whole.tally.confusion)
    assert translate_labels(torch.tensor([0, 1, 0]), ("b", "a"), ("a", "b", "c")).tolist() == [1, 0, 1]
    (tmp_path / "some/n02").rename(tmp_path / "some/n07")
    with pytest.raises(ValueError, match="^evaluate: the network does not know the class n07; it knows 3 others$"):
        evaluate_checkpoint(path, str(tmp_path / "some"))


def test_images_it_was_trained_on_do_not_judge_it(tmp_path):
    """A folder of classes is split by the run; only what it left for the test counts."""
    write_photos(tmp_path / "all")
    run = preset("cpu", str(tmp_path / "all/val"), net="alexnet", **TINY)
    result = train(run, tmp_path / "runs")
    evaluation = evaluate_checkpoint(tmp_path / "runs" / run.id, str(tmp_path / "all/val"))
    assert evaluation.tally.images == result.images["test"] == 6
    assert evaluation.tally.errors.top1 == result.test_error


def test_broken_images_are_named_and_counted(trained):
    _, path, photos = trained
    with pytest.raises(ValueError, match=r"train_05.JPEG: wanted an image, got a file that does not decode"):
        evaluate_checkpoint(path, str(photos / "train"))
    evaluation = evaluate_checkpoint(path, str(photos / "train"), skip_broken=True, views=10)
    assert evaluation.tally.images == 29
    assert len(evaluation.skipped) == 1
    assert evaluation.skipped[0].startswith(str(photos / "train/n01/train_05.JPEG"))


def test_a_state_dict_of_your_own_network(trained, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 5, stride=4), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Flatten(), nn.Linear(64, 3))
    torch.save(net.state_dict(), tmp_path / "mine.pt")
    photos, crop = str(trained[2]), (40, (0.5, 0.4, 0.3), (0.2,))
    evaluation = evaluate_checkpoint(tmp_path / "mine.pt", photos, model="mine:small", crop=crop)
    test, _ = data.load_test(photos)
    ((pixels, labels),) = data.iter_batches(test, [torch.arange(30)], data.Crop(40))
    x = (pixels.float() / 255 - torch.tensor([0.5, 0.4, 0.3])[:, None, None]) / 0.2
    assert evaluation.tally.errors.top1 == pytest.approx(100 * float((net(x).argmax(1) != labels).float().mean()))
    with pytest.raises(ValueError, match="^evaluate: --size must say how large"):
        evaluate_checkpoint(tmp_path / "mine.pt", photos, model="mine:small")
    with pytest.raises(ValueError, match="^evaluate: --model package.module:function must say which"):
        evaluate_checkpoint(tmp_path / "mine.pt", photos, crop=crop)
    with pytest.raises(ValueError, match="^evaluate: --mean must be 1 or 3 numbers, got 2$"):
        evaluate_checkpoint(tmp_path / "mine.pt", photos, model="mine:small", crop=(40, (1, 2), ()))
    sys.modules.pop("mine", None)


def test_the_command_and_its_page(trained, learnpool, tmp_path):
    result, path, photos = trained
    words = [str(path), str(photos), "--out", str(tmp_path / "page.html"), "--workers", "0"]
    status, out, _ = learnpool("evaluate", *words)
    assert status == 0
    assert out.startswith(f"{result.test_error:.2f} % top-1 error on 30 images, one view of each")
    page = (tmp_path / "page.html").read_text()
    assert all(name in page for name in ("n00", "n01", "n02", "most often taken for", f"{result.test_error:.2f} %"))
    assert "http" not in page
    record = json.loads(learnpool("evaluate", *words, "--views", "10", "--json")[1])
    assert (record["views"], record["images"], len(record["classes"])) == (10, 30, 3)
    assert "probabilities are averaged" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (["--views", "3"], "evaluate: --views must be 1 or 10, got 3"),
        (["--views", "3", "--out", "nowhere/x.html"], "--out: wanted a file in a directory that exists"),
        (["--device", "gpu"], "--device: wanted cpu or cuda, got 'gpu'"),
        (["--size", "40"], "--size, --mean and --std are for a state_dict"),
    ],
)
def test_mistakes_are_one_line(more, part, trained, learnpool, tmp_path):
    _, path, photos = trained
    status, out, error = learnpool("evaluate", str(path), str(photos), "--out", str(tmp_path / "x.html"), *more)
    assert (status, out) == (2, "")
    assert part in " ".join(error.split())


def test_a_data_set_in_memory(learnpool, tmp_path):
    run = preset("cpu", "digits", pool="gated", epochs=1, width=0.05, train_size=100)
    result = train(run, tmp_path / "runs")
    evaluation = evaluate_checkpoint(tmp_path / "runs" / run.id, "digits")
    assert (evaluation.tally.errors.top1, evaluation.tally.errors.top5) == (result.test_error, result.test_error_top5)
    with pytest.raises(ValueError, match="^evaluate: --views 10 is for image files"):
        evaluate_checkpoint(tmp_path / "runs" / run.id, "digits", views=10)
    write_photos(tmp_path / "photos")
    with pytest.raises(ValueError, match="^evaluate: "):
        evaluate_checkpoint(tmp_path / "runs" / run.id, str(tmp_path / "photos"))
