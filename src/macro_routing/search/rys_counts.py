"""RYS's searches over repeat counts: every layer on its own, or vectors of counts chosen by a surrogate model.

The surrogate search learns accuracy from repeat counts with boosted trees, which choose what is scored next.
"""

import importlib
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from statistics import fmean
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from macro_routing.errors import RouteError, SettingsError
from macro_routing.routes.route import Route
from macro_routing.search.budgeted_search import BudgetedSearch, FinalSetSettings
from macro_routing.search.random_streams import RandomStream, make_generator
from macro_routing.search.searcher import Score, SearchState
from macro_routing.settings import Range

MAX_REPEATS = 1000
Counts = tuple[int, ...]
_MAX_SCATTERED = 4
_TRIES_PER_VECTOR = 3
"""Draws per wanted vector before a small model's vectors count as used up."""


def route_from_repeat_counts(layers: int, counts: Sequence[int]) -> Route:
    """Every layer in order, layer l applied ``counts[l]`` times in place; 0 skips it."""
    if len(counts) != layers or any(count < 0 for count in counts):
        raise RouteError(f"{layers} layers need one count of at least 0 each, not {list(counts)}")
    return Route.from_layer_counts(counts)


def repeat_counts_from_route(route: Route) -> tuple[int, ...] | None:
    """How often ``route`` applies each layer; None for a route that is not determined by that."""
    counts = route.layer_counts
    return counts if route_from_repeat_counts(route.layers, counts) == route else None


@dataclass(frozen=True)
class RepeatCountSettings(FinalSetSettings):
    """The settings of the sweep of counts."""

    max_repeats: Annotated[int, Range(2, MAX_REPEATS)] = 8
    """Maximum number of applications of a layer; the sweep begins at two."""


@dataclass(frozen=True)
class RepeatCountSweep(BudgetedSearch):
    """Each layer with each count, and the standard pass, in one round."""

    settings: RepeatCountSettings = RepeatCountSettings()

    name = "rys-counts"
    remedy = "a smaller max_repeats"

    @cached_property
    def round_sizes(self) -> tuple[int, ...]:
        """All of it in one round."""
        return (1 + self.layers * (self.settings.max_repeats - 1),)

    def _propose_routes(self, state: SearchState) -> list[Route]:  # noqa: ARG002 nothing is learnt on the way
        """The standard pass, then every layer with every count."""
        once = [1] * self.layers
        return [
            route_from_repeat_counts(self.layers, once),
            *(
                route_from_repeat_counts(self.layers, [*once[:layer], count, *once[layer + 1 :]])
                for layer in range(self.layers)
                for count in range(2, self.settings.max_repeats + 1)
            ),
        ]


@dataclass(frozen=True)
class SurrogateSettings(FinalSetSettings):
    """The settings of the surrogate search."""

    rounds: Annotated[int, Range(1, 10_000)] = 5
    """Rounds; the first is random, the others follow the surrogate."""
    proposals: Annotated[int, Range(1)] = 40
    """Vectors scored per round, besides the standard pass in the first."""
    max_repeats: Annotated[int, Range(2, MAX_REPEATS)] = 3
    """Maximum number of applications of a layer."""
    pool_size: Annotated[int, Range(1, 1_000_000)] = 2000
    """Random vectors per round from which the surrogate chooses."""

    def __post_init__(self) -> None:
        """Reject impossible settings."""
        super().__post_init__()
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
        vectors = self.settings.max_repeats**self.layers
        ends = [min(end, vectors) for end in accumulate(wanted)]
        return tuple(end - start for start, end in pairwise([0, *ends]) if end > start)

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
            chosen = [standard, *self._sample_new_repeat_counts(rng, size - 1, {standard})]
        else:
            pool = self._sample_new_repeat_counts(
                rng, self.settings.pool_size, {repeat_counts_from_route(draw.proposal.route) for draw in state.draws}
            )
            best = np.argsort(-self._predict_accuracies(state, pool), kind="stable")
            chosen = [pool[index] for index in best[:size]]
        return [route_from_repeat_counts(self.layers, counts) for counts in chosen]

    def _sample_new_repeat_counts(
        self, rng: np.random.Generator, wanted: int, seen: Collection[Counts | None]
    ) -> list[Counts]:
        """Different random vectors, ``wanted`` of them unless the tries run out."""
        sampled: dict[Counts, None] = {}
        for _ in range(_TRIES_PER_VECTOR * wanted):
            if len(sampled) == wanted:
                break
            counts = sample_repeat_counts(rng, self.layers, self.settings.max_repeats)
            if counts not in seen:
                sampled[counts] = None
        return list(sampled)

    def _predict_accuracies(self, state: SearchState, pool: list[Counts]) -> NDArray[np.float64]:
        """The surrogate's accuracies; all alike while nothing could be scored."""
        scores: dict[Counts, list[float]] = defaultdict(list)
        for draw in state.draws:
            counts = repeat_counts_from_route(draw.proposal.route)
            if counts is not None and isinstance(draw.outcome, Score):
                scores[counts].append(draw.outcome.accuracy)
        if not scores or not pool:
            return np.zeros(len(pool))
        tie_breaking = make_generator(self.seed, RandomStream.SURROGATE_FIT, state.rounds).integers(2**32)
        surrogate = _load_gradient_boosting()(random_state=int(tie_breaking))
        surrogate.fit(np.array(list(scores)), np.array([fmean(several) for several in scores.values()]))
        return np.asarray(surrogate.predict(np.array(pool)), np.float64)


def sample_repeat_counts(rng: np.random.Generator, layers: int, max_repeats: int) -> Counts:
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
