"""Inputs that nobody meant, for everything that reads any; what was read, what was refused, what escaped.

    python -m tests.fuzz.run_fuzz [--inputs 104000] [--seed 0] [--write docs/data/fuzz.json]

Stops at the first that is neither read nor refused by an error of this project, and shows the smallest such input.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.record import write_record

COLUMNS = {
    "target": "what is read",
    "inputs": "inputs",
    "read": "read",
    "refused": "rejected with an explanation",
    "escaped": "anything else",
    "seconds": "seconds",
}


def main() -> None:
    """Try, print, write on request."""
    from tests.fuzz.targets import SLOWER, TARGETS, drive

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=104_000, help="of all targets together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="targets whose name holds this")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in TARGETS:
            if arguments.only not in name:
                continue
            start = time.perf_counter()
            counts = drive(name, folder, arguments.inputs // len(TARGETS) // SLOWER.get(name, 1), arguments.seed)
            results.append(
                {
                    "target": name,
                    "inputs": counts.total(),
                    "read": counts["read"],
                    "refused": counts["refused"],
                    "escaped": 0,
                    "seconds": time.perf_counter() - start,
                }
            )
            print(results[-1], flush=True)
            if arguments.write:  # as far as it came
                write_record(
                    arguments.write,
                    command=f"python -m tests.fuzz.run_fuzz --inputs {arguments.inputs} --write docs/data/fuzz.json",
                    config={"inputs": arguments.inputs},
                    seed=arguments.seed,
                    columns=COLUMNS,
                    results=results,
                )


if __name__ == "__main__":
    main()
