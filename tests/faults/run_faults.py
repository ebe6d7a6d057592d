"""Every fault, many times, at other moments each time; what the small search came to after each.

    python -m tests.faults.run_faults [--backend local] [--times 5] [--only TEXT] [--write docs/data/faults.json]

Exits with 1 when a run was not sound: when its fault did not happen, when something was lost, counted twice, or decided
otherwise.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.record import write_record
from tests.faults.fault_injection import FaultResult
from tests.faults.reference_search import ReferenceSearch
from tests.faults.scenarios import LOCAL_FAULTS, RAY_FAULTS

FAULTS = {"local": LOCAL_FAULTS, "ray": RAY_FAULTS}
COLUMNS = {
    "fault": "fault",
    "times": "times",
    "happened": "happened",
    "workers_lost": "workers lost",
    "same": "ended the same",
    "lost": "scores lost",
    "twice": "counted twice",
    "seconds": "seconds a run",
    "what": "what was done",
}


def _sum_if_known(values: Iterable[int | None]) -> int | None:
    """Nothing where one is not known."""
    found = list(values)
    return None if None in found else sum(one for one in found if one is not None)


def main() -> None:
    """Do them, print, write on request."""
    from transformers.utils import logging as advice

    advice.disable_progress_bar()  # type: ignore[no-untyped-call]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=tuple(FAULTS), default="local")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--only", default="", help="faults whose name holds this")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    results: list[dict[str, Any]] = []
    sound = True
    with tempfile.TemporaryDirectory() as folder:
        reference = ReferenceSearch.make(Path(folder) / "reference")
        for number, (fault, scenario) in enumerate(FAULTS[arguments.backend].items()):
            if arguments.only not in fault:
                continue
            seen: list[FaultResult] = []
            start = time.perf_counter()
            for turn in range(arguments.times):
                run_folder = Path(folder) / f"{number}-{turn}" / "run"
                seen.append(scenario(reference, run_folder, random.Random(f"{fault}/{turn}")))  # noqa: S311
                print(f"{fault}, {turn + 1}: {seen[-1]}", flush=True)
            sound &= all(one.sound for one in seen)
            results.append(
                {
                    "fault": fault,
                    "times": len(seen),
                    "happened": sum(one.happened for one in seen),
                    "workers_lost": _sum_if_known(one.workers_lost for one in seen),
                    "same": sum(one.same for one in seen),
                    "lost": _sum_if_known(one.lost for one in seen),
                    "twice": _sum_if_known(one.twice for one in seen),
                    "seconds": (time.perf_counter() - start) / max(1, len(seen)),
                    "what": (scenario.__doc__ or "").strip().splitlines()[0],
                    "notes": [one.note for one in seen],
                }
            )
            if arguments.write:  # as far as it came
                write_record(
                    arguments.write,
                    command=f"python -m tests.faults.run_faults --backend {arguments.backend} --times {arguments.times}"
                    f" --write docs/data/{arguments.write.name}",
                    config={"model": "6 layers, random weights", "workers": 2},
                    seed=0,
                    columns=COLUMNS,
                    results=results,
                )
    sys.exit(not sound)


if __name__ == "__main__":
    main()
