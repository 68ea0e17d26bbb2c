"""``learnpool bench``: how fast the pools are."""

from pathlib import Path
from typing import Annotated

import torch
import typer

from . import options, report_usage_errors


def build() -> typer.Typer:
    """``learnpool bench pools``, ``scaling``, ``net``, ``train`` and ``data``."""
    app = options.make_group("Measure how fast pools and training are.")

    @app.command()
    def pools(
        out: Annotated[Path, typer.Option(help="Directory for pools.json and pools.png.")] = Path("runs/bench"),
        shapes: Annotated[
            str, typer.Option(help="Inputs N×C×size, with one, two or three sizes.")
        ] = "64x128x32x32,64x192x16x16,32x64x112x112",
        window: Annotated[str, typer.Option(help="kernel,stride,padding and, if not 1, dilation.")] = "3,2,1",
        ceil: Annotated[bool, typer.Option("--ceil", help="Ceil mode.")] = False,
        pools: Annotated[str, typer.Option(help="Our pools to time, by name.")] = "mixed,gated,tree2,tree3",
        share: Annotated[str | None, typer.Option(help="layer, region, channel or region_channel.")] = None,
        layout: Annotated[str, typer.Option(help="nchw or channels_last.")] = "nchw",
        dtype: Annotated[
            str, typer.Option(help="float32, or float64, bfloat16 or float16, which are timed beside float32.")
        ] = "float32",
        rounds: Annotated[int, typer.Option(min=1, help="Rounds, in each of which everything is timed once.")] = 15,
        threads: options.TorchThreads = None,
        compiled: Annotated[
            bool,
            typer.Option("--compile", help="Also time the hand-written pool under torch.compile; compiling is slow."),
        ] = False,
        reference: Annotated[
            bool, typer.Option("--reference", help="Also time our pools without their kernel.")
        ] = False,
        device: options.KernelDevice = "cpu",
    ) -> None:
        """Time the pools beside PyTorch's own.

        The same pools written by hand (gated, soft, lse, gem, rank, blur) and a copy of the input are timed, too.

        Example: learnpool bench pools --pools gated,tree2 --layout channels_last
        """
        from ..lab.bench import options
        from ..lab.bench import pools as lab

        with report_usage_errors():
            benchmark = options.parse_options(
                shapes,
                window,
                pools,
                layout,
                dtype,
                share,
                threads=threads,
                rounds=rounds,
                ceil_mode=ceil,
                compiled=compiled,
                reference=reference,
                device=device,
            )
        lab.bench(benchmark, out)

    @app.command()
    def scaling(
        out: Annotated[Path, typer.Option(help="Directory for scaling.json and scaling.png.")] = Path("runs/bench"),
        cells: Annotated[int, typer.Option(min=10_000, max=10**10, help="Cells of the largest input.")] = 10**8,
        kernel: Annotated[int, typer.Option(min=2, max=1000, help="Size of the largest window.")] = 15,
        levels: Annotated[int, typer.Option(min=2, max=12, help="Levels of the largest tree.")] = 7,
        layout: Annotated[str, typer.Option(help="nchw or channels_last.")] = "nchw",
        dtype: Annotated[str, typer.Option(help="float32, float64, bfloat16 or float16.")] = "float32",
        rounds: Annotated[int, typer.Option(min=1, help="Rounds, in each of which everything is timed once.")] = 5,
        threads: options.TorchThreads = None,
    ) -> None:
        """Time pools over growing inputs, windows, threads and trees.

        Example: learnpool bench scaling --cells 10000000
        """
        from ..lab.bench import scaling as lab

        with report_usage_errors():
            benchmark = lab.ScalingBenchmark(
                cells=cells,
                kernel=kernel,
                levels=levels,
                layout=layout,
                dtype=dtype,
                rounds=rounds,
                threads=threads or torch.get_num_threads(),
            )
            benchmark.list_points()  # raises on a layout or dtype it does not know
        lab.bench(benchmark, out)

    @app.command()
    def net(
        out: Annotated[Path, typer.Option(help="Directory for net.json.")] = Path("runs/bench"),
        pool: Annotated[str, typer.Option(help="The pools to time against max.")] = "tree3+gated",
        pairs: Annotated[int, typer.Option(min=2, help="Steps of each network.")] = 15,
        data: Annotated[str, typer.Option(help="Whose network: mnist, cifar10, cifar100 or svhn.")] = "cifar10",
        model: Annotated[
            str, typer.Option(help="In place of the paper's: alexnet, torchvision:resnet18, package.module:function …")
        ] = "dsn",
        size: Annotated[int, typer.Option(min=8, help="With --model: height and width of its images.")] = 224,
        inference: Annotated[
            bool, typer.Option("--inference", help="Time the network in use instead of a training step.")
        ] = False,
        batch: Annotated[int, typer.Option(min=1, help="Images in a step.")] = 64,
        width: Annotated[float, typer.Option(help="Multiple of the paper's channels.")] = 1.0,
        layout: Annotated[str, typer.Option(help="nchw or channels_last.")] = "nchw",
        threads: options.TorchThreads = None,
        device: options.KernelDevice = "cpu",
    ) -> None:
        """Time a network with learned pools beside max pools.

        Example: learnpool bench net --model torchvision:resnet18 --pool gated --inference --batch 1
        """
        from ..lab.bench import net as lab

        with report_usage_errors():
            benchmark = lab.NetBenchmark(
                pool=pool,
                model=model,
                data=data,
                size=size,
                inference=inference,
                batch=batch,
                width=width,
                layout=layout,
                pairs=pairs,
                threads=threads or torch.get_num_threads(),
                device=device,
            )
            lab.bench(benchmark, out)

    @app.command()
    def train(
        out: Annotated[Path, typer.Option(help="Directory for train.json.")] = Path("runs/bench"),
        pool: Annotated[str, typer.Option(help="The network's pools.")] = "max",
        pairs: Annotated[int, typer.Option(min=2, help="Steps of each kind.")] = 60,
        batch: Annotated[int, typer.Option(min=1, help="Images in a step.")] = 64,
        width: Annotated[float, typer.Option(help="Multiple of the paper's channels.")] = 0.25,
        threads: options.TorchThreads = None,
    ) -> None:
        """Time the lab's training step beside one written by hand.

        The part of the step that makes batches is timed, too.

        Example: learnpool bench train --threads 1
        """
        from ..lab.bench import train as lab

        with report_usage_errors():
            benchmark = lab.TrainBenchmark(
                pool=pool, width=width, batch=batch, pairs=pairs, threads=threads or torch.get_num_threads()
            )
            _ = benchmark.run  # raises on a pool it does not know
        lab.bench(benchmark, out)

    @app.command()
    def data(
        out: Annotated[Path, typer.Option(help="Directory for data.json.")] = Path("runs/bench"),
        source: Annotated[
            str | None, typer.Option("--data", help="imagenet or a folder of images; generated JPEGs if not given.")
        ] = None,
        model: Annotated[str, typer.Option(help="alexnet, googlenet, googlenet-bn, or package.module:function.")] = (
            "alexnet"
        ),
        pool: Annotated[str, typer.Option(help="The network's pools.")] = "max",
        preset: options.Preset = "modern",
        batch: Annotated[int, typer.Option(min=1, help="Images in a step.")] = 64,
        width: Annotated[float, typer.Option(help="Multiple of the paper's channels.")] = 1.0,
        rounds: Annotated[int, typer.Option(min=1, help="Times everything is measured.")] = 5,
        workers: options.Workers = 2,
        threads: options.TorchThreads = None,
        data_dir: options.DataDir = None,
    ) -> None:
        """Time the reading of images beside the training on them.

        Example: learnpool bench data --data imagenet --data-dir data --workers 8
        """
        from ..lab.bench import data as lab

        with report_usage_errors():
            benchmark = lab.DataBenchmark(
                net=model,
                pool=pool,
                preset=preset,
                data=source,
                batch=batch,
                width=width,
                rounds=rounds,
                workers=workers,
                threads=threads or torch.get_num_threads(),
            )
            lab.bench(benchmark, out, data_dir)

    return app
