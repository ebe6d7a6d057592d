"""A planted problem: an objective with a known best route, without a model.

A route's true score falls with its edit distance to the target. A search sees coin flips with that probability, one
per example, so the noise is that of a real accuracy. The flips are fixed by (seed, split, route, example): scoring the
same route on the same examples again gives the same outcomes, as with a real model.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from macro_routing.errors import SettingsError
from macro_routing.evaluation.final_decision import FinalistEvidence, assess_finalists, decide_route
from macro_routing.evaluation.racing import race_routes
from macro_routing.evaluation.scoring_settings import NEVER, UnitSizes
from macro_routing.evaluation.work_items import shuffle_indices_into_units
from macro_routing.routes.route import Route
from macro_routing.search.guided import GuidedSearch
from macro_routing.search.macro import select_candidate
from macro_routing.search.searcher import Candidate, Outcome, Round, Score, Searcher, SearchState
from macro_routing.settings import AllowedRange, CheckedSettings, check_integer

TRAIN, VALIDATION = "train", "validation"
_MAX_CACHED_NUMBERS = 1 << 14


@dataclass(frozen=True)
class PlantedProblem(CheckedSettings):
    """``true score = base + (peak - base) · max(0, 1 - distance / reach)``."""

    target: Route
    """The best route; the standard pass plants the case "nothing to find"."""
    base: Annotated[float, AllowedRange(0, 1, symbol="p0")] = 0.2
    """Score far away from the target (``p0``)."""
    peak: Annotated[float, AllowedRange(0, 1, symbol="p1")] = 0.8
    """Score of the target (``p1``)."""
    reach: Annotated[float, AllowedRange(0, exclusive=True, symbol="D")] = 10
    """Edit distance at which the gain is 0 (``D``)."""
    seed: Annotated[int, AllowedRange(0)] = 0

    def __post_init__(self) -> None:
        """Reject impossible settings by name."""
        super().__post_init__()
        if self.peak <= self.base:
            raise SettingsError(f"peak (p1) = {self.peak:g} is not allowed: it must be above base (p0) = {self.base:g}")

    def true_score(self, route: Route) -> float:
        """The probability that ``route`` answers an example correctly."""
        distance = _cached_edit_distance(route, self.target)
        return self.base + (self.peak - self.base) * max(0.0, 1 - distance / self.reach)

    def simulate_which_examples_correct(self, route: Route, split: str, examples: Sequence[int]) -> NDArray[np.bool_]:
        """Which of ``examples`` the route answers correctly."""
        count = 1 << max(examples).bit_length()  # few different counts: a race asks for the examples unit by unit
        draw = _draw_uniform_numbers_cached if count <= _MAX_CACHED_NUMBERS else _draw_uniform_numbers
        uniform = draw(self.seed, split, route, count)
        return uniform[list(examples)] < self.true_score(route)

    def simulate_observed_score(self, route: Route, split: str, examples: Sequence[int]) -> Score:
        """The observed score."""
        return Score(int(self.simulate_which_examples_correct(route, split, examples).sum()), len(examples))


def _draw_uniform_numbers(seed: int, split: str, route: Route, count: int) -> NDArray[np.float64]:
    """The first numbers behind a route's coin flips, one per example; they are the same whatever ``count`` is."""
    name = hashlib.sha256(f"{seed}/{split}/{route.layers}/{route}".encode()).digest()
    return np.random.default_rng(list(name)).random(count)


_draw_uniform_numbers_cached = lru_cache(maxsize=512)(_draw_uniform_numbers)


def edit_distance(route: Route, target: Route) -> int:
    """Fewest insertions, deletions and substitutions of executed steps; a step with and without an add differ."""
    names = {step: number for number, step in enumerate(dict.fromkeys((*route.steps, *target.steps)))}
    other = np.array([names[step] for step in target.steps])
    row = columns = np.arange(target.length + 1)
    for step in route.steps:
        # A deletion or a substitution; then insertions, by a running minimum.
        row = np.minimum(row + 1, np.concatenate([[row[0] + 1], row[:-1] + (other != names[step])]))
        row = np.minimum.accumulate(row - columns) + columns
    return int(row[-1])


_cached_edit_distance = lru_cache(maxsize=20_000)(edit_distance)


@dataclass(frozen=True)
class PlantedResult:
    """The result of a search on a planted problem."""

    selected: Candidate
    """The candidate that the search returned."""
    candidates: tuple[Candidate, ...]
    """All final candidates."""
    state: SearchState
    """Every route that was scored."""
    found: bool
    """Whether the selected route executes the same steps as the target."""
    finalists: tuple[FinalistEvidence, ...] = ()
    """For the guided search: what its decision is based on."""


def simulate_race_of_draws(problem: PlantedProblem, asked: Round, mode: str) -> list[Outcome]:
    """Score a round's draws in small units of coin flips, as far as the elite needs."""
    draws = [proposal.route for proposal in asked.proposals]
    if mode == NEVER:
        return [problem.simulate_observed_score(route, TRAIN, asked.examples) for route in draws]
    units = [
        [asked.examples[index] for index in unit]
        for unit in shuffle_indices_into_units(len(asked.examples), UnitSizes())
    ]

    def score_routes_on_unit(number: int, routes: Sequence[Route]) -> dict[Route, float]:
        return {route: problem.simulate_observed_score(route, TRAIN, units[number]).correct for route in routes}

    standings = race_routes(draws, [len(unit) for unit in units], asked.keep, mode, score_routes_on_unit)
    return [standings[route].outcome_told_to_search for route in draws]


def solve_planted(
    searcher: Searcher, problem: PlantedProblem, *, training: int, validation: int, racing: str = NEVER
) -> PlantedResult:
    """Run a search to its end on a planted problem and select among its candidates."""
    check_integer("validation", validation, minimum=1, maximum=10_000_000)
    state = searcher.make_initial_state()
    while (asked := searcher.ask(state)) is not None:
        state = searcher.tell(state, asked, simulate_race_of_draws(problem, asked, racing))
    candidates = searcher.candidates(state)
    if isinstance(searcher, GuidedSearch):
        held = searcher.holdout

        def get_correct_flags(route: Route) -> NDArray[np.bool_]:
            holdout = [problem.simulate_which_examples_correct(route, TRAIN, held)] if held else []
            return np.concatenate(
                [*holdout, problem.simulate_which_examples_correct(route, VALIDATION, range(validation))]
            )

        evidence = assess_finalists([candidate.route for candidate in candidates], get_correct_flags, searcher.decision)
        route = decide_route(evidence, searcher.decision) or Route.standard(searcher.space.layers)
        selected = next(candidate for candidate in candidates if candidate.route == route)
        return PlantedResult(selected, candidates, state, route == problem.target, tuple(evidence.values()))
    selected = select_candidate(
        candidates,
        [problem.simulate_observed_score(candidate.route, VALIDATION, range(validation)) for candidate in candidates],
        lambda tied: [problem.simulate_observed_score(candidate.route, TRAIN, range(training)) for candidate in tied],
    )
    return PlantedResult(selected, candidates, state, selected.route == problem.target)
