"""RYS's searches for repeated blocks of layers: the exhaustive sweep, and the beam search over sets of blocks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Annotated

from macro_routing.errors import RouteError, SettingsError
from macro_routing.routes.route import Route
from macro_routing.search.budgeted_search import BudgetedSearch, FinalSetSettings
from macro_routing.search.searcher import SearchState, rank_draws
from macro_routing.settings import Range, option

Block = tuple[int, int]
"""``(i, j)``: the layers from i to j - 1."""


def route_from_block(layers: int, i: int, j: int) -> Route:
    """RYS's configuration ``(i, j)``: layers 0 to j - 1, then i to the last."""
    if not 0 <= i < j <= layers:
        raise RouteError(f"({i}, {j}) is not a block of {layers} layers: it must be 0 ≤ i < j ≤ {layers}")
    return Route.from_layers((*range(j), *range(i, layers)), layers)


def block_from_route(route: Route) -> Block | None:
    """The block that ``route`` executes twice; None for a route that does anything else."""
    blocks = blocks_from_route(route)
    return blocks[0] if blocks and len(blocks) == 1 else None


def list_blocks(layers: int, min_span: int = 1, max_span: int = 0) -> list[Block]:
    """All blocks whose span is within the limits, by start and then by end; ``max_span`` 0 is no limit."""
    longest = max_span or layers
    return [(i, j) for i in range(layers) for j in range(i + min_span, min(i + longest, layers) + 1)]


def count_blocks(layers: int, min_span: int = 1, max_span: int = 0) -> int:
    """How many blocks there are, without making them: a mistyped size must not fill the memory."""
    longest = min(max_span or layers, layers)
    spans = max(0, longest - min_span + 1)
    return spans * (2 * (layers + 1) - min_span - longest) // 2


def route_from_blocks(layers: int, repeated: Iterable[Block]) -> Route:
    """The standard pass with every block of ``repeated`` executed twice in place."""
    ordered = sorted(repeated)
    if not _are_blocks_disjoint(ordered) or any(not 0 <= i < j <= layers for i, j in ordered):
        raise RouteError(f"{ordered} are not disjoint blocks (i, j) with 0 ≤ i < j ≤ {layers}")
    back_to = {j: i for i, j in ordered}
    order: list[int] = []
    for layer in range(layers):
        order.append(layer)
        order += range(back_to.get(layer + 1, layer + 1), layer + 1)
    return Route.from_layers(order, layers)


def blocks_from_route(route: Route) -> tuple[Block, ...] | None:
    """The blocks that ``route`` executes twice, none for the standard pass; None for a route of another kind."""
    # Every step from layer j - 1 to a layer i < j ends a repeated block (i, j).
    steps = pairwise(route.steps)
    blocks = [(step.layer, before.layer + 1) for before, step in steps if step.layer <= before.layer]
    return tuple(blocks) if _are_blocks_disjoint(blocks) and route_from_blocks(route.layers, blocks) == route else None


def _are_blocks_disjoint(ordered: Sequence[Block]) -> bool:
    return all(before[1] <= block[0] for before, block in pairwise(ordered))


@dataclass(frozen=True)
class BlockSweepSettings(FinalSetSettings):
    """The settings of the sweep."""

    min_span: Annotated[int, Range(1)] = 1
    """Minimum number of layers of a repeated block."""
    max_span: Annotated[int, Range(0)] = option(
        0, "Longest repeated block of RYS, in layers.", "Search", shown_default="no limit; 8 for its beam"
    )
    """Maximum number of layers of a repeated block; 0 is no limit."""

    def __post_init__(self) -> None:
        """Reject impossible settings."""
        super().__post_init__()
        if 0 < self.max_span < self.min_span:
            raise SettingsError(
                f"max_span = {self.max_span} is not allowed: it must be at least min_span = {self.min_span},"
                " or 0 for no limit"
            )


@dataclass(frozen=True)
class BlockSweep(BudgetedSearch):
    """All blocks and the standard pass in one round, on the same examples."""

    settings: BlockSweepSettings = BlockSweepSettings()

    name = "rys-sweep"
    remedy = "a smaller max_span"

    @cached_property
    def round_sizes(self) -> tuple[int, ...]:
        """All of it in one round."""
        if self.settings.min_span > self.layers:
            raise SettingsError(
                f"min_span = {self.settings.min_span} is not allowed: the model has only {self.layers} layers"
            )
        return (1 + count_blocks(self.layers, self.settings.min_span, self.settings.max_span),)

    def _propose_routes(self, state: SearchState) -> list[Route]:  # noqa: ARG002 nothing is learnt on the way
        """The standard pass, then every block."""
        blocks = list_blocks(self.layers, self.settings.min_span, self.settings.max_span)
        return [Route.standard(self.layers), *(route_from_block(self.layers, i, j) for i, j in blocks)]


@dataclass(frozen=True)
class BlockBeamSettings(FinalSetSettings):
    """The settings of the beam search."""

    beam_width: Annotated[int, Range(1)] = 8
    """How many of a round's best sets the next round extends."""
    beam_depth: Annotated[int, Range(1)] = 3
    """Rounds, which is also the maximum number of blocks of a set."""
    max_span: Annotated[int, Range(0)] = 8
    """Maximum number of layers of a repeated block; 0 is no limit."""


@dataclass(frozen=True)
class BlockBeamSearch(BudgetedSearch):
    """One block more per round, added to the best sets of the round before."""

    settings: BlockBeamSettings = BlockBeamSettings()

    name = "rys-beam"
    remedy = "a smaller beam_width, beam_depth or max_span"

    @cached_property
    def round_sizes(self) -> tuple[int, ...]:
        """Bounds that hold whatever the scores: n blocks leave at most ``layers - n`` layers, at best in one piece.

        So a set of n blocks has at most as many extensions as a model of ``layers - n`` layers has blocks.
        """
        sizes = [count_blocks(self.layers, 1, self.settings.max_span)]
        for chosen in range(1, min(self.settings.beam_depth, self.layers)):
            parents = min(self.settings.beam_width, sizes[-1])
            sizes.append(parents * count_blocks(self.layers - chosen, 1, self.settings.max_span))
        return (1 + sizes[0], *sizes[1:])

    def _propose_routes(self, state: SearchState) -> list[Route]:
        """The standard pass and every single block; later the best sets with one block more."""
        singles = list_blocks(self.layers, 1, self.settings.max_span)
        sets = self._extend_best_block_sets(state, singles) if state.rounds else [(), *((block,) for block in singles)]
        return [route_from_blocks(self.layers, repeated) for repeated in sets]

    def _extend_best_block_sets(self, state: SearchState, singles: Sequence[Block]) -> list[tuple[Block, ...]]:
        """Each different set once; none was scored before, because every round's sets have one block more."""
        answered = [draw for draw in state.draws if draw.round == state.rounds - 1]
        ranked = (blocks_from_route(draw.proposal.route) for draw in rank_draws(answered))
        # The standard pass is left out: everything that extends it was scored in the first round.
        parents = [repeated for repeated in ranked if repeated][: self.settings.beam_width]
        longer = (tuple(sorted((*parent, block))) for parent in parents for block in singles)
        return [repeated for repeated in dict.fromkeys(longer) if _are_blocks_disjoint(repeated)]
