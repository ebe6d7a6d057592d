"""Searches that sample programs from a Markov policy: what MACRO, the guided search and random search share."""

from dataclasses import dataclass
from typing import Any, ClassVar

from macro_routing.errors import SearchError
from macro_routing.routes.space import RouteSpace
from macro_routing.search.example_schedule import assign_examples
from macro_routing.search.policy import MarkovPolicy, Table
from macro_routing.search.random_streams import RandomStream, make_generator
from macro_routing.search.searcher import PlannedRound, Proposal, Searcher, SearchState


@dataclass(frozen=True, eq=False, kw_only=True)
class PolicyState(SearchState):
    """The state of a search that learns a policy."""

    policy_table: Table
    """``MarkovPolicy.table`` after the rounds told so far."""


class PolicySearcher(Searcher):
    """A search whose state holds a policy; it starts from the prior or from another policy."""

    space: RouteSpace
    state_type: ClassVar[type[SearchState]] = PolicyState

    def start(self) -> SearchState:
        """The state before the first round, with the prior as policy."""
        return self.start_from_prior(make_prior(self.space, self.settings))

    def start_from_prior(self, prior: MarkovPolicy) -> SearchState:
        """The state before the first round with another prior, such as the policy of an earlier run."""
        return PolicyState(self.identity, policy_table=prior.table)

    def policy(self, state: SearchState) -> MarkovPolicy:
        """The policy of a state."""
        self.check_state(state)
        if not isinstance(state, PolicyState):
            raise SearchError("the state holds no policy table")
        return state.cached("policy", lambda: MarkovPolicy(self.space, state.policy_table))


def make_prior(space: RouteSpace, settings: Any) -> MarkovPolicy:
    """The prior with the exploration masses of ``settings``."""
    return MarkovPolicy.prior(space, settings.epsilon_local, settings.epsilon_operator)


def plan_chunked_rounds(examples: int, settings: Any, seed: int) -> tuple[PlannedRound, ...]:
    """``settings.iterations`` rounds of ``settings.draws`` draws, on chunks of examples with a replay buffer."""
    chunks = assign_examples(examples, settings.iterations, settings.replay, seed)
    return tuple(PlannedRound(settings.draws, chunk) for chunk in chunks)


def sample_proposals(
    policy: MarkovPolicy, draws: int, *, seed: int, round_number: int, temperature: float = 1.0
) -> tuple[Proposal, ...]:
    """The programs of one round, the same ones whenever the round is asked for."""
    rng = make_generator(seed, RandomStream.SAMPLE_PROGRAMS, round_number)
    programs = (policy.sample_program(rng, temperature) for _ in range(draws))
    return tuple(Proposal(program.expand(policy.space.layers), program) for program in programs)
