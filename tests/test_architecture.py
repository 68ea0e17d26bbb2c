"""Who may import whom, what is public, and that the library half needs torch alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import learnpool

SOURCE = Path(learnpool.__file__).parent
# Top to bottom: a room imports only rooms above it.
ROOMS = [
    "version", "kernels", "window", "tree", "sharing", "reference", "composition", "operator", "batching", "derivative",
    "stochastic", "export", "adaptive", "functional", "parameters", "layers", "names",
    "observe", "plain", "routing", "source", "watch", "search", "same", "plan", "growth", "report", "convert",
    "positions", "facts", "pictures", "explain", "fit", "calibrate", "trained",
]  # fmt: skip
DOORS = {"trained": {"lab"}}  # rooms of the library that open one upstairs, inside a function, when it is called
UPSTAIRS = ["nets", "lab", "cli"]  # a room imports the library, itself and rooms to its left


def imports(path):
    """Modules of learnpool and top-level packages a file imports, wherever in it."""
    inside, outside = set(), set()
    package = path.relative_to(SOURCE).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            names = [node.module] if node.module else [alias.name for alias in node.names]
            inside |= {(*base, *name.split("."))[0] for name in names}
        elif isinstance(node, ast.ImportFrom):
            parts = (node.module or "").split(".")
            inside |= {parts[1]} if parts[0] == "learnpool" and len(parts) > 1 else set()
            outside |= {parts[0]} - {"learnpool"}
        elif isinstance(node, ast.Import):
            outside |= {alias.name.split(".")[0] for alias in node.names}
    return inside, outside


def test_every_room_is_on_the_plan():
    found = {
        path.stem if path.suffix else path.name for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()
    }
    assert found - {"__init__", "__main__", "__pycache__"} <= {*ROOMS, *UPSTAIRS}


@pytest.mark.parametrize("room", ROOMS)
def test_the_arrows_of_the_library(room):
    path = SOURCE / room / "__init__.py"
    inside, outside = imports(path if path.exists() else SOURCE / f"{room}.py")
    assert inside <= set(ROOMS[: ROOMS.index(room)]) | DOORS.get(room, set())
    pictures = {"matplotlib"} if room == "pictures" else set()  # loaded when a picture is asked for: see below
    assert outside <= {"torch", *pictures, *sys.stdlib_module_names}


@pytest.mark.parametrize("room", UPSTAIRS)
def test_the_arrows_upstairs(room):
    files = sorted((SOURCE / room).rglob("*.py")) or [SOURCE / f"{room}.py"]
    for path in files:
        inside, outside = imports(path)
        assert inside.isdisjoint(UPSTAIRS[UPSTAIRS.index(room) + 1 :]), path
        assert room != "nets" or outside <= {"torch", *sys.stdlib_module_names}, path


def test_the_front_door_names_only_the_library():
    inside, outside = imports(SOURCE / "__init__.py")
    assert inside <= {*ROOMS, "functional"}
    assert outside == set()


def test_importing_the_library_loads_nothing_from_upstairs():
    packages = {"typer", "rich", "pydantic", "matplotlib", "sklearn"}
    rooms = tuple(f"learnpool.{room}" for room in UPSTAIRS)
    code = f"""import sys, learnpool
print([m for m in sys.modules if m.split('.')[0] in {packages} or m.startswith({rooms})])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names():
    frozen = """__version__ functional
    Tree Max Avg Filter Mix Gate
    Pool1d Pool2d Pool3d MixedPool1d MixedPool2d MixedPool3d GatedPool1d GatedPool2d GatedPool3d
    TreePool1d TreePool2d TreePool3d StochasticPool1d StochasticPool2d StochasticPool3d
    AdaptivePool1d AdaptivePool2d AdaptivePool3d
    make_pool parse tie parameter_groups
    convert restore downsampling Report calibrate explain statistics
    load decompositions"""
    assert sorted(learnpool.__all__) == sorted(frozen.split())
    assert all(hasattr(learnpool, name) for name in learnpool.__all__)


def test_public_functions():
    from learnpool import functional

    families = ["pool", "mixed_pool", "gated_pool", "tree_pool", "stochastic_pool", "adaptive_pool"]
    for name in (f"{family}{dims}d" for family in families for dims in (1, 2, 3)):
        assert callable(getattr(functional, name))


def test_operators_and_their_schemas():
    import torch

    window = "int[] kernel, int[] stride, int[] padding, int[] dilation, bool ceil_mode, bool count_include_pad"
    inputs = f"Tensor x, Tensor weight, Tensor mix, int[] program, {window}"
    assert str(torch.ops.learnpool.pool.default._schema) == f"learnpool::pool({inputs}) -> Tensor"
    backward = f"learnpool::pool_backward(Tensor grad, {inputs}, bool[3] output_mask) -> (Tensor, Tensor, Tensor)"
    assert str(torch.ops.learnpool.pool_backward.default._schema) == backward


def test_the_readmes_code_runs_and_counts_right():
    readme = (SOURCE.parents[1] / "README.md").read_text()
    code = readme.split("```python\n")[1].split("```")[0]
    names = {}
    exec(code, names)
    counts = [
        sum(p.numel() for p in layer.parameters()) for layer in names["net"] if isinstance(layer, learnpool.Pool2d)
    ]
    assert counts == [27, 9]
    assert "27 and 9 parameters more" in code
    assert all(layer.weight.grad is not None for layer in names["net"] if isinstance(layer, learnpool.Pool2d))
