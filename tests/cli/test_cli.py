"""The command line: what it prints, and that a user's mistake is one line."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import typer

from learnpool import __version__, cli
from learnpool.formatting import format_pip_install
from learnpool.lab import progress
from learnpool.lab.bench import net, pools
from learnpool.lab.bench import train as bench_train
from learnpool.lab.bench.options import PoolBenchmark
from learnpool.lab.comparison import compare
from learnpool.lab.runs import train as lab_train
from learnpool.lab.runs.directory import Result
from learnpool.lab.runs.presets import preset
from learnpool.lab.runs.run import Run
from learnpool.ops import cpu

MISSING_EXTRA = f"learnpool: the command line needs its extra: {' '.join(format_pip_install('lab').split())}\n"


def test_without_its_extra_it_says_what_to_install():
    script = "import sys; sys.modules['typer'] = None; from learnpool.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == MISSING_EXTRA
    assert done.stdout == ""


@pytest.mark.parametrize("package", ["typer", "matplotlib", "jinja2", "rich"])
def test_any_missing_package_of_the_extra_is_named_by_the_extra(package, learnpool, monkeypatch, tmp_path):
    for name in [name for name in sys.modules if name.partition(".")[0] == package or name.startswith("learnpool.lab")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("learnpool.lab", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    status, _, error = learnpool("compare", "--out", str(tmp_path))
    assert (status, error) == (1, MISSING_EXTRA)


@pytest.mark.parametrize("words", [["info"], ["info", "--json"]])
def test_info_needs_no_extra(words, learnpool, monkeypatch):
    with_extra = learnpool(*words)
    monkeypatch.setitem(sys.modules, "typer.main", None)
    assert learnpool(*words) == with_extra


def test_a_missing_package_of_another_kind_is_our_mistake(learnpool, monkeypatch):
    def broken():
        raise ModuleNotFoundError("No module named 'learnpool.gone'", name="learnpool.gone")

    monkeypatch.setattr(cli, "list_versions", broken)
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
    for command in ("compare", "train", "predict", "look", "calibration", "bench", "info"):
        assert f" {command} " in text


def test_bench_alone_shows_its_commands(learnpool):
    status, text, error = learnpool("bench")
    assert (status, error) == (0, "")
    for command in ("pools", "scaling", "net", "train"):
        assert f" {command} " in text


def test_info_names_versions_threads_and_kernels(learnpool):
    status, text, _ = learnpool("info")
    facts = dict(line.split(maxsplit=1) for line in text.splitlines())
    assert status == 0
    assert facts["learnpool"] == __version__
    assert facts["torch"] == torch.__version__
    assert facts["threads"] == str(torch.get_num_threads())
    live, detail = cpu.CPU
    assert facts["cpu"] == (f"compiled kernel ({detail})" if live else f"reference ({detail})")


def test_info_says_why_a_kernel_is_not_live(learnpool, monkeypatch):
    monkeypatch.setattr(cpu, "CPU", cpu.Status(False, "not built: a reason"))
    assert "cpu        reference (not built: a reason)" in learnpool("info")[1].splitlines()


def test_info_says_which_kernel_a_gpu_has(learnpool, monkeypatch):
    from learnpool.ops import triton
    from learnpool.ops.cpu import Status

    monkeypatch.setattr(triton, "GPU", Status(False, "a reason"))
    assert "cuda       no GPU here; it would have the reference (a reason)" in learnpool("info")[1].splitlines()
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    assert "cuda:1     reference (a reason)" in learnpool("info")[1].splitlines()
    monkeypatch.setattr(triton, "GPU", Status(True, "Triton"))
    assert "cuda:0     Triton kernel" in learnpool("info")[1].splitlines()
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("xpu"))
    assert "xpu:0      reference (no kernel for this device)" in learnpool("info")[1].splitlines()


@pytest.mark.parametrize(
    ("words", "status", "part"),
    [
        ("compare --seeds many", 2, "learnpool: --seeds: "),
        ("compare --jobs 0", 2, "learnpool: --jobs: "),
        ("compare --epochs 0", 2, "run: epochs: input should be greater than 0, got 0"),
        ("compare --sedes 3", 2, "--sedes"),
        ("compare --set data=mnist", 2, "--set: data is part of what is compared; see --data, --pools and --seeds"),
        ("compare --set seeds=3", 2, "unknown field 'seeds' (did you mean 'seed'?)"),
        ("train --set name=x", 2, "unknown field 'name'"),
        ("figure", 2, "out"),
        ("figure region.pdf", 2, "learnpool: OUT: wanted a .svg or .png file, got 'region.pdf'"),
        ("figure nowhere/region.svg", 2, "No such file or directory: nowhere/region.svg"),
        ("trian", 2, "'trian'"),
        ("train --out file", 2, "Not a directory: file"),
        ("train --pool gatet", 2, "unknown pool 'gatet' (did you mean 'gated'?)"),
        ("train --preset fast", 2, "preset: wanted one of paper, modern, cpu, got 'fast'"),
        ("train --preset CPU", 2, "got 'CPU' (did you mean 'cpu'?)"),
        ("train --data imagenett", 2, "no folder and no data set 'imagenett'"),
        ("train --data=", 2, "run: data: wanted the name of a data set or the path of a folder of images, got ''"),
        ("compare --data=", 2, "run: data: wanted the name of a data set or the path of a folder of images, got ''"),
        ("train --data mnist --data-dir .", 2, "mnist: none of its files found in ."),
        ("train --epochs 0", 2, "run: epochs: input should be greater than 0, got 0"),
        ("train --precision float16", 2, "run: precision: input should be 'float32' or 'bfloat16', got 'float16'"),
        ("train --train-size 9999", 2, "--train-size: wanted 1 to 1132 images, got 9999"),
        ("train --set dropout", 2, "--set: wanted FIELD=VALUE, got 'dropout'"),
        ("train --set dropuot=0.1", 2, "unknown field 'dropuot' (did you mean 'dropout'?); known: data, pool"),
        ("train --set dropout=much", 2, "run: dropout: input should be a valid number, got 'much'"),
        ("train --set rate=0.1,fast", 2, "--set: rate: wanted numbers such as 0.1 or 0.025,0.0125, got '0.1,fast'"),
        (
            "train --set rate=1e308",
            2,
            "run: rate.0: input should be less than or equal to 1000000000000000, got 1e+308",
        ),
        (
            "train --set width=1e300",
            2,
            "run: width: input should be less than or equal to 1000000000000000, got 1e+300",
        ),
        ("train --set pad=1000000", 2, "pad: wanted at most the size of an image, 8×8, got 1000000"),
        ("train --threads 100000", 2, "learnpool: --threads: "),
        ("train --threads 0", 2, "learnpool: --threads: "),
        ("compare --threads 100000", 2, "learnpool: --threads: "),
        ("reproduce table1 --threads 100000", 2, "learnpool: --threads: "),
        ("bench pools --threads 100000", 2, "learnpool: --threads: "),
        ("compare --pools max,,gated", 2, "wanted names with one comma between them, got 'max,,gated'"),
        (f"train --set pad={'[' * 100_000}", 2, "run: pad: input should be a valid integer"),
        (f"train --pool {'Gate(' * 5_000}", 2, "pool"),
        ("train --data photos-\udcff", 2, "run: data: wanted a path in UTF-8"),
        ("train --set prepare=zca", 2, "unknown preparation 'zca'"),
        ("train --model nowhere:net", 2, "net: cannot import nowhere"),
        ("train --model json:net", 2, "net: json has no function net"),
        ("train --model nowhere", 2, "or package.module:function, got 'nowhere'"),
        ("train --set pool=gated:net --set data=mnist", 2, "none of its files"),
        ("bench pool", 2, "'pool'"),
        ("bench pools --shapes 64x128", 2, "--shapes: wanted 3 to 5 sizes such as 64x128x32x32, got '64x128'"),
        ("bench pools --shapes 8x8x8x8,8xCx8x8", 2, "--shapes: wanted 3 to 5 sizes such as 64x128x32x32, got '8xCx"),
        ("bench pools --shapes 8x0x8x8", 2, "--shapes: wanted 3 to 5 sizes such as 64x128x32x32, got '8x0x8x8'"),
        ("bench pools --layout nhwc", 2, "--layout: wanted nchw or channels_last, got 'nhwc'"),
        ("bench pools --layout channels_last --shapes 8x8x8", 2, "channels_last needs 2d or 3d shapes, got '8x8x8'"),
        ("bench pools --dtype int8", 2, "--dtype: wanted one of float32, float64, bfloat16, float16, got 'int8'"),
        ("bench pools --window 3,2", 2, "--window: wanted kernel,stride,padding or kernel,stride,padding,dilation"),
        ("bench pools --window 3,two,1", 2, "--window: wanted kernel,stride,padding or"),
        ("bench pools --window 3,0,1", 2, "--window: stride must be at least 1, got 0×0"),
        ("bench pools --window 3,2,2", 2, "--window: padding must be at most half of kernel_size 3×3, got 2×2"),
        ("bench pools --window 9,1,0 --shapes 8x8x8x8", 2, "--window: '9,1,0' does not fit into the shape 8×8×8×8"),
        ("bench pools --pools gated,tree2+gated", 2, "--pools: wanted single pools, got 'tree2+gated'"),
        ("bench pools --pools gatet", 2, "unknown pool 'gatet' (did you mean 'gated'?)"),
        ("bench pools --pools avg --window 3,2,1,2", 2, "--pools: avg has no dilation"),
        ("bench pools --share all", 2, "unknown share 'all'"),
        ("bench pools --rounds 0", 2, "learnpool: --rounds: "),
        ("bench pools --threads 0", 2, "learnpool: --threads: "),
        ("bench pools --out file --shapes 1x1x4x4", 2, "Not a directory: file"),
        ("bench pools --shapes 99999x99999x9999x9999", 1, "not enough memory for the shape 99999×99999×9999×9999"),
        ("bench scaling --cells 5", 2, "learnpool: --cells: "),
        ("bench scaling --dtype int8", 2, "--dtype: "),
        ("bench scaling --layout nhwc", 2, "--layout: wanted nchw or channels_last, got 'nhwc'"),
        ("bench train --pairs 1", 2, "learnpool: --pairs: "),
        ("bench train --pool gatet", 2, "unknown pool 'gatet' (did you mean 'gated'?)"),
        ("bench train --out file", 2, "Not a directory: file"),
        ("bench net --pairs 1", 2, "learnpool: --pairs: "),
        ("bench net --pool gatet", 2, "unknown pool 'gatet' (did you mean 'gated'?)"),
        (
            "bench net --data imagenet",
            2,
            "unknown data 'imagenet'; known: mnist, fashion-mnist, cifar10, cifar100, svhn",
        ),
        ("bench net --data mnist --pool gated:net", 2, "tie: layers must have equal windows, got 3×3 and 2×2"),
        ("bench net --width 0", 2, "width must be a number above 0, got 0.0"),
        ("bench net --layout nhwc", 2, "--layout: wanted nchw or channels_last, got 'nhwc'"),
        (
            "bench net --model resnet18",
            2,
            "googlenet-bn, timm:NAME, torchvision:NAME or package.module:function, got 'resnet18'",
        ),
        ("bench net --model alexnet --size 9", 2, "size must be larger for 3 pools, got 9"),
        ("bench net --out file", 2, "Not a directory: file"),
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
    assert not (tmp_path / "runs").exists()


def test_options_reach_the_comparison(learnpool, monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(compare, "compare", lambda *given, **options: calls.append((given, options)) or 1 / 0)
    words = "--data cifar10 --pools max,gated --seeds 2 --preset modern --epochs 3 --train-size 500 --set dropout=0.3"
    words += " --data-dir data --jobs 3 --threads 2 --workers 1 --device cpu --ray auto"
    with pytest.raises(ZeroDivisionError):
        learnpool("compare", *words.split(), "--out", str(tmp_path))
    (((runs, out), options),) = calls
    changes = {"epochs": 3, "train_size": 500, "dropout": 0.3}
    assert runs == compare.plan("modern", ["cifar10"], ["max", "gated"], 2, net="dsn", **changes)
    assert out == tmp_path
    assert options.pop("console").stderr
    assert options == {
        "data_dir": Path("data"), "jobs": 3, "threads": 2, "workers": 1, "device": "cpu", "ray": "auto",
    }  # fmt: skip


def test_options_reach_the_run(learnpool, monkeypatch, tmp_path):
    calls, chance = [], [90.0]

    def train(run, out, **options):
        calls.append((run, out, options))
        images = {"train": 600, "validation": 60, "test": 100}
        return Result(run.id, 1.5, 2, 3, 0.1, 2, images, 1000, 18, 60, 60, 30, 0, {}, "", chance_error=chance[0])

    monkeypatch.setattr(lab_train, "train", train)
    words = "--data cifar10 --pool gated --preset modern --seed 3 --epochs 2 --train-size 500 --no-augment"
    words += " --precision bfloat16 --no-channels-last --compile --set dropout=0.3 --set rate=0.1 --set nesterov=false"
    words += " --data-dir data --threads 3 --workers 1 --device cpu --tensorboard --save-every 2"
    status, text, error = learnpool("train", *words.split(), "--out", str(tmp_path))
    (run, out, options), *_ = calls
    assert (status, error, out) == (0, "", tmp_path)
    assert text.startswith("cifar10, gated, seed 3: 1.50 % test error after 2 epochs, 0:01:00 of training\n1,000 param")
    changes = {"pool": "gated", "seed": 3, "epochs": 2, "train_size": 500, "pad": 0, "mirror": False}
    changes |= {"precision": "bfloat16", "channels_last": False, "compile": True, "dropout": 0.3, "rate": (0.1,)}
    assert run == preset("modern", "cifar10", **changes, nesterov=False)
    watch = options.pop("watch")
    places = {
        "data_dir": Path("data"),
        "threads": 3,
        "workers": 1,
        "device": "cpu",
        "tensorboard": True,
        "save_every": 120.0,
    }
    assert options == places
    assert callable(watch)
    assert learnpool("train", "--quiet", "--augment") == (0, "", "")
    assert (calls[1][0].pad, calls[1][2]["watch"]) == (1, None)
    assert json.loads(learnpool("train", "--json")[1])["pool_parameters"] == 18
    assert "did not learn" not in text
    chance[0] = 2.0
    assert learnpool("train")[1].splitlines()[1] == (
        "It did not learn: the network has 1.50 % test error, and guessing has 2.00 %, "
        "which 100 test images cannot tell apart. Train longer, or at another rate."
    )


def test_dry_run_shows_every_field_and_trains_nothing(learnpool, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    status, text, error = learnpool(
        "train", "--dry-run", "--preset", "paper", "--data", "cifar10", "--pool", "tree3+gated"
    )
    run = preset("paper", "cifar10", pool="tree3+gated")
    assert (status, error, list(tmp_path.iterdir())) == (0, "", [])
    assert [line.split()[0] for line in text.splitlines()[:-2]] == list(Run.model_fields)
    assert "\nrate           0.025,0.0125,0.0001 " in text
    assert text.endswith(f"\nruns/{run.id}\n")
    assert Run.model_validate_json(learnpool("train", "--dry-run", "--json")[1]) == preset("cpu", "digits")


def test_redirected_training_tells_epoch_error_and_time_left(learnpool, monkeypatch, tmp_path):
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    words = "--epochs 2 --set width=0.05 --train-size 200 --out"
    status, _, error = learnpool("train", *words.split(), str(tmp_path))
    assert status == 0
    assert re.search(r"training: \d+ %, 0:\d\d:\d\d gone, .* left; epoch 2 of 2, \d+\.\d % wrong, rate \d", error)


def test_a_directory_that_is_not_utf8(learnpool, tmp_path):
    out = os.fsdecode(os.fsencode(tmp_path) + b"/bad-\xff\x1b[31m")
    status, text, error = learnpool(
        "train", *["--epochs", "1", "--set", "width=0.05", "--train-size", "200", "--out"], out
    )
    assert (status, error) == (0, "")
    assert r"bad-\udcff\x1b[31m/digits-max-0-" in text
    assert len(os.listdir(os.fsencode(out))) == 1


def test_a_loss_that_is_no_number_is_one_line(learnpool, tmp_path):
    words = "--quiet --set width=0.05 --set rate=1e9 --out"
    status, text, error = learnpool("train", *words.split(), str(tmp_path))
    assert (status, text) == (1, "")
    assert re.fullmatch(r"learnpool: the (loss is nan|loss is inf|weights are not finite) in epoch 1, .*\n", error)


def test_help_of_train_is_short_and_has_an_example(learnpool, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    status, text, _ = learnpool("train", "--help")
    assert status == 0
    assert "learnpool train --data cifar10 --pool tree3+gated" in text
    assert len(text.splitlines()) <= 50


def test_options_reach_the_benchmarks(learnpool, monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(pools, "bench", lambda *given: calls.append(given))
    monkeypatch.setattr(net, "bench", lambda *given: calls.append(given))
    words = "--shapes 2x3x8x8 --window 3,2,0 --ceil --pools gated --share channel --layout channels_last"
    words += f" --dtype bfloat16 --rounds 2 --threads 3 --compile --reference --out {tmp_path}"
    assert learnpool("bench", "pools", *words.split())[0] == 0
    words = (
        f"--pool gated --pairs 4 --data svhn --batch 2 --width 0.1 --layout channels_last --threads 3 --out {tmp_path}"
    )
    assert learnpool("bench", "net", *words.split())[0] == 0
    benchmark = PoolBenchmark(
        shapes=((2, 3, 8, 8),),
        window=(3, 2, 0, 1),
        ceil_mode=True,
        pools=("gated:channel",),
        layout="channels_last",
        dtype="bfloat16",
        threads=3,
        rounds=2,
        compiled=True,
        reference=True,
    )
    net_benchmark = net.NetBenchmark(
        pool="gated", data="svhn", batch=2, width=0.1, layout="channels_last", pairs=4, threads=3
    )
    assert calls == [(benchmark, tmp_path), (net_benchmark, tmp_path)]
    monkeypatch.setattr(bench_train, "bench", lambda *given: calls.append(given))
    words = f"--pool gated --pairs 4 --batch 2 --width 0.1 --threads 3 --out {tmp_path}"
    assert learnpool("bench", "train", *words.split())[0] == 0
    assert calls[2] == (bench_train.TrainBenchmark(pool="gated", pairs=4, batch=2, width=0.1, threads=3), tmp_path)


@pytest.mark.parametrize(
    ("failure", "status", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted before anything was trained"),
        (typer.Abort(), 130, "interrupted"),  # what typer made of Ctrl-C in older versions
        (ChildProcessError("a training process died"), 1, "a training process died"),
        (OSError(28, "No space left on device", "report.html"), 2, "No space left on device: report.html"),
    ],
)
def test_what_stops_a_comparison_is_one_line(failure, status, message, learnpool, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def stopped(*given, **options):
        raise failure

    monkeypatch.setattr(compare, "compare", stopped)
    assert learnpool("compare") == (status, "", f"learnpool: {message}\n")


def test_a_mistake_of_ours_is_a_traceback(learnpool, monkeypatch):
    def broken(*given, **options):
        raise ValueError("a bug")

    monkeypatch.setattr(compare, "compare", broken)
    with pytest.raises(ValueError, match="a bug"):
        learnpool("compare")


def commands(group, *names):
    """Every command, with the words that call it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *names, name)
        else:
            yield (*names, name)


