"""What ``make dist`` leaves installs into fresh environments, with a compiler and without, and computes what it should.

``make test-dist`` runs this on the folder that LEARNPOOL_DIST names; it takes some minutes.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

DIST = os.environ.get("LEARNPOOL_DIST")
ROOT = Path(__file__).parents[1]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),  # the sdist compiles the kernels
    pytest.mark.skipif(not DIST, reason="LEARNPOOL_DIST names no folder: make test-dist"),
]

USE = """
import warnings
import torch
import learnpool
from learnpool.ops import cpu

torch.manual_seed(0)
x = torch.randn(2, 5, 13, 11, requires_grad=True)
layer = learnpool.GatedPool2d(3, 2, 1)
torch.nn.init.zeros_(layer.weight)  # half way between max and mean
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        y = layer(x)
        y.sum().backward()
most, mean = torch.nn.MaxPool2d(3, 2, 1), torch.nn.AvgPool2d(3, 2, 1, count_include_pad=False)
torch.testing.assert_close(y, (most(x) + mean(x)) / 2)
torch.testing.assert_close(x.grad, torch.autograd.grad((most(x) + mean(x)).sum(), x)[0])  # half, twice
print("live" if cpu.CPU.live else "reference", sum("slower PyTorch reference" in str(w.message) for w in caught))
"""


def find(pattern):
    (path,) = Path(DIST).glob(pattern)
    return path


@pytest.fixture
def environment(tmp_path):
    """A function that installs into a fresh environment and gives its python, and what pip printed."""

    def install(what, compiler=True):
        subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
        python = tmp_path / "venv" / "bin" / "python"
        variables = {**os.environ, "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
        for name in ("PYTHONPATH", "LEARNPOOL_REQUIRE_KERNELS", "LEARNPOOL_CPU_LIBRARY"):
            variables.pop(name, None)
        if not compiler:
            variables.update(CC="no-compiler-here", CXX="no-compiler-here")
            variables["PATH"] = make_path_without_compilers(tmp_path / "bin")
        what = Path(shutil.copy(what, tmp_path))  # pip keeps what it built of an address, with its kernels
        wanted = f"learnpool[lab] @ {what.as_uri()}"
        printed = run_in_terminal([python, "-m", "pip", "install", "--progress-bar=off", wanted], variables)
        return python, printed, variables

    return install


def make_path_without_compilers(folder):
    """A PATH with every command of ours but compilers."""
    folder.mkdir()
    for place in ("/usr/bin", "/bin"):
        for command in Path(place).iterdir():
            link = folder / command.name
            if not re.search(r"(gcc|g\+\+|clang|^c\+\+|^cc$|ninja)", command.name) and not link.exists():
                link.symlink_to(command)
    return str(folder)


def run_in_terminal(command, variables):
    """What a command prints to a terminal of its own: pip hides what a build prints, but not what goes there."""
    import pty  # not on Windows

    printed = bytearray()
    child, terminal = pty.fork()
    if child == 0:
        os.execve(command[0], [str(word) for word in command], variables)
    try:
        while chunk := os.read(terminal, 4096):
            printed += chunk
    except OSError:  # the end of a terminal
        pass
    text = printed.decode(errors="replace")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, text
    return text


def use(python, variables, folder):
    """What USE prints, what ``learnpool info`` says of the CPU, and the exit code of ``learnpool doctor``."""

    def run(*words):
        return subprocess.run([python, *words], env=variables, cwd=folder, capture_output=True, text=True)

    done = run("-c", USE)
    assert done.returncode == 0, done.stderr
    (cpu,) = re.findall(r"^cpu +(.*)", run("-m", "learnpool", "info").stdout, re.M)
    return done.stdout.split(), cpu, run("-m", "learnpool", "doctor", "--quick").returncode


KERNEL, REFERENCE = (["live", "0"], 0), (["reference", "1"], 2)  # 2: there is no kernel to compare


def test_the_wheel_for_linux_needs_no_compiler(environment, tmp_path):
    python, printed, variables = environment(find("*abi3-manylinux*.whl"), compiler=False)
    assert "compiling" not in printed
    answer, cpu, doctor = use(python, variables, tmp_path)
    assert (answer, doctor) == KERNEL
    assert cpu.startswith("compiled kernel")


def test_the_wheel_for_any_platform_says_once_that_the_reference_serves(environment, tmp_path):
    python, _, variables = environment(find("*-py3-none-any.whl"))
    answer, cpu, doctor = use(python, variables, tmp_path)
    assert (answer, doctor) == REFERENCE
    assert cpu.startswith("reference (not built")


def test_the_sdist_is_compiled_and_says_so(environment, tmp_path):
    python, printed, variables = environment(find("*.tar.gz"))
    assert printed.count("learnpool: compiling its CPU kernels") == 1
    answer, _, doctor = use(python, variables, tmp_path)
    assert (answer, doctor) == KERNEL


def test_the_sdist_installs_without_a_compiler_and_says_so(environment, tmp_path):
    python, printed, variables = environment(find("*.tar.gz"), compiler=False)
    assert printed.count("learnpool: the CPU kernels were not built") == 1
    answer, _, doctor = use(python, variables, tmp_path)
    assert (answer, doctor) == REFERENCE
    (wheel,) = tmp_path.glob("venv/lib/*/site-packages/learnpool-*.dist-info/WHEEL")
    assert "Tag: py3-none-any" in wheel.read_text()


def test_the_sdist_holds_what_belongs_to_it():
    with tarfile.open(find("*.tar.gz")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    left_out = {name for name in listing.stdout.splitlines() if name not in names}
    assert left_out <= {".gitignore", ".ci/run"}
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


def test_a_wheel_holds_the_package_alone():
    for pattern, libraries in (("*abi3-manylinux*.whl", 1), ("*-py3-none-any.whl", 0)):
        with zipfile.ZipFile(find(pattern)) as archive:
            names = archive.namelist()
        assert {name.partition("/")[0].partition("-")[0] for name in names} == {"learnpool"}
        assert sum(name.endswith(".so") for name in names) == libraries
        assert not [name for name in names if name.endswith((".cpp", ".h"))]
        assert "learnpool/py.typed" in names
