"""Checkpoints are whole or not there, and what was damaged is named."""

import json

import pytest
import torch
from safetensors import safe_open
from torch import nn

from learnpool.lab import files
from learnpool.lab.runs import checkpoint
from learnpool.lab.runs.checkpoint import CheckpointError
from learnpool.nets import dsn
from runs import edit

STATE = {"schedule": {}, "data": "", "image": [1, 8, 8], "classes": ["0", "1"]}


def trained(pool="gated:net", **options):
    torch.manual_seed(0)
    net = dsn("digits", pool, width=0.05, supervise=False, init="kaiming", **options)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        net(torch.randn(4, 1, 8, 8)).square().sum().backward()
        optimizer.step()
    return net, optimizer


def save(path, net, optimizer, epoch=1):
    checkpoint.save(path, epoch, checkpoint.collect_tensors(net, optimizer), STATE | {"note": "kept"})


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_there_and_back(layout, tmp_path):
    net, optimizer = trained()
    net.to(memory_format=layout)
    save(tmp_path, net, optimizer)
    other = dsn("digits", "gated:net", width=0.05, supervise=False).to(memory_format=layout)
    second = torch.optim.SGD(other.parameters(), lr=0.01, momentum=0.9)
    tensors, state = checkpoint.load(tmp_path)
    checkpoint.restore(tensors, other, second)
    assert (state["epoch"], state["note"]) == (1, "kept")
    assert other.pool1.weight is other.pool2.weight
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(p, q)
        assert q.stride() == p.stride()
        assert torch.equal(optimizer.state[p]["momentum_buffer"], second.state[q]["momentum_buffer"])


def test_a_tied_tensor_is_stored_once(tmp_path):
    save(tmp_path, *trained())
    with safe_open(tmp_path / "last-1.safetensors", "pt") as file:
        names = [name for name in file.keys() if "pool" in name]  # noqa: SIM118
    assert sorted(names) == ["model.pool1.weight", "momentum.pool1.weight"]


def test_a_new_checkpoint_takes_the_place_of_the_old(tmp_path):
    net, optimizer = trained()
    save(tmp_path, net, optimizer, 1)
    save(tmp_path, net, optimizer, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last-2.safetensors", "last.json"]


@pytest.mark.parametrize("stopped_at", ["last-2.safetensors", "last.json"])
def test_a_stop_while_writing_leaves_the_old_one(stopped_at, monkeypatch, tmp_path):
    net, optimizer = trained()
    save(tmp_path, net, optimizer, 1)
    before, _ = checkpoint.load(tmp_path)
    nn.init.zeros_(net.conv1.weight)
    store = files.write_bytes

    def stop(path, content):
        if path.name == stopped_at:
            path.with_name(path.name + ".part").write_bytes(content[:10])
            raise KeyboardInterrupt
        store(path, content)

    monkeypatch.setattr(files, "write_bytes", stop)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, net, optimizer, 2)
    monkeypatch.undo()
    tensors, state = checkpoint.load(tmp_path)
    assert state["epoch"] == 1
    assert all(torch.equal(before[name], tensors[name]) for name in before)
    save(tmp_path, net, optimizer, 2)
    assert checkpoint.load(tmp_path)[1]["epoch"] == 2
    assert sorted(path.name for path in tmp_path.glob("last-*")) == ["last-2.safetensors"]


def test_no_checkpoint(tmp_path):
    assert checkpoint.load(tmp_path) is None


