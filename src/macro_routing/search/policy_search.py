"""Searches that sample programs from a Markov policy: what MACRO, the guided search and random search share."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from macro_routing.routes.space import RouteSpace
from macro_routing.search.paper_stream import count_random_numbers, make_paper_generator, sample_paper_program
from macro_routing.search.policy import MarkovPolicy
from macro_routing.search.policy_settings import PAPER_STREAM
from macro_routing.search.random_streams import RandomStreamPurpose, assign_examples_to_rounds, make_generator
from macro_routing.search.searcher import Proposal, Round, RoundSize, Searcher, SearchState


class PolicySamplingSearcher(Searcher):
    """A search whose rounds are samples of a policy, on chunks of examples with a replay buffer."""

    space: RouteSpace

    @cached_property
    def planned_round_sizes(self) -> tuple[RoundSize, ...]:
        """Chunks of examples with a replay buffer."""
        chunks = assign_examples_to_rounds(self.examples, self.settings.iterations, self.settings.replay, self.seed)
        return tuple(RoundSize(self.settings.draws, chunk) for chunk in chunks)

    def _sample_round(
        self, state: SearchState, policy: MarkovPolicy, *, temperature: float = 1.0, keep: int | None = None
    ) -> Round | None:
        """The next round, with the same programs whenever it is asked for."""
        if self.settings.stream == PAPER_STREAM:
            # How many numbers were drawn so far follows from what was drawn with them.
            drawn = [draw.proposal.program for draw in state.draws if draw.proposal.program is not None]
            rng = make_paper_generator(self.seed, count_random_numbers(self.space, drawn))
            programs = [sample_paper_program(policy, rng, temperature) for _ in range(self.settings.draws)]
        else:
            rng = make_generator(self.seed, RandomStreamPurpose.SAMPLE_PROGRAMS, state.rounds)
            programs = [policy.sample_program(rng, temperature) for _ in range(self.settings.draws)]
        proposals = [Proposal(program.to_route(self.space.layers), program) for program in programs]
        return self._make_round_from_proposals(state, proposals, keep)


@dataclass(frozen=True, eq=False, kw_only=True)
class PolicySearchState(SearchState):
    """The state of a search that learns a policy."""

    policy_table: NDArray[np.float64]
    """``MarkovPolicy.table`` after the rounds told so far."""


class PolicySearcherBase(Searcher):
    """A search whose state holds a policy; it starts from the prior or from another policy."""

    space: RouteSpace
    state_type: ClassVar[type[SearchState]] = PolicySearchState

    def make_initial_state(self) -> PolicySearchState:
        """The state before the first round, with the prior as policy."""
        prior = MarkovPolicy.make_prior(self.space, self.settings.epsilon_local, self.settings.epsilon_operator)
        return self.start_from_given_prior(prior)

    def start_from_given_prior(self, prior: MarkovPolicy) -> PolicySearchState:
        """The state before the first round with another prior, such as the policy of an earlier run."""
        return PolicySearchState(self.identity, policy_table=prior.table)

    def policy(self, state: SearchState) -> MarkovPolicy:
        """The policy of a state."""
        self.check_state(state)
        assert isinstance(state, PolicySearchState)
        return state.get_or_compute("policy", lambda: MarkovPolicy(self.space, state.policy_table))
