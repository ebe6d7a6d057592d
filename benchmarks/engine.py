"""The shared engine's figures: sharing on a real task, racing on a real task and on planted problems.

    python -m benchmarks.engine [--data-dir FOLDER] [--write docs/data/engine.json]

Exits with 1 when a target is missed. Takes about twenty minutes on two cores.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import write_record
from macro_routing.evaluation.decoding import Decoding
from macro_routing.evaluation.engine_bench import (
    as_record,
    block_sweep,
    measure_race,
    measure_sharing,
    saved_in_hindsight,
)
from macro_routing.evaluation.planted import TRAIN, PlantedProblem, race_planted_routes
from macro_routing.evaluation.racing import EXACT, STATISTICAL
from macro_routing.evaluation.units import UnitSizes, race_parts
from macro_routing.models import load_model
from macro_routing.routes import Route, RouteSpace, parse_route
from macro_routing.search import MarkovPolicy, Proposal, Round, Score
from macro_routing.search.macro import elite_of
from macro_routing.tasks import load_task, make_splits

SEED, DRAWS, ELITE, TARGET = 0, 30, 5, 85
COLUMNS = {
    "figure": "figure",
    "value": "reached (% of the limit)",
    "target": "target",
    "factor": "factor",
    "limit": "limit",
    "detail": "how",
}


def sharing(data_dir: Path | None, model: str) -> list[dict[str, Any]]:
    """Seconds together against one after the other, and a race, on SciQ by likelihood."""
    frozen = load_model(model)
    task = load_task("sciq", data_dir=data_dir)
    training = make_splits(task, seed=SEED).train
    decoding = Decoding("likelihood")
    policy = MarkovPolicy.prior(RouteSpace(frozen.layers))
    rng = np.random.default_rng(SEED)
    draws = [policy.sample(rng).expand(frozen.layers) for _ in range(DRAWS)]
    found = []
    for name, routes, count in (
        (f"{DRAWS} draws from the prior", draws, 24),
        ("all single repeats and skips", block_sweep(frozen.layers), 18),
    ):
        measured = measure_sharing(frozen, task, routes, training[:count], decoding)
        found.append(
            {
                "figure": f"sharing, {name}",
                "value": 100 * measured.share_of_limit,
                "target": TARGET,
                "factor": measured.speedup,
                "limit": measured.limit,
                "detail": f"{measured.routes} routes × {count} prompts of SciQ; log-likelihoods within"
                f" {measured.largest_difference:.0e}, {measured.changed_verdicts} verdicts changed",
                "measured": as_record(measured),
            }
        )
    race = measure_race(frozen, task, draws, training[:100], ELITE, decoding)
    found.append(
        {
            "figure": "exact racing, SciQ",
            "value": 100 * race.share_of_hindsight,
            "target": TARGET,
            "factor": race.factor(race.by_racing),
            "limit": race.factor(race.by_hindsight),
            "detail": f"{ELITE} of {DRAWS} draws kept, 100 examples, fifth best at {100 * race.elite_accuracy:.0f} %;"
            f" elite {'the same' if race.same_elite else 'DIFFERENT'}; statistical mode"
            f" {race.factor(race.by_statistics):.2f}, its elite"
            f" {'the same' if race.statistical_same_elite else 'different'}",
            "measured": as_record(race),
        }
    )
    return found


def planted(name: str, peak: float, base: float) -> dict[str, Any]:
    """Races over planted problems: outcomes saved against hindsight, and how often the statistical elite differs."""
    rounds = 100
    sums = dict.fromkeys(("whole", "exact", "statistical", "hindsight"), 0)
    differs, accuracies = 0, []
    policy = MarkovPolicy.prior(RouteSpace(28, max_length=40))
    for seed in range(rounds):
        problem = PlantedProblem(parse_route("L0-L20 L19-L22 RJ", 28), base=base, peak=peak, reach=12, seed=seed)
        rng = np.random.default_rng([SEED, seed])
        routes = [policy.sample(rng).expand(28) for _ in range(DRAWS)]
        asked = Round(0, tuple(Proposal(route) for route in routes), tuple(range(100)), keep=ELITE)
        table = np.array([problem.flips(route, TRAIN, asked.examples) for route in routes], dtype=float)
        elite = elite_of([Score(row.sum(), 100) for row in table], ELITE)
        accuracies.append(table[elite[-1]].mean())
        exact, statistical = (race_planted_routes(problem, asked, mode) for mode in (EXACT, STATISTICAL))
        assert elite_of(exact, ELITE) == elite
        differs += elite_of(statistical, ELITE) != elite
        sums["whole"] += 100 * len(set(routes))
        sums["exact"] += _saved(routes, exact)
        sums["statistical"] += _saved(routes, statistical)
        in_order = [place for part in race_parts(100, UnitSizes()) for place in part]
        sums["hindsight"] += saved_in_hindsight(table[:, in_order], [routes.index(route) for route in routes], ELITE)
    left = {key: sums["whole"] / (sums["whole"] - saved) for key, saved in sums.items() if key != "whole"}
    return {
        "figure": f"exact racing, {name}",
        "value": 100 * sums["exact"] / sums["hindsight"],
        "target": TARGET,
        "factor": left["exact"],
        "limit": left["hindsight"],
        "detail": f"{rounds} rounds of {DRAWS} draws, 100 flips, fifth best at {100 * np.mean(accuracies):.0f} %;"
        f" statistical mode {left['statistical']:.2f}, its elite differs in {differs} of {rounds} rounds",
        "measured": {**sums, "rounds": rounds, "statistical_differs": differs},
    }


def _saved(routes: list[Route], outcomes: list[Any]) -> int:
    by_route = dict(zip(routes, outcomes, strict=True))
    return sum(0 if isinstance(one, Score) else one.total - one.scored for one in by_route.values())


def main() -> None:
    """Measure, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--write", type=Path, help="write the measurements to this JSON file")
    arguments = parser.parse_args()
    results = [
        planted("planted, good draws", peak=0.9, base=0.1),
        planted("planted, poor draws", peak=0.35, base=0.02),
        *sharing(arguments.data_dir, arguments.model),
    ]
    for result in results:
        verdict = "met" if result["value"] >= result["target"] else "MISSED"
        print(
            f"{result['figure']:<42} {result['value']:6.1f} % of the limit (target {result['target']}: {verdict}),"
            f" factor {result['factor']:.2f} of {result['limit']:.2f}; {result['detail']}"
        )
    if arguments.write:
        write_record(
            arguments.write,
            command=f"python -m benchmarks.engine --write docs/data/{arguments.write.name}",
            config={"model": arguments.model, "draws": DRAWS, "elite": ELITE},
            seed=SEED,
            columns=COLUMNS,
            results=results,
        )
    sys.exit(any(result["value"] < result["target"] for result in results))


if __name__ == "__main__":
    main()
