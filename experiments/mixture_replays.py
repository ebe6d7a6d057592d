"""Mixtures on recorded log-likelihoods: errors where no route is better, and gain against cost.

    python -m experiments.mixture_replays {null,cost} [--replays N] [--first 1000] [--processes 2] [--max-cost 2]
        [--write FILE] [--picture FILE]

A third of a landscape's examples is for the weights, a third for the decision, a third judges. Candidates for members
are the standard pass without the question, without one layer or with one layer twice, as many as a search of the
default budget scores.
*null*: the correct choice of every example is drawn at random, so that no mixture is better than the standard pass.
*cost*: the mixtures of 1, 2, … members themselves, before any decision.
"""

import argparse
import os
import zlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import write_record
from experiments.decisions import NULL_COLUMNS
from experiments.landscape import ChoiceScores, Landscape
from experiments.landscapes import RAW_FOLDER
from macro_routing.evaluation.final_decision import assess_finalists, decide_route
from macro_routing.evaluation.mixture_weights import (
    FittedMembers,
    Scores,
    add_members,
    choose_members,
    combine_scores,
    make_mixture,
    pick_choices,
)
from macro_routing.evaluation.statistics import wilson_interval
from macro_routing.report.line_chart import AxisLabels, ChartPoint, LineSeries, draw_line_chart
from macro_routing.routes.mixture import RouteOrMixture, parse_program_or_mixture, to_mixture
from macro_routing.search.decision_settings import DecisionSettings

NULL, COST = KINDS = ("null", "cost")
CANDIDATES = 40
MAX_SIZE = 4
COST_COLUMNS = {
    "landscape": "landscape",
    "members": "members",
    "layers": "layers applied, × the model's",
    "gain": "gain on unseen examples, points",
    "low": "95 % interval, from",
    "high": "to",
    "n": "replays",
}


def load_scores(name: str) -> tuple[list[RouteOrMixture], Scores, NDArray[np.int64]]:
    """Routes, the standard pass first, then that without the question; log-likelihoods per byte; correct choices."""
    recorded = ChoiceScores.load(RAW_FOLDER / f"{name}.npz")
    layers = Landscape.load(RAW_FOLDER / f"{name}.json").layers
    sizes = np.where(recorded.choice_bytes > 0, recorded.choice_bytes, np.nan)
    routes = [parse_program_or_mixture(text, layers) for text in recorded.routes]
    order = sorted(range(len(routes)), key=lambda index: (not routes[index].is_standard, asks_question(routes[index])))
    scores = (recorded.log_likelihoods.astype(np.float64) / sizes)[order]
    return [routes[index] for index in order], scores, recorded.answers.astype(np.int64)


def asks_question(route: RouteOrMixture) -> bool:
    """Whether it reads the question."""
    return not to_mixture(route).compares_choices_only


def choose_candidates(routes: Sequence[RouteOrMixture], rng: np.random.Generator) -> list[int]:
    """The standard pass, also without the question, then skips and repeats of a layer, as guided searches take them."""
    layers = routes[0].layers
    shuffled = rng.permutation(len(routes)).tolist()
    simple = [index for length in (layers - 1, layers + 1) for index in shuffled if routes[index].length == length]
    without_question = [index for index, route in enumerate(routes) if not asks_question(route)]
    return [0, *without_question, *simple][:CANDIDATES]


def run_replay(job: tuple[str, str, int], max_cost: float) -> dict[str, Any]:
    """One split of one landscape."""
    kind, name, seed = job
    rng = np.random.default_rng(zlib.crc32(f"mixture {kind} {name} {seed}".encode()))
    routes, scores, answers = load_scores(name)
    if kind == NULL:
        answers = (rng.random(len(answers)) * (~np.isnan(scores[0])).sum(axis=1)).astype(np.int64)
    chosen = choose_candidates(routes, rng)
    routes, scores = [routes[index] for index in chosen], scores[chosen]
    fit, fresh, judge = np.array_split(rng.permutation(len(answers)), 3)
    settings = DecisionSettings(max_cost=max_cost)
    assert settings.members is not None

    def is_affordable(indices: Sequence[int]) -> bool:
        return settings.is_affordable(make_mixture(routes, indices, [1.0] * len(indices)))

    def is_correct(members: FittedMembers, examples: NDArray[np.int64]) -> NDArray[np.bool_]:
        combined = combine_scores(scores[list(members.indices)][:, examples], members.weights)
        return np.asarray(pick_choices(combined) == answers[examples])

    standard = FittedMembers((0,), (1.0,), 0.0)
    base = is_correct(standard, judge).mean()
    if kind == COST:
        path = add_members(scores[:, fit], answers[fit], MAX_SIZE)
        lengths = [make_mixture(routes, members.indices, members.weights).length / routes[0].layers for members in path]
        gains = [float(is_correct(members, judge).mean() - base) for members in path]
        return {"landscape": name, "lengths": lengths, "gains": gains}
    path = choose_members(scores[:, fit], answers[fit], settings.members, seed, is_allowed=is_affordable)[1:]
    finalists: dict[RouteOrMixture, FittedMembers] = {routes[0]: standard}
    finalists |= {make_mixture(routes, members.indices, members.weights): members for members in path}
    evidence = assess_finalists(list(finalists), lambda route: is_correct(finalists[route], fresh), settings)
    return {"landscape": name, "returned": decide_route(evidence, settings) is not None}


