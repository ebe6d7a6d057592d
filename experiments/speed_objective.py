"""The objective speed on a real model: layers saved, and accuracy beside ShortGPT and early exit of the same length.

    python -m experiments.speed_objective MODEL --runs FOLDER [--data-dir FOLDER] [--minutes 20] [--only sciq]
        [--seeds 1,2] [--share 0.1] [--kept FILE]
    python -m experiments.speed_objective [--write docs/data/speed_objective.json]

The first runs what is missing and keeps a line a search; the second makes the table of what is kept. Settings, seeds
and the budget are those of ``search_quality``; the margin is the default.
"""

import argparse
import json
import time
import traceback
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import ROOT, current_commit, describe_run_hardware, write_record
from experiments.method_comparison import (
    BUDGET,
    SEEDS,
    add_selection_flags,
    check_selection,
    is_selected,
    limit_gpu_memory,
)
from experiments.recorded_runs import pack_verdicts, unpack_verdicts
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
    "returned": "faster route returned, of seeds",
}


def run_missing(arguments: argparse.Namespace) -> None:
    """Search by search while there is time."""
    from macro_routing.models import load_model

    end = time.monotonic() + 60 * arguments.minutes
    done = {(line["setting"], line["seed"]) for line in read_kept(arguments.kept)}
    frozen = load_model(arguments.model)
    for seed in SEEDS:
        for setting in parse_settings(arguments.only):
            skipped = setting.small or (setting.folder, seed) in done or not is_selected(arguments, FOUND, seed)
            if skipped or time.monotonic() > end:
                continue
            try:
                line = run_setting(arguments, setting, seed, frozen)
            except Exception:  # noqa: BLE001 one broken search must not cost the others
                traceback.print_exc()
                continue
            with arguments.kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{setting.folder}, seed {seed}: {line['verdict']} ({line['seconds']:.0f} s)", flush=True)


def run_setting(arguments: argparse.Namespace, setting: Setting, seed: int, frozen: Any) -> dict[str, Any]:
    """One search, then the peers' routes of the same length on the same test examples."""
    from macro_routing.routes.route import Route
    from macro_routing.runs import make_run_config
    from macro_routing.runs.folder import RUN
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
    header = json.loads((folder / RUN).read_text(encoding="utf-8"))
    return {
        "setting": setting.folder,
        "seed": seed,
        "model": Path(frozen.name).name,
        "commit": current_commit(),
        "hardware": describe_run_hardware(header),
        "layers": layers,
        "seconds": seconds,
        "verdict": result.verdict,
        "examples": [example.id for example in run.splits.test],
        "routes": {name: str(route) for name, route in routes.items()},
        "length": length,
        "right": {name: pack_verdicts(evaluations[route].correct) for name, route in routes.items()},
    }


def read_kept(path: Path) -> list[dict[str, Any]]:
    """All kept searches."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def make_rows(kept: Path) -> list[dict[str, Any]]:
    """A line per setting: means over seeds, intervals over examples."""
    from macro_routing.studies.paired_comparisons import estimate_difference_over_seeds

    rows = []
    lines = read_kept(kept)
    for setting in SETTINGS:
        same = [line for line in lines if line["setting"] == setting.folder]
        if not same:
            continue

        def read_correct(line: dict[str, Any], name: str) -> dict[str, bool]:
            # Where the standard pass was kept, the peers of the same length are the standard pass as well.
            verdicts = line["right"].get(name, line["right"][STANDARD])
            return dict(zip(line["examples"], unpack_verdicts(verdicts), strict=True))

        row: dict[str, Any] = {
            "setting": setting.name,
            "standard": 100 * float(np.mean([np.mean(list(read_correct(line, STANDARD).values())) for line in same])),
            "saved": 100 * float(np.mean([1 - line["length"] / line["layers"] for line in same])),
            "returned": f"{sum(line['length'] < line['layers'] for line in same)} of {len(same)}",
        }
        for name in (FOUND, SHORTGPT, EARLY_EXIT):
            if row["saved"] == 0:
                row[name] = "–"
                continue
            pairs = [(read_correct(line, STANDARD), read_correct(line, name)) for line in same]
            found = estimate_difference_over_seeds([pairs])
            row[name] = f"{100 * found.mean:+.1f} ({100 * found.low:+.1f} to {100 * found.high:+.1f})"
        row["raw"] = {str(line["seed"]): [line["length"], line["routes"]] for line in same}
        rows.append(row)
    return rows


def print_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Without the routes."""
    for row in rows:
        print({name: value for name, value in row.items() if name != "raw"})


def main() -> None:
    """Run, or collect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--runs", type=Path, default=Path("runs/speed_objective"))
    parser.add_argument("--kept", type=Path, default=KEPT)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--only", default="", help="tasks or folders, separated by commas")
    add_selection_flags(parser)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    check_selection(arguments, [FOUND])
    if arguments.model:
        arguments.runs.mkdir(parents=True, exist_ok=True)
        limit_gpu_memory(arguments.share)
        run_missing(arguments)
    rows = make_rows(arguments.kept)
    print_rows(rows)
    if arguments.write:
        lines = read_kept(arguments.kept)
        write_record(
            arguments.write,
            command="python -m experiments.speed_objective MODEL --runs FOLDER",
            config={"budget": BUDGET, "models": sorted({line["model"] for line in lines})},
            seed=", ".join(map(str, sorted({line["seed"] for line in lines}))),
            columns=COLUMNS,
            results=rows,
            where=", ".join(sorted({line["hardware"] for line in lines})),
            commits=", ".join(sorted({line["commit"] for line in lines})),
        )


if __name__ == "__main__":
    main()
