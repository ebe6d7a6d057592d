"""Random search in MACRO's route space at the same budget: the control that shows what learning adds."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from macro_routing.routes.space import RouteSpace
from macro_routing.search.fixed_route_count_search import FixedRouteCountSettings
from macro_routing.search.policy import MarkovPolicy, check_epsilons
from macro_routing.search.policy_search import PolicySamplingSearcher, PolicySamplingSettings
from macro_routing.search.searcher import Candidate, Round, SearchState
from macro_routing.settings import AllowedRange


@dataclass(frozen=True)
class RandomSettings(PolicySamplingSettings, FixedRouteCountSettings):
    """The settings of the random search; it always samples from the prior."""

    epsilon_local: Annotated[float, AllowedRange(0, 1, symbol="ε_loc")] = 0.2
    """Prior mass spread over all moves and rejoin (``ε_loc``)."""
    epsilon_operator: Annotated[float, AllowedRange(0, 1, symbol="ε_op")] = 0.0867
    """Prior mass spread over all adds (``ε_op``)."""
    replay: Annotated[float, AllowedRange(0, 1, symbol="λ")] = 0.1
    """Share of every round's fresh examples that later rounds see again (``λ``)."""

    def __post_init__(self) -> None:
        """Reject impossible settings."""
        super().__post_init__()
        check_epsilons(self.epsilon_local, self.epsilon_operator)


@dataclass(frozen=True)
class RandomSearch(PolicySamplingSearcher):
    """Samples from the prior and keeps the best."""

    space: RouteSpace
    examples: int
    settings: RandomSettings = RandomSettings()
    seed: int = 0

    name = "random"

    @cached_property
    def _prior(self) -> MarkovPolicy:
        return MarkovPolicy.make_prior(self.space, self.settings.epsilon_local, self.settings.epsilon_operator)

    def _ask(self, state: SearchState) -> Round | None:
        return self._sample_round(state, self._prior)

    def _list_candidates(self, state: SearchState) -> tuple[Candidate, ...]:
        return self.settings.select_final_set(state.draws, self.space.layers)
