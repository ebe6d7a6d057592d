"""The choice at the end of a search that held examples back: the standard pass, unless the evidence says otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from macro_routing.routes.route import Route
from macro_routing.search.searcher import Candidate, ExpectedGain

Verdicts = Callable[[Route], NDArray[np.bool_]]
"""Which examples a route got right; the same examples for every route, none of which had a say in finding it."""


def with_fresh(
    expected: ExpectedGain | None, standard: NDArray[np.bool_], route: NDArray[np.bool_]
) -> ExpectedGain | None:
    """What a search expects of a route, and what fresh examples say of it, each weighed by how sure it is.

    None where neither says anything. The variance of the fresh difference counts the examples on which both
    disagree, and two more: otherwise a handful of examples without any disagreement would be certainty.
    """
    count = len(standard)
    if not count:
        return expected
    fixed, broken = int((route & ~standard).sum()), int((standard & ~route).sum())
    fresh = ExpectedGain((fixed - broken) / count, (fixed + broken + 2) / count**2)
    if expected is None:
        return fresh
    precision = 1 / max(expected.variance, 1e-12) + 1 / fresh.variance
    mean = (expected.mean / max(expected.variance, 1e-12) + fresh.mean / fresh.variance) / precision
    return ExpectedGain(mean, 1 / precision)


def certainty(expected: ExpectedGain | None) -> float:
    """The probability that a route is truly better than the standard pass."""
    if expected is None:
        return 0.5
    return 0.5 * (1 + math.erf(expected.mean / math.sqrt(2 * max(expected.variance, 1e-12))))


def ranked(candidates: Sequence[Candidate], verdicts: Verdicts) -> list[tuple[Candidate, float]]:
    """The finalists with their certainties, first the one of which most can be counted on."""
    control = verdicts(Route.standard(candidates[0].route.layers))
    known = {
        one: with_fresh(one.expected, control, verdicts(one.route)) for one in candidates if not one.route.is_standard
    }
    return [(one, certainty(known[one])) for one in sorted(known, key=lambda one: -_counted_on(known[one]))]


def confirmed(candidates: Sequence[Candidate], verdicts: Verdicts, max_error_probability: float) -> Candidate:
    """The finalist of which most can be counted on, if it is better almost for certain; the standard pass otherwise."""
    for one, sure in ranked(candidates, verdicts):
        if 1 - sure <= max_error_probability:
            return one
    standard = next((one for one in candidates if one.route.is_standard), None)
    return standard or Candidate(Route.standard(candidates[0].route.layers))


def _counted_on(expected: ExpectedGain | None) -> float:
    """A gain less twice its deviation: of two finalists a larger but more doubtful lead is not the better one."""
    return 0.0 if expected is None else expected.mean - 2 * math.sqrt(expected.variance)
