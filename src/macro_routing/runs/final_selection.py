"""The final choice: candidates by validation, winners that cost too much elsewhere turned down."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macro_routing.evaluation.holdout_selection import (
    combine_expected_and_measured_gain,
    compute_gain_probability,
    select_confirmed_candidate,
)
from macro_routing.evaluation.outcomes import RouteEvaluation
from macro_routing.routes import Route, parse_program
from macro_routing.search import Candidate, Outcome, select_candidate

Evaluate = Callable[[Sequence[Route]], Mapping[Route, RouteEvaluation]]
FindObjection = Callable[[Route], str]
"""Why a route must not win; empty when it may."""


@dataclass(frozen=True)
class FinalSelection:
    """The chosen route, and all that were considered."""

    route: Route
    candidates: tuple[Mapping[str, Any], ...]
    """Route, ranks, probability, validation score, and why one was turned down."""
    refused: str = field(default="")
    """Why every other route was turned down, where the standard pass won for that reason."""

    @property
    def validation(self) -> Mapping[str, Any]:
        """The chosen route's validation score."""
        lines = (line for line in self.candidates if line["route"] == str(self.route))
        return next(({"correct": line["correct"], "n": line["n"]} for line in lines), {})

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "chosen": str(self.route),
            "refused": self.refused,
            "candidates": [dict(line) for line in self.candidates],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any], layers: int) -> "FinalSelection":
        """The choice that ``to_json`` wrote."""
        return cls(parse_program(values["chosen"]).expand(layers), tuple(values["candidates"]), values["refused"])


def select_route(
    candidates: Sequence[Candidate],
    validated: Mapping[Route, RouteEvaluation],
    evaluate_on_training: Evaluate,
    find_objection: FindObjection,
) -> FinalSelection:
    """The best candidate by validation that nothing speaks against; the standard pass when all are turned down."""

    def score_on_training(tied: Sequence[Candidate]) -> list[Outcome]:
        evaluations = evaluate_on_training([candidate.route for candidate in tied])
        return [evaluations[candidate.route].score for candidate in tied]

    def select_best(left: Sequence[Candidate]) -> Candidate:
        return select_candidate(left, [validated[candidate.route].score for candidate in left], score_on_training)

    best, turned_down = _select_unopposed(
        candidates, select_best, lambda route: _find_route_failure(route, validated) or find_objection(route)
    )
    reason = "" if best else f"since {_join_reasons(turned_down)}"
    route = best.route if best else Route.standard(candidates[0].route.layers)
    return FinalSelection(route, _make_candidate_records(candidates, validated, turned_down), reason)


def select_confirmed_route(
    candidates: Sequence[Candidate],
    validated: Mapping[Route, RouteEvaluation],
    holdout: Mapping[Route, RouteEvaluation],
    max_error_probability: float,
    find_objection: FindObjection,
) -> FinalSelection:
    """The finalist that is almost certainly better, by what the search expects and examples it never saw."""

    def get_correct_flags(route: Route) -> NDArray[np.bool_]:
        return np.array([*holdout[route].correct, *validated[route].correct], dtype=bool)

    standard = Route.standard(candidates[0].route.layers)
    if failure := _find_route_failure(standard, validated, holdout):
        # Whoever is compared with a pass that could not be run wins.
        reason = f"since the standard pass could not be run: {failure}"
        return FinalSelection(standard, _make_candidate_records(candidates, validated, {}), reason)
    best, turned_down = _select_unopposed(
        candidates,
        lambda left: select_confirmed_candidate(left, get_correct_flags, max_error_probability),
        lambda route: _find_route_failure(route, validated, holdout) or find_objection(route),
    )
    chosen = best.route if best else standard
    reason = f"since {_join_reasons(turned_down)}" if turned_down else ""
    probabilities = {
        candidate.route: compute_gain_probability(
            combine_expected_and_measured_gain(
                candidate.expected, get_correct_flags(standard), get_correct_flags(candidate.route)
            )
        )
        for candidate in candidates
    }
    for route, probability in probabilities.items():
        if not (route.is_standard or route in turned_down or route == chosen):
            turned_down[route] = (
                f"it is better than the standard pass with probability {probability:.2f} only"
                if 1 - probability > max_error_probability
                else "the chosen candidate can be counted on for more"
            )
    listed = tuple(
        {
            **line,
            "holdout": sum(holdout[candidate.route].correct),
            "holdout_n": len(holdout[candidate.route].outcomes),
            "expected_gain": candidate.expected and candidate.expected.mean,
            "expected_deviation": candidate.expected and max(candidate.expected.variance, 0.0) ** 0.5,
            "certainty": None if candidate.route.is_standard else probabilities[candidate.route],
        }
        for line, candidate in zip(_make_candidate_records(candidates, validated, turned_down), candidates, strict=True)
    )
    return FinalSelection(chosen, listed, reason)


def _select_unopposed(
    candidates: Sequence[Candidate],
    select_best: Callable[[Sequence[Candidate]], Candidate],
    find_objection: FindObjection,
) -> tuple[Candidate | None, dict[Route, str]]:
    """The best candidate without an objection, None when all have one; and the objections to better ones."""
    objections: dict[Route, str] = {}
    left = list(candidates)
    while left:
        best = select_best(left)
        objection = "" if best.route.is_standard else find_objection(best.route)
        if not objection:
            return best, objections
        objections[best.route] = objection
        left = [candidate for candidate in left if candidate.route != best.route]
    return None, objections


def _join_reasons(turned_down: Mapping[Route, str]) -> str:
    return "; ".join(f"{route} was turned down: {reason}" for route, reason in turned_down.items())


def _find_route_failure(route: Route, *evaluations: Mapping[Route, RouteEvaluation]) -> str:
    """Why a route could not be run somewhere; what it got right elsewhere does not make up for that."""
    return next((by_route[route].failure for by_route in evaluations if by_route[route].failure), "")


def _make_candidate_records(
    candidates: Sequence[Candidate], validated: Mapping[Route, RouteEvaluation], turned_down: Mapping[Route, str]
) -> tuple[Mapping[str, Any], ...]:
    return tuple(
        {
            "route": str(candidate.route),
            "length": candidate.route.length,
            "program": None if candidate.program is None else str(candidate.program),
            "log_probability": candidate.log_probability,
            "raw_rank": candidate.raw_rank,
            "rank": candidate.rank,
            "correct": sum(validated[candidate.route].correct),
            "n": len(validated[candidate.route].outcomes),
            "turned_down": turned_down.get(candidate.route, ""),
        }
        for candidate in candidates
    )
