"""Training on two processes under gloo, for test_torch.py: ``two_processes.py ddp|fsdp PORT`` prints gradients."""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

from learnpool import GatedPool2d, MixedPool2d, TreePool2d, tie


def network():
    """The two gated pools are tied."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), GatedPool2d(3, 2), MixedPool2d(2, 1, share="channel", channels=4), TreePool2d(2, 1),
        nn.ReLU(), GatedPool2d(3, 2), nn.Flatten(), nn.Linear(16, 2),
    )  # fmt: skip
    tie([net[1], net[5]])
    return net


def images():
    return torch.rand(4, 3, 17, 17, generator=torch.Generator().manual_seed(1))


def gradients(net, share):
    net(share).square().mean().backward()
    full = {}
    for name, p in net.named_parameters():
        g = p.grad
        g = g.full_tensor() if hasattr(g, "full_tensor") else g
        full[name.removeprefix("module.")] = g.flatten().tolist()
    return full


def work(rank, how, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.set_num_threads(1)
    net = network()
    if how == "ddp":
        net = nn.parallel.DistributedDataParallel(net)
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        fully_shard(net, mesh=init_device_mesh("cpu", (2,)))
    result = gradients(net, images().chunk(2)[rank])
    if rank == 0:
        print(json.dumps(result), flush=True)
    try:
        dist.barrier()  # neither leaves while the other still needs it
    finally:
        os._exit(0)  # tearing down gloo's threads sometimes aborts a process that is done


if __name__ == "__main__":
    torch.multiprocessing.spawn(work, sys.argv[1:], nprocs=2)
