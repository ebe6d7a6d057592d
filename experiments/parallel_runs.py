"""What is missing of the tables on real models, many runs beside each other on one GPU.

    python -m experiments.parallel_runs MODEL --small SMALL_MODEL --runs FOLDER [--data-dir FOLDER] [--minutes 20]
        [--slots 10] [--memory 0.92] [--methods guided,drllm] [--settings svamp-reasoning,sciq-likelihood] [--seeds 1]
        [--list]

One search of a small model leaves most of a GPU idle. Here every run of ``experiments.search_quality``,
``method_comparison`` and ``half_budget`` that is not kept is a process with a folder of its own under FOLDER,
``--slots`` of them at a time, each with its share of ``--memory`` (name less of it where something else uses the GPU);
methods and settings come as they are named. When the minutes are over all are interrupted together: with NVIDIA's MPS
one that is interrupted alone takes the others with it. What was interrupted goes on where it stopped when the same
command is given again; what has finished is kept (``experiments.recorded_runs``).
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from experiments import half_budget, method_comparison, search_quality
from experiments.method_comparison import SEEDS
from experiments.recorded_runs import RECORDED_RUNS, is_recorded, record_runs

METHODS = tuple(dict.fromkeys((*search_quality.METHODS, *method_comparison.TREES, *method_comparison.ROUTES)))
_SEEDS = [str(seed) for seed in SEEDS]
_MEMORY = 0.92
"""Of the GPU's memory, for all processes together; the rest is what each takes before it asks."""
_SECONDS_TO_END = 15.0
HALVES = tuple(half_budget.half_budget_folder(setting) for setting in search_quality.SETTINGS)


class PlannedRun(NamedTuple):
    """One run, and how it is asked for."""

    folder: str
    method: str
    seed: int
    module: str
    flags: tuple[str, ...]

    @property
    def name(self) -> str:
        """For its own folder and its log."""
        return f"{self.folder}-{self.method}-{self.seed}"


def list_all_runs() -> Iterator[PlannedRun]:
    """Every run of the tables once."""
    for setting in search_quality.SETTINGS:
        for method in search_quality.METHODS:
            for seed in SEEDS:
                yield PlannedRun(setting.folder, method, seed, "search_quality", ("--only", setting.folder))
    for cell in method_comparison.iterate_runs([task for task, _ in method_comparison.CASES]):
        if cell.method not in search_quality.METHODS or cell.folder.endswith("published"):
            yield PlannedRun(cell.folder, cell.method, cell.seed, "method_comparison", ("--only", cell.task))


def list_half_budget_runs(kept: Path) -> Iterator[PlannedRun]:
    """Runs with half of the budget, where those that call for them are kept."""
    for setting in search_quality.SETTINGS:
        if half_budget.has_gain(kept, setting):
            for seed in SEEDS:
                name = half_budget.half_budget_folder(setting)
                yield PlannedRun(name, half_budget.GUIDED, seed, "half_budget", ("--only", setting.folder))


def list_missing_runs(kept: Path, methods: Sequence[str], settings: Sequence[str]) -> list[PlannedRun]:
    """What is not kept: methods, and settings of a method, as they are named; with no settings named, of all."""
    parts = [*list_all_runs(), *list_half_budget_runs(kept)]
    wanted = [one for one in parts if one.method in methods and (not settings or one.folder in settings)]
    left = [one for one in wanted if not is_recorded(one.folder, one.method, one.seed, kept)]
    return sorted(left, key=lambda one: (methods.index(one.method), settings.index(one.folder) if settings else 0))


def build_command(part: PlannedRun, arguments: argparse.Namespace, minutes: float) -> list[str]:
    """How a part is run."""
    command = [sys.executable, "-m", f"experiments.{part.module}", arguments.model, *part.flags]
    command += ["--methods", part.method, "--seeds", str(part.seed), "--minutes", f"{minutes:.2f}"]
    command += ["--runs", str(arguments.runs / part.name), "--kept", str(arguments.kept)]
    command += ["--share", f"{arguments.memory / arguments.slots:.3f}"]
    command += ["--data-dir", str(arguments.data_dir)] if arguments.data_dir else []
    small = part.module != "method_comparison" and arguments.small
    return command + (["--small", arguments.small] if small else [])


