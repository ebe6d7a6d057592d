"""The objective speed on planted problems: some layers can be left out without loss, all other changes cost accuracy.

    python -m experiments.planted_speed [--first 1000] [--problems 120] [--processes 2] [--runs FILE] [--write FILE]

What can be saved is known, and so is the true loss of what is returned. Outcomes of routes agree on most examples, as
those of a real model do.
"""

import argparse
import json
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import write_record
from experiments.planted_family import BUDGET, LAYERS, SPACE, TRAINING, VALIDATION
from macro_routing.evaluation.planted_problem import PlantedProblem, solve_planted
from macro_routing.evaluation.statistics import wilson_interval
from macro_routing.routes.route import Route
from macro_routing.search.decision_settings import SPEED, DecisionSettings
from macro_routing.search.guided import GuidedSearch
from macro_routing.search.guided_settings import GuidedSettings

STANDARD_SCORES = (0.5, 0.7, 0.85)
LOSS_PER_EDIT = 0.04
MOST_UNNEEDED = 6
_OWN_SHARE = 0.15
"""Of the examples, how many a route answers by a draw of its own: about as many as real routes disagree on."""
_LAYERS_STREAM, _EXAMPLES_STREAM = 11, 12
DECISION = DecisionSettings(SPEED)
COLUMNS = {
    "unneeded": "layers that can be left out",
    "saved_share": "share of them saved (%)",
    "low": "95 % interval, from",
    "high": "to",
    "returned_percent": "route with fewer layers returned (%)",
    "true_percent": "claim true (%)",
    "n": "problems",
}


@dataclass(frozen=True)
class UnneededLayersProblem(PlantedProblem):
    """A planted problem in which leaving out ``unneeded`` layers costs nothing; the target leaves out all of them."""

    unneeded: frozenset[int] = frozenset()

    def true_score(self, route: Route) -> float:
        """The standard pass's score, less for every edit but leaving out unneeded layers."""
        return max(0.0, self.peak - LOSS_PER_EDIT * count_costly_edits(route, self.unneeded))

    def simulate_which_examples_correct(self, route: Route, split: str, examples: Sequence[int]) -> NDArray[np.bool_]:
        """Most examples are drawn once for all routes, the others for this route alone."""
        stream = [self.seed, _EXAMPLES_STREAM, len(split)]
        common = np.random.default_rng(stream).random(max(examples) + 1)[list(examples)]
        own = np.random.default_rng([*stream, *str(route).encode()]).random((2, max(examples) + 1))[:, list(examples)]
        return np.where(own[0] < _OWN_SHARE, own[1], common) < self.true_score(route)


def count_costly_edits(route: Route, unneeded: frozenset[int]) -> int:
    """Fewest edits that make the route of the standard pass, where leaving out an unneeded layer is free."""
    left_out = np.array([layer not in unneeded for layer in range(route.layers)], dtype=int)
    row = np.concatenate([[0], np.cumsum(left_out)])
    for step in route.steps:
        same = np.array([step.add is None and step.layer == layer for layer in range(route.layers)])
        best = np.concatenate([[row[0] + 1], np.minimum(row[1:] + 1, row[:-1] + ~same)])
        for column in range(1, len(best)):
            best[column] = min(best[column], best[column - 1] + left_out[column - 1])
        row = best
    return int(row[-1])


def make_problem(seed: int) -> UnneededLayersProblem:
    """The problem of a seed: accuracy by turns, one to six unneeded layers; the first layer is always needed."""
    rng = np.random.default_rng([seed, _LAYERS_STREAM])
    count = 1 + seed // len(STANDARD_SCORES) % MOST_UNNEEDED
    unneeded = frozenset(map(int, rng.choice(np.arange(1, LAYERS), count, replace=False)))
    target = Route.from_layers([layer for layer in range(LAYERS) if layer not in unneeded], LAYERS)
    score = STANDARD_SCORES[seed % len(STANDARD_SCORES)]
    return UnneededLayersProblem(target, base=0.0, peak=score, seed=seed, unneeded=unneeded)


def run_search(seed: int) -> dict[str, Any]:
    """One search on one problem."""
    problem = make_problem(seed)
    searcher = GuidedSearch(SPACE, TRAINING, BUDGET, GuidedSettings(), seed, DECISION)
    route = solve_planted(searcher, problem, training=TRAINING, validation=VALIDATION).selected.route
    loss = problem.peak - problem.true_score(route)
    return {
        "seed": seed,
        "route": str(route),
        "unneeded": len(problem.unneeded),
        "saved": LAYERS - route.length,
        "is_true": loss <= DECISION.margin / 100,
    }


def make_rows(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """By number of unneeded layers, and for all."""
    rows = []
    for count in [*sorted({run["unneeded"] for run in runs}), "all"]:
        same = [run for run in runs if count in (run["unneeded"], "all")]
        # What was saved by a route that is worse than allowed does not count.
        shares = 100 * np.array([run["is_true"] * min(1.0, run["saved"] / run["unneeded"]) for run in same])
        error = 1.96 * shares.std(ddof=1) / len(shares) ** 0.5 if len(shares) > 1 else 0.0
        rows.append(
            {
                "unneeded": count,
                "saved_share": float(shares.mean()),
                "low": float(shares.mean() - error),
                "high": float(shares.mean() + error),
                "returned_percent": 100 * float(np.mean([run["saved"] > 0 for run in same])),
                "true_percent": 100 * float(np.mean([run["is_true"] for run in same])),
                "n": len(same),
            }
        )
    return rows


def main() -> None:
    """Run, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--problems", type=int, default=120)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--runs", type=Path, help="keeps every run, so that the command can be stopped and repeated")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    lines = (
        arguments.runs.read_text(encoding="utf-8").splitlines() if arguments.runs and arguments.runs.is_file() else []
    )
    runs = {run["seed"]: run for run in map(json.loads, lines)}
    seeds = range(arguments.first, arguments.first + arguments.problems)
    with ProcessPoolExecutor(arguments.processes) as pool:
        for run in pool.map(run_search, [seed for seed in seeds if seed not in runs]):
            runs[run["seed"]] = run
            if arguments.runs:
                with arguments.runs.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(run) + "\n")
    rows = make_rows([runs[seed] for seed in seeds])
    for row in rows:
        print(row)
    low, high = wilson_interval(rows[-1]["true_percent"] / 100, rows[-1]["n"])
    print(f"claim true: 95 % interval {100 * low:.1f} to {100 * high:.1f} %")
    if arguments.write:
        write_record(
            arguments.write,
            command=f"python -m experiments.planted_speed --first {arguments.first} --problems {arguments.problems}",
            config={"layers": LAYERS, "training": TRAINING, "validation": VALIDATION, "budget": BUDGET},
            seed=arguments.first,
            columns=COLUMNS,
            results=rows,
        )


if __name__ == "__main__":
    main()
