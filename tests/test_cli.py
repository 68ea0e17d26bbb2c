"""The command line: what it prints, and that a user's mistake is one line."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
import typer

from learnpool import __version__, cli, kernels
from learnpool.lab import demo


@pytest.fixture
def learnpool(monkeypatch, capsys):
    """Call the command line in this process: exit status, stdout, stderr."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["learnpool", *words])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        said = capsys.readouterr()
        return stop.value.code, said.out, said.err

    return call


def test_without_its_extra_it_says_what_to_install():
    script = "import sys; sys.modules['typer'] = None; from learnpool.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == 'learnpool: the command line needs its extra: pip install "learnpool[lab]"\n'
    assert done.stdout == ""


@pytest.mark.parametrize("package", ["typer", "matplotlib", "sklearn", "rich"])
def test_any_missing_package_of_the_extra_is_named_by_the_extra(package, learnpool, monkeypatch, tmp_path):
    for name in [name for name in sys.modules if name.partition(".")[0] == package or name.startswith("learnpool.lab")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("learnpool.lab", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    status, _, error = learnpool("demo", "--out", str(tmp_path))
    assert (status, error) == (1, 'learnpool: the command line needs its extra: pip install "learnpool[lab]"\n')


def test_a_missing_package_of_another_kind_is_our_mistake(learnpool, monkeypatch):
    def broken():
        raise ModuleNotFoundError("No module named 'learnpool.gone'", name="learnpool.gone")

    monkeypatch.setattr(cli, "facts", broken)
    with pytest.raises(ModuleNotFoundError):
        learnpool("info")


def test_importing_the_library_and_its_cli_needs_torch_only():
    script = "import sys, learnpool.cli; print([m for m in learnpool.cli.EXTRA if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "[]\n"


def test_version(learnpool):
    assert learnpool("--version") == (0, f"learnpool {__version__}\n", "")


def test_no_command_shows_the_commands(learnpool):
    status, text, error = learnpool()
    assert (status, error) == (0, "")
    for command in ("demo", "figure", "info"):
        assert f" {command} " in text


def test_info_names_versions_threads_and_kernels(learnpool):
    status, text, _ = learnpool("info")
    facts = dict(line.split(maxsplit=1) for line in text.splitlines())
    assert status == 0
    assert facts["learnpool"] == __version__
    assert facts["torch"] == torch.__version__
    assert facts["threads"] == str(torch.get_num_threads())
    live, detail = kernels.CPU
    assert facts["cpu"] == (f"compiled kernel ({detail})" if live else f"reference ({detail})")


def test_info_says_why_a_kernel_is_not_live(learnpool, monkeypatch):
    monkeypatch.setattr(kernels, "CPU", kernels.Status(False, "not built: a reason"))
    assert "cpu        reference (not built: a reason)" in learnpool("info")[1].splitlines()


@pytest.mark.parametrize(
    ("words", "status", "part"),
    [
        ("demo --seeds 1", 2, "'--seeds'"),
        ("demo --seeds many", 2, "'--seeds'"),
        ("demo --jobs 0", 2, "'--jobs'"),
        ("demo --epochs 0", 2, "'--epochs'"),
        ("demo --sedes 3", 2, "--sedes"),
        ("figure", 2, "out"),
        ("figure region.pdf", 2, "wanted a .svg or .png file, got 'region.pdf'"),
        ("figure nowhere/region.svg", 1, "No such file or directory: nowhere/region.svg"),
        ("demo --out file", 1, "Not a directory: file"),
        ("demo --out file/runs", 1, "Not a directory: file/runs"),
        ("train", 2, "'train'"),
    ],
)
def test_a_mistake_is_one_line(words, status, part, learnpool, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    code, text, error = learnpool(*words.split())
    assert (code, text) == (status, "")
    assert error.startswith("learnpool: ")
    assert part.lower() in error.lower()  # typer's versions differ in OUT and out
    assert error.count("\n") == 1
    assert error.endswith("\n")


def test_options_reach_the_demo(learnpool, monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(demo, "demo", lambda *given: calls.append(given))
    assert learnpool("demo", "--out", str(tmp_path), "--seeds", "4", "--jobs", "1", "--epochs", "2")[0] == 0
    assert calls == [(tmp_path, 4, 1, 2)]


@pytest.mark.parametrize(
    ("failure", "status", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (typer.Abort(), 130, "interrupted"),  # what typer made of Ctrl-C in older versions
        (ChildProcessError("a training process died"), 1, "a training process died"),
        (OSError(28, "No space left on device", "demo.png"), 1, "No space left on device: demo.png"),
    ],
)
def test_what_stops_the_demo_is_one_line(failure, status, message, learnpool, monkeypatch):
    def stopped(*given):
        raise failure

    monkeypatch.setattr(demo, "demo", stopped)
    assert learnpool("demo") == (status, "", f"learnpool: {message}\n")


def test_a_mistake_of_ours_is_a_traceback(learnpool, monkeypatch):
    def broken(*given):
        raise ValueError("a bug")

    monkeypatch.setattr(demo, "demo", broken)
    with pytest.raises(ValueError, match="a bug"):
        learnpool("demo")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals to a process group")
@pytest.mark.parametrize("wait_for", ["start", "training"])
def test_ctrl_c_ends_all_processes_and_leaves_one_line(wait_for, tmp_path):
    script = (
        "import learnpool.cli, learnpool.lab.demo as d\n"
        "if __name__ == '__main__':\n"
        "    train_all = d.train_all\n"
        "    def told(runs, jobs, advance):\n"
        "        print('start', flush=True)\n"
        "        return train_all(runs, jobs, lambda: print('training', flush=True))\n"
        "    d.train_all = told\n"
        "    learnpool.cli.main()\n"
    )
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, str(tmp_path / "script.py"), "demo", "--jobs", "2", "--out", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        while wait_for not in process.stdout.readline():
            assert process.poll() is None
        time.sleep(0.5)  # at the start: the processes exist and import torch
        os.killpg(process.pid, signal.SIGINT)  # a terminal's Ctrl-C reaches the whole group
        _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (130, "learnpool: interrupted\n")
    with pytest.raises(FileNotFoundError):
        (tmp_path / "results.json").read_text()
