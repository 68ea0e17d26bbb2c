"""Builds the CPU kernels where there is a C++ compiler; without one learnpool installs too, and the reference serves.

LEARNPOOL_REQUIRE_KERNELS=1 makes a failed build an error. LEARNPOOL_PURE=1 builds none, for the wheel of platforms that
have no other (make dist). LEARNPOOL_SANITIZE=1 builds kernels that stop at the first access outside their memory or
undefined operation (make test-sanitize). LEARNPOOL_REPOSITORY is the address that a release's links lead to.
"""

import contextlib
import os
import re
import sys
from pathlib import Path

from setuptools import setup

SOURCES = Path("src/learnpool/ops/cpu")
REQUIRED = os.environ.get("LEARNPOOL_REQUIRE_KERNELS") == "1"
PURE = os.environ.get("LEARNPOOL_PURE") == "1" or sys.platform == "win32"  # MSVC has no GCC vector types


def extension():
    """The library, and the command that builds it; nothing if torch is not there to build against."""
    if PURE:
        return {}
    try:
        from torch.utils.cpp_extension import BuildExtension, CppExtension, include_paths
    except ImportError:
        if REQUIRED:
            raise
        return {}

    class Build(BuildExtension):
        def run(self):
            files = len(self.extensions[0].sources) if self.extensions else 0
            say(f"learnpool: compiling its CPU kernels ({files} C++ files), which takes one to three minutes")
            try:
                super().run()
            except Exception as error:  # whatever a missing or odd compiler raises
                if REQUIRED:
                    raise
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                say(f"learnpool: the CPU kernels were not built ({reason}); the reference will serve, which is slower")
                self.distribution.ext_modules = None  # a wheel without a library is for any platform
                self.get_finalized_command("bdist_wheel").root_is_pure = True

    flags = ["-std=c++17", "-O3", "-g0", "-fvisibility=hidden", "-DTORCH_TARGET_VERSION=0x020a000000000000"]
    flags += ["-Werror=switch"]  # a new code of a program must be handled everywhere
    # Checks name their file: without the builder's folders the same source gives the same library anywhere.
    flags += [f"-ffile-prefix-map={Path.cwd()}/=", *(f"-ffile-prefix-map={path}/=" for path in include_paths())]
    sanitize = ["-fsanitize=address,undefined"] if os.environ.get("LEARNPOOL_SANITIZE") == "1" else []
    if sanitize:
        flags += [*sanitize, "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-O1", "-g1"]
    library = CppExtension(
        "learnpool.ops.cpu.library",
        sorted(map(str, SOURCES.glob("*.cpp"))),
        depends=sorted(map(str, SOURCES.glob("*.h"))),
        extra_compile_args=flags,
        extra_link_args=sanitize,
        py_limited_api=True,
    )
    return {
        "ext_modules": [library],
        "cmdclass": {"build_ext": Build},
        "options": {"bdist_wheel": {"py_limited_api": "cp310"}},
    }


def describe():
    """The README and the links of the page on PyPI: only a release knows the address (.github/workflows/wheels.yml)."""
    readme, urls = Path("README.md").read_text(encoding="utf-8"), {}
    if address := os.environ.get("LEARNPOOL_REPOSITORY"):
        source = Path("src/learnpool/__init__.py").read_text(encoding="utf-8")
        tag = "v" + re.search(r'^__version__ = "(.+)"', source, re.M)[1]
        readme = re.sub(r"(!\[[^\]]*\]\()(?!https:)", rf"\g<1>{address}/raw/{tag}/", readme)
        readme = re.sub(r"(?<!!)(\[[^\]]+\]\()(?!https:|#)", rf"\g<1>{address}/blob/{tag}/", readme)
        urls = {"Source": address, "Changelog": f"{address}/blob/{tag}/CHANGELOG.md", "Issues": f"{address}/issues"}
    return {"long_description": readme, "long_description_content_type": "text/markdown", "project_urls": urls}


def say(line):
    """Print a line where the person who waits sees it: pip keeps the output of a build to itself."""
    print(line, file=sys.stderr, flush=True)
    if not sys.stderr.isatty():
        with contextlib.suppress(OSError):  # there is no terminal
            Path("/dev/tty").write_text(f"\n{line}\n", encoding="utf-8")


setup(**describe(), **extension())
