"""The benchmark of reading images: what it measures, says and writes."""

import json

from data_files import write_folder
from learnpool.lab.bench import data

TINY = data.DataBenchmark(preset="cpu", width=0.05, batch=4, rounds=2, workers=0, threads=1)


def test_the_slower_of_both_decides(monkeypatch, tmp_path, capsys):
    """A clock that goes by the images: reading takes a second for each, a step two for each."""
    now = [0.0]
    step = data.Training.train_step
    read = data.Batches.train_batches

    def slow_step(self, images, labels):
        now[0] += 2 * len(images)
        return step(self, images, labels)

    def slow_read(self, number, ranks, start=0):
        for batch in read(self, number, ranks, start):
            now[0] += len(batch[0])
            yield batch

    def time_call(call):
        start = now[0]
        call()
        return now[0] - start

    monkeypatch.setattr(data.Training, "train_step", slow_step)
    monkeypatch.setattr(data.Batches, "train_batches", slow_read)
    monkeypatch.setattr(data, "time_call", time_call)
    data.bench(TINY, tmp_path)
    record = json.loads((tmp_path / "data.json").read_text())
    assert record["images_per_second"] == {"input": [1, 1], "training": [0.5, 0.5], "together": [1 / 3, 1 / 3]}
    assert record["settings"]["net"] == "alexnet"
    said = " ".join(capsys.readouterr().out.split())
    assert "the input keeps up with the step (2.00 ×)" in said


def test_generated_photos_are_as_large_as_imagenets(tmp_path):
    data.write_photos(tmp_path, 3)
    paths = sorted(tmp_path.rglob("*.jpg"))
    assert len(paths) == 5
    assert all(30_000 < path.stat().st_size < 120_000 for path in paths)


def test_the_command_on_a_folder(learnpool, tmp_path):
    write_folder(tmp_path / "photos", {"train/cat": 6, "train/dog": 6, "val/cat": 1, "val/dog": 1})
    words = ["--data", str(tmp_path / "photos"), "--preset", "cpu", "--width", "0.05", "--batch", "4", "--rounds", "1"]
    status, out, _ = learnpool("bench", "data", *words, "--workers", "1", "--threads", "1", "--out", str(tmp_path))
    assert status == 0
    assert "images a second" in out
    status, _, error = learnpool("bench", "data", "--model", "nowhere")
    assert status == 2
    assert "package.module:function" in error
