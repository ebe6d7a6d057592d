"""The final decision of a search: the standard pass, unless held-out examples show a route that meets the objective.

Accuracy: a finalist must gain more than the price of its additional layers. Speed: it must not lose more than a margin.
Both are one-sided paired tests on examples that the search never saw, corrected for the number of finalists. Of the
finalists that pass, the fastest is returned that cannot be distinguished from the most accurate; for speed the fastest.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np
import scipy
from numpy.typing import NDArray

from macro_routing.evaluation.gain_posterior import GainPosterior
from macro_routing.evaluation.statistics import smallest_detectable_gain
from macro_routing.routes.mixture import RouteOrMixture
from macro_routing.routes.route import Route
from macro_routing.search.decision_settings import SPEED, DecisionSettings

RouteT = TypeVar("RouteT", bound=RouteOrMixture)
GetScores = Callable[[RouteT], NDArray[np.bool_] | NDArray[np.float64]]
"""A route's score on every held-out example, from 0 to 1; the search used none of them, and all routes get the same."""
TYPICAL_DISCORDANCE = 0.2
"""Share of examples on which a route and the standard pass usually differ."""
_TYPICAL_FINALISTS = 5
_N_FLIPS = 10_000
_PSEUDO_COUNT = 3
"""Added to the discordant examples in a variance. Without any difference, 95 % certainty of a loss below 3 % needs 95
examples: the rule of three."""


@dataclass(frozen=True, eq=False)
class FinalistEvidence:
    """What held-out examples say about one finalist."""

    route: RouteOrMixture
    """The finalist."""
    differences: NDArray[np.float64]
    """By example: 1 if only the route is correct, -1 if only the standard pass is; between them with partial scores."""
    required_gain: float
    """Gain that the route has to exceed, as a share."""
    p_value: float
    """Of a true gain of at most ``required_gain``, corrected for the number of finalists."""
    posterior: GainPosterior
    """Distribution of the expected gain, shrunk towards zero."""
    groups: Sequence[int] | None = None
    """The number of each example's group; None: every example is one of its own."""

    @property
    def gain(self) -> float:
        """Measured gain over the standard pass."""
        return float(self.differences.mean()) if len(self.differences) else 0.0

    @property
    def probability_of_meeting_objective(self) -> float:
        """Probability that the route meets the objective."""
        return self.posterior.probability_above(self.required_gain)


def assess_finalists(
    routes: Sequence[RouteT],
    get_scores: GetScores[RouteT],
    settings: DecisionSettings,
    groups: Sequence[int] | None = None,
) -> dict[RouteT, FinalistEvidence]:
    """The evidence for every route but the standard pass; examples of a group count as one observation."""
    routes = [route for route in dict.fromkeys(routes) if not route.is_standard]
    if not routes:
        return {}
    standard = get_scores(cast(RouteT, Route.standard(routes[0].layers))).astype(np.float64)
    differences = np.array([get_scores(route).astype(np.float64) - standard for route in routes])
    required = [settings.required_gain(route) for route in routes]
    p_values = compute_sign_flip_p_values(differences, required, groups)
    squares = (_sum_by_group(differences, groups) ** 2).sum(axis=1).tolist()
    return {
        route: FinalistEvidence(
            route, row, gain, p_value, GainPosterior.from_sums(float(row.sum()), square, len(row)), groups
        )
        for route, row, gain, p_value, square in zip(routes, differences, required, p_values, squares, strict=True)
    }


def decide_route(
    evidence: Mapping[RouteT, FinalistEvidence], settings: DecisionSettings, excluded: Collection[RouteT] = ()
) -> RouteT | None:
    """The route to return; None for the standard pass."""
    passed = [
        (route, finalist)
        for route, finalist in evidence.items()
        if finalist.p_value <= settings.max_error_probability
        and settings.can_meet_objective(route)
        and route not in excluded
    ]
    if not passed:
        return None
    if settings.objective != SPEED:
        _, best = max(passed, key=lambda item: item[1].gain - item[1].required_gain)
        passed = [
            (route, finalist)
            for route, finalist in passed
            if not _is_significantly_worse(finalist, best, settings.max_error_probability)
        ]
    return min(passed, key=lambda item: (item[0].length, -item[1].gain))[0]


