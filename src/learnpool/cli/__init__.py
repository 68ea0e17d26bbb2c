"""The command line: ``learnpool compare``, ``train``, ``data``, ``look``, ``calibration``, ``bench``, ``figure`` …

Its packages are an extra, so nothing but the standard library and torch is imported before ``main`` runs. A mistake of
the user is one line on stderr; only a mistake of ours is a traceback.
"""

import json
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import torch

from .. import __version__
from ..formatting import escape_control_characters, format_pip_install
from ..ops import cpu, triton

if TYPE_CHECKING:
    import typer

EXTRA = ("jinja2", "matplotlib", "PIL", "pydantic", "rich", "safetensors", "scipy", "sklearn", "typer")
INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def main() -> None:
    """Run the command in ``sys.argv`` and exit with its status."""
    try:
        status = _run_command()
    except SystemExit as error:
        status = error.code
    if os.environ.get("WORLD_SIZE", "1") != "1":  # threads of gloo may outlive the interpreter, which then aborts
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else int(status is not None))
    sys.exit(status)


def _run_command() -> Any:
    try:
        from typer.main import get_command

        status = get_command(build()).main(prog_name="learnpool", standalone_mode=False)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        if not run_without_extra(sys.argv[1:]):
            fail(f"the command line needs its extra: {format_pip_install('lab')}")
        status = 0
    except KeyboardInterrupt:
        status = INTERRUPTED
    except OSError as error:
        if error.strerror and error.filename:  # a full disk, a directory nobody may write to
            fail(f"{error.strerror}: {error.filename}", 2)
        fail(str(error))
    except Exception as error:
        # Typer brings its own click or uses the installed one; both families of errors have this method.
        if type(error).__name__ == "Abort":
            status = INTERRUPTED
        elif hasattr(error, "format_message"):
            message = re.sub(r"^Invalid value for '?([^':]+)'?: (.)", _name_option, error.format_message())
            fail(message, getattr(error, "exit_code", 1))
        else:
            raise
    if status == INTERRUPTED:
        fail("interrupted", INTERRUPTED)
    return status or 0


def _name_option(match: re.Match[str]) -> str:
    """Typer's errors as ours are: the option, and what was wanted."""
    return f"{match[1]}: {match[2].lower()}"


def fail(message: str, status: int = 1, *, alone: bool = False) -> NoReturn:
    """Print the reason in one line and exit; under torchrun rank 0 prints, or any rank that failed ``alone``."""
    if alone or os.environ.get("RANK", "0") == "0":
        print("learnpool:", escape_control_characters(" ".join(message.split())), file=sys.stderr)
    sys.exit(status)


def build() -> "typer.Typer":
    """The commands."""
    import typer

    from . import bench, calibration, compare, data, doctor, evaluate, look, pack, predict, reproduce, train

    app = typer.Typer(
        rich_markup_mode=None, help="Pooling that learns, for PyTorch. Example: learnpool compare --data digits"
    )

    def show_version(value: bool) -> None:
        if value:
            print(f"learnpool {__version__}")
            raise typer.Exit

    @app.callback(invoke_without_command=True)
    def top(
        context: typer.Context,
        version: Annotated[
            bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
        ] = False,
    ) -> None:
        if context.invoked_subcommand is None:
            print(context.get_help())

    def figure(out: Annotated[Path, typer.Argument(help="File to write, .svg or .png.")]) -> None:
        """Draw one region on its way through five pools.

        Example: learnpool figure region.svg
        """
        from ..lab import figure

        if out.suffix not in figure.SUFFIXES:
            raise typer.BadParameter(f"wanted a .svg or .png file, got {str(out)!r}", param_hint="OUT")
        figure.save(out)
        print(f"Written: {escape_control_characters(str(out))}")

    def info(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
        """Show versions, devices and their kernels.

        Example: learnpool info
        """
        print_versions(as_json=as_json)

    commands = compare.compare, train.train, predict.predict, evaluate.evaluate, reproduce.reproduce
    for command in (*commands, pack.pack, look.look, calibration.calibration, figure, info, doctor.doctor):
        app.command(hidden=command is figure)(command)  # the figure is the README's; help fits a screen without it
    app.add_typer(data.build(), name="data")
    app.add_typer(bench.build(), name="bench")
    return app


@contextmanager
def report_usage_errors() -> Iterator[None]:
    """Report a ValueError as a mistake of the user: one line and exit code 2."""
    try:
        yield
    except ValueError as error:
        fail(str(error), 2)


@contextmanager
def report_training_errors(format_interruption: Callable[[], str]) -> Iterator[None]:
    """Report what ends training in one line: exit code 2 for a mistake of the user, 1 for training that fails."""
    from ..lab.data import DataError, ImageError
    from ..lab.runs.run import RunError
    from ..lab.runs.training import TrainingError

    try:
        yield
    except ImageError as error:
        fail(f"{error}; --set skip_broken=true leaves such files out", 2, alone=True)
    except (RunError, DataError) as error:
        fail(str(error), 2)
    except TrainingError as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail(format_interruption(), INTERRUPTED)


def run_without_extra(words: list[str]) -> bool:
    """``learnpool info``, which a bare installation needs most; False for any other command."""
    if words not in (["info"], ["info", "--json"]):
        return False
    print_versions(as_json=len(words) > 1)
    return True


def print_versions(*, as_json: bool = False) -> None:
    """``list_versions``, a line each or as JSON."""
    if as_json:
        print(json.dumps(dict(list_versions()), indent=1))
        return
    for name, value in list_versions():
        print(f"{name:<10} {value}")


def list_versions() -> list[tuple[str, str]]:
    """Versions and devices, as a bug report needs them."""
    rows = [("learnpool", __version__), ("torch", torch.__version__), ("python", platform.python_version())]
    rows += [("system", f"{platform.system()} {platform.machine()}"), ("threads", str(torch.get_num_threads()))]
    rows.append(("cpu", f"compiled kernel ({cpu.CPU.detail})" if cpu.CPU.live else f"reference ({cpu.CPU.detail})"))
    gpu = f"{triton.GPU.detail} kernel" if triton.GPU.live else f"reference ({triton.GPU.detail})"
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is not None:
        for index in range(torch.accelerator.device_count()):
            kernel = gpu if accelerator.type == "cuda" else "reference (no kernel for this device)"
            rows.append((f"{accelerator.type}:{index}", kernel))
    if accelerator is None or accelerator.type != "cuda":
        rows.append(("cuda", f"no GPU here; it would have the {gpu}"))
    return rows
