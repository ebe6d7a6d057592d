"""Which draws of a round still have to be scored: those that can no longer reach the elite are not (exact racing).

Every draw is scored on the same units of examples in the same order. Its losses (examples scored less credit) only
grow, so a draw is out as soon as ``keep`` complete draws lie before it for good, ties going to the earlier draw as
in the search. Draws with the fewest losses go first, which is what an order known in hindsight would do; a wave takes
in a few more that will almost surely be needed, so that routes can share their prefixes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from macro_routing.routes.route import Route
from macro_routing.search.searcher import Failure, Outcome, Score, Stopped
from macro_routing.settings import check_choice

NEVER, EXACT, STATISTICAL = "never", "exact", "statistical"
RACING = (EXACT, STATISTICAL, NEVER)
_DEVIATIONS = 2.0
"""Statistical racing: how many standard deviations apart a draw and the elite must be."""
_EQUAL = 1e-9
"""Losses that differ by less may be equal."""
_SURELY = 0.85
"""Share of the expected losses of the elite's last place that it will almost surely come to."""


@dataclass(frozen=True)
class Standing:
    """How far a draw has come."""

    length: int
    """Of its route; the shorter of two equally good routes is the better one."""
    total: int
    units: int = 0
    """Units scored so far."""
    scored: int = 0
    """Examples scored so far."""
    credit: float = 0.0
    failure: str = ""
    """Why it cannot be scored any further, where it cannot."""

    @property
    def losses(self) -> float:
        """Credit that is lost for good; all of it by a draw that failed."""
        return math.inf if self.failure else self.scored - self.credit

    @property
    def is_complete(self) -> bool:
        """Whether it was scored to the end."""
        return self.scored == self.total and not self.failure

    @property
    def outcome(self) -> Outcome:
        """What the search is told."""
        if self.failure:
            return Failure(self.failure)
        if self.is_complete:
            return Score(self.credit, self.total)
        return Stopped(self.credit, self.scored, self.total)

    def after(self, size: int, credit: float | Failure) -> Standing:
        """The standing one unit later."""
        if isinstance(credit, Failure):
            return replace(self, failure=credit.reason)
        return replace(self, units=self.units + 1, scored=self.scored + size, credit=self.credit + credit)


ScoreUnit = Callable[[int, Sequence[Route]], Mapping[Route, float | Failure]]
"""(number of a unit, routes) → each route's credit on the unit's examples, or why it has none."""
Place = tuple[int, Route]
"""A unit's number and a route to be scored on it."""
Foresee = Callable[[Sequence[Place], Iterator[Place]], None]
"""(what is scored next, what probably comes after it, likeliest first): for those who can work on much at once."""


def race(  # noqa: PLR0913
    draws: Sequence[Route],
    sizes: Sequence[int],
    keep: int,
    mode: str,
    score: ScoreUnit,
    foresee: Foresee = lambda _sure, _likely: None,
) -> dict[Route, Standing]:
    """Score draws on units of ``sizes`` examples until the ``keep`` best are certain; one standing per route.

    ``foresee`` is told of every wave before it is scored. What it works out beforehand decides nothing: waves follow
    from the standings alone, so any number of workers sees the same race.
    """
    standings = {route: Standing(route.length, sum(sizes)) for route in draws}
    while wave := next_wave([standings[route] for route in draws], keep, mode):
        # Draws of one route race together; routes that have come equally far are scored together.
        racing = list(dict.fromkeys(draws[place] for place in wave))
        foresee(
            [(standings[route].units, route) for route in racing],
            _likely(draws, standings, racing, len(sizes), (keep, mode)),
        )
        for number in sorted({standings[route].units for route in racing}):
            group = [route for route in racing if standings[route].units == number]
            found = score(number, group)
            racing = [route for route in racing if route not in found]
            for route, credit in found.items():
                standings[route] = standings[route].after(sizes[number], credit)
    return standings


