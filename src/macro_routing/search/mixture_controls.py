"""Published ways to combine predictions of one model, as controls of the searched mixtures.

Each scores a list of routes and mixtures on the training examples on which the guided search fits its mixtures, and
finds one mixture by a simple rule (``evaluation.mixture_controls``). Nothing is confirmed: what was found meets the
test set.
"""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from macro_routing.errors import SettingsError
from macro_routing.routes.mixture import Member, Mixture, RouteOrMixture
from macro_routing.routes.route import Route
from macro_routing.search.fixed_route_count_search import list_early_exit_routes
from macro_routing.search.guided import GuidedSearch
from macro_routing.search.guided_settings import GuidedSettings
from macro_routing.search.method_names import CONTRASTIVE, DOLA, PMI, READOUTS, ROUTE_AVERAGE, SKIP_LAYER_CD

CONTRAST_WEIGHTS = (1.5, -0.5)
"""Weights of the stronger and the weaker prediction, those of contrastive decoding."""
_SKIPPED_SHARE = 8
"""SkipLayerCD leaves out one contiguous block of this fraction of the layers."""


def list_control_sources(control: str, layers: int) -> tuple[RouteOrMixture, ...]:
    """What a control scores on the training examples, the standard pass first."""
    standard = Route.standard(layers)
    exits = list_early_exit_routes(layers)
    if control == PMI:
        return standard, Mixture.from_route(standard, with_question=False)
    if control == READOUTS:
        return (standard, *exits[1::2])
    if control == DOLA:
        return (standard, *_contrast_with_standard(exits[layers // 2 :: 2]))
    if control == SKIP_LAYER_CD:
        return (standard, *_contrast_with_standard(_list_routes_without_block(layers)))
    if control == ROUTE_AVERAGE:
        return (standard, *_list_routes_with_one_edit(layers))
    return (standard,)  # the other source is another model


def _contrast_with_standard(weaker: Sequence[Route]) -> list[Mixture]:
    expert, amateur = CONTRAST_WEIGHTS
    return [Mixture((Member(Route.standard(route.layers), expert), Member(route, amateur))) for route in weaker]


def _list_routes_without_block(layers: int) -> list[Route]:
    """The standard pass without a block of layers, for every block that begins in the first half."""
    plain, size = list(range(layers)), max(1, layers // _SKIPPED_SHARE)
    return [Route.from_layers([*plain[:start], *plain[start + size :]], layers) for start in range(1, layers // 2)]


def _list_routes_with_one_edit(layers: int) -> list[Route]:
    """The standard pass without one layer, then with one layer twice."""
    plain = list(range(layers))
    dropped = [[*plain[:layer], *plain[layer + 1 :]] for layer in plain] if layers > 1 else []
    return [Route.from_layers(steps, layers) for steps in (*dropped, *(sorted([*plain, layer]) for layer in plain))]


@dataclass(frozen=True)
class ControlSearch:
    """What a control scores, and on which examples: known beforehand."""

    control: str
    layers: int
    training: tuple[int, ...]
    """Training examples on which the guided search with these settings would fit its mixtures."""
    budget: int
    """Maximum number of evaluations (route × example)."""
    settings: GuidedSettings
    seed: int = 0

    max_rounds: ClassVar[int] = 1
    """Everything is scored in one round."""
    max_candidates: ClassVar[int] = 1
    """What was found is validated like any result, though nothing depends on it."""

    def __post_init__(self) -> None:
        """Reject a model that has nothing to contrast, and a budget too small for one example."""
        if self.control != CONTRASTIVE and len(self.sources) == 1:
            raise SettingsError(f"{self.control} has no route to try on {self.layers} layers; use another method")
        if self.budget < self.max_draws_per_round:
            raise SettingsError(
                f"budget = {self.budget} is not allowed: {self.control} scores {self.max_draws_per_round} routes, so it"
                f" must be at least {self.max_draws_per_round}; give a larger budget or use another method"
            )

    @classmethod
    def beside_guided_search(cls, control: str, guided: GuidedSearch) -> "ControlSearch":
        """The control that learns on the examples on which ``guided`` fits its mixtures."""
        layers = guided.space.layers
        return cls(control, layers, guided.searched_examples, guided.budget, guided.settings, guided.seed)

    @cached_property
    def sources(self) -> tuple[RouteOrMixture, ...]:
        """Routes and mixtures to score, the standard pass first."""
        return list_control_sources(self.control, self.layers)

    @property
    def max_draws_per_round(self) -> int:
        """Routes to score: the sources, and what is found or a second model."""
        return len(self.sources) + 1

    @property
    def searched_examples(self) -> tuple[int, ...]:
        """Training examples that the budget pays for."""
        return self.training[: self.budget // self.max_draws_per_round]

    def max_evaluations(self, done: int = 0) -> int:
        """Maximum evaluations (route × example) from round ``done`` on."""
        return 0 if done else self.max_draws_per_round * len(self.searched_examples)

    @cached_property
    def identity(self) -> str:
        """The control and its settings, as JSON."""
        return json.dumps({"search": "control", **dataclasses.asdict(self)}, sort_keys=True)
