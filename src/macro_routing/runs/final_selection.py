"""The final choice: candidates by validation, winners that cost too much elsewhere turned down."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macro_routing.evaluation.final_decision import FinalistEvidence, assess_finalists, decide_route
from macro_routing.evaluation.outcomes import RouteEvaluation
from macro_routing.routes import Route
from macro_routing.routes.mixture import RouteOrMixture, parse_mixture, parse_program_or_mixture
from macro_routing.search import Candidate, Outcome, select_candidate
from macro_routing.search.decision_settings import SPEED, DecisionSettings


@dataclass(frozen=True)
class MixtureCandidate:
    """A mixture, or what a control found, to be validated; no policy proposed it."""

    route: RouteOrMixture
    program: None = None
    log_probability: None = None
    raw_rank: None = None
    rank: None = None


Evaluate = Callable[[Sequence[RouteOrMixture]], Mapping[RouteOrMixture, RouteEvaluation]]
FindObjection = Callable[[RouteOrMixture], str]
"""Why a route must not win; empty when it may."""


@dataclass(frozen=True)
class FinalSelection:
    """The chosen route, and all that were considered."""

    route: RouteOrMixture
    candidates: tuple[Mapping[str, Any], ...]
    """Route, ranks, probability, validation score, and why one was turned down."""
    refused: str = field(default="")
    """Why every other route was turned down, where the standard pass won for that reason."""

    @property
    def validation_score(self) -> Mapping[str, Any]:
        """The chosen route's validation score."""
        lines = (line for line in self.candidates if line["route"] == str(self.route))
        return next(({"correct": line["correct"], "n": line["n"]} for line in lines), {})

    @property
    def held_out(self) -> int:
        """Number of examples of the final decision; 0 where validation alone selects."""
        return next((line["n"] + line["holdout_n"] for line in self.candidates if "holdout_n" in line), 0)

    @property
    def decision_evidence(self) -> Mapping[str, Any]:
        """What the final decision knew of the chosen route; empty where it made none, and for the standard pass."""
        by_route = {line["route"]: line for line in self.candidates}
        chosen, standard = by_route.get(str(self.route), {}), by_route.get(str(Route.standard(self.route.layers)), {})
        if chosen.get("p_value") is None:
            return {}
        return {
            "correct": chosen["correct"] + chosen["holdout"],
            "standard_correct": standard["correct"] + standard["holdout"] if standard else None,
            "n": self.held_out,
            "p_value": chosen["p_value"],
            "required_gain": chosen["required_gain"],
        }

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
        candidates = tuple(values["candidates"])
        for candidate in candidates:
            parse_mixture(candidate["route"], layers)
            is_decided = "p_value" in candidate
            scores = [candidate[name] for name in ("correct", "n", *(("holdout", "holdout_n") if is_decided else ()))]
            # The standard pass has no p-value.
            tests = [candidate[name] for name in ("p_value", "required_gain")] if is_decided else []
            numbers = [*scores, *(value for value in tests if value is not None)]
            if not all(isinstance(value, int | float) for value in numbers):
                raise TypeError("a candidate's score is not a number")
        return cls(parse_program_or_mixture(values["chosen"], layers), candidates, values["refused"])


def select_route(
    candidates: Sequence[Candidate],
    validated: Mapping[RouteOrMixture, RouteEvaluation],
    evaluate_on_training: Evaluate,
    find_objection: FindObjection,
) -> FinalSelection:
    """The best candidate by validation that nothing speaks against; the standard pass when all are turned down."""

    def score_on_training(tied: Sequence[Candidate]) -> list[Outcome]:
        evaluations = evaluate_on_training([candidate.route for candidate in tied])
        return [evaluations[candidate.route].score for candidate in tied]

    def select_best(left: Sequence[Candidate]) -> Candidate:
        return select_candidate(left, [validated[candidate.route].score for candidate in left], score_on_training)

    best, turned_down = _select_best_without_objection(
        candidates,
        select_best,
        lambda route: _find_recorded_failure_of_route(route, validated) or find_objection(route),
    )
    reason = "" if best else f"since {_describe_turned_down_routes(turned_down)}"
    route = best.route if best else Route.standard(candidates[0].route.layers)
    return FinalSelection(route, _make_candidate_records(candidates, validated, turned_down), reason)


def select_without_decision(
    route: RouteOrMixture, validated: Mapping[RouteOrMixture, RouteEvaluation]
) -> FinalSelection:
    """What a control found, whatever its validation score: it is a control, and nothing confirms it."""
    return FinalSelection(route, _make_candidate_records([MixtureCandidate(route)], validated, {}))


