"""A planted problem: an objective with a hidden best route and no model at all.

A route's true score falls with its edit distance to the target; what a search sees are coin flips with that
probability, one per example, so its noise is the noise of a real accuracy. The flips are fixed by (seed, split,
route, example): scoring the same route on the same examples again gives the same answer, as a real model would.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from macro_routing.errors import SettingsError
from macro_routing.evaluation.confirming import confirmed, ranked
from macro_routing.evaluation.racing import NEVER, race
from macro_routing.evaluation.units import UnitSizes, race_parts
from macro_routing.routes.route import Route
from macro_routing.search.searcher import Candidate, HoldoutSearcher, Outcome, Round, Score, Searcher, SearchState
from macro_routing.search.selection import select_candidate
from macro_routing.settings import check_integer, check_number

TRAIN, VALIDATION = "train", "validation"


@dataclass(frozen=True)
class PlantedProblem:
    """``true score = base + (peak - base) · max(0, 1 - distance / reach)``."""

    target: Route
    """The best route; the standard pass plants the case "nothing to find"."""
    base: float = 0.2
    """Score far away from the target (``p0``)."""
    peak: float = 0.8
    """Score of the target (``p1``)."""
    reach: float = 10
    """Edit distance at which nothing of the gain is left (``D``)."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse settings that plant nothing."""
        check_number("base (p0)", self.base, minimum=0, maximum=1)
        check_number("peak (p1)", self.peak, minimum=0, maximum=1)
        if self.peak <= self.base:
            raise SettingsError(f"peak (p1) = {self.peak:g} is not allowed: it must be above base (p0) = {self.base:g}")
        check_number("reach (D)", self.reach, minimum=0, exclusive=True)
        check_integer("seed", self.seed, minimum=0)

    def true_score(self, route: Route) -> float:
        """The probability with which ``route`` gets an example right."""
        distance = _distance(route, self.target)
        return self.base + (self.peak - self.base) * max(0.0, 1 - distance / self.reach)

    def flips(self, route: Route, split: str, examples: Sequence[int]) -> NDArray[np.bool_]:
        """Which of ``examples`` the route gets right."""
        name = hashlib.sha256(f"{self.seed}/{split}/{route.layers}/{route}".encode()).digest()
        uniform = np.random.default_rng(list(name)).random(max(examples) + 1)
        return uniform[list(examples)] < self.true_score(route)

    def score(self, route: Route, split: str, examples: Sequence[int]) -> Score:
        """The observed score."""
        return Score(int(self.flips(route, split, examples).sum()), len(examples))


def edit_distance(route: Route, target: Route) -> int:
    """Fewest insertions, removals and replacements of executed steps; a step with and without an add differ by one."""
    names = {step: number for number, step in enumerate(dict.fromkeys((*route.steps, *target.steps)))}
    other = np.array([names[step] for step in target.steps])
    row = places = np.arange(target.length + 1)
    for step in route.steps:
        # A removal or a replacement; then insertions, as many as pay, by a running minimum.
        row = np.minimum(row + 1, np.concatenate([[row[0] + 1], row[:-1] + (other != names[step])]))
        row = np.minimum.accumulate(row - places) + places
    return int(row[-1])


_distance = lru_cache(maxsize=20_000)(edit_distance)


@dataclass(frozen=True)
class PlantedResult:
    """What a search made of a planted problem."""

    selected: Candidate
    candidates: tuple[Candidate, ...]
    state: SearchState
    found: bool
    """Whether the selected route equals the target by execution."""
    finalists: tuple[tuple[Candidate, float], ...] = ()
    """Of a search that confirms: who may be chosen, in this order, and how certain each one's lead is."""


def _outcomes(problem: PlantedProblem, asked: Round, racing: str) -> list[Outcome]:
    if racing != NEVER:
        return race_planted_routes(problem, asked, racing)
    return [problem.score(proposal.route, TRAIN, asked.examples) for proposal in asked.proposals]


def race_planted_routes(problem: PlantedProblem, asked: Round, mode: str) -> list[Outcome]:
    """Score a round's draws in units of a few coin flips, as far as the elite needs."""
    draws = [proposal.route for proposal in asked.proposals]
    units = [[asked.examples[place] for place in part] for part in race_parts(len(asked.examples), UnitSizes())]

    def score(number: int, routes: Sequence[Route]) -> dict[Route, float]:
        return {route: problem.score(route, TRAIN, units[number]).correct for route in routes}

    standings = race(draws, [len(unit) for unit in units], asked.keep, mode, score)
    return [standings[route].outcome for route in draws]


def solve_planted(
    searcher: Searcher, problem: PlantedProblem, *, training: int, validation: int, racing: str = NEVER
) -> PlantedResult:
    """Run a search to its end on a planted problem and select among its candidates."""
    check_integer("validation", validation, minimum=1, maximum=10_000_000)
    state = searcher.start()
    while (asked := searcher.ask(state)) is not None:
        state = searcher.tell(state, asked, _outcomes(problem, asked, racing))
    candidates = searcher.candidates(state)
    if isinstance(searcher, HoldoutSearcher):
        held = searcher.holdout

        def verdicts(route: Route) -> NDArray[np.bool_]:
            kept = [problem.flips(route, TRAIN, held)] if held else []
            return np.concatenate([*kept, problem.flips(route, VALIDATION, range(validation))])

        selected = confirmed(candidates, verdicts, searcher.max_error_probability)
        finalists = tuple(ranked(candidates, verdicts))
        return PlantedResult(selected, candidates, state, selected.route == problem.target, finalists)
    selected = select_candidate(
        candidates,
        [problem.score(candidate.route, VALIDATION, range(validation)) for candidate in candidates],
        lambda tied: [problem.score(candidate.route, TRAIN, range(training)) for candidate in tied],
    )
    return PlantedResult(selected, candidates, state, selected.route == problem.target)
