"""RYS's searches: repeated blocks (exhaustive sweep, beam search) and repeat counts (sweep, surrogate model).

A block is executed twice in place; a repeat count says how often a layer is applied in a row. The surrogate search
learns accuracy from repeat counts with boosted trees, which choose what is scored next.
"""

import importlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain, pairwise
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macro_routing.errors import RouteError, SettingsError
from macro_routing.routes.route import Route
from macro_routing.search.fixed_route_count_search import FixedRouteCountSearch
from macro_routing.search.random_streams import RandomStreamPurpose, make_generator
from macro_routing.search.rys_settings import (
    BlockBeamSettings,
    BlockSweepSettings,
    RepeatCountSettings,
    RYSSurrogateSettings,
)
from macro_routing.search.searcher import Score, SearchState, rank_draws

Block = tuple[int, int]
"""``(i, j)``: the layers from i to j - 1."""
Counts = tuple[int, ...]
_MAX_SCATTERED = 4
_TRIES_PER_VECTOR = 3
"""Draws per wanted vector before a small model's vectors count as used up."""


# --- repeated blocks -------------------------------------------------------------------------------------------------


def make_route_repeating_block(layers: int, i: int, j: int) -> Route:
    """RYS's configuration ``(i, j)``: layers 0 to j - 1, then i to the last."""
    if not 0 <= i < j <= layers:
        raise RouteError(f"({i}, {j}) is not a block of {layers} layers: it must be 0 ≤ i < j ≤ {layers}")
    return Route.from_layers((*range(j), *range(i, layers)), layers)


def find_repeated_block(route: Route) -> Block | None:
    """The block that ``route`` executes twice; None for a route that does anything else."""
    blocks = find_repeated_blocks(route)
    return blocks[0] if blocks and len(blocks) == 1 else None


def list_blocks(layers: int, min_span: int = 1, max_span: int = 0) -> list[Block]:
    """All blocks whose span is within the limits, by start and then by end; ``max_span`` 0 is no limit."""
    longest = max_span or layers
    return [(i, j) for i in range(layers) for j in range(i + min_span, min(i + longest, layers) + 1)]


def count_possible_blocks(layers: int, min_span: int = 1, max_span: int = 0) -> int:
    """How many blocks there are, without making them: a mistyped size must not fill the memory."""
    longest = min(max_span or layers, layers)
    spans = max(0, longest - min_span + 1)
    return spans * (2 * (layers + 1) - min_span - longest) // 2


def make_route_repeating_blocks(layers: int, repeated: Iterable[Block]) -> Route:
    """The standard pass with every block of ``repeated`` executed twice in place."""
    ordered = sorted(repeated)
    if not _are_blocks_disjoint(ordered) or any(not 0 <= i < j <= layers for i, j in ordered):
        raise RouteError(f"{ordered} are not disjoint blocks (i, j) with 0 ≤ i < j ≤ {layers}")
    repeated_after = {j - 1: range(i, j) for i, j in ordered}
    runs = ((layer, *repeated_after.get(layer, ())) for layer in range(layers))
    return Route.from_layers(chain.from_iterable(runs), layers)


def find_repeated_blocks(route: Route) -> tuple[Block, ...] | None:
    """The blocks that ``route`` executes twice, none for the standard pass; None for a route of another kind."""
    # Every step from layer j - 1 to a layer i < j ends a repeated block (i, j).
    steps = pairwise(route.steps)
    blocks = [(step.layer, before.layer + 1) for before, step in steps if step.layer <= before.layer]
    return (
        tuple(blocks)
        if _are_blocks_disjoint(blocks) and make_route_repeating_blocks(route.layers, blocks) == route
        else None
    )


def _are_blocks_disjoint(ordered: Sequence[Block]) -> bool:
    return all(before[1] <= block[0] for before, block in pairwise(ordered))


@dataclass(frozen=True)
class BlockSweep(FixedRouteCountSearch):
    """All blocks and the standard pass in one round, on the same examples."""

    settings: BlockSweepSettings = field(default_factory=BlockSweepSettings)

    name = "rys-sweep"
    remedy = "a smaller max_span"

    @cached_property
    def max_routes_by_round(self) -> tuple[int, ...]:
        """All of it in one round."""
        if self.settings.min_span > self.layers:
            raise SettingsError(
                f"min_span = {self.settings.min_span} is not allowed: the model has only {self.layers} layers"
            )
        return (1 + count_possible_blocks(self.layers, self.settings.min_span, self.settings.max_span),)

    def _propose_routes(self, state: SearchState) -> list[Route]:  # noqa: ARG002 nothing is learnt on the way
        """The standard pass, then every block."""
        blocks = list_blocks(self.layers, self.settings.min_span, self.settings.max_span)
        return [Route.standard(self.layers), *(make_route_repeating_block(self.layers, i, j) for i, j in blocks)]


