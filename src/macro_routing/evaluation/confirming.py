"""The choice at the end of a search that held examples back: the standard pass, unless the evidence says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from macro_routing.evaluation.statistics import exact_mcnemar
from macro_routing.routes.route import Route
from macro_routing.search.searcher import Candidate

Verdicts = Callable[[Route], NDArray[np.bool_]]
"""Which examples a route got right; the same examples for every route, none of which had a say in finding it."""


def chance_of_lead(standard: NDArray[np.bool_], route: NDArray[np.bool_]) -> float:
    """The probability of a lead at least as large if the two routes were equally good: one-sided exact McNemar."""
    fixed, broken = int((route & ~standard).sum()), int((standard & ~route).sum())
    return exact_mcnemar(fixed, broken) / 2 if fixed > broken else 1.0


def confirmed(
    candidates: Sequence[Candidate], verdicts: Verdicts, doubt: float, finalists: int | None = None
) -> Candidate:
    """The finalist that leads most, if its lead is hardly chance; the standard pass otherwise.

    With several finalists the best of them was picked on the same examples: the chance is multiplied by their number
    (``finalists``, where some have been taken out since).
    """
    standard = next((one for one in candidates if one.route.is_standard), None)
    control = verdicts(Route.standard(candidates[0].route.layers))
    others = [one for one in candidates if not one.route.is_standard]
    for one in sorted(others, key=lambda one: -int(verdicts(one.route).sum())):
        if chance_of_lead(control, verdicts(one.route)) * (finalists or len(others)) <= doubt:
            return one
    return standard or Candidate(Route.standard(candidates[0].route.layers))
