"""Records the doctor's findings on a model, so that the pages can show them.

python -m benchmarks.doctor --model qwen2.5-coder-1.5b --write docs/data/doctor_qwen_gpu.json
"""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from benchmarks.record import write_record
from macro_routing.models import LoadOptions, load_model
from macro_routing.models.doctor import CheckResult, run_checks

COLUMNS = {
    "name": "check",
    "verdict": "verdict",
    "difference": "max difference",
    "allowed": "allowed",
    "detail": "detail",
}


def _make_row(finding: CheckResult) -> dict[str, Any]:
    return {
        **dataclasses.asdict(finding),
        "verdict": "skipped" if finding.skipped else "ok" if finding.passed else "FAILED",
    }


def main() -> None:
    """Examine, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--name", help="the model's name in the record, where --model is a path")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--write", type=Path, required=True, help="the JSON file to write")
    arguments = parser.parse_args()
    frozen = load_model(arguments.model, LoadOptions(dtype=arguments.dtype))
    findings = list(run_checks(frozen))
    for finding in findings:
        print(finding)
    name = arguments.name or frozen.name
    write_record(
        arguments.write,
        command=f"macro doctor {name} --dtype {arguments.dtype}",
        config={
            "model": name,
            "dtype": str(frozen.model.dtype),
            "attention": frozen.model.config._attn_implementation,  # noqa: SLF001
            "weights_id": frozen.weights_id,
        },
        seed=0,
        columns=COLUMNS,
        results=[_make_row(finding) for finding in findings],
        device=str(frozen.model.device),
    )


if __name__ == "__main__":
    main()
