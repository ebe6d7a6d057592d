"""All methods on one model over tasks and seeds at one budget, in parts that can be resumed.

    python -m experiments.method_comparison MODEL --runs FOLDER [--data-dir FOLDER] [--minutes 20] [--only sciq,svamp]
        [--methods cola] [--seeds 1,2] [--share 0.1]
    python -m experiments.method_comparison [--write docs/data/peers.json]

The first runs what is missing, the second makes the table of what is kept (``experiments.recorded_runs``).

Each task is a comparison under FOLDER. Nothing begins after the minutes are over; what was not run is listed as such.
Parts with different tasks, methods or seeds may run beside each other on one GPU, each with a FOLDER of its own and its
``--share`` of the memory; the seconds in the table are then those of a part of it.
Beside the common budget two peers run once, on the first task, at their published settings: RYS's full sweep with four
times the examples, Dr.LLM with 100 examples and 10 simulations.
"""

import argparse
import math
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.record import write_record
from experiments.recorded_runs import (
    RECORDED_RUNS,
    describe_comparisons_origin,
    is_recorded,
    read_recorded_runs,
    read_records,
)

CASES = (("sciq", "likelihood"), ("arc_easy", "likelihood"), ("counting", "direct"), ("svamp", "direct"))
SEEDS = (1, 2, 42)
ROUTES = ("macro", "macro-restarts", "random", "rys", "shortgpt", "early-exit")
TREES = ("drllm", "drllm-ext", "cola")
METHODS = (*ROUTES, *TREES)
BUDGET = 43_500
"""What MACRO under the paper's settings asks for with 1,000 training examples."""
PUBLISHED = {"rys": 4 * BUDGET, "drllm": 100 * 11}
"""Budgets of the rows at published settings; a tree of ten simulations begins with the standard pass."""
COLUMNS = {
    "task": "task",
    "method": "method",
    "seeds": "seeds",
    "accuracy": "test (%)",
    "spread": "± over seeds",
    "difference": "difference, points (95 % interval)",
    "asked": "evaluations",
    "seconds": "search (s)",
    "layers": "layers run",
}


class RunRecord(NamedTuple):
    """One run of the table."""

    seed: int
    task: str
    mode: str
    method: str
    budget: int
    folder: str


def iterate_runs(tasks: Sequence[str]) -> Iterator[RunRecord]:
    """Methods that find a route for all seeds, tree searches for one, the published settings, the rest."""
    yield from _iterate_common_runs(tasks, ROUTES, SEEDS)
    yield from _iterate_common_runs(tasks, TREES, SEEDS[:1])
    task, mode = CASES[0]
    if task in tasks:
        for method, budget in PUBLISHED.items():
            yield RunRecord(SEEDS[0], task, mode, method, budget, f"{task}-{mode}-{method}-published")
    yield from _iterate_common_runs(tasks, TREES, SEEDS[1:])


def _iterate_common_runs(tasks: Sequence[str], methods: Sequence[str], seeds: Sequence[int]) -> Iterator[RunRecord]:
    """Cells at the common budget."""
    for seed in seeds:
        for task, mode in CASES:
            if task in tasks:
                for method in methods:
                    yield RunRecord(seed, task, mode, method, BUDGET, f"{task}-{mode}")


def run_missing(arguments: argparse.Namespace) -> None:
    """Compare cell by cell while there is time; the model is loaded once."""
    from macro_routing.models import load_model
    from macro_routing.runs.compare_methods import compare_methods
    from macro_routing.runs.comparison_results import read_method_runs

    end = time.monotonic() + 60 * arguments.minutes
    model, runs, tasks = arguments.model, arguments.runs, parse_tasks(arguments.only)
    # A store per part: parts at the same time do not wait for each other's writing.
    known: dict[str, Any] = {"store": runs / f"scores-{'-'.join(tasks)}.sqlite"}
    for cell in iterate_runs(tasks):
        if time.monotonic() > end:
            return
        run = cell.method, cell.seed
        done = any((arm.method, arm.seed) == run for arm in read_method_runs(runs / cell.folder))
        if done or is_recorded(cell.folder, *run, arguments.kept) or not is_selected(arguments, *run):
            continue
        known["frozen"] = known.get("frozen") or load_model(model)
        base = make_run_config(model, cell.task, cell.mode, arguments.data_dir, cell.budget)
        try:
            # One point: of a curve nothing is kept.
            (arm,) = compare_methods(base, [cell.method], [cell.seed], runs / cell.folder, points=1, **known)
        except Exception:  # noqa: BLE001 a table takes hours; one broken cell must not cost the others
            traceback.print_exc()
            continue
        print(f"{cell.folder}, {cell.method}, seed {cell.seed}: {arm.result.verdict} ({arm.seconds:.0f} s)", flush=True)


