"""Builds the CPU kernels where there is a C++ compiler; without one learnpool installs too, and the reference serves.

LEARNPOOL_REQUIRE_KERNELS=1 makes a failed build an error. LEARNPOOL_SANITIZE=1 builds kernels that stop at the first
access outside their memory or undefined operation (make test-sanitize).
"""

import os
import sys
from pathlib import Path

from setuptools import setup

SOURCES = Path("src/learnpool/ops/cpu")
REQUIRED = os.environ.get("LEARNPOOL_REQUIRE_KERNELS") == "1"


def extension():
    """The library, and the command that builds it; nothing if torch is not there to build against."""
    try:
        from torch.utils.cpp_extension import BuildExtension, CppExtension
    except ImportError:
        if REQUIRED:
            raise
        return {}

    class Build(BuildExtension):
        def run(self):
            try:
                super().run()
            except Exception as error:  # whatever a missing or odd compiler raises
                if REQUIRED:
                    raise
                print(f"learnpool: the CPU kernels were not built ({error}); the reference will serve", file=sys.stderr)

    flags = ["-std=c++17", "-O3", "-g0", "-fvisibility=hidden", "-DTORCH_TARGET_VERSION=0x020a000000000000"]
    flags += ["-Werror=switch"]  # a new code of a program must be handled everywhere
    sanitize = ["-fsanitize=address,undefined"] if os.environ.get("LEARNPOOL_SANITIZE") == "1" else []
    if sanitize:
        flags += [*sanitize, "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-O1", "-g1"]
    library = CppExtension(
        "learnpool.ops.cpu.library",
        [str(SOURCES / f"{name}.cpp") for name in ("library", "program", "baseline", "avx2", "avx512")],
        depends=[str(path) for path in SOURCES.glob("*.h")],
        extra_compile_args=flags,
        extra_link_args=sanitize,
        py_limited_api=True,
    )
    return {
        "ext_modules": [library],
        "cmdclass": {"build_ext": Build},
        "options": {"bdist_wheel": {"py_limited_api": "cp310"}},
    }


setup(**extension())
