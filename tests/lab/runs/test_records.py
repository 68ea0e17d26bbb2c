"""Records: a digest that notices any change, and models that refuse what is missing or no finite number."""

import json

import pytest
from pydantic import ValidationError

from learnpool.lab.runs import records

EPOCH = {
    "epoch": 1, "rate": 0.1, "train_loss": 2.0, "train_error": 90.0, "validation_error": 91.0, "seconds": 1.0,
    "cpu_seconds": 1.0, "pools": {"pool1.mix0.mean": 0.5},
}  # fmt: skip
LAST = {
    "epoch": 2, "tensors": "last-2.safetensors", "sha256": "0", "schedule": {}, "data": "0", "image": [1, 8, 8],
    "classes": ["a"],
}  # fmt: skip


def test_a_record_is_read_as_it_was_written(tmp_path):
    records.write_record(tmp_path / "record.json", EPOCH)
    assert records.read_record(tmp_path / "record.json") == EPOCH
    assert "digest" in json.loads((tmp_path / "record.json").read_text())


def test_any_changed_value_is_noticed():
    sealed = records.seal(EPOCH)
    for name in EPOCH:
        with pytest.raises(ValueError, match="^not the content of its digest$"):
            records.parse_record(json.dumps(sealed | {name: 7}))


@pytest.mark.parametrize(("text", "message"), [("[]", "not a record"), ("[" * 10**5, "nested too deeply")])
def test_what_is_no_record(text, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        records.parse_record(text)


@pytest.mark.parametrize("name", EPOCH)
@pytest.mark.parametrize("value", [None, True, "1", float("nan"), [1]])
def test_an_epoch_has_finite_numbers(name, value):
    records.EpochMetrics.model_validate(EPOCH | {"test_error": 3.0})  # more is allowed
    with pytest.raises(ValidationError):
        records.EpochMetrics.model_validate(EPOCH | {name: value})


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": 0}, {"epoch": -1}, {"tensors": "../last.safetensors"}, {"image": [1, 8]}, {"image": [1, 8, 8.5]},
        {"classes": []}, {"classes": [1]}, {"step": 3}, {"schedule": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_checkpoint_is_at_a_place_in_a_training(change):
    records.Checkpoint.model_validate(LAST)
    records.Checkpoint.model_validate(LAST | {"epoch": 0, "step": 3, "sums": []})
    with pytest.raises(ValidationError) as error:
        records.Checkpoint.model_validate(LAST | change)
    assert "\n" not in records.get_reason(error.value)
