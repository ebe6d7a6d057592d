"""What is missing of ``macro study paper``, many runs beside each other on one GPU.

    python -m experiments.paper_tables CONFIG --out FOLDER [--model-dir FOLDER] [--minutes 28] [--slots 10]
        [--memory 0.92]

One search of a small model leaves most of a GPU idle. Here ``--slots`` processes share it, each with its share of
``--memory``; each begins with a part of the units and goes on with what nobody has begun. When the minutes are over all
are interrupted together. What was interrupted goes on when the same command is given again with the same FOLDER, on
this machine or on another one that the FOLDER was copied to. Tables are gathered at the end.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.method_comparison import limit_gpu_memory
from experiments.parallel_runs import run_in_parallel, share_cores
from macro_routing.cli.console import read_toml
from macro_routing.cli.progress import ProgressLinePrinter
from macro_routing.studies.paper import PaperSession
from macro_routing.studies.paper_config import PaperUnit, list_units, read_paper_config


def make_session(arguments: argparse.Namespace) -> PaperSession:
    """The paper of this call."""
    config = read_paper_config(read_toml(arguments.config), arguments.model_dir)
    return PaperSession(config, arguments.out, ProgressLinePrinter(arguments.out), arguments.minutes)


def order_units(units: Sequence[PaperUnit], slot: int, slots: int) -> list[PaperUnit]:
    """A process's own part, then the others', from their ends: where they come last."""
    own = units[slot::slots]
    return [*own, *(unit for unit in reversed(units) if unit not in own)]


def run_slot(arguments: argparse.Namespace) -> None:
    """One of the processes."""
    limit_gpu_memory(arguments.memory / arguments.slots)
    session = make_session(arguments)
    session.run_units(order_units(list_units(session.config), arguments.slot, arguments.slots))


def run_all_slots(arguments: argparse.Namespace, words: Sequence[str]) -> None:
    """All processes, and the tables of what is there at the end."""
    began = time.monotonic()
    end = began + 60 * arguments.minutes
    logs = arguments.out / "logs"
    logs.mkdir(parents=True, exist_ok=True)

    def start(slot: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "experiments.paper_tables", *words, "--slot", str(slot)]
        with (logs / f"{slot}.txt").open("ab") as log:
            # A group of its own: an interruption from the keyboard comes through us, to all at once.
            return subprocess.Popen(  # noqa: S603
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=share_cores(arguments.slots),
            )

    slots: Any = range(arguments.slots)
    for slot, status in run_in_parallel(slots, arguments.slots, end, start):
        said = "interrupted" if status is None else f"ended with {status}"
        print(f"{time.monotonic() - began:6.0f} s  process {slot}: {said}", flush=True)
    session = make_session(arguments)
    result = session.gather()
    for row in result.table.rows:
        print(f"{row['item']}: {row['done']} of {row['units']}, {row['hours']:.2f} hours")
    print(result.headline)


def main(words: Sequence[str] | None = None) -> None:
    """Run what is missing, and gather."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model-dir", type=Path)
    parser.add_argument("--minutes", type=float, default=28.0)
    parser.add_argument("--slots", type=int, default=10, help="processes at a time")
    parser.add_argument("--memory", type=float, default=0.92, help="share of the GPU's, for all processes together")
    parser.add_argument("--slot", type=int, help=argparse.SUPPRESS)
    words = sys.argv[1:] if words is None else list(words)
    arguments = parser.parse_args(words)
    if arguments.slots < 1:
        sys.exit("--slots: one process at a time is the least")
    if arguments.slot is None:
        run_all_slots(arguments, words)
    else:
        run_slot(arguments)


if __name__ == "__main__":
    main()
