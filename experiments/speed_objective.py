"""The objective speed on a real model: layers saved, and accuracy beside ShortGPT and early exit of the same length.

    python -m experiments.speed_objective MODEL --runs FOLDER [--data-dir FOLDER] [--minutes 20] [--only sciq]
        [--seeds 1,2] [--share 0.1] [--kept FILE]
    python -m experiments.speed_objective [--write docs/data/speed_objective.json]

The first runs what is missing and keeps a line a search; the second makes the table of what is kept. Settings, seeds
and the budget are those of ``search_quality``; the margin is the default.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import ROOT
from experiments.kept_searches import (
    Job,
    Line,
    describe_search,
    format_difference,
    print_rows,
    read_correct,
    read_kept,
    run_missing,
    write_kept_record,
)
from experiments.method_comparison import BUDGET, SEEDS, is_selected, make_parser
from experiments.search_quality import SETTINGS, Setting, parse_settings

KEPT = ROOT / "experiments" / "raw" / "speed_objective.jsonl"
OBJECTIVE = "speed"
STANDARD, FOUND, SHORTGPT, EARLY_EXIT = "standard", "speed", "shortgpt", "early-exit"
COLUMNS = {
    "setting": "setting",
    "standard": "standard (%)",
    "saved": "layers saved (%)",
    FOUND: "accuracy change, points (95 % interval)",
    SHORTGPT: "ShortGPT, same number of layers",
    EARLY_EXIT: "early exit, same number of layers",
    "returned": "route with fewer layers returned, of seeds",
}


def list_missing(arguments: argparse.Namespace, frozen: Any) -> Iterator[Job]:
    """Searches that are not kept yet."""
    done = {(line["setting"], line["seed"]) for line in read_kept(arguments.kept)}
    for seed in SEEDS:
        for setting in parse_settings(arguments.only):
            if not setting.small and (setting.folder, seed) not in done and is_selected(arguments, FOUND, seed):
                yield f"{setting.folder}, seed {seed}", partial(run_setting, arguments, setting, seed, frozen)


def run_setting(arguments: argparse.Namespace, setting: Setting, seed: int, frozen: Any) -> Line:
    """One search, then the peers' routes of the same length on the same test examples."""
    from macro_routing.routes.route import Route
    from macro_routing.runs import make_run_config
    from macro_routing.runs.prepare import measure_layer_influence, prepare_run, run_search
    from macro_routing.search.fixed_route_count_search import list_early_exit_routes, list_layer_drop_routes

    data = {"data_dir": str(arguments.data_dir)} if arguments.data_dir else {}
    config = make_run_config(
        setting.task,
        arguments.model,
        "paper",
        method="guided",
        seed=seed,
        budget=arguments.budget,
        data=data,
        decoding={"mode": setting.mode},
        decision={"objective": OBJECTIVE},
    )
    folder, store = arguments.runs / f"{setting.folder}-{seed}", arguments.runs / f"{setting.folder}-{seed}.sqlite"
    start = time.perf_counter()
    result = run_search(config, folder, frozen=frozen, store=store)
    seconds = time.perf_counter() - start
    run = prepare_run(config, frozen=frozen, store=store)
    length, layers = result.best_route.length, frozen.layers
    routes = {STANDARD: Route.standard(layers), FOUND: result.best_route}
    if length < layers:
        influence = measure_layer_influence(run.evaluator, run.splits.train)
        routes[SHORTGPT] = list_layer_drop_routes(influence, layers - length)[-1]
        routes[EARLY_EXIT] = list_early_exit_routes(layers)[length - 1]
    with closing(run.score_store):
        evaluations = run.evaluator.evaluate(routes.values(), run.splits.test)
    correct = {name: evaluations[route].correct for name, route in routes.items()}
    return {
        "setting": setting.folder,
        "seed": seed,
        "seconds": seconds,
        "length": length,
        "routes": {name: str(route) for name, route in routes.items()},
        **describe_search(frozen, folder, result, run.splits.test, correct),
    }


def make_rows(kept: Path) -> list[Line]:
    """A line per setting: means over seeds, intervals over examples."""
    rows = []
    lines = read_kept(kept)
    for setting in SETTINGS:
        same = [line for line in lines if line["setting"] == setting.folder]
        if not same:
            continue
        for (
            line
        ) in same:  # where the standard pass was kept, the peers of the same length are the standard pass as well
            line["right"] = dict.fromkeys((SHORTGPT, EARLY_EXIT), line["right"][STANDARD]) | line["right"]
        row: Line = {
            "setting": setting.name,
            "standard": 100 * float(np.mean([np.mean(list(read_correct(line, STANDARD).values())) for line in same])),
            "saved": 100 * float(np.mean([1 - line["length"] / line["layers"] for line in same])),
            "returned": f"{sum(line['length'] < line['layers'] for line in same)} of {len(same)}",
        }
        for name in (FOUND, SHORTGPT, EARLY_EXIT):
            row[name] = format_difference(same, name, STANDARD) if row["saved"] else "–"
        row["raw"] = {str(line["seed"]): [line["length"], line["routes"]] for line in same}
        rows.append(row)
    return rows


def main() -> None:
    """Run, or collect."""
    parser = make_parser(__doc__, "runs/speed_objective", KEPT)
    parser.add_argument("--budget", type=int, default=BUDGET)
    arguments = parser.parse_args()
    run_missing(arguments, FOUND, list_missing)
    rows = make_rows(arguments.kept)
    print_rows(rows)
    if arguments.write:
        lines = read_kept(arguments.kept)
        write_kept_record(arguments.write, "experiments.speed_objective", lines, COLUMNS, rows, budget=BUDGET)


if __name__ == "__main__":
    main()