def damage_bit(path):
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("last-1.safetensors", damage_bit, r"last-1.safetensors is damaged \(wanted SHA-256 .*…, got .*…\)"),
        ("last-1.safetensors", lambda path: path.write_bytes(path.read_bytes()[:-9]), "safetensors is damaged"),
        ("last-1.safetensors", lambda path: path.unlink(), "last-1.safetensors is missing"),
        ("last.json", lambda path: path.write_text("{"), "last.json is damaged"),
        ("last.json", lambda path: path.write_text("[]"), "last.json is damaged"),
        ("last.json", lambda path: path.write_text('{"epoch": 1}'), "last.json is damaged"),
        ("last.json", lambda path: path.write_text("[" * 100_000), "last.json is damaged"),
        ("last.json", lambda path: edit(path, epoch=2), "last.json is damaged"),
        ("last.json", lambda path: edit(path, digest=None, epoch=float("nan")), "last.json is damaged"),
        ("last.json", lambda path: edit(path, digest=None, epoch=0), "last.json is damaged"),
        ("last.json", lambda path: edit(path, digest=None, epoch=True), "last.json is damaged"),
        ("last.json", lambda path: edit(path, digest=None, schedule=3), "last.json is damaged"),
        ("last.json", lambda path: edit(path, digest=None, classes=[]), "last.json is damaged"),
        ("last.json", lambda path: edit(path, digest=None, classes=[1]), "last.json is damaged"),
        ("last.json", lambda path: edit(path, digest=None, image=[1, 8]), "last.json is damaged"),
        ("last.json", lambda path: edit(path, digest=None, data=None), "last.json is damaged"),
        ("last.json", lambda path: edit(path, digest=None, tensors="../elsewhere"), "last.json is damaged"),
    ],
)
def test_damage_is_named(name, damage, message, tmp_path):
    save(tmp_path, *trained())
    damage(tmp_path / name)
    with pytest.raises(CheckpointError, match=message) as error:
        checkpoint.load(tmp_path)
    assert str(error.value).endswith(f"; remove {tmp_path} to train this run again")


def test_a_record_without_a_digest_is_of_an_earlier_version(tmp_path):
    save(tmp_path, *trained())
    edit(tmp_path / "last.json", digest=None)
    assert checkpoint.load(tmp_path)[1]["epoch"] == 1


@pytest.mark.parametrize("name", ["epoch", "schedule", "classes", "data"])
def test_no_byte_of_the_record_may_change(name, tmp_path):
    save(tmp_path, *trained())
    text = (tmp_path / "last.json").read_bytes()
    place = text.index(f'"{name}"'.encode()) + len(name) + 4
    found = 0
    for bit in range(8):
        changed = bytearray(text)
        changed[place] ^= 1 << bit
        (tmp_path / "last.json").write_bytes(changed)
        try:
            state = checkpoint.load(tmp_path)[1]
        except CheckpointError:
            found += 1
        else:
            assert state[name] == json.loads(text)[name]  # a space that became another
    assert found >= 7


def test_a_preparation_that_was_damaged_is_named(tmp_path):
    digest = checkpoint.save_preparation(tmp_path, {"mean": torch.ones(3)})
    assert checkpoint.load_preparation(tmp_path, digest)["mean"].tolist() == [1, 1, 1]
    damage_bit(tmp_path / "preparation.safetensors")
    assert len(checkpoint.load_preparation(tmp_path)) == 1  # an earlier version did not say
    with pytest.raises(CheckpointError, match="preparation.safetensors is damaged; remove .* to train this run again$"):
        checkpoint.load_preparation(tmp_path, digest)


def test_another_network_is_refused(tmp_path):
    save(tmp_path, *trained())
    tensors, _ = checkpoint.load(tmp_path)
    with pytest.raises(CheckpointError, match=r"'pool1.weight' is only in the checkpoint"):
        checkpoint.restore(tensors, trained("max")[0])
    with pytest.raises(CheckpointError, match=r"'extra.0.bias' is only in the network"):
        checkpoint.restore(tensors, trained(extra_convs=1)[0])
    wider = dsn("digits", "gated:net", width=0.1, supervise=False)
    with pytest.raises(CheckpointError, match=r"'conv1.weight' has shape \[6, 1, 3, 3\] in the checkpoint and \[13,"):
        checkpoint.restore(tensors, wider)
