"""The settings of RYS's searches."""

from dataclasses import dataclass
from typing import Annotated

from macro_routing.errors import SettingsError
from macro_routing.search.fixed_route_count_settings import FixedRouteCountSettings
from macro_routing.settings import AllowedRange, option

MAX_REPEATS = 1000


@dataclass(frozen=True)
class BlockSweepSettings(FixedRouteCountSettings):
    """The settings of the sweep."""

    min_span: Annotated[int, AllowedRange(1)] = 1
    """Minimum number of layers of a repeated block."""
    max_span: Annotated[int, AllowedRange(0)] = option(
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
class BlockBeamSettings(FixedRouteCountSettings):
    """The settings of the beam search."""

    beam_width: Annotated[int, AllowedRange(1)] = 8
    """How many of a round's best sets the next round extends."""
    beam_depth: Annotated[int, AllowedRange(1)] = 3
    """Rounds, which is also the maximum number of blocks of a set."""
    max_span: Annotated[int, AllowedRange(0)] = 8
    """Maximum number of layers of a repeated block; 0 is no limit."""


@dataclass(frozen=True)
class RepeatCountSettings(FixedRouteCountSettings):
    """The settings of the sweep of counts."""

    max_repeats: Annotated[int, AllowedRange(2, MAX_REPEATS)] = 8
    """Maximum number of applications of a layer; the sweep begins at two."""


@dataclass(frozen=True)
class RYSSurrogateSettings(FixedRouteCountSettings):
    """The settings of the surrogate search."""

    rounds: Annotated[int, AllowedRange(1, 10_000)] = 5
    """Rounds; the first is random, the others follow the surrogate."""
    proposals: Annotated[int, AllowedRange(1)] = 40
    """Vectors scored per round, besides the standard pass in the first."""
    max_repeats: Annotated[int, AllowedRange(2, MAX_REPEATS)] = 3
    """Maximum number of applications of a layer."""
    pool_size: Annotated[int, AllowedRange(1, 1_000_000)] = 2000
    """Random vectors per round from which the surrogate chooses."""

    def __post_init__(self) -> None:
        """Reject impossible settings."""
        super().__post_init__()
        if self.pool_size < self.proposals:
            raise SettingsError(
                f"pool_size = {self.pool_size} is not allowed: it must be at least proposals = {self.proposals},"
                " which are chosen from it"
            )
