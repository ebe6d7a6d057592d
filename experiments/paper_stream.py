"""Published routes in the draws of the paper's seeds: which are drawn verbatim, which are made of drawn deviations.

    python -m experiments.paper_stream [--controls 40] [--write docs/data/paper_stream.json]

A deviation is a step that does not go to the next layer or adds a state: (layer before, layer, how far back). A route
is contained if one seed's first 30 draws hold all of its deviations. Control seeds are random triples in place of the
paper's 1, 2 and 42. Other readings draw a number at the last layer, too, where nothing is to be chosen: always, or by
the program's length. For "the best of the five" the published routes and every control have their best reading. A
second table has other longest routes for the models with 36 layers.
"""

import argparse
import functools
import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import ROOT, write_record
from macro_routing.routes.paper_notation import parse_program
from macro_routing.routes.route import Program
from macro_routing.routes.space import PartialProgramPosition, RouteSpace
from macro_routing.search.paper_stream import get_paper_max_length, list_actions_in_paper_order, make_paper_generator
from macro_routing.search.policy import MarkovPolicy

PUBLISHED = ROOT / "tests" / "data" / "published_routes.json"
SEEDS, DRAWS = (1, 2, 42), 30
SIZES = (1, 2, 3)
Deviation = tuple[int, int, int]
READINGS: dict[str, Callable[[int, int], bool]] = {
    "no": lambda length, longest: False,  # noqa: ARG005
    "yes": lambda length, longest: True,  # noqa: ARG005
    "if the program is as long as allowed": lambda length, longest: length >= longest,
    "if it is shorter": lambda length, longest: length < longest,
    "if the program has 40 steps": lambda length, longest: length == 40,  # noqa: ARG005
}
"""When a number is drawn at the last layer, by the program's length and the longest that is allowed."""
BEST = "the best of the five"
LONGEST = range(36, 56)
"""Longest routes that are tried for the models with 36 layers."""
COLUMNS = {
    "models": "models",
    "reading": "number at the last layer",
    "deviations": "deviations, at least",
    "contained": "contained",
    "routes": "of routes",
    "control_mean": "control seeds, mean",
    "control_max": "control seeds, maximum",
    "control_share": "control seeds with as many (%)",
}
LONGEST_COLUMNS = {
    "longest": "longest route",
    "1": "contained, 1 deviation or more",
    "2": "2 or more",
    "3": "3 or more",
    "control_mean": "control seeds, mean of 1 or more",
}
VERBATIM_COLUMNS = {"model": "model", "benchmark": "benchmark", "route": "program", "seed": "seed", "draw": "draw"}


class PublishedRoute(NamedTuple):
    """A route of the paper's tables that is not the standard pass."""

    model: str
    benchmark: str
    layers: int
    program: Program
    deviations: frozenset[Deviation]


def list_deviations(program: Program) -> list[Deviation]:
    """Steps that do not simply go to the next layer."""
    return [
        (before.layer, step.layer, step.add.back if step.add else 0)
        for before, step in pairwise(program.steps)
        if step.add or step.layer != before.layer + 1
    ]


def read_published_routes() -> list[PublishedRoute]:
    """Those whose adds, if any, have the coefficient 1: the literal space has no others."""
    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    rows = [row for row in (*published["routes"], *published["shared_routes"]) if row["route"]]
    programs = [(row, parse_program(row["route"])) for row in rows]
    return [
        PublishedRoute(row["model"], row["benchmark"], row["layers"], program, frozenset(deviations))
        for row, program in programs
        if (deviations := list_deviations(program))
        and all(step.add is None or step.add.coefficient == 1 for step in program.steps)
    ]


@functools.cache
def make_prior(layers: int, longest: int) -> MarkovPolicy:
    """The prior with a longest route."""
    return MarkovPolicy.make_prior(RouteSpace(layers, max_length=longest))


