"""A plugin of pytest: learnpool's operators on CPU tensors are computed by the kernels of another architecture.

``driver.cpp`` with the kernels, cross-compiled, is a process that QEMU runs; ``LEARNPOOL_DRIVER`` is its command. Each
call of an operator goes to it through a pipe, and its results or its error come back. So the tests of the kernels are
the same tests, here with the instructions of that architecture. ``make test-aarch64`` starts them.
"""

import collections
import os
import shlex
import struct
import subprocess

import pytest
import torch

# ScalarType.h's numbers
DTYPES = {4: torch.int64, 5: torch.float16, 6: torch.float32, 7: torch.float64, 15: torch.bfloat16}
OPERATORS = ("pool", "pool_backward", "stochastic_pool", "stochastic_pool_backward")
LIBRARY = torch.library.Library("learnpool", "IMPL")
os.environ["LEARNPOOL_CPU_LIBRARY"] = "none"  # this processor's own kernels stay out of it


def pack_numbers(numbers):
    return struct.pack(f"<q{len(numbers)}q", len(numbers), *numbers)


def pack_tensor(x):
    """Dtype, shape, strides, and the memory from the first element to the last, as the kernel would find it."""
    number = next(number for number, dtype in DTYPES.items() if dtype == x.dtype)
    reach = 1 + sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True)) if x.numel() else 0
    memory = x.detach().as_strided((reach,), (1,)).contiguous().view(torch.uint8).numpy().tobytes()
    return struct.pack("<q", number) + pack_numbers(x.shape) + pack_numbers(x.stride()) + memory


def pack_argument(type_name, value):
    match type_name:
        case "Tensor":
            return pack_tensor(value)
        case "Optional[Tensor]":
            return struct.pack("<q", value is not None) + (b"" if value is None else pack_tensor(value))
        case "bool":
            return struct.pack("<q", value)
        case "List[int]" | "List[bool]":
            return pack_numbers(value)
    raise TypeError(f"no argument of an operator has been of type {type_name} so far")


class Driver:
    """The process that computes, and how many calls it has served."""

    def __init__(self, command):
        self.process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.name = self.read_text()
        self.calls = collections.Counter()

    def read(self, count):
        data = self.process.stdout.read(count)
        if len(data) < count:
            raise RuntimeError(f"the emulated kernels ended with exit status {self.process.wait()}")
        return bytearray(data)

    def read_numbers(self):
        (count,) = struct.unpack("<q", self.read(8))
        return struct.unpack(f"<{count}q", self.read(8 * count))

    def read_text(self):
        (count,) = struct.unpack("<q", self.read(8))
        return self.read(count).decode()

    def read_tensor(self):
        dtype = DTYPES[struct.unpack("<q", self.read(8))[0]]
        shape, stride = self.read_numbers(), self.read_numbers()
        x = torch.empty_strided(shape, stride, dtype=dtype)
        if x.numel():
            reach = 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
            x.as_strided((reach,), (1,)).copy_(torch.frombuffer(self.read(reach * x.element_size()), dtype=dtype))
        return x

    def call(self, name, *arguments):
        """What the operator returns; its error as a RuntimeError, as PyTorch raises it."""
        schema = getattr(torch.ops.learnpool, name).default._schema
        types = [str(argument.type) for argument in schema.arguments]
        message = [pack_argument(*pair) for pair in zip(types, arguments, strict=True)]
        message = [struct.pack("<q", len(name)), name.encode(), struct.pack("<q", torch.get_num_threads()), *message]
        self.process.stdin.write(b"".join(message))
        self.process.stdin.flush()
        error = self.read_text()
        self.calls[name] += 1
        if error:
            raise RuntimeError(error)
        results = tuple(self.read_tensor() for _ in schema.returns)
        return results if len(results) > 1 else results[0]


def register(driver):
    """From now on ``torch.ops.learnpool.pool`` of CPU tensors is what the driver says."""
    from learnpool.ops import cpu

    for name in OPERATORS:
        LIBRARY.impl(name, lambda *arguments, name=name: driver.call(name, *arguments), "CPU")
    cpu.CPU = cpu.Status(True, driver.name)


def pytest_configure(config):
    config.driver = Driver(os.environ["LEARNPOOL_DRIVER"])
    register(config.driver)


def pytest_report_header(config):
    return f"CPU kernels: {config.driver.name}, by {os.environ['LEARNPOOL_DRIVER']}"


def pytest_sessionfinish(session):
    """Calls of pytest-xdist's workers are counted together; tests that made none have tested nothing."""
    calls = session.config.driver.calls
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["calls"] = dict(calls)
    elif session.exitstatus == 0 and not calls.total():
        session.exitstatus = 1


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    node.config.driver.calls.update(getattr(node, "workeroutput", {}).get("calls", {}))


def pytest_terminal_summary(terminalreporter, config):
    counts = ", ".join(f"{name} {config.driver.calls[name]:,}" for name in OPERATORS)
    terminalreporter.write_line(f"calls served by {config.driver.name}: {counts}")


def pytest_unconfigure(config):
    config.driver.process.stdin.close()
    config.driver.process.wait()