def share_cores(slots: int) -> dict[str, str]:
    """The environment of one of so many processes: its share of the cores, unless the user has set it.

    Each would start a thread per core otherwise, and threads that wait for their turn keep the cores busy.
    """
    return {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // slots)), **os.environ}


def run_in_parallel(
    parts: Sequence[PlannedRun], slots: int, end: float, start: Callable[[PlannedRun], subprocess.Popen[bytes]]
) -> Iterator[tuple[PlannedRun, int | None]]:
    """Run parts, so many at a time, until they or the time is over; who has ended with what status, None if stopped."""
    # Where a shell has put us into the background interruptions are ignored, and so they would be by all we start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    waiting, running = list(parts), dict[PlannedRun, subprocess.Popen[bytes]]()
    try:
        while (waiting or running) and time.monotonic() < end:
            while waiting and len(running) < slots:
                running[waiting[0]] = start(waiting[0])
                waiting.pop(0)
            for part in [part for part, process in running.items() if process.poll() is not None]:
                yield part, running.pop(part).returncode
            time.sleep(0.2)
    finally:  # when somebody has had enough, too
        _interrupt(running)
    yield from ((part, None) for part in running)


def _interrupt(running: dict[PlannedRun, subprocess.Popen[bytes]]) -> None:
    for process in running.values():
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
    stop = time.monotonic() + _SECONDS_TO_END
    for process in running.values():
        try:
            process.wait(max(0.0, stop - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run_missing(arguments: argparse.Namespace) -> None:
    """Run and keep; what becomes known to be missing on the way is run, too."""
    began = time.monotonic()
    end = began + 60 * arguments.minutes
    tried = set[PlannedRun]()

    def start(part: PlannedRun) -> subprocess.Popen[bytes]:
        folder = arguments.runs / part.name
        folder.mkdir(parents=True, exist_ok=True)
        command = build_command(part, arguments, (end - time.monotonic()) / 60)
        with (folder / "log.txt").open("ab") as log:
            # A group of its own: an interruption from the keyboard comes through us, to all at once.
            return subprocess.Popen(  # noqa: S603
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=share_cores(arguments.slots),
            )

    while parts := [one for one in list_selected_missing_runs(arguments) if one not in tried]:
        tried |= set(parts)
        for part, status in run_in_parallel(parts, arguments.slots, end, start):
            added = record_runs(arguments.runs / part.name, arguments.kept)
            said = "kept" if added else "interrupted" if status is None else f"ended with {status} and nothing to keep"
            print(f"{time.monotonic() - began:6.0f} s  {part.name}: {said}", flush=True)
        if time.monotonic() > end:
            return


def list_selected_missing_runs(arguments: argparse.Namespace) -> list[PlannedRun]:
    """What the arguments ask for; without the small model nothing of it."""
    parts = list_missing_runs(arguments.kept, arguments.methods, arguments.settings)
    parts = [part for part in parts if str(part.seed) in arguments.seeds]
    return [part for part in parts if arguments.small or not part.folder.startswith("small-")]


def _parse_list(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def main() -> None:
    """Run, or list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--small")
    parser.add_argument("--runs", type=Path, default=Path("runs/side_by_side"))
    parser.add_argument("--kept", type=Path, default=RECORDED_RUNS)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--slots", type=int, default=10, help="runs at a time")
    parser.add_argument("--memory", type=float, default=_MEMORY, help="share of the GPU's, for all runs together")
    parser.add_argument("--methods", type=_parse_list, default=list(METHODS), help="in this order")
    parser.add_argument(
        "--settings", type=_parse_list, default=[], help="folders under experiments/raw/runs; all without it"
    )
    parser.add_argument("--seeds", type=_parse_list, default=_SEEDS, help="of these seeds only")
    parser.add_argument("--list", action="store_true", help="say what is missing and run nothing")
    arguments = parser.parse_args()
    folders = list(dict.fromkeys([*(one.folder for one in list_all_runs()), *HALVES]))
    for kind, wanted, known in (
        ("method", arguments.methods, METHODS),
        ("setting", arguments.settings, folders),
        ("seed", arguments.seeds, _SEEDS),
    ):
        if unknown := set(wanted) - set(known):
            sys.exit(f"no {kind}: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if arguments.slots < 1:
        sys.exit("--slots: one run at a time is the least")
    if not 0 < arguments.memory <= 1:
        sys.exit("--memory: a share, more than 0 and at most 1")
    if arguments.list or not arguments.model:
        arguments.small = arguments.small or "listed"
        print("\n".join(part.name for part in list_selected_missing_runs(arguments)) or "nothing is missing")
        return
    run_missing(arguments)


if __name__ == "__main__":
    main()