def _likely(
    draws: Sequence[Route],
    standings: Mapping[Route, Standing],
    wave: Sequence[Route],
    units: int,
    rule: tuple[int, str],
) -> Iterator[Place]:
    """What the waves after this one may ask for: nearest units first, draws with the fewest losses first."""
    ordered = [standings[route] for route in draws]
    going = sorted(still_racing(ordered, *rule), key=lambda place: (ordered[place].losses, place))
    routes = list(dict.fromkeys(draws[place] for place in going))
    first = {route: standings[route].units + (route in wave) for route in routes}
    for ahead in range(units):
        yield from ((first[route] + ahead, route) for route in routes if first[route] + ahead < units)


def still_racing(standings: Sequence[Standing], keep: int, mode: str = EXACT) -> list[int]:
    """Places of draws that are incomplete and not out yet."""
    check_choice("racing", mode, RACING)
    going = [place for place, one in enumerate(standings) if not one.is_complete and not one.failure]
    if mode == NEVER or keep >= len(standings):
        return going
    finished = sorted((one.losses, place) for place, one in enumerate(standings) if one.is_complete)
    if len(finished) >= keep:
        last, best = finished[keep - 1], finished[0][0]
        # Of several best draws the shortest, then the earliest, is the best draw of the round.
        first = min((standings[place].length, place) for losses, place in finished if losses - best <= _EQUAL)
        going = [
            place
            for place in going
            if not _is_behind((standings[place].losses, place), last)
            or (standings[place].losses - best <= _EQUAL and (standings[place].length, place) < first)
        ]
    return [place for place in going if _is_likely(standings, place, keep)] if mode == STATISTICAL else going


def _is_behind(mine: tuple[float, int], last: tuple[float, int]) -> bool:
    """Whether a draw can no longer come before ``last``, ties going to the earlier draw.

    Sums of partial credits differ in their last digits by the order of adding, so only whole ones can be said to tie.
    """
    if abs(mine[0] - last[0]) > _EQUAL:
        return mine[0] > last[0]
    return mine[1] > last[1] and float(mine[0]).is_integer() and float(last[0]).is_integer()


def next_wave(standings: Sequence[Standing], keep: int, mode: str = EXACT) -> list[int]:
    """Places of the draws to be scored on their next unit; empty when the race is over."""
    going = still_racing(standings, keep, mode)
    if mode == NEVER or keep >= len(standings):
        return going
    order = sorted((one.losses, place) for place, one in enumerate(standings))
    sure = max(order[keep - 1], (_SURELY * _expected_last(standings, keep), -1))
    # The first `keep` places will only get worse, so whoever stands at or before them is needed in any case.
    wave = [place for place in going if (standings[place].losses, place) <= sure]
    return wave or going[:1]


def _expected_last(standings: Sequence[Standing], keep: int) -> float:
    """Losses that the elite's last place is expected to have in the end."""
    return sorted(one.losses + (one.total - one.scored) * (1 - _rate(one)) for one in standings)[keep - 1]


def _rate(one: Standing) -> float:
    """Expected credit per example, pulled to one half while little is known."""
    return (one.credit + 1) / (one.scored + 2)


def _is_likely(standings: Sequence[Standing], place: int, keep: int) -> bool:
    """Whether the draw's final credit may still, within the noise, be among the ``keep`` best."""
    lower = sorted((_final(one, -_DEVIATIONS) for one in standings), reverse=True)
    return _final(standings[place], _DEVIATIONS) >= lower[keep - 1]


def _final(one: Standing, deviations: float) -> float:
    """The credit a draw will end with, so many standard deviations off."""
    left = one.total - one.scored
    if one.failure:
        return -math.inf
    if left == 0:
        return one.credit
    if one.scored == 0:
        return one.total if deviations > 0 else 0.0
    rate = _rate(one)
    spread = math.sqrt(rate * (1 - rate) * left * (1 + left / one.scored))
    return min(max(one.credit + left * rate + deviations * spread, one.credit), one.credit + left)
