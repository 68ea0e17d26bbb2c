"""Without the compiled library the reference is used, with one warning."""

import subprocess
import sys
from pathlib import Path

import learnpool

USE = """
import warnings
from pathlib import Path

Path.glob = lambda self, pattern: iter(())  # no library is found
import torch
import learnpool

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for layer in (learnpool.GatedPool2d(3, 2), learnpool.StochasticPool2d(2)):
        layer(torch.randn(1, 2, 9, 9, requires_grad=True)).sum().backward()
said = [str(warning.message) for warning in caught if "learnpool" in str(warning.message)]
print(len(said), said[0])
"""


def test_the_reference_says_once_that_it_serves():
    source = str(Path(learnpool.__file__).parents[1])
    code = f"import sys; sys.path.insert(0, {source!r})\n{USE}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 learnpool: using the slower PyTorch reference: the CPU kernel is not built")
