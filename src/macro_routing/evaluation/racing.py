"""Exact racing: draws of a round that can no longer reach the elite are not scored any further.

Every draw is scored on the same units of examples in the same order. Its losses (scored examples less credit) only
grow, so a draw is out as soon as ``keep`` complete draws are certain to rank before it; ties go to the earlier draw, as
in the search. Draws with the fewest losses go first, which is the order that hindsight would choose. A wave also takes
a few draws that will almost surely be needed, so that routes can share their prefixes.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from macro_routing.evaluation.scoring_settings import EXACT, NEVER, RACING_MODES, STATISTICAL
from macro_routing.routes.route import Route
from macro_routing.search.searcher import Outcome, Score, ScoringFailure, StoppedScore
from macro_routing.settings import check_choice

_DEVIATIONS = 2.0
"""Statistical racing: number of standard deviations that must separate a draw from the elite."""
_TOLERANCE = 1e-9
"""Losses that differ by less may be equal."""
_SURE_SHARE = 0.85
"""Share of the expected losses of the elite's last draw that it will almost surely reach."""


@dataclass(frozen=True)
class RaceStanding:
    """How far a draw was scored."""

    length: int
    """Length of its route; the shorter of two equally good routes is the better one."""
    total: int
    units: int = 0
    """Units scored so far."""
    scored: int = 0
    """Examples scored so far."""
    credit: float = 0.0
    failure: str = ""
    """Why it cannot be scored any further, if it cannot."""

    @property
    def credit_lost_so_far(self) -> float:
        """Credit that is lost for good; infinite for a draw that failed."""
        return math.inf if self.failure else self.scored - self.credit

    @property
    def is_fully_scored(self) -> bool:
        """Whether it was scored on all examples."""
        return self.scored == self.total and not self.failure

    @property
    def outcome_told_to_search(self) -> Outcome:
        """The outcome that the search is told."""
        if self.failure:
            return ScoringFailure(self.failure)
        if self.is_fully_scored:
            return Score(self.credit, self.total)
        return StoppedScore(self.credit, self.scored, self.total)

    def add_scored_unit(self, size: int, credit: float | ScoringFailure) -> "RaceStanding":
        """The standing after one more unit."""
        if isinstance(credit, ScoringFailure):
            return replace(self, failure=credit.reason)
        return replace(self, units=self.units + 1, scored=self.scored + size, credit=self.credit + credit)


ScoreUnit = Callable[[int, Sequence[Route]], Mapping[Route, float | ScoringFailure]]
"""(number of a unit, routes) → each route's credit on the unit's examples, or why it has none."""
UnitRoute = tuple[int, Route]
"""The number of a unit and a route to score on it."""
Prefetch = Callable[[Sequence[UnitRoute], Iterator[UnitRoute]], None]
"""(what is scored next, what probably follows, likeliest first): for executors with many workers."""


def race_routes(  # noqa: PLR0913
    draws: Sequence[Route],
    sizes: Sequence[int],
    keep: int,
    mode: str,
    score_routes_on_unit: ScoreUnit,
    prefetch_outcomes: Prefetch = lambda _needed, _likely: None,
) -> dict[Route, RaceStanding]:
    """Score draws on units of ``sizes`` examples until the ``keep`` best are certain; one standing per route.

    ``prefetch_outcomes`` is called with every wave before the wave is scored. It decides nothing: waves follow from the
    standings alone, so the race is the same for any number of workers.
    """
    standings = {route: RaceStanding(route.length, sum(sizes)) for route in draws}
    while wave := select_draws_for_next_wave([standings[route] for route in draws], keep, mode):
        # Draws of one route race together; routes at the same unit are scored together.
        routes = list(dict.fromkeys(draws[index] for index in wave))
        prefetch_outcomes(
            [(standings[route].units, route) for route in routes],
            _predict_pairs_of_later_waves(draws, standings, routes, len(sizes), (keep, mode)),
        )
        for number in sorted({standings[route].units for route in routes}):
            group = [route for route in routes if standings[route].units == number]
            credit_by_route = score_routes_on_unit(number, group)
            routes = [route for route in routes if route not in credit_by_route]
            for route, credit in credit_by_route.items():
                standings[route] = standings[route].add_scored_unit(sizes[number], credit)
    return standings


