"""RYS's exhaustive sweep: every block of consecutive layers, executed twice."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from macro_routing.errors import RouteError, SettingsError
from macro_routing.routes.route import Route
from macro_routing.search.budgeted_search import BudgetedSearch, FinalSetSettings
from macro_routing.search.searcher import SearchState
from macro_routing.settings import Range, check_fields, option

Block = tuple[int, int]
"""``(i, j)``: the layers from i to j - 1."""


def route_from_block(layers: int, i: int, j: int) -> Route:
    """RYS's configuration ``(i, j)``: layers 0 to j - 1, then i to the last."""
    if not 0 <= i < j <= layers:
        raise RouteError(f"({i}, {j}) is not a block of {layers} layers: it must be 0 ≤ i < j ≤ {layers}")
    return Route.from_layers((*range(j), *range(i, layers)), layers)


def block_from_route(route: Route) -> Block | None:
    """The block that ``route`` executes twice; None for a route that does anything else."""
    blocks = find_back_jumps(route)
    return blocks[0] if len(blocks) == 1 and route_from_block(route.layers, *blocks[0]) == route else None


def find_back_jumps(route: Route) -> list[Block]:
    """``(i, j)`` for every step from layer j - 1 to a layer i < j: the end of a repeated block."""
    return [(step.layer, before.layer + 1) for before, step in pairwise(route.steps) if step.layer <= before.layer]


def list_blocks(layers: int, min_span: int = 1, max_span: int = 0) -> list[Block]:
    """All blocks whose span is within the limits, by start and then by end; ``max_span`` 0 is no limit."""
    longest = max_span or layers
    return [(i, j) for i in range(layers) for j in range(i + min_span, min(i + longest, layers) + 1)]


def count_blocks(layers: int, min_span: int = 1, max_span: int = 0) -> int:
    """How many blocks there are, without making them: a mistyped size must not fill the memory."""
    longest = min(max_span or layers, layers)
    spans = max(0, longest - min_span + 1)
    return spans * (2 * (layers + 1) - min_span - longest) // 2


@dataclass(frozen=True)
class BlockSweepSettings(FinalSetSettings):
    """The settings of the sweep."""

    min_span: int = 1
    """Minimum number of layers of a repeated block."""
    max_span: int = option(
        0, "Longest repeated block of RYS, in layers.", "Search", shown_default="no limit; 8 for its beam"
    )
    """Maximum number of layers of a repeated block; 0 is no limit."""

    def __post_init__(self) -> None:
        """Reject impossible settings."""
        super().__post_init__()
        check_fields(self, min_span=Range(1), max_span=Range(0))
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
