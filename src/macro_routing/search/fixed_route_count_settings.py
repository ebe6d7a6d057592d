"""The settings of the searches with a number of routes known beforehand."""

from dataclasses import dataclass, field
from typing import Annotated

from macro_routing.settings import AllowedRange, CheckedSettings


@dataclass(frozen=True)
class FixedRouteCountSettings(CheckedSettings):
    """The settings of every search whose candidates are its best routes by their own scores."""

    k: Annotated[int, AllowedRange(1)] = field(default=5, kw_only=True)
    """Size of the final set: the k best different routes by their own scores."""
    anchored: bool = field(default=False, kw_only=True)
    """Whether the standard pass takes the first place of the final set."""


@dataclass(frozen=True)
class LayerDropSettings(FixedRouteCountSettings):
    """The settings of dropping layers."""

    max_dropped: Annotated[int, AllowedRange(0)] = 0
    """Maximum number of dropped layers; 0 means half of them."""
