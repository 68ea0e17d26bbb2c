"""Write docs/results/gpu.md: what the compilers make of the GPU kernels, the bytes they move, and the time that takes.

python tools/gpu_tables.py compile [sm_80 …]      needs triton; fills docs/results/gpu-compilation.json
TRITON_INTERPRET=1 python tools/gpu_tables.py traffic           fills docs/results/gpu-traffic.json
python tools/gpu_tables.py write                  needs neither
"""

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "docs" / "results"
COMPILATION, TRAFFIC, PAGE = (RESULTS / name for name in ("gpu-compilation.json", "gpu-traffic.json", "gpu.md"))


def read(path: Path) -> list[dict]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def save(path: Path, records: list[dict]) -> None:
    lines = ",\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def compile_all(targets: list[str]) -> None:
    """Compile every case for every target and keep what it takes; what is there already is left out."""
    from gpu_compilation import TARGETS, compile_case, list_cases

    records = read(COMPILATION)
    known = {(record["target"], *map(str, record["case"].values())) for record in records}
    for target in targets or TARGETS:
        for case in list_cases(target):
            fields = dataclasses.asdict(case) | {"shape": list(case.shape)}
            if (target, *map(str, fields.values())) in known:
                continue
            kernels = [dataclasses.asdict(resources) for resources in compile_case(case, target)]
            records.append({"target": target, "case": fields, "kernels": kernels})
            save(COMPILATION, records)


def measure_traffic() -> None:
    """Count the bytes of every common case in the interpreter."""
    import gpu_traffic

    save(TRAFFIC, [dataclasses.asdict(count) for count in gpu_traffic.count_all()])


def main() -> Iterator[str]:
    yield ""


if __name__ == "__main__":
    command, *rest = sys.argv[1:] or ["write"]
    if command == "compile":
        compile_all(rest)
    elif command == "traffic":
        measure_traffic()
