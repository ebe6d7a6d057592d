"""What routes scored by themselves, each without regard to the others: for routes that no model expects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from macro_routing.routes.route import Route
from macro_routing.search.searcher import Draw, ExpectedGain, Score

_TYPICAL = 300
"""Examples of a typical route that a route's own are mixed with: so many as if gains differed by three points or so. A
route that was lucky once must not come before one that did well ten times."""


@dataclass(frozen=True)
class EmpiricalScores:
    """Right answers of every route beyond what the routes of its rounds had on average."""

    leads: dict[Route, float]
    seen: dict[Route, int]
    """Examples."""
    flips: float
    """Variance of one example."""

    @classmethod
    def of(cls, draws: Sequence[Draw]) -> EmpiricalScores:
        """Add up the scored draws."""
        scored = [(draw, draw.outcome) for draw in draws if isinstance(draw.outcome, Score)]
        right: dict[int, float] = {}
        asked: dict[int, int] = {}
        for draw, outcome in scored:
            right[draw.round] = right.get(draw.round, 0.0) + outcome.correct
            asked[draw.round] = asked.get(draw.round, 0) + outcome.total
        leads: dict[Route, float] = {}
        seen: dict[Route, int] = {}
        for draw, outcome in scored:
            route = draw.proposal.route
            level = right[draw.round] / asked[draw.round]
            leads[route] = leads.get(route, 0.0) + outcome.correct - level * outcome.total
            seen[route] = seen.get(route, 0) + outcome.total
        usual = float(np.clip(sum(right.values()) / max(sum(asked.values()), 1), 0.03, 0.97))
        return cls(leads, seen, usual * (1 - usual))

    def ranked(self, typical: int = _TYPICAL) -> list[Route]:
        """All routes but the standard pass, the best first; fewer ``typical`` examples give luck a second chance."""
        routes = [route for route in self.seen if not route.is_standard]
        return sorted(routes, key=lambda route: -self.leads[route] / (self.seen[route] + typical))

    def expected(self, route: Route) -> ExpectedGain | None:
        """Its gain over the standard pass by these scores alone; None where either was not scored."""
        standard = Route.standard(route.layers)
        if not (self.seen.get(route) and self.seen.get(standard)):
            return None
        weight = self.seen[route] + _TYPICAL
        mean = self.leads[route] / weight - self.leads[standard] / self.seen[standard]
        return ExpectedGain(mean, self.flips / weight + self.flips / self.seen[standard])
