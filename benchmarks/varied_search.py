"""The paper's search with changes that are no setting of it: tried on planted problems, and not worth one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from macro_routing.routes.route import Route
from macro_routing.search.macro import MacroSearch, compute_elite_weights
from macro_routing.search.policy import MarkovPolicy
from macro_routing.search.searcher import Failure, Outcome, Round, Score, SearchState


@dataclass(frozen=True)
class VariedSearch(MacroSearch):
    """MACRO whose policy keeps a share of its prior, or whose elite is chosen from fewer draws."""

    floor: float = 0.0
    """Share of the prior in every policy: no action becomes impossible, so the entropy has a floor."""
    without_standard: bool = False
    """The standard pass is drawn and scored, but moves nothing."""
    without_copies: bool = False
    """Of the draws of one route only the first may be elite."""

    def tell(self, state: SearchState, asked: Round, outcomes: Sequence[Outcome]) -> SearchState:
        """Move the policy to what may be elite."""
        told = super().tell(state, asked, outcomes)
        settings = self.settings
        allowed = self._allowed(asked, outcomes)
        programs, weights = compute_elite_weights(asked.proposals, allowed, settings.elite, settings.beta)
        policy = self.policy(state).updated(programs, weights, settings.alpha, settings.smoothing)
        prior = MarkovPolicy.prior(self.space, settings.epsilon_local, settings.epsilon_operator)
        return replace(told, arrays={"policy": (1 - self.floor) * policy.table + self.floor * prior.table})

    def _allowed(self, asked: Round, outcomes: Sequence[Outcome]) -> list[Outcome]:
        left_out: set[Route] = {Route.standard(self.space.layers)} if self.without_standard else set()
        allowed = []
        for proposal, outcome in zip(asked.proposals, outcomes, strict=True):
            is_out = proposal.route in left_out and isinstance(outcome, Score)
            allowed.append(Failure("not to be elite") if is_out else outcome)
            if self.without_copies:
                left_out.add(proposal.route)
        return allowed
