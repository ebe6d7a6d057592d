"""A single good route among bad ones: how often the guided search meets it, and believes it.

    python -m benchmarks.lonely_peak [--seeds 30] [--write docs/data/lonely_peak.json]

The planted family has slopes that lead to the target. Here is none: every route but two has the same score, below the
standard pass's, and like routes tell nothing.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import write_record
from macro_routing.evaluation.confirming import certainty, with_fresh
from macro_routing.evaluation.planted import TRAIN, VALIDATION, PlantedProblem, solve_planted
from macro_routing.routes.paper_notation import parse_program
from macro_routing.routes.route import Route
from macro_routing.routes.space import RouteSpace
from macro_routing.search.guided import GuidedSearch
from macro_routing.search.guided_settings import GuidedSettings

LAYERS, TRAINING, VALIDATED, BUDGET, STANDARD = 12, 200, 100, 8000, 0.5
TARGET = parse_program("L0-L6 L4 RJ").expand(LAYERS)
CASES = ((0.15, 0.15), (0.2, 0.3))
COLUMNS = {
    "gain": "its gain, points",
    "loss": "loss of all others, points",
    "searches": "searches",
    "finalist": "it is a finalist",
    "sure": "of these, fresh examples alone are sure of it",
    "chosen": "chosen",
}


@dataclass(frozen=True)
class LonelyPeak(PlantedProblem):
    """No slope: the target, the standard pass, and all others alike."""

    loss: float = 0.15

    def true_score(self, route: Route) -> float:
        """By what the route is, not by how near."""
        if route == self.target:
            return self.peak
        return STANDARD if route.is_standard else STANDARD - self.loss


def one(gain: float, loss: float, seed: int) -> tuple[bool, bool, bool]:
    """Whether the target is a finalist, whether fresh examples are sure of it, and whether it is chosen."""
    problem = LonelyPeak(TARGET, base=0.0, peak=STANDARD + gain, loss=loss, seed=seed)
    search = GuidedSearch(RouteSpace(LAYERS), TRAINING, BUDGET, GuidedSettings(), seed)
    solved = solve_planted(search, problem, training=TRAINING, validation=VALIDATED)

    def fresh(route: Route) -> Any:
        held, validated = search.holdout, range(VALIDATED)
        return np.concatenate([problem.flips(route, TRAIN, held), problem.flips(route, VALIDATION, validated)])

    sure = certainty(with_fresh(None, fresh(Route.standard(LAYERS)), fresh(TARGET))) >= 1 - search.max_error_probability
    return any(one.route == TARGET for one in solved.candidates), sure, solved.selected.route == TARGET


def main() -> None:
    """Run, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    found = []
    for gain, loss in CASES:
        runs = [one(gain, loss, seed) for seed in range(arguments.seeds)]
        finalists = [run for run in runs if run[0]]
        line = {"gain": round(100 * gain), "loss": round(100 * loss), "searches": len(runs)}
        line |= {"finalist": len(finalists), "sure": sum(run[1] for run in finalists)}
        found.append({**line, "chosen": sum(run[2] for run in runs), "raw": [list(map(int, run)) for run in runs]})
        print({name: found[-1][name] for name in COLUMNS}, flush=True)
    if arguments.write:
        config = {"layers": LAYERS, "training": TRAINING, "validation": VALIDATED, "budget": BUDGET}
        command = f"python -m benchmarks.lonely_peak --seeds {arguments.seeds}"
        write_record(arguments.write, command=command, config=config, seed=0, columns=COLUMNS, results=found)


if __name__ == "__main__":
    main()
