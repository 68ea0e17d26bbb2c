"""Fill in what lies between ``<!-- generated: NAME -->`` and ``<!-- end -->`` in the pages.

Run ``python tools/generate_docs.py``; with ``--check`` it writes nothing, and exits with 1 if a page is out of date.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import cpu_tables
import evidence_tables
import gpu_tables
import paper_tables
import run_tables

ROOT = Path(__file__).parents[1]
BLOCKS: dict[str, Callable[[], Iterable[str]]] = {
    "speed": cpu_tables.format_speed_table,
    "cpu": cpu_tables.format_cpu_tables,
    "gpu-compilation": gpu_tables.format_compilation_table,
    "gpu-loads": gpu_tables.format_loads_table,
    "gpu-traffic": gpu_tables.format_traffic_table,
    "gpu-model": gpu_tables.format_model_table,
    "gpu-check": gpu_tables.format_check_table,
    "baseline": run_tables.format_baseline_table,
    "pool-rate": run_tables.format_pool_rate_table,
    "screening": partial(evidence_tables.format_screening_table, "resnet9"),
    "screening-fast": partial(evidence_tables.format_screening_table, "fast"),
    "confirmation": evidence_tables.format_confirmation,
    "strided": evidence_tables.format_strided_table,
    "why": evidence_tables.format_why_table,
    "robustness": evidence_tables.format_robustness_table,
    "confirmed-errors": evidence_tables.format_confirmed_errors,
    **paper_tables.BLOCKS,
}
MARKED = re.compile(r"^(<!-- generated: (.+?) -->\n).*?^(<!-- end -->\n)", re.DOTALL | re.MULTILINE)


def list_pages() -> list[Path]:
    """The README, the other pages beside it, and everything in docs."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def fill(text: str) -> str:
    """The text of a page with its blocks generated anew."""

    def generate(match: re.Match[str]) -> str:
        if match[2] not in BLOCKS:
            raise ValueError(f"unknown block {match[2]!r}; known: {', '.join(BLOCKS)}")
        return match[1] + "".join(f"{line}\n" for line in BLOCKS[match[2]]()) + match[3]

    if len(re.findall(r"^<!-- generated: ", text, re.MULTILINE)) != len(MARKED.findall(text)):
        raise ValueError("a generated block has no end")
    return MARKED.sub(generate, text)


def find_outdated(pages: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Pages that differ from what would be generated, with their new text."""
    for page in pages:
        text = page.read_text(encoding="utf-8")
        try:
            filled = fill(text)
        except (ValueError, KeyError, OSError) as error:
            sys.exit(f"{page.relative_to(ROOT)}: {error}")
        if filled != text:
            yield page, filled


def main(arguments: list[str]) -> int:
    """Write, or with ``--check`` only compare; 1 if a page was out of date."""
    outdated = list(find_outdated(list_pages()))
    for page, text in outdated:
        print("out of date:" if "--check" in arguments else "written:", page.relative_to(ROOT))
        if "--check" not in arguments:
            page.write_text(text, encoding="utf-8")
    return 1 if outdated and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
