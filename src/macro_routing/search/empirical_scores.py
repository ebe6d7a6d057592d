"""Empirical scores of routes, without regard to similar routes: for good routes that the Gaussian process misses."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from macro_routing.routes.route import Route
from macro_routing.search.searcher import Draw, Score

_PSEUDO_EXAMPLES = 300
"""Pseudo-examples with no gain that a route's own are mixed with, as if gains differed by about three points. A route
that was good by chance once must not rank above one that was good ten times."""

MAX_FITTED_DRAWS = 1500
"""Maximum number of scores that the Gaussian process is fitted to: its time is cubic in them."""


@dataclass(frozen=True)
class EmpiricalScores:
    """Gains of every route over the mean of the routes in its rounds."""

    gains: dict[Route, float]
    """Correct answers beyond the mean."""
    examples: dict[Route, int]

    @classmethod
    def from_scored_draws(cls, draws: Sequence[Draw]) -> "EmpiricalScores":
        """Add up the scored draws."""
        scored = [(draw, draw.outcome) for draw in draws if isinstance(draw.outcome, Score)]
        correct: dict[int, float] = {}
        totals: Counter[int] = Counter()
        for draw, outcome in scored:
            correct[draw.round] = correct.get(draw.round, 0.0) + outcome.correct
            totals[draw.round] += outcome.total
        gains: dict[Route, float] = {}
        examples: Counter[Route] = Counter()
        for draw, outcome in scored:
            route = draw.proposal.route
            mean = correct[draw.round] / totals[draw.round]
            gains[route] = gains.get(route, 0.0) + outcome.correct - mean * outcome.total
            examples[route] += outcome.total
        return cls(gains, examples)

    def rank_routes(self, pseudo_examples: int = _PSEUDO_EXAMPLES) -> list[Route]:
        """All routes but the standard pass, best first; fewer ``pseudo_examples`` favour routes scored seldom."""
        routes = [route for route in self.examples if not route.is_standard]
        return sorted(routes, key=lambda route: -self.gains[route] / (self.examples[route] + pseudo_examples))


def subsample_draws_keeping_best(draws: Sequence[Draw]) -> list[Draw]:
    """All scored draws, or if there are too many: those of the best routes and of some of the others.

    The standard pass is always included. A route is included with all of its draws or with none.
    """
    scored = [draw for draw in draws if isinstance(draw.outcome, Score)]
    if len(scored) <= MAX_FITTED_DRAWS:
        return scored
    rows = Counter(draw.proposal.route for draw in scored)
    ranked = EmpiricalScores.from_scored_draws(scored).rank_routes()
    standard = Route.standard(scored[0].proposal.route.layers)
    kept, room = {standard}, MAX_FITTED_DRAWS - rows[standard]
    # Half of the room is for the best; the other half is spread evenly over the rest, so that bad routes are seen, too.
    for reserved, routes in (
        (MAX_FITTED_DRAWS // 2, ranked),
        (0, ranked[:: max(1, 2 * len(scored) // MAX_FITTED_DRAWS)]),
    ):
        for route in routes:
            if room - rows[route] < reserved:
                break
            if route not in kept:
                kept.add(route)
                room -= rows[route]
    return [draw for draw in scored if draw.proposal.route in kept]
