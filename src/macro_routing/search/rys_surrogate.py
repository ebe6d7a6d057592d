"""RYS's surrogate search: boosted trees learn accuracy from repeat counts and choose what is scored next."""

import importlib
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macro_routing.errors import SettingsError
from macro_routing.routes.route import Route
from macro_routing.search.budgeted_search import BudgetedSearch, FinalSetSettings
from macro_routing.search.random_streams import RandomStream, make_generator
from macro_routing.search.rys_counts import MAX_REPEATS, counts_from_route, route_from_counts
from macro_routing.search.searcher import Score, SearchState
from macro_routing.settings import Range, check_fields

Counts = tuple[int, ...]
_MAX_ROUNDS = 10_000
_MAX_POOL_SIZE = 1_000_000
_MAX_SCATTERED = 4
_TRIES_PER_VECTOR = 3
"""Draws per wanted vector before a small model's vectors count as used up."""


@dataclass(frozen=True)
class SurrogateSettings(FinalSetSettings):
    """The settings of the surrogate search."""

    rounds: int = 5
    """Rounds; the first is random, the others follow the surrogate."""
    proposals: int = 40
    """Vectors scored per round, besides the standard pass in the first."""
    max_repeats: int = 3
    """Maximum number of applications of a layer."""
    pool_size: int = 2000
    """Random vectors per round from which the surrogate chooses."""

    def __post_init__(self) -> None:
        """Reject impossible settings."""
        super().__post_init__()
        check_fields(
            self,
            rounds=Range(1, _MAX_ROUNDS),
            proposals=Range(1),
            max_repeats=Range(2, MAX_REPEATS),
            pool_size=Range(1, _MAX_POOL_SIZE),
        )
        if self.pool_size < self.proposals:
            raise SettingsError(
                f"pool_size = {self.pool_size} is not allowed: it must be at least proposals = {self.proposals},"
                " which are chosen from it"
            )


@dataclass(frozen=True)
class SurrogateSearch(BudgetedSearch):
    """Random vectors first, then the most promising of a random pool."""

    settings: SurrogateSettings = SurrogateSettings()

    name = "rys-surrogate"
    remedy = "smaller rounds or proposals"

    @cached_property
    def round_sizes(self) -> tuple[int, ...]:
        """The standard pass comes on top of the first round; a small model may not have that many vectors."""
        wanted = [1 + self.settings.proposals, *[self.settings.proposals] * (self.settings.rounds - 1)]
        left = self.settings.max_repeats**self.layers
        sizes = []
        for size in wanted:
            sizes.append(min(size, left))
            left -= sizes[-1]
        return tuple(size for size in sizes if size)

    def start(self) -> SearchState:
        """The state before the first round; a missing library is found before anything is spent."""
        if self.max_rounds > 1:
            _load_gradient_boosting()
        return super().start()

    def _propose_routes(self, state: SearchState) -> list[Route]:
        """The standard pass and random vectors; later those of a pool that the surrogate thinks best."""
        rng = make_generator(self.seed, RandomStream.SURROGATE_VECTORS, state.rounds)
        size = self.round_sizes[state.rounds]
        if state.rounds == 0:
            standard = (1,) * self.layers
            chosen = [standard, *self._sample_new_counts(rng, size - 1, {standard})]
        else:
            pool = self._sample_new_counts(
                rng, self.settings.pool_size, {counts_from_route(draw.proposal.route) for draw in state.draws}
            )
            best = np.argsort(-self._predict_accuracies(state, pool), kind="stable")
            chosen = [pool[index] for index in best[:size]]
        return [route_from_counts(self.layers, counts) for counts in chosen]

    def _sample_new_counts(
        self, rng: np.random.Generator, wanted: int, seen: Collection[Counts | None]
    ) -> list[Counts]:
        """Different random vectors, ``wanted`` of them unless the tries run out."""
        sampled: dict[Counts, None] = {}
        for _ in range(_TRIES_PER_VECTOR * wanted):
            if len(sampled) == wanted:
                break
            counts = sample_counts(rng, self.layers, self.settings.max_repeats)
            if counts not in seen:
                sampled[counts] = None
        return list(sampled)

    def _predict_accuracies(self, state: SearchState, pool: list[Counts]) -> NDArray[np.float64]:
        """The surrogate's accuracies; all alike while nothing could be scored."""
        scores: dict[Counts, list[float]] = defaultdict(list)
        for draw in state.draws:
            counts = counts_from_route(draw.proposal.route)
            if counts is not None and isinstance(draw.outcome, Score):
                scores[counts].append(draw.outcome.accuracy)
        if not scores or not pool:
            return np.zeros(len(pool))
        tie_breaking = make_generator(self.seed, RandomStream.SURROGATE_FIT, state.rounds).integers(2**32)
        surrogate = _load_gradient_boosting()(random_state=int(tie_breaking))
        surrogate.fit(np.array(list(scores)), np.array([fmean(several) for several in scores.values()]))
        return np.asarray(surrogate.predict(np.array(pool)), np.float64)


def sample_counts(rng: np.random.Generator, layers: int, max_repeats: int) -> Counts:
    """One to four layers with counts of their own, or one block of layers with a common count; the others once."""
    counts = np.ones(layers, np.int64)
    if rng.integers(2):
        several = rng.integers(1, min(_MAX_SCATTERED, layers) + 1)
        chosen = rng.choice(layers, several, replace=False)
        counts[chosen] = rng.integers(2, max_repeats + 1, several)
    else:
        i, j = np.sort(rng.choice(layers + 1, 2, replace=False))
        counts[i:j] = rng.integers(2, max_repeats + 1)
    return tuple(counts.tolist())


def _load_gradient_boosting() -> Any:
    try:
        return importlib.import_module("sklearn.ensemble").GradientBoostingRegressor
    except ImportError:
        raise SettingsError("the surrogate search needs scikit-learn: pip install 'macro-routing[peers]'") from None
