"""What all scored draws of a search say together: the model of routes, told what was seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from macro_routing.routes.route import Route
from macro_routing.search.empirical_scores import EmpiricalScores
from macro_routing.search.route_gp import Features, Floats, RouteModel, Scores, Sizes
from macro_routing.search.searcher import Draw, Score

MOST_ROWS = 1500
"""Scores that the model learns from at most: its work grows with their cube."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """What all scores together say."""

    routes: list[Route]
    mean: Floats
    """Expected gain of every scored route."""
    model: RouteModel


def learn(draws: Sequence[Draw], standard: Route, begin: Sizes, *, sweeps: int) -> Evidence | None:
    """What all scores so far say; None when nothing but the control was scored."""
    scored = most_telling([draw for draw in draws if isinstance(draw.outcome, Score)], standard)
    places: dict[Route, int] = {standard: 0}
    for draw in scored:
        places.setdefault(draw.proposal.route, len(places))
    if len(places) == 1:
        return None
    scores = Scores(
        Features.of(list(places)),
        np.array([places[draw.proposal.route] for draw in scored]),
        np.array([draw.round for draw in scored]),
        np.array([draw.outcome.accuracy for draw in scored if isinstance(draw.outcome, Score)]),
        np.array([draw.outcome.total for draw in scored if isinstance(draw.outcome, Score)], dtype=np.float64),
    )
    model = RouteModel.fit(scores, begin=begin, sweeps=sweeps)
    return Evidence(list(places)[1:], model.mean(scores.routes)[1:], model)


def most_telling(scored: list[Draw], standard: Route) -> list[Draw]:
    """All draws, or where there are too many of them for the model: the best routes', and some of all the others.

    The control is always among them, and a route is there with all of its draws or with none.
    """
    if len(scored) <= MOST_ROWS:
        return scored
    rows = Counter(draw.proposal.route for draw in scored)
    ranked = EmpiricalScores.of(scored).ranked()
    kept, room = {standard}, MOST_ROWS - rows[standard]
    # Half of the room for the best; the other half spread evenly over all the rest, so that the model sees what is bad.
    for left, routes in ((MOST_ROWS // 2, ranked), (0, ranked[:: max(1, 2 * len(scored) // MOST_ROWS)])):
        for route in routes:
            if room - rows[route] < left:
                break
            if route not in kept:
                kept.add(route)
                room -= rows[route]
    return [draw for draw in scored if draw.proposal.route in kept]
