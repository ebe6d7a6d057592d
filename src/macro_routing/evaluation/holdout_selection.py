"""The final choice of a search with a holdout: the standard pass, unless the evidence for a route is strong enough."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from macro_routing.routes.route import Route
from macro_routing.search.searcher import Candidate, ExpectedGain

GetCorrect = Callable[[Route], NDArray[np.bool_]]
"""Which fresh examples a route answers correctly; the search used none of them, and all routes get the same ones."""
_MIN_VARIANCE = 1e-12


def combine_expected_and_measured_gain(
    expected: ExpectedGain | None, standard: NDArray[np.bool_], route: NDArray[np.bool_]
) -> ExpectedGain | None:
    """The gain that the search expects of a route and its gain on fresh examples, weighted by their precision.

    None if there is neither. The variance of the fresh gain counts the examples on which the routes differ, plus two:
    otherwise a handful of examples without any difference would be certainty.
    """
    count = len(standard)
    if not count:
        return expected
    fixed, broken = int((route & ~standard).sum()), int((standard & ~route).sum())
    fresh = ExpectedGain((fixed - broken) / count, (fixed + broken + 2) / count**2)
    if expected is None:
        return fresh
    variance = max(expected.variance, _MIN_VARIANCE)
    precision = 1 / variance + 1 / fresh.variance
    return ExpectedGain((expected.mean / variance + fresh.mean / fresh.variance) / precision, 1 / precision)


def compute_gain_probability(expected: ExpectedGain | None) -> float:
    """The probability that a route is truly better than the standard pass."""
    if expected is None:
        return 0.5
    return 0.5 * (1 + math.erf(expected.mean / math.sqrt(2 * max(expected.variance, _MIN_VARIANCE))))


def rank_candidates_by_gain_bound(
    candidates: Sequence[Candidate], get_correct_flags: GetCorrect
) -> list[tuple[Candidate, float]]:
    """Candidates with their probability of a gain, ordered by the lower bound of their gain."""
    standard = get_correct_flags(Route.standard(candidates[0].route.layers))
    gains = {
        candidate: combine_expected_and_measured_gain(candidate.expected, standard, get_correct_flags(candidate.route))
        for candidate in candidates
        if not candidate.route.is_standard
    }
    # A gain less two standard deviations: a larger but less certain gain is not the better one.
    lower_bounds = {
        candidate: 0.0 if gain is None else gain.mean - 2 * math.sqrt(gain.variance)
        for candidate, gain in gains.items()
    }
    ranked = sorted(gains, key=lambda candidate: -lower_bounds[candidate])
    return [(candidate, compute_gain_probability(gains[candidate])) for candidate in ranked]


def select_confirmed_candidate(
    candidates: Sequence[Candidate], get_correct_flags: GetCorrect, max_error_probability: float
) -> Candidate:
    """The first candidate that is almost certainly better than the standard pass; otherwise the standard pass."""
    for candidate, probability in rank_candidates_by_gain_bound(candidates, get_correct_flags):
        if 1 - probability <= max_error_probability:
            return candidate
    standard = next((candidate for candidate in candidates if candidate.route.is_standard), None)
    return standard or Candidate(Route.standard(candidates[0].route.layers))