def make_null_rows(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """How often a mixture was returned."""
    returned = [run["returned"] for run in runs]
    low, high = wilson_interval(float(np.mean(returned)), len(returned))
    percent = {"returned_percent": 100 * float(np.mean(returned)), "low": 100 * low, "high": 100 * high}
    return [{"mode": "likelihood, mixtures", **percent, "n": len(returned)}]


def make_cost_rows(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """By landscape and number of members, and the means of all landscapes."""
    rows = []
    names = sorted({run["landscape"] for run in runs})
    for name in [*names, "all"]:
        same = [run for run in runs if name in (run["landscape"], "all")]
        for size in range(MAX_SIZE):
            gains = 100 * np.array([run["gains"][size] for run in same])
            error = 1.96 * gains.std(ddof=1) / len(gains) ** 0.5
            layers = float(np.mean([run["lengths"][size] for run in same]))
            interval = {"low": float(gains.mean() - error), "high": float(gains.mean() + error)}
            rows.append({"landscape": name, "members": size + 1, "layers": layers, "gain": float(gains.mean())})
            rows[-1] |= {**interval, "n": len(same)}
    return rows


def draw_cost_picture(rows: Sequence[dict[str, Any]]) -> str:
    """Gain over layer applications, from one member to four: the mean of all landscapes, and of each task."""
    tasks = sorted({row["landscape"].rsplit("-", 2)[1] for row in rows if row["landscape"] != "all"})
    lines = []
    for name in ["all", *tasks]:
        points = []
        for size in range(1, MAX_SIZE + 1):
            same = [row for row in rows if row["members"] == size and name in row["landscape"].rsplit("-", 2)]
            layers, gain = (float(np.mean([row[what] for row in same])) for what in ("layers", "gain"))
            low, high = (same[0]["low"], same[0]["high"]) if name == "all" else (gain, gain)
            points.append(ChartPoint(layers, gain, low, high))
        lines.append(LineSeries(name, points))
    axes = AxisLabels("layers applied, × the model's"), AxisLabels("gain on unseen examples, points")
    return draw_line_chart("mixture_cost", "Gain against cost, one to four members", lines, *axes).to_svg()


def main() -> None:
    """Replay, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--replays", type=int, help="in all (null) or for each landscape (cost)")
    parser.add_argument("--first", type=int, default=1000, help="first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--max-cost", type=float, default=2.0)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--picture", type=Path, help="an SVG file for gain against cost")
    arguments = parser.parse_args()
    names = sorted(path.stem for path in RAW_FOLDER.glob("*.npz"))
    replays = arguments.replays or (1000 if arguments.kind == NULL else 20)
    seeds = range(arguments.first, arguments.first + (-(-replays // len(names)) if arguments.kind == NULL else replays))
    jobs = [(arguments.kind, name, seed) for seed in seeds for name in names]
    if arguments.kind == NULL:
        jobs = jobs[:replays]
    with ProcessPoolExecutor(arguments.processes) as pool:
        runs = list(pool.map(partial(run_replay, max_cost=arguments.max_cost), jobs))
    rows, columns = (
        (make_null_rows(runs), NULL_COLUMNS) if arguments.kind == NULL else (make_cost_rows(runs), COST_COLUMNS)
    )
    for row in rows:
        print(row)
    if arguments.picture:
        arguments.picture.write_text(draw_cost_picture(rows), encoding="utf-8")
    if arguments.write:
        command = f"python -m experiments.mixture_replays {arguments.kind} --replays {replays}"
        command += f" --first {arguments.first}"
        command += f" --max-cost {arguments.max_cost:g}" if arguments.kind == NULL else ""
        write_record(
            arguments.write,
            command=command,
            config={"landscapes": len(names), "candidates": CANDIDATES},
            seed=arguments.first,
            columns=columns,
            results=rows,
        )


if __name__ == "__main__":
    main()
