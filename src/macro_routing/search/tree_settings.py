"""The settings of a tree search over one example's routes."""

from dataclasses import dataclass
from typing import Annotated

from macro_routing.settings import AllowedRange, CheckedSettings


@dataclass(frozen=True)
class TreeSettings(CheckedSettings):
    """The settings of one example's search; the defaults are the published ones."""

    simulations: Annotated[int, AllowedRange(1)] = 10
    """Routes looked at beside the standard pass; one that was met before counts too."""
    exploration: Annotated[float, AllowedRange(0)] = 1.8
    """How much UCB favours children that were visited seldom."""
    length_penalty: Annotated[float, AllowedRange(0)] = 3.0
    """What a route as long as the model is deep costs in UCB."""
    random_child_probability: Annotated[float, AllowedRange(0, 1)] = 0.1
    """How often a random child is followed instead of the one with the best UCB."""
    min_layers_saved: Annotated[int, AllowedRange(1)] = 2
    """A correct route that saves at least this many layers is good enough to stop early."""
    stop_early: bool = True
    """Whether the search ends with a route that is good enough, or correct where the standard pass was wrong."""
