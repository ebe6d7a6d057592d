"""The shared engine's figures: sharing on a real task, racing on a real task and on planted problems.

    python -m benchmarks.engine [--data-dir FOLDER] [--write docs/data/engine.json]

Exits with 1 when a target is missed. Takes about twenty minutes on two cores.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import write_record
from macro_routing.evaluation.bench import make_repeat_and_skip_routes, time_joint_route_scoring
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.planted_problem import TRAIN, PlantedProblem, simulate_race_of_draws
from macro_routing.evaluation.score_store import ScoreStore
from macro_routing.evaluation.scoring_settings import EXACT, NEVER, STATISTICAL, UnitSizes
from macro_routing.evaluation.work_items import group_examples_into_race_units, shuffle_indices_into_units
from macro_routing.models import FrozenModel, load_model
from macro_routing.routes import Route, RouteSpace, parse_route
from macro_routing.search import MarkovPolicy, Proposal, Round, Score
from macro_routing.search.macro import select_elite
from macro_routing.tasks import Example, Task, load_task, make_splits

SEED, DRAWS, ELITE, TARGET = 0, 30, 5, 85
COLUMNS = {
    "figure": "figure",
    "value": "reached (% of the limit)",
    "target": "target",
    "factor": "factor",
    "limit": "limit",
    "detail": "how",
}


def measure_sharing(data_dir: Path | None, model: str) -> list[dict[str, Any]]:
    """Seconds together against one after the other, and a race, on SciQ by likelihood."""
    frozen = load_model(model)
    task = load_task("sciq", data_dir=data_dir)
    training = make_splits(task, seed=SEED).train
    decoding = DecodingSettings("likelihood")
    policy = MarkovPolicy.make_prior(RouteSpace(frozen.layers))
    rng = np.random.default_rng(SEED)
    draws = [policy.sample_program(rng).to_route(frozen.layers) for _ in range(DRAWS)]
    figures = []
    for name, routes, count in (
        (f"{DRAWS} draws from the prior", draws, 24),
        ("all single repeats and skips", make_repeat_and_skip_routes(frozen.layers), 18),
    ):
        timing = time_joint_route_scoring(frozen, task, routes, training[:count], decoding)
        figures.append(
            {
                "figure": f"sharing, {name}",
                "value": 100 * timing["speedup"] / timing["limit"],
                "target": TARGET,
                "factor": timing["speedup"],
                "limit": timing["limit"],
                "detail": f"{timing['routes']} routes × {count} prompts of SciQ;"
                f" {timing['changed_verdicts']} verdicts changed",
                "measured": timing,
            }
        )
    return [*figures, measure_race(frozen, task, draws, training[:100], decoding)]


def measure_race(
    frozen: FrozenModel, task: Task, draws: list[Route], examples: Sequence[Example], decoding: DecodingSettings
) -> dict[str, Any]:
    """Evaluations that exact and statistical racing save on real prompts, against hindsight."""
    with tempfile.TemporaryDirectory() as folder:
        store = ScoreStore(Path(folder) / "scores.sqlite")
        evaluator = Evaluator(frozen, task, decoding, store)
        races = {mode: evaluator.race_draws(draws, examples, ELITE, mode) for mode in (EXACT, NEVER, STATISTICAL)}
        # Hindsight knows the elite, but sees the examples in the same order.
        in_order = [
            example
            for unit in group_examples_into_race_units(examples, evaluator.examples_per_unit)
            for example in unit
        ]
        scores = evaluator.evaluate(draws, in_order)
        store.close()
    table = np.array([scores[route].correct for route in draws], dtype=float)
    elite = select_elite(races[NEVER].outcomes, ELITE)
    same = {mode: select_elite(race.outcomes, ELITE) == elite for mode, race in races.items()}
    saved = {mode: race.stopped for mode, race in races.items()}
    saved["hindsight"] = count_saved_in_hindsight(table, [draws.index(route) for route in draws], ELITE)
    total = races[EXACT].requested - races[EXACT].duplicates
    factors = {mode: total / (total - count) for mode, count in saved.items()}
    return {
        "figure": "exact racing, SciQ",
        "value": 100 * saved[EXACT] / saved["hindsight"],
        "target": TARGET,
        "factor": factors[EXACT],
        "limit": factors["hindsight"],
        "detail": f"{ELITE} of {DRAWS} draws kept, {len(examples)} examples, fifth best at"
        f" {100 * table[elite[-1]].mean():.0f} %; elite {'the same' if same[EXACT] else 'DIFFERENT'}; statistical mode"
        f" {factors[STATISTICAL]:.2f}, its elite {'the same' if same[STATISTICAL] else 'different'}",
        "measured": {"evaluations": total, "saved": saved, "same_elite": same},
    }


def count_saved_in_hindsight(table: np.ndarray[Any, Any], first: Sequence[int], keep: int) -> int:
    """Evaluations saved if the elite were scored first and every other draw until it is out, one example at a time.

    ``table`` is draws × examples of credit; ``first`` is the earliest draw of the same route, which stands for all.
    """
    total = table.shape[1]
    losses = total - table.sum(axis=1)
    last = sorted((losses[draw], draw) for draw in range(len(table)))[keep - 1]
    saved = 0
    for draw in sorted(set(first)):
        lost = np.cumsum(1 - table[draw])
        out = np.flatnonzero([(value, draw) > last for value in lost])
        saved += total - 1 - int(out[0]) if len(out) else 0
    return saved


def measure_planted_race(name: str, peak: float, base: float) -> dict[str, Any]:
    """Races over planted problems: outcomes saved against hindsight, and how often the statistical elite differs."""
    rounds = 100
    sums = dict.fromkeys(("whole", "exact", "statistical", "hindsight"), 0)
    differs, accuracies = 0, []
    policy = MarkovPolicy.make_prior(RouteSpace(28, max_length=40))
    for seed in range(rounds):
        problem = PlantedProblem(parse_route("L0-L20 L19-L22 RJ", 28), base=base, peak=peak, reach=12, seed=seed)
        rng = np.random.default_rng([SEED, seed])
        routes = [policy.sample_program(rng).to_route(28) for _ in range(DRAWS)]
        asked = Round(0, tuple(Proposal(route) for route in routes), tuple(range(100)), keep=ELITE)
        table = np.array(
            [problem.simulate_which_examples_correct(route, TRAIN, asked.examples) for route in routes], dtype=float
        )
        elite = select_elite([Score(row.sum(), 100) for row in table], ELITE)
        accuracies.append(table[elite[-1]].mean())
        exact, statistical = (simulate_race_of_draws(problem, asked, mode) for mode in (EXACT, STATISTICAL))
        assert select_elite(exact, ELITE) == elite
        differs += select_elite(statistical, ELITE) != elite
        sums["whole"] += 100 * len(set(routes))
        sums["exact"] += _count_saved_evaluations(routes, exact)
        sums["statistical"] += _count_saved_evaluations(routes, statistical)
        in_order = [index for part in shuffle_indices_into_units(100, UnitSizes()) for index in part]
        sums["hindsight"] += count_saved_in_hindsight(
            table[:, in_order], [routes.index(route) for route in routes], ELITE
        )
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


def _count_saved_evaluations(routes: list[Route], outcomes: list[Any]) -> int:
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
        measure_planted_race("planted, good draws", peak=0.9, base=0.1),
        measure_planted_race("planted, poor draws", peak=0.35, base=0.02),
        *measure_sharing(arguments.data_dir, arguments.model),
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
