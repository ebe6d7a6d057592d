"""MACRO's search: draw programs, score them, move the policy to the best, decode it (paper, "Method"; §3-4)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from macro_routing.errors import SettingsError
from macro_routing.routes.route import Program
from macro_routing.routes.space import RouteSpace
from macro_routing.search.marginal_top_k import decode_marginal_routes
from macro_routing.search.policy import check_epsilons
from macro_routing.search.policy_search import PolicySearcher, PolicyState, SamplingSearcher, SamplingSettings
from macro_routing.search.searcher import (
    Candidate,
    Draw,
    Outcome,
    Proposal,
    Round,
    Score,
    SearchState,
    rank_draws,
)
from macro_routing.search.top_k import decode_anchored_routes, decode_top_programs, decode_top_routes
from macro_routing.settings import Range, check_choice, option

MAX_CANDIDATES = 10_000
FINAL_SETS = {
    "distinct": decode_top_routes,
    "raw": decode_top_programs,
    "anchored": decode_anchored_routes,
    "marginal": decode_marginal_routes,
}


@dataclass(frozen=True)
class MacroSettings(SamplingSettings):
    """The settings of MACRO's search; the defaults are the paper's, but for the final set."""

    elite: Annotated[int, Range(1, symbol="m")] = option(
        5, "Best draws that update the policy (m); not in the guided search.", "Search", shown_default="the preset's"
    )
    """How many of the best draws move the policy (``m``); equal to ``draws`` means all."""
    beta: Annotated[float, Range(0, symbol="β")] = 1.8262
    """How sharply better draws outweigh worse ones within the elite (``β``)."""
    alpha: Annotated[float, Range(0, symbol="α")] = 0.0397
    """Weight of the current policy in the new one, as a pseudo-count (``α``)."""
    temperature: Annotated[float, Range(0.001, symbol="τ")] = 1.0
    """Sampling temperature (``τ``); decoding always uses 1."""
    epsilon_local: Annotated[float, Range(0, 1, symbol="ε_loc")] = 0.2
    """Prior mass spread over all moves and rejoin (``ε_loc``)."""
    epsilon_operator: Annotated[float, Range(0, 1, symbol="ε_op")] = 0.0867
    """Prior mass spread over all adds (``ε_op``)."""
    replay: Annotated[float, Range(0, 1, symbol="λ")] = 0.1
    """Share of every round's fresh examples that later rounds see again (``λ``)."""
    smoothing: Annotated[float, Range(0, 1, exclusive=True, symbol="η")] = 1.0
    """How far the policy moves to its update (``η``); 1 is all the way."""
    k: Annotated[int, Range(1, MAX_CANDIDATES)] = option(
        5,
        "Candidates that are validated at the end; not in the guided search.",
        "Search",
        shown_default="the preset's",
    )
    """Size of the final set."""
    final_set: str = "distinct"
    """``distinct``: the k most probable different routes; ``raw``: the k most probable programs, then duplicates
    dropped (the paper's way); ``anchored``: the standard pass and the k - 1 most probable other routes; ``marginal``:
    the k routes that all their programs together make most probable."""

    def __post_init__(self) -> None:
        """Reject impossible settings."""
        super().__post_init__()
        if self.elite > self.draws:
            raise SettingsError(
                f"elite (m) = {self.elite} is not allowed: it must be at most draws (K) = {self.draws},"
                " and equal to it to keep all draws"
            )
        check_epsilons(self.epsilon_local, self.epsilon_operator)
        check_choice("final_set", self.final_set, tuple(FINAL_SETS))


@dataclass(frozen=True)
class MacroSearch(SamplingSearcher, PolicySearcher):
    """MACRO over one route space and ``examples`` training examples."""

    space: RouteSpace
    examples: int
    settings: MacroSettings = MacroSettings()
    seed: int = 0

    name = "macro"

    def _ask(self, state: PolicyState) -> Round | None:
        temperature, keep = self.settings.temperature, self.settings.elite
        return self._sample_round(state, self.policy(state), temperature=temperature, keep=keep)

    def _tell(self, state: PolicyState, asked: Round, outcomes: Sequence[Outcome]) -> PolicyState:
        """Move the policy to the elite; failed draws never belong to it."""
        programs, weights = compute_elite_weights(asked.proposals, outcomes, self.settings.elite, self.settings.beta)
        policy = self.policy(state).update_from_programs(
            programs, weights, self.settings.alpha, self.settings.smoothing
        )
        # A policy that samples only one route would sample it in every later round, too.
        converged = len(asked.proposals) > 1 and len({proposal.route for proposal in asked.proposals}) == 1
        return replace(state, policy_table=policy.table, stopped=converged)

    def _candidates(self, state: PolicyState) -> tuple[Candidate, ...]:
        """The final set, decoded exactly."""
        return FINAL_SETS[self.settings.final_set](self.policy(state), self.settings.k)

    def most_probable_candidate(self, state: SearchState) -> Candidate:
        """The variant "top-1": the route of the single most probable program, without validation."""
        return decode_top_programs(self.policy(state), 1)[0]

    def best_draw(self, state: SearchState) -> Draw | None:
        """The variant "no Vit.": the best drawn route on its own examples; None if nothing was scored."""
        return next(iter(rank_draws(state.draws)), None)


def select_elite(outcomes: Sequence[Outcome], size: int) -> list[int]:
    """Indices of the ``size`` best scores, best first, ties by earlier draw; failures are never among them."""
    accuracies = _accuracy_by_index(outcomes)
    return sorted(accuracies, key=lambda index: (-accuracies[index], index))[:size]


def compute_elite_weights(
    proposals: Sequence[Proposal], outcomes: Sequence[Outcome], size: int, beta: float
) -> tuple[list[Program], list[float]]:
    """The elite's programs with weights ∝ exp(β (q - max q)) that sum to 1; both empty if every draw failed."""
    elite = select_elite(outcomes, size)
    accuracies = _accuracy_by_index(outcomes)
    raw = np.array([math.exp(beta * (accuracies[index] - accuracies[elite[0]])) for index in elite])
    programs = [program for program in (proposals[index].program for index in elite) if program is not None]
    return programs, (raw / raw.sum()).tolist() if elite else []


def _accuracy_by_index(outcomes: Sequence[Outcome]) -> dict[int, float]:
    """The accuracies of the draws that could be scored."""
    return {index: outcome.accuracy for index, outcome in enumerate(outcomes) if isinstance(outcome, Score)}
