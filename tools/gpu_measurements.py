"""Measure what can be known of the GPU kernels without a GPU, into docs/results; ``gpu_tables.py`` makes tables of it.

python tools/gpu_measurements.py compile [all] [sm_80 …]        what compilers make of them, needs triton
python tools/gpu_measurements.py instructions                   how many instructions that is
TRITON_INTERPRET=1 python tools/gpu_measurements.py traffic     bytes they move
"""

import dataclasses
import json
import sys
from pathlib import Path

from cpu_tables import RESULTS

COMPILATION, TRAFFIC, INSTRUCTIONS = (
    RESULTS / f"gpu-{name}.json" for name in ("compilation", "traffic", "instructions")
)


def read(path: Path) -> list[dict]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def save(path: Path, records: list[dict]) -> None:
    lines = ",\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def compile_all(targets: list[str]) -> None:
    """Compile for the targets and keep what kernels take; what is there already is left out. ``all``: every case."""
    from gpu_compilation import TARGETS, compile_case, list_cases

    records = read(COMPILATION)
    known = {(record["target"], *map(str, record["case"].values())) for record in records}
    for target in [target for target in targets if target != "all"] or TARGETS:
        for case in list_cases(target, "all" in targets):
            fields = dataclasses.asdict(case) | {"shape": list(case.shape)}
            if (target, *map(str, fields.values())) in known:
                continue
            kernels = [dataclasses.asdict(resources) for resources in compile_case(case, target)]
            records.append({"target": target, "case": fields, "kernels": kernels})
            save(COMPILATION, records)


def measure_traffic() -> None:
    """Count the bytes of every common case in the interpreter."""
    import gpu_traffic
    import triton_interpreter

    triton_interpreter.speed_up()
    records = []
    for count in gpu_traffic.count_all():
        records.append(dataclasses.asdict(count))
        save(TRAFFIC, records)


def count_instructions() -> None:
    """Compile what the model needs and count its instructions."""
    from gpu_compilation import Case, compile_case
    from gpu_traffic import MODELLED, SHAPES

    records = []
    for target in ("sm_80", "sm_90"):
        for shape in SHAPES:
            for pool in MODELLED:
                for mode in ("forward", "backward"):
                    case = Case(pool, mode=mode, shape=shape)
                    (kernel,) = compile_case(case, target)
                    (step,) = case.plan()
                    counted = {"instructions": kernel.instructions, "warps": kernel.warps, "programs": step.programs}
                    records.append({"target": target, "pool": pool, "mode": mode, "shape": shape} | counted)
                    save(INSTRUCTIONS, records)


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    if command == "compile":
        compile_all(rest)
    elif command == "traffic":
        measure_traffic()
    elif command == "instructions":
        count_instructions()
