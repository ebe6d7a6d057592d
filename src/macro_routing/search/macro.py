"""MACRO's search: draw programs, score them, move the policy to the best, decode it (paper, "Method"; §3-4)."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from macro_routing.errors import SearchError, SettingsError
from macro_routing.routes.route import Program
from macro_routing.routes.space import RouteSpace
from macro_routing.search.dealt_rounds import DealtRounds
from macro_routing.search.example_schedule import sample_proposals
from macro_routing.search.marginal_top_k import decode_marginal_routes
from macro_routing.search.policy import MarkovPolicy, check_epsilons
from macro_routing.search.searcher import (
    Candidate,
    Draw,
    Outcome,
    Proposal,
    Round,
    Score,
    SearchState,
    check_outcomes,
    check_state,
    rank_draws,
)
from macro_routing.search.top_k import decode_anchored_routes, decode_top_programs, decode_top_routes
from macro_routing.settings import check_choice, check_integer, check_number

MAX_CANDIDATES = 10_000
FINAL_SETS = {
    "distinct": decode_top_routes,
    "raw": decode_top_programs,
    "anchored": decode_anchored_routes,
    "marginal": decode_marginal_routes,
}


@dataclass(frozen=True)
class MacroSettings:
    """The settings of MACRO's search; the defaults are the paper's, but for the final set."""

    iterations: int = 10
    """Rounds of drawing and updating (``I``)."""
    draws: int = 30
    """Programs drawn per round (``K``)."""
    elite: int = 5
    """How many of the best draws move the policy (``m``); equal to ``draws`` means all."""
    beta: float = 1.8262
    """How sharply better draws outweigh worse ones within the elite (``β``)."""
    alpha: float = 0.0397
    """Weight of the current policy in the new one, as a pseudo-count (``α``)."""
    temperature: float = 1.0
    """Sampling temperature (``τ``); decoding always uses 1."""
    epsilon_local: float = 0.2
    """Prior mass spread over all moves and rejoin (``ε_loc``)."""
    epsilon_operator: float = 0.0867
    """Prior mass spread over all adds (``ε_op``)."""
    replay: float = 0.1
    """Share of every round's fresh examples that later rounds see again (``λ``)."""
    smoothing: float = 1.0
    """How far the policy moves to its update (``η``); 1 is all the way."""
    k: int = 5
    """Size of the final set."""
    final_set: str = "distinct"
    """``distinct``: the k most probable different routes; ``raw``: the k most probable programs, then duplicates
    dropped (the paper's way); ``anchored``: the standard pass and the k - 1 most probable other routes; ``marginal``:
    the k routes that all their programs together make most probable."""

    def __post_init__(self) -> None:
        """Refuse impossible settings by name."""
        check_integer("iterations (I)", self.iterations, minimum=1)
        check_integer("draws (K)", self.draws, minimum=1)
        check_integer("elite (m)", self.elite, minimum=1)
        if self.elite > self.draws:
            raise SettingsError(
                f"elite (m) = {self.elite} is not allowed: it must be at most draws (K) = {self.draws},"
                " and equal to it to keep all draws"
            )
        check_number("beta (β)", self.beta, minimum=0)
        check_number("alpha (α)", self.alpha, minimum=0)
        check_number("temperature (τ)", self.temperature, minimum=0.001)
        check_epsilons(self.epsilon_local, self.epsilon_operator)
        check_number("replay (λ)", self.replay, minimum=0, maximum=1)
        check_number("smoothing (η)", self.smoothing, minimum=0, maximum=1, exclusive=True)
        check_integer("k", self.k, minimum=1, maximum=MAX_CANDIDATES)
        for name in ("beta", "alpha", "temperature", "epsilon_local", "epsilon_operator", "replay", "smoothing"):
            object.__setattr__(self, name, float(getattr(self, name)))  # 1 and 1.0 are one setting
        check_choice("final_set", self.final_set, tuple(FINAL_SETS))


