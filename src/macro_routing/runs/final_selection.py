"""The final choice: candidates by validation, winners that cost too much elsewhere turned down."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macro_routing.evaluation.holdout_selection import (
    compute_gain_probability,
    select_confirmed_candidate,
    update_expected_gain,
)
from macro_routing.evaluation.outcomes import RouteEvaluation
from macro_routing.routes.paper_notation import parse_program
from macro_routing.routes.route import Route
from macro_routing.search.macro import select_candidate
from macro_routing.search.searcher import Candidate, Outcome

Evaluate = Callable[[Sequence[Route]], Mapping[Route, RouteEvaluation]]


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
        for one in self.candidates:
            if one["route"] == str(self.route):
                return {"correct": one["correct"], "n": one["n"]}
        return {}

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "chosen": str(self.route),
            "refused": self.refused,
            "candidates": [dict(one) for one in self.candidates],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any], layers: int) -> "FinalSelection":
        """The choice that ``to_json`` wrote."""
        return cls(parse_program(values["chosen"]).expand(layers), tuple(values["candidates"]), values["refused"])


def select_route(
    candidates: Sequence[Candidate],
    validated: Mapping[Route, RouteEvaluation],
    on_training: Evaluate,
    objection: Callable[[Route], str],
) -> FinalSelection:
    """The best candidate by validation that nothing speaks against; the standard pass when all are turned down."""

    def score_on_training(tied: Sequence[Candidate]) -> list[Outcome]:
        found = on_training([candidate.route for candidate in tied])
        return [found[candidate.route].score for candidate in tied]

    turned_down: dict[Route, str] = {}
    left = list(candidates)
    while left:
        best = select_candidate(left, [validated[candidate.route].score for candidate in left], score_on_training)
        reason = "" if best.route.is_standard else _find_failure(best.route, validated) or objection(best.route)
        if not reason:
            return FinalSelection(best.route, _list_candidates(candidates, validated, turned_down))
        turned_down[best.route] = reason
        left = [candidate for candidate in left if candidate.route != best.route]
    reasons = "; ".join(f"{route} was turned down: {reason}" for route, reason in turned_down.items())
    standard = Route.standard(candidates[0].route.layers)
    return FinalSelection(standard, _list_candidates(candidates, validated, turned_down), f"since {reasons}")


def select_confirmed_route(
    candidates: Sequence[Candidate],
    validated: Mapping[Route, RouteEvaluation],
    holdout: Mapping[Route, RouteEvaluation],
    max_error_probability: float,
    objection: Callable[[Route], str],
) -> FinalSelection:
    """The finalist that is almost certainly better, by what the search expects and examples it never saw."""

    def verdicts(route: Route) -> NDArray[np.bool_]:
        return np.array([*holdout[route].correct, *validated[route].correct], dtype=bool)

    standard = Route.standard(candidates[0].route.layers)
    turned_down: dict[Route, str] = {}
    if failure := _find_failure(standard, validated, holdout):
        # Whoever is compared with a pass that could not be run wins.
        reason = f"since the standard pass could not be run: {failure}"
        return FinalSelection(standard, _list_candidates(candidates, validated, turned_down), reason)
    left = list(candidates)
    while True:
        best = select_confirmed_candidate(left, verdicts, max_error_probability)
        reason = (
            "" if best.route.is_standard else _find_failure(best.route, validated, holdout) or objection(best.route)
        )
        if not reason:
            break
        turned_down[best.route] = reason
        left = [candidate for candidate in left if candidate.route != best.route]
    refused = "; ".join(f"{route} was turned down: {reason}" for route, reason in turned_down.items())
    control = verdicts(standard)
    sure = {
        one.route: compute_gain_probability(update_expected_gain(one.expected, control, verdicts(one.route)))
        for one in candidates
    }
    for one in candidates:
        if not (one.route.is_standard or one.route in turned_down or one.route == best.route):
            turned_down[one.route] = (
                f"it is better than the standard pass with probability {sure[one.route]:.2f} only"
                if 1 - sure[one.route] > max_error_probability
                else "the chosen one can be counted on for more"
            )
    listed = tuple(
        {
            **line,
            "holdout": sum(holdout[one.route].correct),
            "holdout_n": len(holdout[one.route].outcomes),
            "expected_gain": one.expected and one.expected.mean,
            "expected_deviation": one.expected and max(one.expected.variance, 0.0) ** 0.5,
            "certainty": None if one.route.is_standard else sure[one.route],
        }
        for line, one in zip(_list_candidates(candidates, validated, turned_down), candidates, strict=True)
    )
    return FinalSelection(best.route, listed, f"since {refused}" if refused else "")


def _find_failure(route: Route, *evaluations: Mapping[Route, RouteEvaluation]) -> str:
    """Why a route could not be run somewhere; what it got right elsewhere does not make up for that."""
    return next((found[route].failure for found in evaluations if found[route].failure), "")


def _list_candidates(
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
