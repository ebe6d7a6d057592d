"""The settings of Dr.LLM and CoLA, whose tree searches look at single examples."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, TypeVar

from macro_routing.peers.router_settings import RouterSettings
from macro_routing.search.tree_settings import TreeSettings
from macro_routing.settings import AllowedRange

_Settings = TypeVar("_Settings", bound=TreeSettings | RouterSettings)


@dataclass(frozen=True)
class ColaSettings(TreeSettings):
    """Settings of CoLA: a search per test example, with its answer known."""

    min_layers_saved: Annotated[int, AllowedRange(1)] = 1
    """CoLA accepts any shorter path with a correct answer."""


@dataclass(frozen=True)
class DrLLMSettings(RouterSettings, TreeSettings):
    """Settings of Dr.LLM: its search for labels, and its routers."""

    @property
    def router_settings(self) -> RouterSettings:
        """Settings of the routers."""
        return select_settings_fields(RouterSettings, self)


def select_settings_fields(kind: type[_Settings], settings: TreeSettings) -> _Settings:
    """The part of combined settings that belongs to one class."""
    return kind(**{field.name: getattr(settings, field.name) for field in dataclasses.fields(kind)})
