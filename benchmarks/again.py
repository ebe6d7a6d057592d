"""Kept routes on their test sets once more: is what the tables say still what comes out?

    python -m benchmarks.again MODEL --small SMALL_MODEL [--data-dir FOLDER] [--only sciq,svamp] [--unmeasured]
    python -m benchmarks.again [--write docs/data/again.json]

The first tells for every kept route how far its gain and its verdicts are from what was kept, which stays as it is. A
run that was kept without verdicts, of which only the route was recorded, gets those of this measurement; with
``--unmeasured`` nothing else is done. The second makes the table of those.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.cells import (
    Cell,
    made_by,
    note_test_set,
    origin_of,
    packed,
    plain,
    read_cells,
    test_set,
    unpacked,
    write_cells,
)
from benchmarks.peers import BUDGET, SEEDS, config
from benchmarks.record import write_record
from benchmarks.search_quality import SETTINGS, Setting, chosen_settings
from macro_routing.models import load_model
from macro_routing.models.frozen import FrozenModel
from macro_routing.routes.paper_notation import parse_program
from macro_routing.routes.route import Route
from macro_routing.runs import RunConfig
from macro_routing.runs.result import ROUTE, SELECTED, STANDARD, RunResult, make_result
from macro_routing.runs.starting import prepare


def measured(cell: Cell, base: RunConfig, **known: Any) -> tuple[Cell, str]:
    """A kept run, now with verdicts in any case, and what was seen; ``known`` is what need not be loaded."""
    run = prepare(dataclasses.replace(base, seed=cell["seed"]), **known)
    layers = run.evaluator.frozen.layers
    chosen, standard = parse_program(cell["result"]["route"]).expand(layers), Route.standard(layers)
    test = run.splits.test
    tested = run.evaluator.evaluate([chosen, standard], test)
    run.store.close()
    arms = [(SELECTED[cell["method"]], tested[chosen]), (STANDARD, tested[standard])]
    result = make_result(arms, chosen, cell["seed"], "")
    right = {name: packed(one.correct) for name, one in arms}
    seen = f"{100 * result.comparison.difference:+.2f} points"
    if "right" in cell:
        before = RunResult.from_json(cell["result"]).comparison.difference
        changed = [differing(right[name], cell["right"][name]) for name in right]
        return (
            cell,
            f"{seen}, {100 * before:+.2f} kept; other verdicts: {changed[0]}, standard {changed[1]} of {len(test)}",
        )
    names = [example.id for example in test]
    note_test_set(names)
    found = {"test": test_set(names), "right": right, "result": plain(result)}
    return {**cell, **made_by(run.header()), **found}, f"{seen}, {100 * cell['earlier']['difference']:+.2f} before"


def differing(one: str, other: str) -> int:
    """How many verdicts are not the same."""
    return sum(a != b for a, b in zip(unpacked(one), unpacked(other), strict=True))


COLUMNS = {
    "mode": "answers",
    "routes": "routes",
    "same": "of these with the very same gain",
    "mean": "mean change of the gain, points",
    "largest": "largest, points",
}


def _repeated_runs(setting: Setting) -> list[Cell]:
    """Runs of a setting that were recorded before, and measured again."""
    cells = [*read_cells(setting.folder), *read_cells(setting.earlier_folder)]
    return [cell for cell in cells if "earlier" in cell and "right" in cell]


def repeated() -> list[dict[str, Any]]:
    """By way to answer: what measuring again has changed of the gains."""
    changes: dict[str, list[float]] = {}
    for setting in SETTINGS:
        for cell in _repeated_runs(setting):
            now = RunResult.from_json(cell["result"]).comparison.difference
            changes.setdefault(setting.mode, []).append(round(100 * abs(now - cell["earlier"]["difference"]), 6))
    return [
        {
            "mode": mode,
            "routes": len(some),
            "same": sum(one == 0 for one in some),
            "mean": sum(some) / len(some),
            "largest": max(some),
            "raw": some,
        }
        for mode, some in changes.items()
    ]


def main() -> None:
    """Measure, or tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--small")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--only", default="", help="tasks or folders, separated by commas")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--unmeasured", action="store_true", help="only runs that were kept without verdicts")
    arguments = parser.parse_args()
    if arguments.model:
        measure_all(arguments)
    found = repeated()
    for line in found:
        print({name: line[name] for name in COLUMNS})
    if arguments.write:
        write_record(
            arguments.write,
            command="python -m benchmarks.again MODEL --small SMALL_MODEL --unmeasured",
            seed=", ".join(map(str, SEEDS)),
            columns=COLUMNS,
            results=found,
            **origin_of([cell for setting in SETTINGS for cell in _repeated_runs(setting)]),
        )


def measure_all(arguments: argparse.Namespace) -> None:
    """Setting by setting."""
    loaded: dict[str, FrozenModel] = {}
    for setting in chosen_settings(arguments.only):
        name = arguments.small if setting.small else arguments.model
        cells = read_cells(setting.folder)
        if name is None or not cells:
            continue
        base = config(name, setting.task, setting.mode, arguments.data_dir, BUDGET)
        for number, cell in enumerate(cells):
            is_route = cell["result"].get("kind", ROUTE) == ROUTE
            if not is_route or (arguments.unmeasured and "right" in cell):
                continue
            frozen = loaded.get(name) or loaded.setdefault(name, load_model(name))
            # Nothing that was scored before may answer for the model.
            with tempfile.TemporaryDirectory() as scratch:
                cells[number], told = measured(cell, base, frozen=frozen, store=Path(scratch) / "scores.sqlite")
            write_cells(setting.folder, cells)
            print(f"{setting.name}, {cell['method']}, seed {cell['seed']}: {told}", flush=True)


if __name__ == "__main__":
    main()
