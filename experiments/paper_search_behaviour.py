"""What the paper's settings make of a good standard pass: what the prior draws, and how early the search settles.

    python -m experiments.paper_search_behaviour [--write docs/data/search_behaviour.json]

No model: routes are counted, and searches run on planted problems, where the best route is one skip away from the
standard pass and the true scores are known. The figures describe the method; they have no targets. A second table says
when it gains: every deviation is worth something or costs something, and the more of them are good, the more of the
first draws are better than the standard pass.
"""

import argparse
import statistics
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import write_record
from macro_routing.evaluation.planted_problem import PlantedProblem, PlantedResult, solve_planted
from macro_routing.evaluation.scoring_settings import EXACT
from macro_routing.routes import Route, RouteSpace, parse_route
from macro_routing.search import (
    MacroSearch,
    MarkovPolicy,
    RandomSearch,
    Score,
    SearchState,
    decode_top_routes,
    select_candidate,
)

SEED, LAYERS, LONGEST = 0, 28, 40
TARGET = "L0-L4 L6 RJ"
DRAWS, SEARCHES, EXAMPLES, VALIDATION = 3000, 20, 1000, 100
GOOD_SHARES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)
BASE, GAIN, LOSS = 0.5, 0.04, 0.06
"""Accuracy of the standard pass, and what a good deviation adds and a bad one costs."""
CONDITION_COLUMNS = {
    "better": "first draws better than the standard pass (%)",
    "stopped": "stopped early (%)",
    "changed": "another route returned (%)",
    "gain": "true gain of what is returned, points",
    "low": "95 % interval, from",
    "high": "to",
    "n": "searches",
}
COLUMNS = {"figure": "figure", "value": "measured", "unit": "unit", "n": "n"}


def count_deviations(route: Route) -> int:
    """Steps that do not simply apply the next layer."""
    return sum(after.layer - before.layer != 1 or after.add is not None for before, after in pairwise(route.steps))


def measure_prior(space: RouteSpace) -> list[dict[str, Any]]:
    """What is drawn, and decoded, before anything is learnt."""
    policy = MarkovPolicy.make_prior(space)
    rng = np.random.default_rng(SEED)
    counts = [count_deviations(policy.sample_program(rng).to_route(LAYERS)) for _ in range(DRAWS)]
    second = decode_top_routes(policy, 2)[1]
    return [
        _make_row("deviations from the standard order per draw of the prior, mean", statistics.mean(counts), "", DRAWS),
        _make_row("draws of the prior that are the standard pass", _percent_equal(counts, 0), "%", DRAWS),
        _make_row("draws of the prior with exactly one deviation", _percent_equal(counts, 1), "%", DRAWS),
        _make_row(
            "rank of the first program under the prior that is not the standard pass", second.raw_rank or 0, "", 1
        ),
    ]


def measure_searches(space: RouteSpace) -> list[dict[str, Any]]:
    """Whole searches with the paper's settings, and the control that learns nothing."""
    learnt = [_solve_problem(MacroSearch(space, EXAMPLES, seed=seed), seed) for seed in range(SEARCHES)]
    control = [_solve_problem(RandomSearch(space, EXAMPLES, seed=seed), seed) for seed in range(SEARCHES)]
    stopped = [one.state.stopped for one in learnt]
    return [
        _make_row(
            "searches that stopped before the tenth round, all draws being one route",
            _share_true(stopped),
            "%",
            SEARCHES,
        ),
        _make_row(
            "rounds of a search, median", statistics.median(one.state.rounds for one in learnt), "of 10", SEARCHES
        ),
        _make_row(
            "different routes a search scored, median",
            statistics.median(map(_count_distinct_routes, learnt)),
            "",
            SEARCHES,
        ),
        _make_row(
            "different routes the control scored, median",
            statistics.median(map(_count_distinct_routes, control)),
            "",
            SEARCHES,
        ),
        _make_row("searches that chose the standard pass", _share_true(map(_returned_standard, learnt)), "%", SEARCHES),
        _make_row("searches that chose the planted route", _share_true(one.found for one in learnt), "%", SEARCHES),
        _make_row("controls that chose the planted route", _share_true(one.found for one in control), "%", SEARCHES),
    ]