def make_parser(description: str | None, runs: str, kept: Path = RECORDED_RUNS) -> argparse.ArgumentParser:
    """What all commands have that run what is missing, in parts, or make the tables of what is kept."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--runs", type=Path, default=Path(runs))
    parser.add_argument("--kept", type=Path, default=kept)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--only", default="", help="tasks or folders, separated by commas; all without it")
    parser.add_argument("--methods", type=_split_names, help="separated by commas; all without it")
    parser.add_argument("--seeds", type=_split_names, help="separated by commas; all without it")
    parser.add_argument("--share", type=float, help="of the GPU's memory, where several run beside each other")
    parser.add_argument("--write", type=Path)
    return parser


def _split_names(text: str) -> set[str]:
    return {name.strip() for name in text.split(",")}


def is_selected(arguments: argparse.Namespace, method: str, seed: int) -> bool:
    """Whether a run belongs to the part that was asked for."""
    methods, seeds = arguments.methods, arguments.seeds
    return (not methods or method in methods) and (not seeds or str(seed) in seeds)


def check_selection(arguments: argparse.Namespace, methods: Sequence[str]) -> None:
    """Refuse names that no run has: nothing would be run, and nobody told."""
    for kind, wanted, known in (("method", arguments.methods, methods), ("seed", arguments.seeds, map(str, SEEDS))):
        there = list(known)
        if unknown := (wanted or set()) - set(there):
            sys.exit(f"no {kind} of this table: {', '.join(sorted(unknown))}; there are {', '.join(there)}")


def parse_tasks(names: str) -> list[str]:
    """Tasks by name, separated by commas; all without a name."""
    known = [task for task, _ in CASES]
    wanted = [name.strip() for name in names.split(",")] if names else known
    if unknown := set(wanted) - set(known):
        sys.exit(f"no task of this table: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return wanted


def limit_gpu_memory(share: float | None) -> None:
    """Leave the rest of the GPU's memory to others."""
    import torch

    if share and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(share)


def make_run_config(model: str, task: str, mode: str, data_dir: Path | None, budget: int) -> Any:
    """The paper's settings on a task."""
    from macro_routing.runs import make_run_config

    data = {"data_dir": str(data_dir)} if data_dir else {}
    return make_run_config(task, model, "paper", budget=budget, data=data, decoding={"mode": mode})


def make_table_rows(kept: Path, task: str, mode: str) -> list[dict[str, Any]]:
    """The lines of one task; methods without any run are listed as not run."""
    from macro_routing.runs.comparison_results import summarize_methods
    from macro_routing.runs.methods import METHODS as KNOWN

    arms = read_recorded_runs(f"{task}-{mode}", kept)
    lines = [_make_row(f"{task}, {mode}", row) for row in summarize_methods(arms)] if arms else []
    done = {line["method"] for line in lines}
    lines += [
        {"task": f"{task}, {mode}", "method": KNOWN[name].title, "difference": "not run"}
        for name in METHODS
        if KNOWN[name].title not in done
    ]
    for arm in [arm for method in PUBLISHED for arm in read_recorded_runs(f"{task}-{mode}-{method}-published", kept)]:
        (row,) = (one for one in summarize_methods([arm]) if one.name == KNOWN[arm.method].title)
        lines.append({**_make_row(f"{task}, {mode}", row), "method": f"{row.name}, published settings"})
    return lines


ORACLE_COLUMNS = {
    "task": "task",
    "right": "correct by the standard pass",
    "shorter": "of these with a shorter correct path",
    "wrong": "wrong",
    "fixed": "of these with a correct path",
    "simulations": "simulations",
}


def make_oracle_rows(kept: Path) -> list[dict[str, Any]]:
    """CoLA's two statements, by task, counts over all seeds."""
    found = []
    for task, mode in CASES:
        facts = [cell["oracle"] for cell in read_records(f"{task}-{mode}", kept) if "oracle" in cell]
        sums = {name: sum(one[name] for one in facts) for name in (facts[0] if facts else {})}
        line: dict[str, Any] = {"task": f"{task}, {mode}"}
        if sums:
            line |= {"right": sums["already_right"], "wrong": sums["wrong"], "simulations": sums["simulations"]}
            line["shorter"] = _format_share(sums["of_these_shorter"], sums["already_right"])
            line["fixed"] = _format_share(sums["of_these_fixed"], sums["wrong"])
        found.append({**line, "raw": facts} if sums else {**line, "right": "not run"})
    return found


def _format_share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.1f} %)" if whole else "0"


def _make_row(task: str, row: Any) -> dict[str, Any]:
    costs = {"asked": row.asked, "seconds": row.seconds, "work": row.work}
    return {
        "task": task,
        "method": row.name,
        "seeds": row.seeds,
        "accuracy": 100 * row.accuracy,
        "spread": None if row.spread is None else 100 * row.spread,
        "difference": f"{100 * row.difference:+.1f} ({100 * row.low:+.1f} to {100 * row.high:+.1f})",
        "layers": row.layers,
        "kind": row.kind,
        # What was not recorded of one run is not known of their mean.
        **{name: None if math.isnan(cost) else cost for name, cost in costs.items()},
    }


def main() -> None:
    """Run, or collect."""
    arguments = make_parser(__doc__, "runs/peers").parse_args()
    check_selection(arguments, METHODS)
    if arguments.model:
        arguments.runs.mkdir(parents=True, exist_ok=True)
        limit_gpu_memory(arguments.share)
        run_missing(arguments)
    results = [line for task, mode in CASES for line in make_table_rows(arguments.kept, task, mode)]
    for line in results:
        print({name: line.get(name) for name in COLUMNS})
    if arguments.write:
        folders = dict.fromkeys(cell.folder for cell in iterate_runs([task for task, _ in CASES]))
        common: dict[str, Any] = {
            "command": "python -m experiments.method_comparison MODEL --runs FOLDER",
            "seed": ", ".join(map(str, SEEDS)),
            **describe_comparisons_origin(folders, arguments.kept, budget=BUDGET),
        }
        write_record(arguments.write, columns=COLUMNS, results=results, **common)
        oracle = arguments.write.with_name(f"{arguments.write.stem}_oracle.json")
        write_record(oracle, columns=ORACLE_COLUMNS, results=make_oracle_rows(arguments.kept), **common)


if __name__ == "__main__":
    main()