@functools.cache
def compute_choices(
    layers: int, longest: int, position: PartialProgramPosition
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Feasible actions in the paper's order and their cumulative probabilities."""
    policy = make_prior(layers, longest)
    order = np.array(list_actions_in_paper_order(policy.space))
    row = policy.masked_log_row(position)[order]
    feasible = np.isfinite(row)
    cumulative = np.exp(row[feasible] - row.max()).cumsum()
    return order[feasible], cumulative / cumulative[-1]


@functools.cache
def draw_programs(layers: int, seed: int, reading: str, longest: int | None = None) -> tuple[str, ...]:
    """The first round of a seed; ``reading`` says when a number is drawn at the last layer.

    The longest route is the paper's, unless another is given.
    """
    longest = longest or get_paper_max_length(layers)
    space, rng = make_prior(layers, longest).space, make_paper_generator(seed)
    programs = []
    for _ in range(DRAWS):
        actions: list[int] = []
        position = space.initial_position
        while position.layer != layers - 1:
            feasible, cumulative = compute_choices(layers, longest, position)
            action = int(feasible[np.searchsorted(cumulative, rng.random(), side="right")])
            if action == space.rejoin_action:
                break
            actions.append(action)
            position = space.position_after_action(position, action)
        else:
            if READINGS[reading](position.applied, longest):
                rng.random()
        programs.append(str(space.program_from_actions(actions)))
    return tuple(programs)


@functools.cache
def collect_deviations(layers: int, seed: int, reading: str, longest: int | None = None) -> frozenset[Deviation]:
    """All deviations of the first round of a seed."""
    programs = map(parse_program, draw_programs(layers, seed, reading, longest))
    return frozenset(deviation for program in programs for deviation in list_deviations(program))


def count_contained(
    routes: Sequence[PublishedRoute], seeds: Sequence[int], least: int, reading: str, longest: int | None = None
) -> int:
    """Routes with so many deviations, all of them in the first round of one seed."""
    if reading == BEST:
        return max(count_contained(routes, seeds, least, one) for one in READINGS)
    return sum(
        any(route.deviations <= collect_deviations(route.layers, seed, reading, longest) for seed in seeds)
        for route in routes
        if len(route.deviations) >= least
    )


def draw_control_seeds(controls: int) -> list[tuple[int, ...]]:
    """Random triples in place of the paper's seeds."""
    rng = np.random.default_rng(0)
    return [tuple(rng.integers(1000, 1_000_000, 3).tolist()) for _ in range(controls)]


def make_rows(routes: Sequence[PublishedRoute], controls: int) -> list[dict[str, Any]]:
    """By depth of the model, reading and number of deviations."""
    triples = draw_control_seeds(controls)
    groups = {"all": routes, "36 layers": [route for route in routes if route.layers == 36]}
    groups["other depths"] = [route for route in routes if route.layers != 36]
    rows = []
    for name, group in groups.items():
        for reading in (*READINGS, BEST):
            for least in SIZES:
                count = functools.partial(count_contained, group, least=least, reading=reading)
                contained, chance = count(SEEDS), [count(triple) for triple in triples]
                rows.append(
                    {
                        "models": name,
                        "reading": reading,
                        "deviations": least,
                        "contained": contained,
                        "routes": sum(len(route.deviations) >= least for route in group),
                        "control_mean": float(np.mean(chance)),
                        "control_max": max(chance),
                        "ratio": contained / float(np.mean(chance)) if any(chance) else None,
                        "control_share": 100 * sum(one >= contained for one in chance) / controls,
                    }
                )
    return rows


def make_longest_rows(routes: Sequence[PublishedRoute], controls: int) -> list[dict[str, Any]]:
    """The routes of the models with 36 layers that are contained, by the longest route that is allowed."""
    group = [route for route in routes if route.layers == 36]
    triples = draw_control_seeds(controls)
    rows = []
    for longest in LONGEST:
        count = functools.partial(count_contained, group, reading="no", longest=longest)
        chance = float(np.mean([count(triple, least=1) for triple in triples]))
        own = {str(least): count(SEEDS, least=least) for least in SIZES}
        rows.append({"longest": longest, **own, "control_mean": chance})
    return rows


def make_verbatim_rows(routes: Sequence[PublishedRoute], seeds: Sequence[int] = SEEDS) -> list[dict[str, Any]]:
    """Published programs that are drawn as they are printed."""
    return [
        {"model": route.model, "benchmark": route.benchmark, "route": str(route.program), "seed": seed, "draw": draw}
        for route in routes
        for seed in seeds
        for draw, program in enumerate(draw_programs(route.layers, seed, "no"))
        if program == str(route.program)
    ]


def count_verbatim(routes: Sequence[PublishedRoute], seeds: Sequence[int]) -> dict[str, int]:
    """Published programs that these seeds draw as they are printed: all, and those with an add."""
    drawn = {(row["model"], row["benchmark"]) for row in make_verbatim_rows(routes, seeds)}
    of_drawn = [route for route in routes if (route.model, route.benchmark) in drawn]
    with_add = [route for route in of_drawn if any(step.add for step in route.program.steps)]
    return {"all": len(of_drawn), "with_add": len(with_add)}


def summarize_verbatim_controls(routes: Sequence[PublishedRoute], controls: int) -> dict[str, Any]:
    """How many published programs control seeds draw as they are printed, beside the paper's seeds."""
    counted = [count_verbatim(routes, triple) for triple in draw_control_seeds(controls)]
    summary: dict[str, Any] = {"n": controls}
    for name, own in count_verbatim(routes, SEEDS).items():
        counts = [one[name] for one in counted]
        share = 100 * sum(count >= own for count in counts) / controls
        summary[name] = {"own": own, "mean": float(np.mean(counts)), "most": max(counts), "share": share}
    return summary


def main() -> None:
    """Count, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--controls", type=int, default=40, help="random triples of seeds")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    routes = read_published_routes()
    rows, verbatim = make_rows(routes, arguments.controls), make_verbatim_rows(routes)
    longest = make_longest_rows(routes, max(1, arguments.controls // 10))
    for row in [*rows, *verbatim, *longest]:
        print(row)
    if arguments.write:
        common: dict[str, Any] = {
            "command": f"python -m experiments.paper_stream --controls {arguments.controls}",
            "config": {"draws": DRAWS, "verbatim_controls": summarize_verbatim_controls(routes, arguments.controls)},
            "seed": ", ".join(map(str, SEEDS)),
        }
        write_record(arguments.write, columns=COLUMNS, results=rows, **common)
        other = arguments.write.with_name(f"{arguments.write.stem}_verbatim.json")
        write_record(other, columns=VERBATIM_COLUMNS, results=verbatim, **common)
        other = arguments.write.with_name(f"{arguments.write.stem}_longest.json")
        write_record(other, columns=LONGEST_COLUMNS, results=longest, **common)


if __name__ == "__main__":
    main()
