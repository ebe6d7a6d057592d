"""Fits the Gaussian process over routes to all scored draws of a search."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from macro_routing.routes.route import Route
from macro_routing.search.empirical_scores import EmpiricalScores
from macro_routing.search.route_features import Floats, RouteFeatures
from macro_routing.search.route_gp import KernelParameters, RouteGP, ScoreTable
from macro_routing.search.searcher import Draw, Score

MAX_ROWS = 1500
"""Maximum number of scores that the process is fitted to: its time is cubic in them."""


@dataclass(frozen=True, eq=False)
class GPFit:
    """The fitted process and its predictions for the scored routes."""

    routes: list[Route]
    mean: Floats
    """Expected gain of every scored route."""
    gp: RouteGP

    @classmethod
    def from_draws(
        cls, draws: Sequence[Draw], standard: Route, start: KernelParameters, *, sweeps: int
    ) -> "GPFit | None":
        """Fit the process to scored draws; None if only the standard pass was scored."""
        scored = subsample_draws([draw for draw in draws if isinstance(draw.outcome, Score)], standard)
        index: dict[Route, int] = {standard: 0}
        for draw in scored:
            index.setdefault(draw.proposal.route, len(index))
        if len(index) == 1:
            return None
        scores = ScoreTable(
            RouteFeatures.from_routes(list(index)),
            np.array([index[draw.proposal.route] for draw in scored]),
            np.array([draw.round for draw in scored]),
            np.array([draw.outcome.accuracy for draw in scored if isinstance(draw.outcome, Score)]),
            np.array([draw.outcome.total for draw in scored if isinstance(draw.outcome, Score)], dtype=np.float64),
        )
        gp = RouteGP.fit(scores, start=start, sweeps=sweeps)
        return cls(list(index)[1:], gp.predict_mean(scores.routes)[1:], gp)

    def rank_routes(self) -> list[Route]:
        """The scored routes, highest expected gain first."""
        return [self.routes[index] for index in np.argsort(-self.mean, kind="stable")]


def subsample_draws(scored: list[Draw], standard: Route) -> list[Draw]:
    """All draws, or if there are too many: those of the best routes and of some of the others.

    The standard pass is always included. A route is included with all of its draws or with none.
    """
    if len(scored) <= MAX_ROWS:
        return scored
    rows = Counter(draw.proposal.route for draw in scored)
    ranked = EmpiricalScores.from_draws(scored).rank_routes()
    kept, room = {standard}, MAX_ROWS - rows[standard]
    # Half of the room is for the best; the other half is spread evenly over the rest, so that bad routes are seen, too.
    for reserved, routes in ((MAX_ROWS // 2, ranked), (0, ranked[:: max(1, 2 * len(scored) // MAX_ROWS)])):
        for route in routes:
            if room - rows[route] < reserved:
                break
            if route not in kept:
                kept.add(route)
                room -= rows[route]
    return [draw for draw in scored if draw.proposal.route in kept]
