"""Maximize an objective of one's own: a function from routes and examples to scores, without task, prompts or grader.

The guided search learns from part of the examples; the rest decides, by the same test as in a run. So a returned route
was shown to score higher than the standard pass on examples that the search did not use.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from macro_routing.errors import SearchError
from macro_routing.evaluation.final_decision import FinalistEvidence, assess_finalists, decide_route
from macro_routing.files import acquire_lock
from macro_routing.routes.route import Route
from macro_routing.routes.space import RouteSpace
from macro_routing.search.decision_settings import DecisionSettings
from macro_routing.search.guided import GuidedSearch
from macro_routing.search.guided_settings import GuidedSettings
from macro_routing.search.searcher import Score, SearchState
from macro_routing.search.state_file import load_state, save_state

Objective = Callable[[Sequence[Route], Sequence[Any]], ArrayLike]
"""Scores from 0 to 1 by ``[route, example]``; higher is better, and the same call gives the same scores again."""
STATE = "state.npz"


@dataclass(frozen=True)
class ObjectiveResult:
    """The end of a search with an objective of one's own."""

    route: Route
    """The standard pass, unless held-out examples show that another route scores higher."""
    finalists: tuple[FinalistEvidence, ...]
    """What the held-out examples say of each finalist: gain, p-value corrected for their number, expected gain."""
    held_out: int
    """Number of examples that decided; the search did not use them."""
    state: SearchState = field(repr=False)
    """Every route that was scored."""

    @property
    def evidence(self) -> FinalistEvidence | None:
        """What was known of the returned route; None for the standard pass."""
        return next((finalist for finalist in self.finalists if finalist.route == self.route), None)


def maximize_objective(  # noqa: PLR0913
    objective: Objective,
    space: RouteSpace,
    examples: Sequence[Any],
    *,
    folder: str | Path | None = None,
    budget: int | None = None,
    settings: GuidedSettings | None = None,
    decision: DecisionSettings | None = None,
    seed: int = 0,
) -> ObjectiveResult:
    """Search the route that maximizes the mean of ``objective`` over ``examples``.

    ``objective(routes, examples)`` returns scores from 0 to 1, a row for each route. ``budget`` is the number of scores
    (route × example) that the search may ask for; by default what ``settings.draws`` needs. With ``folder`` the search
    is saved after every round, and the same call continues it.

    Example::

        result = maximize_objective(score_routes, RouteSpace(model.layers), examples, folder="search", seed=1)
        print(result.route, result.evidence)
    """
    settings, decision, examples = settings or GuidedSettings(), decision or DecisionSettings(), list(examples)
    if decision.members != 1:
        raise SearchError("mixtures cannot be searched with an objective of your own; give DecisionSettings(members=1)")
    budget = settings.min_evaluations(len(examples)) if budget is None else budget
    search = GuidedSearch(space, len(examples), budget, settings, seed, decision)
    scores = _ObjectiveScores(objective, examples)
    if folder is None:
        state = _search_to_end(search, scores, search.make_initial_state(), None)
    else:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with acquire_lock(Path(folder) / "lock"):
            state = _search_to_end(search, scores, _load_or_start(search, scores, folder), Path(folder) / STATE)
    routes = [candidate.route for candidate in search.candidates(state)]
    held_out = scores.compute([Route.standard(space.layers), *routes], search.holdout)
    evidence = assess_finalists(routes, held_out.__getitem__, decision)
    chosen = decide_route(evidence, decision) or Route.standard(space.layers)
    return ObjectiveResult(chosen, tuple(evidence.values()), len(search.holdout), state)


def _search_to_end(
    search: GuidedSearch, scores: "_ObjectiveScores", state: SearchState, path: Path | None
) -> SearchState:
    while (asked := search.ask(state)) is not None:
        by_route = scores.compute([proposal.route for proposal in asked.proposals], asked.examples)
        outcomes = [_to_score(by_route[proposal.route]) for proposal in asked.proposals]
        state = search.tell(state, asked, outcomes)
        if path is not None:
            save_state(path, state)
    return state


def _load_or_start(search: GuidedSearch, scores: "_ObjectiveScores", folder: str | Path) -> SearchState:
    """The saved state if the objective still gives what was recorded in the first round; else the initial state."""
    path = Path(folder) / STATE
    if not path.is_file():
        return search.make_initial_state()
    state = load_state(path)
    search.check_state(state)
    first_round = [draw for draw in state.draws if draw.round == state.draws[0].round]
    # The standard pass and one other route.
    for recorded in {draw.proposal.route.is_standard: draw for draw in reversed(first_round)}.values():
        route = recorded.proposal.route
        now = _to_score(scores.compute([route], search.planned_round_sizes[0].examples)[route])
        if not isinstance(recorded.outcome, Score) or abs(recorded.outcome.accuracy - now.accuracy) > 1e-6:
            raise SearchError(
                f"{folder} was searched with another objective or other examples: the score of {route} on the first"
                f" round's examples was {recorded.outcome}, now it is {now}; name another folder"
            )
    return state


def _to_score(values: NDArray[np.float64]) -> Score:
    return Score(float(values.sum()), len(values))


class _ObjectiveScores:
    """Checked scores of an objective; each route and example is asked for once."""

    def __init__(self, objective: Objective, examples: Sequence[Any]) -> None:
        self._objective = objective
        self._examples = examples
        self._known: dict[tuple[Route, int], float] = {}

    def compute(self, routes: Sequence[Route], examples: Sequence[int]) -> dict[Route, NDArray[np.float64]]:
        """The scores of different routes on examples, by index."""
        distinct = list(dict.fromkeys(routes))
        missing = [route for route in distinct if any((route, index) not in self._known for index in examples)]
        if missing:
            asked = [self._examples[index] for index in examples]
            values = _check_scores(self._objective(missing, asked), (len(missing), len(asked)))
            for route, row in zip(missing, values, strict=True):
                self._known.update({(route, index): float(score) for index, score in zip(examples, row, strict=True)})
        return {route: np.array([self._known[route, index] for index in examples]) for route in distinct}


def _check_scores(values: ArrayLike, shape: tuple[int, int]) -> NDArray[np.float64]:
    """The objective's scores as an array; another shape, and scores outside of 0 to 1, are rejected."""
    try:
        scores = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: of a tensor with a gradient
        raise SearchError(
            f"the objective must return numbers by [route, example], not a {type(values).__name__}"
        ) from None
    if scores.shape != shape:
        raise SearchError(
            f"the objective returned scores of shape {scores.shape}; {shape} is needed: a row for each of"
            f" {shape[0]} routes, a column for each of {shape[1]} examples"
        )
    if np.isnan(scores).any():
        raise SearchError("the objective returned NaN; return a score from 0 to 1 for every route and example")
    if not ((scores >= 0) & (scores <= 1)).all():
        raise SearchError("the objective returned a score outside of 0 to 1; scale the scores to that range")
    return scores
