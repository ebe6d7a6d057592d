"""Speed of the method's core on one core: exact decoding, drawing, beside the tests' plain recursion.

    python -m benchmarks.core [--write docs/data/core_speed.json]

Exits with 1 when a target is missed. Every case runs in a process of its own, so that its peak memory is its own.
"""

import os

os.environ.update(dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"], "1"))

import argparse
import itertools
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import write_record
from macro_routing.evaluation.planted_problem import PlantedProblem, solve_planted
from macro_routing.routes import RouteSpace, parse_route
from macro_routing.search import MacroSearch, MarkovPolicy, decode_top_routes, iterate_programs
from tests.oracles.plain_decoding import recursive_top_k

SEED = 0
COLUMNS = {
    "case": "case",
    "median_ms": "median, ms",
    "slowest_ms": "slowest, ms",
    "target_ms": "target for the median, ms",
    "peak_mb": "peak memory, MB",
    "repeats": "repeats",
}


@dataclass(frozen=True)
class TimedCase:
    """One thing to time: ``prepare`` is not timed and gives what ``run`` takes; every repeat prepares anew."""

    name: str
    prepare: Callable[[], Any]
    run: Callable[[Any], Any]
    repeats: int = 20
    target_ms: float | None = None
    target_mb: float | None = None


def _make_paper_space() -> RouteSpace:
    return RouteSpace(28, max_length=40)


def _make_large_space() -> RouteSpace:
    return RouteSpace(80, max_length=120)


def _make_small_space() -> RouteSpace:
    return RouteSpace(8, max_length=12, radius=3, window=2)


def _make_trained_policy(space: RouteSpace) -> MarkovPolicy:
    """The policy a whole search with the paper's settings ends with."""
    problem = PlantedProblem(parse_route("L0-L7 L3-L5 RJ" if space.layers > 8 else "L0-L4 L6 RJ", space.layers))
    search = MacroSearch(space, 1000, seed=SEED)
    policy = search.policy(solve_planted(search, problem, training=1000, validation=100).state)
    return MarkovPolicy(space, policy.table)


def _make_spread_policy(space: RouteSpace) -> MarkovPolicy:
    """Random rows, the least structured policy there is."""
    rows = np.random.default_rng(SEED).dirichlet(np.full(space.action_count, 0.3), size=space.table_shape[:-1])
    return MarkovPolicy(space, rows)


def _make_tied_policy(space: RouteSpace) -> MarkovPolicy:
    """A plain and an added step equally probable at every layer: 2^25 programs tie for the first place."""
    table = np.zeros(space.table_shape)
    table[..., [space.forward_action, space.move_action_count + 1 + space.forward_action]] = 0.5
    table[space.layers - 1] = np.eye(space.action_count)[space.rejoin_action]
    return MarkovPolicy(space, table)


def _decode_five_routes(policy: MarkovPolicy) -> object:
    return decode_top_routes(policy, 5)


def _draw_thousand_routes(policy: MarkovPolicy) -> object:
    rng = np.random.default_rng(SEED)
    return [policy.sample_program(rng) for _ in range(1000)]


def _decode_five_programs(policy: MarkovPolicy) -> object:
    return list(itertools.islice(iterate_programs(policy), 5))


def _decode_by_plain_recursion(policy: MarkovPolicy) -> object:
    return recursive_top_k(policy, 5)


CASES = [
    TimedCase(
        "5 routes, L=28, T=40, prior",
        lambda: MarkovPolicy.make_prior(_make_paper_space()),
        _decode_five_routes,
        target_ms=60,
    ),
    TimedCase(
        "5 routes, L=28, T=40, trained",
        lambda: _make_trained_policy(_make_paper_space()),
        _decode_five_routes,
        target_ms=60,
    ),
    TimedCase(
        "5 routes, L=28, T=40, random rows",
        lambda: _make_spread_policy(_make_paper_space()),
        _decode_five_routes,
        target_ms=60,
    ),
    TimedCase(
        "5 routes, L=28, T=40, 2^25 ties",
        lambda: _make_tied_policy(_make_paper_space()),
        _decode_five_routes,
        target_ms=60,
    ),
    TimedCase(
        "5 routes, L=80, T=120, prior",
        lambda: MarkovPolicy.make_prior(_make_large_space()),
        _decode_five_routes,
        5,
        1500,
        1000,
    ),
    TimedCase(
        "5 routes, L=80, T=120, trained",
        lambda: _make_trained_policy(_make_large_space()),
        _decode_five_routes,
        5,
        1500,
        1000,
    ),
    TimedCase(
        "1,000 draws, L=28, prior", lambda: MarkovPolicy.make_prior(_make_paper_space()), _draw_thousand_routes, 5, 1000
    ),
    TimedCase(
        "1,000 draws, L=28, trained", lambda: _make_trained_policy(_make_paper_space()), _draw_thousand_routes, 5, 1000
    ),
    TimedCase(
        "5 programs, L=8, T=12, r=3, W=2, prior",
        lambda: MarkovPolicy.make_prior(_make_small_space()),
        _decode_five_programs,
    ),
    TimedCase(
        "the same 5 by the tests' plain recursion",
        lambda: MarkovPolicy.make_prior(_make_small_space()),
        _decode_by_plain_recursion,
        3,
    ),
]


def measure_case(number: int) -> dict[str, Any]:
    """Time one case in this process."""
    case = CASES[number]
    milliseconds = []
    for _ in range(case.repeats):
        prepared = case.prepare()
        start = time.perf_counter()
        case.run(prepared)
        milliseconds.append(1000 * (time.perf_counter() - start))
    return {
        "case": case.name,
        "median_ms": statistics.median(milliseconds),
        "slowest_ms": max(milliseconds),
        "target_ms": case.target_ms,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "target_mb": case.target_mb,
        "repeats": case.repeats,
        "all_ms": milliseconds,
    }


def main() -> None:
    """Measure all cases, print them, write them on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="write the measurements to this JSON file")
    arguments = parser.parse_args()
    results = []
    for number, case in enumerate(CASES):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            results.append(pool.apply(measure_case, (number,)))
        result = results[-1]
        target = "" if case.target_ms is None else f"  target {case.target_ms:g} ms: {_format_verdict(result)}"
        print(
            f"{case.name:<42} median {result['median_ms']:8.1f} ms  peak {result['peak_mb']:5.0f} MB{target}",
            flush=True,
        )
    if arguments.write:
        write_record(
            arguments.write,
            command=f"python -m benchmarks.core --write docs/data/{arguments.write.name}",
            config={"radius": 5, "window": 6, "k": 5, "threads": 1},
            seed=SEED,
            columns=COLUMNS,
            results=results,
        )
    sys.exit(any(_format_verdict(result) == "missed" for result in results))


def _format_verdict(result: dict[str, Any]) -> str:
    slow = result["target_ms"] is not None and result["median_ms"] > result["target_ms"]
    large = result["target_mb"] is not None and result["peak_mb"] > result["target_mb"]
    return "missed" if slow or large else "met"


if __name__ == "__main__":
    main()
