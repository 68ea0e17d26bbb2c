"""``learnpool doctor``: is the kernel of this device right?"""

from typing import Annotated

import typer

from . import options


def doctor(
    device: options.KernelDevice = "cpu",
    quick: Annotated[bool, typer.Option("--quick", help="float32 and two windows only.")] = False,
) -> None:
    """Compare the kernel of a device with the reference.

    It prints a table of pools and dtypes, each over several windows, to paste into a bug report.
    Every new kernel is compiled on a GPU, which takes minutes the first time. Exit code 1 if anything differs,
    2 if the device has no kernel and runs the reference itself.

    Example: learnpool doctor --device cuda
    """
    from rich.console import Console

    from ..lab import doctor as lab
    from ..lab import progress
    from ..lab.hardware import find_device
    from . import print_versions, report_usage_errors

    with report_usage_errors():
        place = find_device(device)
        lab.require_kernel(place)
    steps = len(lab.list_cases(quick))
    with progress.count_steps("comparing", steps, Console(stderr=True)) as advance:
        outcomes = lab.examine(place, quick, advance)
    print_versions()
    print(f"\n{lab.format_table(outcomes)}\n\nWindows: {lab.describe_windows(quick)}.")
    failed = [outcome for outcome in outcomes if outcome.problem and not outcome.problem.startswith("not checked")]
    if failed:
        raise typer.Exit(1)