def select_by_decision(  # noqa: PLR0913
    candidates: Sequence[Candidate | MixtureCandidate],
    validated: Mapping[RouteOrMixture, RouteEvaluation],
    holdout: Mapping[RouteOrMixture, RouteEvaluation],
    settings: DecisionSettings,
    find_objection: FindObjection,
    groups: Sequence[int] | None = None,
) -> FinalSelection:
    """The route that the decision returns, by examples that the search never saw: holdout and validation together.

    ``groups`` are those of the examples of the holdout, then of validation; see ``number_groups``.
    """

    def get_correct_flags(route: RouteOrMixture) -> NDArray[np.bool_]:
        earlier = holdout[route].correct if holdout else ()
        return np.array([*earlier, *validated[route].correct], dtype=bool)

    standard = Route.standard(candidates[0].route.layers)
    evaluations = [validated, holdout] if holdout else [validated]
    if failure := _find_recorded_failure_of_route(standard, *evaluations):
        # Whoever is compared with a pass that could not be run wins.
        reason = f"since the standard pass could not be run: {failure}"
        return FinalSelection(standard, _make_candidate_records(candidates, validated, {}), reason)
    failures = {
        candidate.route: _find_recorded_failure_of_route(candidate.route, *evaluations) for candidate in candidates
    }
    runnable = [route for route, failure in failures.items() if not failure]
    evidence = assess_finalists(runnable, get_correct_flags, settings, groups)
    opposed = {route: failure for route, failure in failures.items() if failure}
    while (chosen := decide_route(evidence, settings, opposed)) is not None:
        if not (objection := find_objection(chosen)):
            break
        opposed[chosen] = objection
    turned_down = opposed | {
        route: _explain_finalist_rejection(finalist, settings)
        for route, finalist in evidence.items()
        if route != chosen and route not in opposed
    }
    records = _make_candidate_records(candidates, validated, turned_down)
    return FinalSelection(
        chosen or standard,
        tuple(
            {**record, **_make_evidence_record(candidate.route, holdout, evidence)}
            for record, candidate in zip(records, candidates, strict=True)
        ),
        f"since {_describe_turned_down_routes(opposed)}" if opposed else "",
    )


def _explain_finalist_rejection(finalist: FinalistEvidence, settings: DecisionSettings) -> str:
    """Why a finalist was not returned."""
    if finalist.p_value <= settings.max_error_probability:
        return (
            "the chosen route cannot be distinguished from it in accuracy and does not have more layers"
            if settings.objective != SPEED
            else "the chosen route has fewer layers, or as many and a higher gain"
        )
    points = f"{100 * abs(finalist.required_gain):.1f} points (p = {finalist.p_value:.2g})"
    if settings.objective == SPEED:
        return f"it is not shown to lose less than {points}"
    return f"it is not shown to gain more than {points}"


def _make_evidence_record(
    route: RouteOrMixture,
    holdout: Mapping[RouteOrMixture, RouteEvaluation],
    evidence: Mapping[RouteOrMixture, FinalistEvidence],
) -> dict[str, Any]:
    finalist = evidence.get(route)
    return {
        "holdout": sum(holdout[route].correct) if holdout else 0,
        "holdout_n": len(holdout[route].outcomes) if holdout else 0,
        "expected_gain": finalist and finalist.posterior.expected_gain,
        "expected_deviation": finalist and finalist.posterior.gain_standard_deviation,
        "required_gain": finalist and finalist.required_gain,
        "p_value": finalist and finalist.p_value,
        "certainty": finalist and finalist.probability_of_meeting_objective,
    }


def _select_best_without_objection(
    candidates: Sequence[Candidate],
    select_best: Callable[[Sequence[Candidate]], Candidate],
    find_objection: FindObjection,
) -> tuple[Candidate | None, dict[RouteOrMixture, str]]:
    """The best candidate without an objection, None when all have one; and the objections to better ones."""
    objections: dict[RouteOrMixture, str] = {}
    left = list(candidates)
    while left:
        best = select_best(left)
        objection = "" if best.route.is_standard else find_objection(best.route)
        if not objection:
            return best, objections
        objections[best.route] = objection
        left = [candidate for candidate in left if candidate.route != best.route]
    return None, objections


def _describe_turned_down_routes(turned_down: Mapping[RouteOrMixture, str]) -> str:
    return "; ".join(f"{route} was turned down: {reason}" for route, reason in turned_down.items())


def _find_recorded_failure_of_route(
    route: RouteOrMixture, *evaluations: Mapping[RouteOrMixture, RouteEvaluation]
) -> str:
    """Why a route could not be run somewhere; what it got right elsewhere does not make up for that."""
    return next((by_route[route].failure for by_route in evaluations if by_route[route].failure), "")


def _make_candidate_records(
    candidates: Sequence[Candidate | MixtureCandidate],
    validated: Mapping[RouteOrMixture, RouteEvaluation],
    turned_down: Mapping[RouteOrMixture, str],
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
