"""Random search in MACRO's route space at the same budget: the control that shows what learning adds."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from macro_routing.routes.route import Route
from macro_routing.routes.space import RouteSpace
from macro_routing.search.dealt_rounds import DealtRounds
from macro_routing.search.example_schedule import sample_proposals
from macro_routing.search.policy import MarkovPolicy, check_epsilons
from macro_routing.search.searcher import (
    Candidate,
    Outcome,
    Proposal,
    Round,
    SearchState,
    check_outcomes,
    check_state,
    rank_draws,
)
from macro_routing.settings import check_boolean, check_integer, check_number


@dataclass(frozen=True)
class RandomSettings:
    """The settings of the random search."""

    iterations: int = 10
    """Rounds; the examples are dealt out as in MACRO."""
    draws: int = 30
    """Programs drawn per round, always from the prior."""
    epsilon_local: float = 0.2
    """Prior mass spread over all moves and rejoin."""
    epsilon_operator: float = 0.0867
    """Prior mass spread over all adds."""
    replay: float = 0.1
    """Share of every round's fresh examples that later rounds see again."""
    k: int = 5
    """Size of the final set: the k best different routes by their own scores."""
    anchored: bool = False
    """Whether the standard pass takes the first place of the final set."""

    def __post_init__(self) -> None:
        """Refuse impossible settings by name."""
        check_integer("iterations (I)", self.iterations, minimum=1)
        check_integer("draws (K)", self.draws, minimum=1)
        check_epsilons(self.epsilon_local, self.epsilon_operator)
        check_number("replay (λ)", self.replay, minimum=0, maximum=1)
        check_integer("k", self.k, minimum=1)
        for name in ("epsilon_local", "epsilon_operator", "replay"):
            object.__setattr__(self, name, float(getattr(self, name)))  # 1 and 1.0 are one setting
        check_boolean("anchored", self.anchored)


@dataclass(frozen=True)
class RandomSearch(DealtRounds):
    """Draws from the prior and keeps the best; a pure function of its fields."""

    space: RouteSpace
    examples: int
    settings: RandomSettings = RandomSettings()
    seed: int = 0

    @cached_property
    def _prior(self) -> MarkovPolicy:
        return MarkovPolicy.prior(self.space, self.settings.epsilon_local, self.settings.epsilon_operator)

    @cached_property
    def identity(self) -> str:
        """What the search is, for recognising its states."""
        return json.dumps({"search": "random", **dataclasses.asdict(self)}, sort_keys=True)

    def start(self) -> SearchState:
        """The state before the first round."""
        return SearchState(self.identity)

    def ask(self, state: SearchState) -> Round | None:
        """The next round's draws."""
        check_state(self.identity, state)
        if state.rounds == self.settings.iterations:
            return None
        proposals = sample_proposals(self._prior, self.settings.draws, seed=self.seed, round_number=state.rounds)
        # The final set compares draws of all rounds, so every score counts.
        return Round(state.rounds, proposals, self.schedule[state.rounds], keep=len(proposals))

    def tell(self, state: SearchState, asked: Round, outcomes: Sequence[Outcome]) -> SearchState:
        """Remember the scores."""
        check_outcomes(self.ask(state), asked, outcomes)
        return state.told(asked, outcomes)

    def candidates(self, state: SearchState) -> tuple[Candidate, ...]:
        """The best different routes by their own scores."""
        check_state(self.identity, state)
        found = [draw.proposal for draw in rank_draws(state.draws)]
        if self.settings.anchored:
            standard = Route.standard(self.space.layers)
            found = [Proposal(standard), *(proposal for proposal in found if not proposal.route.is_standard)]
        return tuple(
            Candidate(proposal.route, proposal.program, rank=rank)
            for rank, proposal in enumerate(found[: self.settings.k], 1)
        )