@dataclass(frozen=True)
class BlockBeamSearch(FixedRouteCountSearch):
    """One block more per round, added to the best sets of the round before."""

    settings: BlockBeamSettings = field(default_factory=BlockBeamSettings)

    name = "rys-beam"
    remedy = "a smaller beam_width, beam_depth or max_span"

    @cached_property
    def max_routes_by_round(self) -> tuple[int, ...]:
        """Bounds that hold whatever the scores: n blocks leave at most ``layers - n`` layers, at best in one piece.

        So a set of n blocks has at most as many extensions as a model of ``layers - n`` layers has blocks.
        """
        sizes = [count_possible_blocks(self.layers, 1, self.settings.max_span)]
        for chosen in range(1, min(self.settings.beam_depth, self.layers)):
            parents = min(self.settings.beam_width, sizes[-1])
            sizes.append(parents * count_possible_blocks(self.layers - chosen, 1, self.settings.max_span))
        return (1 + sizes[0], *sizes[1:])

    def _propose_routes(self, state: SearchState) -> list[Route]:
        """The standard pass and every single block; later the best sets with one block more."""
        singles = list_blocks(self.layers, 1, self.settings.max_span)
        sets = self._extend_best_block_sets(state, singles) if state.rounds else [(), *((block,) for block in singles)]
        return [make_route_repeating_blocks(self.layers, repeated) for repeated in sets]

    def _extend_best_block_sets(self, state: SearchState, singles: Sequence[Block]) -> list[tuple[Block, ...]]:
        """Each different set once; none was scored before, because every round's sets have one block more."""
        answered = [draw for draw in state.draws if draw.round == state.rounds - 1]
        ranked = (find_repeated_blocks(draw.proposal.route) for draw in rank_draws(answered))
        # The standard pass is left out: everything that extends it was scored in the first round.
        parents = [repeated for repeated in ranked if repeated][: self.settings.beam_width]
        longer = (tuple(sorted((*parent, block))) for parent in parents for block in singles)
        return [repeated for repeated in dict.fromkeys(longer) if _are_blocks_disjoint(repeated)]


# --- repeat counts ---------------------------------------------------------------------------------------------------


def route_from_repeat_counts(layers: int, counts: Sequence[int]) -> Route:
    """Every layer in order, layer l applied ``counts[l]`` times in place; 0 skips it."""
    if len(counts) != layers or any(count < 0 for count in counts):
        raise RouteError(f"{layers} layers need one count of at least 0 each, not {list(counts)}")
    return Route.from_layer_counts(counts)


def repeat_counts_from_route(route: Route) -> tuple[int, ...] | None:
    """How often ``route`` applies each layer; None for a route that is not determined by that."""
    counts = route.applications_per_layer
    return counts if route_from_repeat_counts(route.layers, counts) == route else None


@dataclass(frozen=True)
class LayerRepeatCountSweep(FixedRouteCountSearch):
    """Each layer with each count, and the standard pass, in one round."""

    settings: RepeatCountSettings = field(default_factory=RepeatCountSettings)

    name = "rys-counts"
    remedy = "a smaller max_repeats"

    @cached_property
    def max_routes_by_round(self) -> tuple[int, ...]:
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
class RYSSurrogateSearch(FixedRouteCountSearch):
    """Random vectors first, then the most promising of a random pool."""

    settings: RYSSurrogateSettings = field(default_factory=RYSSurrogateSettings)

    name = "rys-surrogate"
    remedy = "smaller rounds or proposals"

    @cached_property
    def max_routes_by_round(self) -> tuple[int, ...]:
        """The standard pass comes on top of the first round; a small model may not have that many vectors."""
        wanted = [1 + self.settings.proposals, *[self.settings.proposals] * (self.settings.rounds - 1)]
        vectors = self.settings.max_repeats**self.layers
        ends = [min(end, vectors) for end in accumulate(wanted)]
        return tuple(end - start for start, end in pairwise([0, *ends]) if end > start)

    def make_initial_state(self) -> SearchState:
        """The state before the first round; a missing library is found before anything is spent."""
        if self.max_rounds > 1:
            _load_gradient_boosting()
        return super().make_initial_state()

    def _propose_routes(self, state: SearchState) -> list[Route]:
        """The standard pass and random vectors; later those of a pool that the surrogate thinks best."""
        rng = make_generator(self.seed, RandomStreamPurpose.SURROGATE_VECTORS, state.rounds)
        size = self.max_routes_by_round[state.rounds]
        if state.rounds == 0:
            standard = (1,) * self.layers
            chosen = [standard, *self._sample_unseen_repeat_counts(rng, size - 1, {standard})]
        else:
            pool = self._sample_unseen_repeat_counts(
                rng, self.settings.pool_size, {repeat_counts_from_route(draw.proposal.route) for draw in state.draws}
            )
            best = np.argsort(-self._predict_accuracies(state, pool), kind="stable")
            chosen = [pool[index] for index in best[:size]]
        return [route_from_repeat_counts(self.layers, counts) for counts in chosen]

    def _sample_unseen_repeat_counts(
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
        tie_breaking = make_generator(self.seed, RandomStreamPurpose.SURROGATE_FIT, state.rounds).integers(2**32)
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
        raise SettingsError("the surrogate search needs scikit-learn: pip install '.[peers]' in the checkout") from None
