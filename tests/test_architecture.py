"""Who may import whom, what is public, and that the library half needs torch alone."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import learnpool

SOURCE = Path(learnpool.__file__).parent
# Top to bottom: a module or folder imports only those above it, and inside its own folder what it likes.
LIBRARY = [
    "formatting", "nodes", "leaves", "program", "tree", "parsing", "sharing", "ops", "functional", "starts",
    "parameters", "layers", "named_layers", "names", "observation", "conversion", "explanation",
    "calibration", "loading",
]  # fmt: skip
LATE = {"loading": {"lab"}, "nodes": {"tree"}}  # imported inside a function, when it is called
APPLICATION = ["nets", "lab", "cli"]  # imports the library, itself and what is to its left
FOLDERS = ["data", "runs", "launch", "bench", "comparison", "experiments"]  # of lab, from bottom to top


def imports(path):
    """What a file imports, wherever in it: modules of learnpool as tuples of names, and other top-level packages."""
    inside, outside = set(), set()
    package = path.relative_to(SOURCE).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] == "learnpool"):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = tuple((node.module or "").split(".")) if node.module else ()
            module = module if node.level else module[1:]
            inside |= {(*base, *module, alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            outside |= {node.module.split(".")[0]}
        elif isinstance(node, ast.Import):
            outside |= {alias.name.split(".")[0] for alias in node.names}
    return inside, outside


def files(name):
    return sorted((SOURCE / name).rglob("*.py")) or [SOURCE / f"{name}.py"]


def test_every_file_has_its_place():
    found = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert found - {"__init__", "__main__"} == {*LIBRARY, *APPLICATION}
    assert len(list(SOURCE.glob("*.py"))) <= 17
    assert {path.name for path in (SOURCE / "lab").iterdir() if (path / "__init__.py").exists()} == set(FOLDERS)


@pytest.mark.parametrize("name", ["learnpool", "learnpool.functional", "learnpool.nets"])
def test_a_public_module_shows_only_its_public_names(name):
    module = importlib.import_module(name)
    shown = {entry for entry in dir(module) if not entry.startswith("_")}
    assert shown == {entry for entry in module.__all__ if not entry.startswith("_")}
    for entry in shown - {"functional"}:
        assert getattr(module, entry).__module__.startswith("learnpool."), entry


@pytest.mark.parametrize("name", LIBRARY)
def test_the_arrows_of_the_library(name):
    allowed = {name, *LIBRARY[: LIBRARY.index(name)], *LATE.get(name, ())}
    for path in files(name):
        inside, outside = imports(path)
        assert {module[0] for module in inside} <= allowed, path
        pictures = {"matplotlib"} if path.stem == "pictures" else set()  # loaded when a picture is asked for: see below
        gpu = {"triton"} if path.parent.name == "triton" else set()  # loaded when a GPU's tensor is pooled
        assert outside <= {"torch", *pictures, *gpu, *sys.stdlib_module_names}, path


@pytest.mark.parametrize("name", APPLICATION)
def test_the_arrows_of_the_application(name):
    for path in files(name):
        inside, outside = imports(path)
        assert {module[0] for module in inside}.isdisjoint(APPLICATION[APPLICATION.index(name) + 1 :]), path
        assert name != "nets" or outside <= {"torch", *sys.stdlib_module_names}, path


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_arrows_of_the_lab(folder):
    above = set(FOLDERS[FOLDERS.index(folder) + 1 :])
    for path in sorted((SOURCE / "lab" / folder).rglob("*.py")):
        used = {module[1] for module in imports(path)[0] if module[0] == "lab" and len(module) > 1}
        assert used.isdisjoint(above), path


@pytest.mark.parametrize("name", sorted(learnpool.__all__))
def test_no_public_name_hides_a_module(name):
    assert name == "functional" or not ((SOURCE / f"{name}.py").exists() or (SOURCE / name).exists())


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.rglob("test_*.py")), ids=lambda path: path.stem)
def test_tests_lie_as_the_source_does(path):
    folder = path.relative_to(Path(__file__).parent).parent
    assert folder in (Path("docs"), Path("faults")) or (SOURCE / folder).is_dir()


def test_the_package_imports_only_the_library():
    inside, outside = imports(SOURCE / "__init__.py")
    assert {module[0] for module in inside} <= set(LIBRARY)
    assert outside == {"importlib", "typing"}


def test_importing_the_library_loads_nothing_of_the_application():
    packages = {"typer", "rich", "pydantic", "matplotlib", "sklearn"}
    folders = tuple(f"learnpool.{name}" for name in APPLICATION)
    code = f"""import sys, learnpool
print([m for m in sys.modules if m.split('.')[0] in {packages} or m.startswith({folders})])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_tools_for_whole_networks_are_imported_when_first_asked_for():
    code = """import sys, learnpool
tools = {f"learnpool.{folder}" for folder in learnpool._TOOLS}
assert tools.isdisjoint(sys.modules), tools & set(sys.modules)
assert set(learnpool.__all__) <= set(dir(learnpool))
from learnpool import convert, explain
assert learnpool.calibrate is learnpool.calibration.calibrate and tools <= set(sys.modules)
assert not hasattr(learnpool, "nothing")"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names():
    frozen = """__version__ functional
    Tree Max Min Avg Std Filter Soft LogSumExp Power Rank Median Blur Mix Gate
    SoftPool1d SoftPool2d SoftPool3d LogSumExpPool1d LogSumExpPool2d LogSumExpPool3d GeMPool1d GeMPool2d GeMPool3d
    RankPool1d RankPool2d RankPool3d MedianPool1d MedianPool2d MedianPool3d
    BlurPool1d BlurPool2d BlurPool3d MaxBlurPool1d MaxBlurPool2d MaxBlurPool3d
    Pool1d Pool2d Pool3d MixedPool1d MixedPool2d MixedPool3d GatedPool1d GatedPool2d GatedPool3d
    TreePool1d TreePool2d TreePool3d StochasticPool1d StochasticPool2d StochasticPool3d
    AdaptivePool1d AdaptivePool2d AdaptivePool3d
    make_pool parse tie parameter_groups
    convert restore downsampling Report Calibration Explanation calibrate explain statistics
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


def test_the_page_names_every_file_of_the_cpu_kernel():
    page = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    files = [path for path in (SOURCE / "ops" / "cpu").iterdir() if path.suffix in (".h", ".cpp")]
    stems = {path.stem for path in files} - {"glibc"}  # one symbol for old systems
    assert [stem for stem in sorted(stems) if not re.search(rf"`ops/cpu/{stem}\.(h|cpp)`", page)] == []