def _is_significantly_worse(finalist: FinalistEvidence, best: FinalistEvidence, level: float) -> bool:
    """Whether the best is significantly more accurate."""
    difference = (best.differences - finalist.differences)[None]
    return compute_sign_flip_p_values(difference, [0.0], finalist.groups)[0] <= level


def compute_sign_flip_p_values(
    differences: NDArray[np.float64], required: Sequence[float], groups: Sequence[int] | None = None
) -> list[float]:
    """One-sided p-values of ``[route, example]`` differences, corrected for the number of routes.

    If no route is better than the control, the sign of every example's differences is a coin flip, the same one for all
    routes, since they share the example. Examples of a group, such as variants of one question, share it, too. The
    largest statistic of flipped data shows what chance alone gives. Where a gain is required or a loss allowed, this
    holds for many examples only, so no p-value is below that of the normal distribution.
    """
    rows = np.asarray(differences, dtype=np.float64)
    if not rows.shape[1]:
        return [1.0] * len(rows)
    sums = _sum_by_group(rows, groups)
    spread = np.sqrt((sums**2).sum(axis=1) + _PSEUDO_COUNT)
    observed = (rows.sum(axis=1) - rows.shape[1] * np.array(required)) / spread
    signs = np.random.default_rng(0).choice(np.array([-1.0, 1.0]), size=(_N_FLIPS, sums.shape[1]))
    largest = (signs @ (sums / spread[:, None]).T).max(axis=1)
    flipped = (1 + (largest[:, None] >= observed - 1e-12).sum(axis=0)) / (1 + _N_FLIPS)
    p_values: list[float] = np.maximum(flipped, scipy.special.ndtr(-observed)).tolist()
    return p_values


def _sum_by_group(rows: NDArray[np.float64], groups: Sequence[int] | None) -> NDArray[np.float64]:
    """The sums of each row over the examples of a group; the row itself without groups."""
    if groups is None:
        return rows
    _, columns = np.unique(np.array(groups), return_inverse=True)
    return np.array([np.bincount(columns, row) for row in rows])


def describe_decision_power(settings: DecisionSettings, held_out: int) -> str:
    """What a decision on so many held-out examples can show, and how many would do where these are too few."""
    if settings.objective == SPEED:
        least, typical = (count_examples_to_pass_margin_test(settings, share) for share in (0.0, TYPICAL_DISCORDANCE))
        verdict = "are too few to return any route (use more, or a larger margin)" if held_out < least else "decide"
        return (
            f"{held_out} held-out examples {verdict}; a margin of {settings.margin:g} points needs"
            f" {least} if no answer changes and about {typical} if a fifth of them do"
        )
    level = settings.max_error_probability / _TYPICAL_FINALISTS
    gain = find_detectable_gain(settings, held_out)
    if not math.isfinite(gain):
        needed = math.ceil(
            TYPICAL_DISCORDANCE * ((scipy.special.ndtri(1 - level) + scipy.special.ndtri(0.8)) / 0.05) ** 2
        )
        return (
            f"{held_out} held-out examples are too few to show even a gain of 20 points in four of"
            f" five cases; about {needed} can show one of 5 points"
        )
    return (
        f"{held_out} held-out examples can show a gain of {100 * gain:.1f} points, in four of five"
        f" cases, with an error probability of {settings.max_error_probability:g}"
    )


def find_detectable_gain(settings: DecisionSettings, held_out: int) -> float:
    """The smallest gain of one of a few finalists that so many held-out examples show in four of five cases."""
    level = settings.max_error_probability / _TYPICAL_FINALISTS
    return smallest_detectable_gain(held_out, TYPICAL_DISCORDANCE, level=2 * level) if held_out else math.inf


def count_examples_to_pass_margin_test(settings: DecisionSettings, discordance: float) -> int:
    """Fresh examples with which a route that is exactly as accurate passes the test of the margin half of the time.

    ``discordance`` is the share of examples on which the two differ. Without any, it is the smallest number that can
    pass at all.
    """
    level, margin = float(scipy.special.ndtri(1 - settings.max_error_probability)), settings.margin / 100
    # level = n · margin / sqrt(n · discordance + pseudo-count), solved for n.
    linear = level**2 * discordance
    return math.ceil((linear + math.sqrt(linear**2 + 4 * margin**2 * level**2 * _PSEUDO_COUNT)) / (2 * margin**2))