COMMANDS = list(commands(typer.main.get_command(cli.build())))


def test_the_first_help_fits_a_screen(learnpool, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    status, text, _ = learnpool("--help")
    assert status == 0
    assert len(text.splitlines()) <= 24  # of a small terminal; the prompt takes the place of the usage line
    assert max(map(len, text.splitlines())) <= 80
    assert "bool" not in text  # a switch takes no value
    assert "..." not in text.partition("Commands:")[2]  # no sentence is cut


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_an_example(words, learnpool, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    status, text, _ = learnpool(*words, "--help")
    assert status == 0
    assert f"Example: learnpool {' '.join(words)}" in " ".join(text.split())


def test_shells_complete_it(tmp_path):
    variables = {"_LEARNPOOL_COMPLETE": "complete_bash", "COMP_WORDS": "learnpool compare --see", "COMP_CWORD": "2"}
    script = "import sys; sys.argv = ['learnpool']; from learnpool.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ | variables
    )
    assert done.stdout.split() == ["--seeds"]


def test_info_as_json(learnpool):
    assert json.loads(learnpool("info", "--json")[1])["learnpool"] == __version__


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals to a process group")
def test_ctrl_c_of_a_comparison_is_one_line(tmp_path):
    words = ["compare", "--seeds", "2", "--pools", "max,half", "--jobs", "2", "--epochs", "500", "--set", "width=0.05"]
    script = (
        "import signal, learnpool.cli\n"
        "if __name__ == '__main__':\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background job would not hear it
        "    learnpool.cli.main()\n"
    )
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, str(tmp_path / "script.py"), *words, "--quiet", "--out", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        while len(list(tmp_path.glob("*/last.json"))) < 2:
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # a terminal's Ctrl-C reaches the whole group
        text, error = process.communicate(timeout=300)
    kept = f"every run in {tmp_path} keeps its finished epochs; run the same command to resume"
    assert (process.returncode, text, error) == (130, "", f"learnpool: interrupted; {kept}\n")
    assert not (tmp_path / "report.html").exists()