@dataclass(frozen=True)
class MacroSearch(DealtRounds):
    """MACRO over one route space and ``examples`` training examples; a pure function of its fields."""

    space: RouteSpace
    examples: int
    settings: MacroSettings = MacroSettings()
    seed: int = 0

    @cached_property
    def identity(self) -> str:
        """What the search is, for recognising its states."""
        return json.dumps({"search": "macro", **dataclasses.asdict(self)}, sort_keys=True)

    def start(self) -> SearchState:
        """The state before the first round: the prior."""
        return self.start_from_prior(
            MarkovPolicy.prior(self.space, self.settings.epsilon_local, self.settings.epsilon_operator)
        )

    def start_from_prior(self, prior: MarkovPolicy) -> SearchState:
        """The same with another prior, which knows something already."""
        return SearchState(self.identity, arrays={"policy": prior.table})

    def policy(self, state: SearchState) -> MarkovPolicy:
        """The policy a state has come to."""
        check_state(self.identity, state)
        if "policy" not in state.arrays:
            raise SearchError("the state holds no policy table")
        return MarkovPolicy(self.space, state.arrays["policy"])

    def ask(self, state: SearchState) -> Round | None:
        """Draw the next round's programs; every round has its own random stream, so asking again changes nothing."""
        policy = self.policy(state)
        if state.stopped or state.rounds == self.settings.iterations:
            return None
        proposals = sample_proposals(
            policy,
            self.settings.draws,
            seed=self.seed,
            round_number=state.rounds,
            temperature=self.settings.temperature,
        )
        return Round(state.rounds, proposals, self.schedule[state.rounds], keep=self.settings.elite)

    def tell(self, state: SearchState, asked: Round, outcomes: Sequence[Outcome]) -> SearchState:
        """Move the policy to the elite; failed draws never belong to it."""
        check_outcomes(self.ask(state), asked, outcomes)
        programs, weights = compute_elite_weights(asked.proposals, outcomes, self.settings.elite, self.settings.beta)
        policy = self.policy(state).updated(programs, weights, self.settings.alpha, self.settings.smoothing)
        # A policy that draws one and the same route only would draw it for ever.
        settled = len(asked.proposals) > 1 and len({proposal.route for proposal in asked.proposals}) == 1
        return replace(state.told(asked, outcomes), arrays={"policy": policy.table}, stopped=settled)

    def candidates(self, state: SearchState) -> tuple[Candidate, ...]:
        """The final set, decoded exactly."""
        return FINAL_SETS[self.settings.final_set](self.policy(state), self.settings.k)

    def most_probable(self, state: SearchState) -> Candidate:
        """The variant "top-1": the route of the single most probable program, without validation."""
        return decode_top_programs(self.policy(state), 1)[0]

    def best_draw(self, state: SearchState) -> Draw | None:
        """The variant "no Vit.": the best drawn route on its own examples; None when nothing was scored."""
        return next(iter(rank_draws(state.draws)), None)


def select_elite(outcomes: Sequence[Outcome], size: int) -> list[int]:
    """Places of the ``size`` best scores, best first, ties by earlier draw; failures are never among them."""
    accuracies = _accuracies(outcomes)
    return sorted(accuracies, key=lambda place: (-accuracies[place], place))[:size]


def compute_elite_weights(
    proposals: Sequence[Proposal], outcomes: Sequence[Outcome], size: int, beta: float
) -> tuple[list[Program], list[float]]:
    """The elite's programs with weights ∝ exp(β (q - max q)) that sum to 1; both empty when every draw failed."""
    places = select_elite(outcomes, size)
    accuracies = _accuracies(outcomes)
    raw = np.array([math.exp(beta * (accuracies[place] - accuracies[places[0]])) for place in places])
    programs = [program for program in (proposals[place].program for place in places) if program is not None]
    return programs, (raw / raw.sum()).tolist() if places else []


def _accuracies(outcomes: Sequence[Outcome]) -> dict[int, float]:
    """Accuracy by place, of the draws that could be scored."""
    return {place: outcome.accuracy for place, outcome in enumerate(outcomes) if isinstance(outcome, Score)}
