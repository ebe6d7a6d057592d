"""Searches on a recorded landscape instead of a model: thousands of them in the time of one.

Part of the recorded examples is what a search sees; the rest judges what it found. A route that was not recorded cannot
be scored: it fails, by that name, and how many did is part of the result.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.landscape import Landscape
from macro_routing.evaluation.holdout_selection import rank_candidates_by_gain_bound, select_confirmed_candidate
from macro_routing.routes.route import Route
from macro_routing.search.guided import GuidedSearch
from macro_routing.search.macro import select_candidate
from macro_routing.search.searcher import Outcome, Score, ScoringFailure, Searcher

_SPLITTING = 9
_JUDGING, _VALIDATING = 0.4, 0.1
SearchFactory = Callable[[int, int, int], Searcher]
"""A search for (training examples, budget, seed)."""
ExampleCredit = Callable[[Route], NDArray[Any]]
"""How much of each example a recorded route got right."""


@dataclass(frozen=True)
class ReplayResult:
    """What a search made of a landscape."""

    route: Route
    gain: float
    """Of the selected route over the standard pass, on examples that the search never saw."""
    proposed: float
    """The same of its best finalist, selected or not."""
    asked: int
    """Outcomes asked for."""
    missing: int
    """Of these, of routes that were not recorded."""
    finalists: tuple[tuple[float, float], ...] = ()
    """Of a search that confirms: who may be chosen, in this order: how certain each one's lead is, and its gain."""


def replay_search(
    make: SearchFactory, landscape: Landscape, *, budget: int, seed: int, credit: ExampleCredit | None = None
) -> ReplayResult:
    """One search; the examples are dealt by the seed to judging, validation and the search itself.

    ``credit`` is what the search is told of a route's examples instead of correct or wrong, which still confirms and
    judges.
    """
    credit = credit or landscape.correct_examples
    order = np.random.default_rng([seed, _SPLITTING]).permutation(landscape.examples)
    judge, validation, train = np.split(order, [int(_JUDGING * len(order)), int((_JUDGING + _VALIDATING) * len(order))])
    searcher = make(len(train), budget, seed)
    asked_for = missing = 0

    def outcome(route: Route, examples: NDArray[np.int64]) -> Outcome:
        nonlocal asked_for, missing
        asked_for += len(examples)
        if route not in landscape:
            missing += len(examples)
            return ScoringFailure("the landscape does not hold this route")
        return Score(float(credit(route)[examples].sum()), len(examples))

    state = searcher.start()
    while (asked := searcher.ask(state)) is not None:
        shown = train[list(asked.examples)]
        state = searcher.tell(state, asked, [outcome(one.route, shown) for one in asked.proposals])
    candidates = [one for one in searcher.candidates(state) if one.route in landscape]
    if isinstance(searcher, GuidedSearch):
        fresh = np.concatenate([train[list(searcher.holdout)], validation])

        def verdicts(route: Route) -> NDArray[np.bool_]:
            found: NDArray[np.bool_] = landscape.correct_examples(route)[fresh]
            return found

        chosen, finalists = (
            select_confirmed_candidate(candidates, verdicts, searcher.settings.max_error_probability),
            rank_candidates_by_gain_bound(candidates, verdicts),
        )
    else:
        finalists = []

        def scores(some: NDArray[np.int64]) -> list[Outcome]:
            return [Score(int(landscape.correct_examples(one.route)[some].sum()), len(some)) for one in candidates]

        by_route = dict(zip([one.route for one in candidates], scores(train), strict=True))
        chosen = select_candidate(candidates, scores(validation), lambda tied: [by_route[one.route] for one in tied])
    others = [one.route for one in candidates if not one.route.is_standard]

    def gain(route: Route) -> float:
        return float(landscape.correct_examples(route)[judge].mean() - landscape.standard[judge].mean())

    told = tuple((sure, gain(one.route)) for one, sure in finalists)
    return ReplayResult(chosen.route, gain(chosen.route), gain(others[0]) if others else 0.0, asked_for, missing, told)
