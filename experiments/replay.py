"""Searches on a recorded landscape instead of a model: thousands of them in the time of one.

Part of the recorded examples is what a search sees; the rest judges what it found. A route that was not recorded cannot
be scored: it fails, by that name, and how many did is part of the result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.landscape import Landscape
from macro_routing.evaluation.final_decision import FinalistEvidence, assess_finalists, decide_route
from macro_routing.routes.route import Route
from macro_routing.search.guided import GuidedSearch
from macro_routing.search.macro import select_candidate
from macro_routing.search.searcher import Candidate, Outcome, Score, ScoringFailure, Searcher

_SPLITTING, _COMPLEMENTING = 9, 77
_JUDGING, _VALIDATING = 0.4, 0.1
SearchFactory = Callable[[int, int, int], Searcher]
"""A search for (training examples, budget, seed)."""
ExampleCredit = Callable[[Route], NDArray[Any]]
"""How much of each example a recorded route got right."""


@dataclass(frozen=True)
class JudgedFinalist:
    """A finalist: what the decision knew about it, and what the judging examples show."""

    evidence: FinalistEvidence
    judged: NDArray[np.int8]
    """By judging example: 1 if only the route is correct, -1 if only the standard pass is."""


@dataclass(frozen=True)
class ReplayResult:
    """What a search made of a landscape."""

    route: Route
    gain: float
    """Of the selected route over the standard pass, on examples that the search never saw."""
    proposed: float
    """The same of its best finalist, selected or not."""
    asked: int
    """Evaluations asked for."""
    missing: int
    """Of these, of routes that were not recorded."""
    finalists: tuple[JudgedFinalist, ...] = ()
    """Of the guided search."""


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

    def score_route(route: Route, examples: NDArray[np.int64]) -> Outcome:
        nonlocal asked_for, missing
        asked_for += len(examples)
        if route not in landscape:
            missing += len(examples)
            return ScoringFailure("the landscape does not hold this route")
        return Score(float(credit(route)[examples].sum()), len(examples))

    state = searcher.make_initial_state()
    while (asked := searcher.ask(state)) is not None:
        examples = train[list(asked.examples)]
        outcomes = [score_route(proposal.route, examples) for proposal in asked.proposals]
        state = searcher.tell(state, asked, outcomes)
    candidates = [candidate for candidate in searcher.candidates(state) if candidate.route in landscape]
    evidence: dict[Route, FinalistEvidence] = {}
    if isinstance(searcher, GuidedSearch):
        fresh = np.concatenate([train[list(searcher.holdout)], validation])
        routes = [candidate.route for candidate in candidates]
        evidence = assess_finalists(routes, lambda route: landscape.correct_examples(route)[fresh], searcher.decision)
        chosen = decide_route(evidence, searcher.decision) or Route.standard(landscape.layers)
    else:
        chosen = _select_on_validation(landscape, candidates, validation, train)
    others = [candidate.route for candidate in candidates if not candidate.route.is_standard]

    def judge_route(route: Route) -> NDArray[np.int8]:
        correct = landscape.correct_examples(route)[judge].astype(np.int8)
        return np.asarray(correct - landscape.standard[judge].astype(np.int8))

    return ReplayResult(
        chosen,
        float(judge_route(chosen).mean()),
        float(judge_route(others[0]).mean()) if others else 0.0,
        asked_for,
        missing,
        tuple(JudgedFinalist(finalist, judge_route(route)) for route, finalist in evidence.items()),
    )


def _select_on_validation(
    landscape: Landscape, candidates: Sequence[Candidate], validation: NDArray[np.int64], train: NDArray[np.int64]
) -> Route:
    def score_candidates(some: Sequence[Candidate], examples: NDArray[np.int64]) -> list[Outcome]:
        rows = [landscape.correct_examples(candidate.route)[examples] for candidate in some]
        return [Score(int(row.sum()), len(examples)) for row in rows]

    scores = score_candidates(candidates, validation)
    return select_candidate(candidates, scores, lambda tied: score_candidates(tied, train)).route


def complement_examples(landscape: Landscape, seed: int) -> Landscape:
    """The landscape with all outcomes on an example complemented jointly, with probability 1/2.

    No route is better than another then, and every correlation between routes stays as it is.
    """
    flipped = np.random.default_rng([seed, _COMPLEMENTING]).random(landscape.examples) < 0.5
    return Landscape(landscape.routes, landscape.correct ^ flipped, landscape.about)