def measure_condition(space: RouteSpace) -> list[dict[str, Any]]:
    """Whole searches with the paper's settings where more and more deviations are good."""
    return [_measure_share(space, share) for share in GOOD_SHARES]


def _measure_share(space: RouteSpace, good_share: float) -> dict[str, Any]:
    better, stopped, gains = [], [], []
    for seed in range(SEARCHES):
        search = MacroSearch(space, EXAMPLES, seed=seed)

        def true_score(route: Route, seed: int = seed) -> float:
            return _score_by_deviations(route, good_share, seed)

        state: SearchState = search.make_initial_state()
        rng = np.random.default_rng([seed, 1])
        while (asked := search.ask(state)) is not None:
            size = len(asked.examples)
            scores = [Score(int(rng.binomial(size, true_score(one.route))), size) for one in asked.proposals]
            if asked.number == 0:
                better += [true_score(one.route) > BASE for one in asked.proposals]
            state = search.tell(state, asked, scores)
        candidates = search.candidates(state)
        validated = [Score(int(rng.binomial(VALIDATION, true_score(one.route))), VALIDATION) for one in candidates]
        chosen = select_candidate(candidates, validated, lambda tied: [Score(1, 1)] * len(tied)).route
        stopped.append(state.stopped)
        gains.append(100 * (true_score(chosen) - BASE))
    error = 1.96 * float(np.std(gains, ddof=1)) / SEARCHES**0.5
    return {
        "better": _share_true(better),
        "stopped": _share_true(stopped),
        "changed": _share_true(gain != 0 for gain in gains),
        "gain": float(np.mean(gains)),
        "low": float(np.mean(gains)) - error,
        "high": float(np.mean(gains)) + error,
        "n": SEARCHES,
    }


def _score_by_deviations(route: Route, good_share: float, seed: int) -> float:
    """The standard pass's score, and for every deviation what it adds or costs."""
    score = BASE
    for before, step in pairwise(route.steps):
        if step.add is not None or step.layer != before.layer + 1:
            drawn = zlib.crc32(f"{seed} {before.layer} {step}".encode()) / 2**32
            score += GAIN if drawn < good_share else -LOSS
    return min(max(score, 0.02), 0.98)


def _solve_problem(search: MacroSearch | RandomSearch, seed: int) -> PlantedResult:
    problem = PlantedProblem(parse_route(TARGET, LAYERS), seed=seed)
    return solve_planted(search, problem, training=EXAMPLES, validation=VALIDATION, racing=EXACT)


def _count_distinct_routes(result: PlantedResult) -> int:
    return len({draw.proposal.route for draw in result.state.draws})


def _returned_standard(result: PlantedResult) -> bool:
    return result.selected.route.is_standard


def _percent_equal(counts: list[int], wanted: int) -> float:
    return 100 * counts.count(wanted) / len(counts)


def _share_true(flags: Any) -> float:
    return 100 * statistics.mean(map(int, flags))


def _make_row(figure: str, value: float, unit: str, n: int) -> dict[str, Any]:
    return {"figure": figure, "value": value, "unit": unit, "n": n}


def main() -> None:
    """Count, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="write the figures to this JSON file")
    arguments = parser.parse_args()
    space = RouteSpace(LAYERS, max_length=LONGEST)
    results = [*measure_prior(space), *measure_searches(space)]
    for one in results:
        print(f"{one['figure']:<80} {one['value']:8.3g} {one['unit']}")
    condition = measure_condition(space)
    for row in condition:
        print(row)
    if arguments.write:
        common: dict[str, Any] = {
            "command": f"python -m experiments.paper_search_behaviour --write docs/data/{arguments.write.name}",
            "config": {"layers": LAYERS, "max_length": LONGEST, "target": TARGET, "examples": EXAMPLES},
            "seed": SEED,
        }
        write_record(arguments.write, columns=COLUMNS, results=results, **common)
        other = arguments.write.with_name(f"{arguments.write.stem}_condition.json")
        write_record(other, columns=CONDITION_COLUMNS, results=condition, **common)


if __name__ == "__main__":
    main()
