"""RYS's beam search over sets of blocks that do not overlap, each block executed twice in place."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from macro_routing.errors import RouteError
from macro_routing.routes.route import Route
from macro_routing.search.budgeted_search import BudgetedSearch, FinalSetSettings
from macro_routing.search.rys_sweep import Block, count_blocks, find_back_jumps, list_blocks
from macro_routing.search.searcher import SearchState, rank_draws
from macro_routing.settings import Range, check_fields


def route_from_blocks(layers: int, repeated: Iterable[Block]) -> Route:
    """The standard pass with every block of ``repeated`` executed twice in place."""
    ordered = sorted(repeated)
    if not _are_disjoint(ordered) or any(not 0 <= i < j <= layers for i, j in ordered):
        raise RouteError(f"{ordered} are not disjoint blocks (i, j) with 0 ≤ i < j ≤ {layers}")
    back_to = {j: i for i, j in ordered}
    order: list[int] = []
    for layer in range(layers):
        order.append(layer)
        order += range(back_to.get(layer + 1, layer + 1), layer + 1)
    return Route.from_layers(order, layers)


def blocks_from_route(route: Route) -> tuple[Block, ...] | None:
    """The blocks that ``route`` executes twice, none for the standard pass; None for a route of another kind."""
    blocks = find_back_jumps(route)
    return tuple(blocks) if _are_disjoint(blocks) and route_from_blocks(route.layers, blocks) == route else None


def _are_disjoint(ordered: Sequence[Block]) -> bool:
    return all(before[1] <= block[0] for before, block in pairwise(ordered))


@dataclass(frozen=True)
class BlockBeamSettings(FinalSetSettings):
    """The settings of the beam search."""

    beam_width: int = 8
    """How many of a round's best sets the next round extends."""
    beam_depth: int = 3
    """Rounds, which is also the maximum number of blocks of a set."""
    max_span: int = 8
    """Maximum number of layers of a repeated block; 0 is no limit."""

    def __post_init__(self) -> None:
        """Reject impossible settings."""
        super().__post_init__()
        check_fields(self, beam_width=Range(1), beam_depth=Range(1), max_span=Range(0))


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
        sets = self._extend_best_sets(state, singles) if state.rounds else [(), *((block,) for block in singles)]
        return [route_from_blocks(self.layers, repeated) for repeated in sets]

    def _extend_best_sets(self, state: SearchState, singles: Sequence[Block]) -> list[tuple[Block, ...]]:
        """Each different set once; none was scored before, because every round's sets have one block more."""
        answered = [draw for draw in state.draws if draw.round == state.rounds - 1]
        ranked = (blocks_from_route(draw.proposal.route) for draw in rank_draws(answered))
        # The standard pass is left out: everything that extends it was scored in the first round.
        parents = [repeated for repeated in ranked if repeated][: self.settings.beam_width]
        longer = (tuple(sorted((*parent, block))) for parent in parents for block in singles)
        return [repeated for repeated in dict.fromkeys(longer) if _are_disjoint(repeated)]