def _predict_pairs_of_later_waves(
    draws: Sequence[Route],
    standings: Mapping[Route, RaceStanding],
    wave: Sequence[Route],
    units: int,
    rule: tuple[int, str],
) -> Iterator[UnitRoute]:
    """What later waves may need: nearest units first, draws with the fewest losses first."""
    ordered = [standings[route] for route in draws]
    racing = sorted(
        find_routes_still_racing(ordered, *rule), key=lambda index: (ordered[index].credit_lost_so_far, index)
    )
    routes = list(dict.fromkeys(draws[index] for index in racing))
    first = {route: standings[route].units + (route in wave) for route in routes}
    for ahead in range(units):
        yield from ((first[route] + ahead, route) for route in routes if first[route] + ahead < units)


def find_routes_still_racing(standings: Sequence[RaceStanding], keep: int, mode: str = EXACT) -> list[int]:
    """Indices of draws that are incomplete and can still reach the elite."""
    check_choice("racing", mode, RACING_MODES)
    racing = [index for index, draw in enumerate(standings) if not draw.is_fully_scored and not draw.failure]
    if mode == NEVER or keep >= len(standings):
        return racing
    finished = sorted((draw.credit_lost_so_far, index) for index, draw in enumerate(standings) if draw.is_fully_scored)
    if len(finished) >= keep:
        last, fewest = finished[keep - 1], finished[0][0]
        # Of several best draws the shortest, then the earliest, is the best draw of the round.
        best = min((standings[index].length, index) for losses, index in finished if losses - fewest <= _TOLERANCE)
        racing = [
            index
            for index in racing
            if not _cannot_outrank_last_elite((standings[index].credit_lost_so_far, index), last)
            or (standings[index].credit_lost_so_far - fewest <= _TOLERANCE and (standings[index].length, index) < best)
        ]
    return [index for index in racing if _may_reach_elite(standings, index, keep)] if mode == STATISTICAL else racing


def _cannot_outrank_last_elite(draw: tuple[float, int], last: tuple[float, int]) -> bool:
    """Whether a draw (losses, index) can no longer rank before ``last``; ties go to the earlier draw.

    Sums of partial credits depend on the order of addition in their last digits, so only integers can tie for sure.
    """
    if abs(draw[0] - last[0]) > _TOLERANCE:
        return draw[0] > last[0]
    return draw[1] > last[1] and float(draw[0]).is_integer() and float(last[0]).is_integer()


def select_draws_for_next_wave(standings: Sequence[RaceStanding], keep: int, mode: str = EXACT) -> list[int]:
    """Indices of the draws to score on their next unit; empty when the race is over."""
    racing = find_routes_still_racing(standings, keep, mode)
    if mode == NEVER or keep >= len(standings):
        return racing
    order = sorted((draw.credit_lost_so_far, index) for index, draw in enumerate(standings))
    expected_losses = sorted(
        draw.credit_lost_so_far + (draw.total - draw.scored) * (1 - _shrunken_mean_credit(draw)) for draw in standings
    )
    limit = max(order[keep - 1], (_SURE_SHARE * expected_losses[keep - 1], -1))
    # Losses of the first `keep` draws only grow, so every draw at or before them has to be scored in any case.
    wave = [index for index in racing if (standings[index].credit_lost_so_far, index) <= limit]
    return wave or racing[:1]


def _shrunken_mean_credit(draw: RaceStanding) -> float:
    """Expected credit per example, shrunk to one half while few examples are scored."""
    return (draw.credit + 1) / (draw.scored + 2)


def _may_reach_elite(standings: Sequence[RaceStanding], index: int, keep: int) -> bool:
    """Whether the draw's final credit may still, within the noise, be among the ``keep`` best."""
    lower = sorted((_bound_final_score(draw, -_DEVIATIONS) for draw in standings), reverse=True)
    return _bound_final_score(standings[index], _DEVIATIONS) >= lower[keep - 1]


def _bound_final_score(draw: RaceStanding, deviations: float) -> float:
    """The expected final credit of a draw plus ``deviations`` standard deviations."""
    left = draw.total - draw.scored
    if draw.failure:
        return -math.inf
    if left == 0:
        return draw.credit
    if draw.scored == 0:
        return draw.total if deviations > 0 else 0.0
    rate = _shrunken_mean_credit(draw)
    spread = math.sqrt(rate * (1 - rate) * left * (1 + left / draw.scored))
    return min(max(draw.credit + left * rate + deviations * spread, draw.credit), draw.credit + left)
