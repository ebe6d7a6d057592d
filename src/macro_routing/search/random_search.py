"""Random search in MACRO's route space at the same budget: the control that shows what learning adds."""

from dataclasses import dataclass
from functools import cached_property

from macro_routing.routes.route import Route
from macro_routing.routes.space import RouteSpace
from macro_routing.search.budgeted_search import FinalSetSettings
from macro_routing.search.policy import MarkovPolicy, check_epsilons
from macro_routing.search.policy_search import make_prior, plan_chunked_rounds, sample_proposals
from macro_routing.search.searcher import Candidate, PlannedRound, Round, Searcher, SearchState, rank_candidates
from macro_routing.settings import Range, check_fields


@dataclass(frozen=True)
class RandomSettings(FinalSetSettings):
    """The settings of the random search."""

    iterations: int = 10
    """Rounds; the examples are assigned to them as in MACRO."""
    draws: int = 30
    """Programs drawn per round, always from the prior."""
    epsilon_local: float = 0.2
    """Prior mass spread over all moves and rejoin."""
    epsilon_operator: float = 0.0867
    """Prior mass spread over all adds."""
    replay: float = 0.1
    """Share of every round's fresh examples that later rounds see again."""

    def __post_init__(self) -> None:
        """Reject impossible settings."""
        super().__post_init__()
        check_fields(
            self,
            iterations=Range(1, symbol="I"),
            draws=Range(1, symbol="K"),
            epsilon_local=Range(0, 1, symbol="ε_loc"),
            epsilon_operator=Range(0, 1, symbol="ε_op"),
            replay=Range(0, 1, symbol="λ"),
        )
        check_epsilons(self.epsilon_local, self.epsilon_operator)


@dataclass(frozen=True)
class RandomSearch(Searcher):
    """Samples from the prior and keeps the best."""

    space: RouteSpace
    examples: int
    settings: RandomSettings = RandomSettings()
    seed: int = 0

    name = "random"

    @cached_property
    def _prior(self) -> MarkovPolicy:
        return make_prior(self.space, self.settings)

    @cached_property
    def round_plan(self) -> tuple[PlannedRound, ...]:
        """Chunks of examples with a replay buffer."""
        return plan_chunked_rounds(self.examples, self.settings, self.seed)

    def _ask(self, state: SearchState) -> Round | None:
        proposals = sample_proposals(self._prior, self.settings.draws, seed=self.seed, round_number=state.rounds)
        return self._make_round(state, proposals)

    def candidates(self, state: SearchState) -> tuple[Candidate, ...]:
        """The best different routes by their own scores."""
        self.check_state(state)
        first = Route.standard(self.space.layers) if self.settings.anchored else None
        return rank_candidates(state.draws, self.settings.k, first)
