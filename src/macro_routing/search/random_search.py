"""Random search in MACRO's route space at the same budget: the control that shows what learning adds."""

from dataclasses import dataclass, field
from functools import cached_property

from macro_routing.routes.space import RouteSpace
from macro_routing.search.fixed_route_count_search import select_best_routes
from macro_routing.search.policy import MarkovPolicy
from macro_routing.search.policy_search import PolicySamplingSearcher
from macro_routing.search.policy_settings import RandomSettings
from macro_routing.search.searcher import Candidate, Round, SearchState


@dataclass(frozen=True)
class RandomSearch(PolicySamplingSearcher):
    """Samples from the prior and keeps the best."""

    space: RouteSpace
    examples: int
    settings: RandomSettings = field(default_factory=RandomSettings)
    seed: int = 0

    name = "random"

    @cached_property
    def _prior(self) -> MarkovPolicy:
        return MarkovPolicy.make_prior(self.space, self.settings.epsilon_local, self.settings.epsilon_operator)

    def _ask(self, state: SearchState) -> Round | None:
        return self._sample_round(state, self._prior)

    def _list_candidates(self, state: SearchState) -> tuple[Candidate, ...]:
        return select_best_routes(self.settings, state.draws, self.space.layers)
