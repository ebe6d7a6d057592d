"""The default search: different routes on fresh examples every round, chosen by what all scores so far say.

Every round has a chunk of examples of its own and the standard pass as a control. A model of all scores
(``route_model``) says how good any route may be; draws from it decide which routes are scored next, so that promising
ones are scored again on every new chunk and hopeless ones never again. The Markov policy is the prior moved to the
routes that are probably good; it writes, and exactly decodes, the candidates from which the model chooses. Part of the
training examples is held back: in a last round the best route meets the standard pass there, on examples that had no
say in finding it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from macro_routing.errors import SearchError, SettingsError
from macro_routing.routes.route import Program, Route
from macro_routing.routes.space import RouteSpace
from macro_routing.search.candidate_pool import edited, single_moves, written
from macro_routing.search.empirical_scores import EmpiricalScores
from macro_routing.search.example_schedule import MAX_EXAMPLES, check_seed
from macro_routing.search.gp_fit import Evidence, learn
from macro_routing.search.guided_settings import GuidedSettings
from macro_routing.search.policy import MarkovPolicy
from macro_routing.search.route_gp import KERNELS, Features, Sizes, draw_best
from macro_routing.search.searcher import (
    Candidate,
    Draw,
    ExpectedGain,
    Outcome,
    Proposal,
    Round,
    SearchState,
    check_outcomes,
    check_state,
)
from macro_routing.search.top_k import decode_top_routes
from macro_routing.settings import check_integer

_DEALING, _CHOOSING = 4, 5
_LEAST_CHUNK = 8
"""Examples a round needs at least, unless there are hardly any."""
_CONSIDERED = 350
"""Routes among which the model chooses; the others expect less."""
_SECOND_CHANCE = 40
"""Typical examples that routes' own are mixed with before the best are scored again: one good round is enough."""
_MOST_DRAWS = 1000
"""Routes of a round at most, however much the budget pays for."""
_MOST_WRITTEN = 5000
"""Programs drawn for the first round at most."""
_VERSION = 3
"""Of the search: a state that another one has left is refused."""
_SWEEPS = 1
"""How often every size of the model is tried larger and smaller after a round."""
_PROMISING = 40
"""Best routes from which edits are taken, and to which the policy moves."""


@dataclass(frozen=True)
class GuidedSearch:
    """The search over one route space; a pure function of its fields."""

    space: RouteSpace
    examples: int
    budget: int
    """Route × example outcomes that may be asked for."""
    settings: GuidedSettings = field(default_factory=GuidedSettings)
    seed: int = 0
    among: frozenset[Route] | None = None
    """Only these routes may be proposed, as when recorded scores are replayed."""
    # What was worked out for a state is kept with it: asking and telling need the same more than once.
    _known: WeakKeyDictionary[SearchState, Evidence | None] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )
    _asked: WeakKeyDictionary[SearchState, Round] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Refuse bad seeds, and a budget too small for a round."""
        check_seed(self.seed)
        check_integer("examples", self.examples, minimum=1, maximum=MAX_EXAMPLES)
        check_integer("budget", self.budget, minimum=1)
        for route in self.among or ():
            self.space.check_route(route)
        if self.examples < 3:
            raise SettingsError(
                f"{self.examples} training examples are not allowed: the guided search needs 3 at least, to search with"
                " and to confirm with"
            )
        if self._used < 3:
            needed = self.settings.cost(3)
            raise SettingsError(
                f"budget = {self.budget} is not allowed: {self.settings.draws} routes a round and a confirmation on 3"
                f" examples ask for {needed} outcomes; give a budget of as many, or fewer draws"
            )

    # --- who sees what --------------------------------------------------------------------------------------------

    @cached_property
    def _used(self) -> int:
        """Training examples that the budget pays for, with as many draws as wanted."""
        used = min(self.examples, self.budget * 1000 // self.settings.cost(1000) + 1)
        while used and self.settings.cost(used) > self.budget:
            used -= 1
        return used

    @cached_property
    def _dealt(self) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
        order = np.random.default_rng([self.seed, _DEALING]).permutation(self.examples)[: self._used]
        held = int(self.settings.holdout * self._used)
        rounds = max(1, min(self.settings.rounds, (self._used - held) // _LEAST_CHUNK))
        return tuple(order[:held].tolist()), [tuple(part.tolist()) for part in np.array_split(order[held:], rounds)]

    @property
    def holdout(self) -> tuple[int, ...]:
        """Training examples that only the confirmation sees."""
        return self._dealt[0]

    @property
    def max_error_probability(self) -> float:
        """Most probability with which a lead may be chance."""
        return self.settings.max_error_probability

    @property
    def chunks(self) -> list[tuple[int, ...]]:
        """Training examples of every round but the confirmation."""
        return self._dealt[1]

    @property
    def max_rounds(self) -> int:
        """Rounds, the confirmation included."""
        return len(self.chunks) + bool(self.holdout)

    @cached_property
    def max_draws(self) -> int:
        """Routes per round: as many as the budget pays for, within reason."""
        searched = sum(map(len, self.chunks))
        return min(_MOST_DRAWS, int((self.budget - self.settings.k * len(self.holdout)) // searched))

    @property
    def max_candidates(self) -> int:
        """Most routes to be validated."""
        return self.settings.k

    def max_evaluations(self, done: int = 0) -> int:
        """Outcomes that the rounds from ``done`` on may ask for."""
        confirming = self.settings.k * len(self.holdout) if done < self.max_rounds else 0
        return self.max_draws * sum(map(len, self.chunks[done:])) + confirming

    @cached_property
    def identity(self) -> str:
        """What the search is, for recognising its states."""
        values = {
            "version": _VERSION,
            "space": dataclasses.asdict(self.space),
            "examples": self.examples,
            "budget": self.budget,
            "settings": dataclasses.asdict(self.settings),
            "seed": self.seed,
        }
        if self.among is not None:
            values["among"] = sorted(map(str, self.among))
        return json.dumps({"search": "guided", **values}, sort_keys=True)

    # --- ask and tell ---------------------------------------------------------------------------------------------

    def start(self) -> SearchState:
        """The state before the first round: the prior, and nothing known."""
        prior = MarkovPolicy.prior(self.space, self.settings.epsilon_local, self.settings.epsilon_operator)
        return self.start_from_prior(prior)

    def start_from_prior(self, prior: MarkovPolicy) -> SearchState:
        """The same with another prior, which knows something already."""
        sizes = np.array(dataclasses.astuple(KERNELS[self.settings.kernel]))
        return SearchState(self.identity, arrays={"policy": prior.table, "prior": prior.table, "sizes": sizes})

    @cached_property
    def _standard(self) -> Proposal:
        route = Route.standard(self.space.layers)
        return Proposal(route, route.shortest_program())

    def policy(self, state: SearchState) -> MarkovPolicy:
        """The policy a state has come to."""
        check_state(self.identity, state)
        if "policy" not in state.arrays:
            raise SearchError("the state holds no policy table")
        return MarkovPolicy(self.space, state.arrays["policy"])

    def ask(self, state: SearchState) -> Round | None:
        """The standard pass, and the routes that the scores so far speak for; in the end, the finalists."""
        policy = self.policy(state)
        if state.rounds >= self.max_rounds:
            return None
        if state not in self._asked:
            self._asked[state] = self._next(state, policy)
        return self._asked[state]

    def _next(self, state: SearchState, policy: MarkovPolicy) -> Round:
        if state.rounds == len(self.chunks):
            finalists = tuple(Proposal(route, route.shortest_program()) for route in self._finalists(state))
            return Round(state.rounds, (self._standard, *finalists), self.holdout, keep=1 + len(finalists))
        rng = np.random.default_rng([self.seed, _CHOOSING, state.rounds])
        pool = self._pool(state, policy, rng)
        wanted = self.max_draws - 1
        if self._evidence(state) is not None:
            ranked = EmpiricalScores.of(state.draws).ranked(_SECOND_CHANCE)
            own = [route for route in ranked if route in pool][: self.settings.n_empirical_best]
            others = self._promising(state, list(pool), wanted, rng)
            chosen = list(dict.fromkeys([*own, *others]))[:wanted]
        else:
            # What the prior holds for most probable first: that is where earlier knowledge shows.
            decoded = {
                one.route: one.program
                for one in decode_top_routes(policy, 1 + wanted // 4)
                if self.among is None or one.route in self.among
            }
            first = [route for route in decoded if not route.is_standard]
            others = [route for route in pool if route not in decoded]
            pool |= decoded
            chosen = [*first, *(others[place] for place in rng.permutation(len(others)))][:wanted]
        proposals = (self._standard, *(Proposal(route, pool[route]) for route in chosen))
        return Round(state.rounds, proposals, self.chunks[state.rounds], keep=len(proposals))

    def _pool(self, state: SearchState, policy: MarkovPolicy, rng: np.random.Generator) -> dict[Route, Program | None]:
        """Different routes to choose from, the standard pass not among them."""
        programs = [draw.proposal.program for draw in state.draws] + self._single_moves
        if best := self._best(state):
            programs += edited(self.space, best[: self.settings.incumbents], best[:_PROMISING])
            programs += written(policy, self.settings.policy_samples, rng) if self.settings.policy_samples else []
        else:
            programs += written(
                policy, min(20 * self.max_draws, _MOST_WRITTEN) if len(self._single_moves) < self.max_draws else 0, rng
            )
        expanded = ((program.expand(self.space.layers), program) for program in programs if program is not None)
        found: dict[Route, Program | None] = {route: program for route, program in expanded if not route.is_standard}
        if self.among is None:
            return found
        allowed = {route: route.shortest_program() for route in sorted(self.among, key=str) if not route.is_standard}
        return {**{route: program for route, program in found.items() if route in self.among}, **allowed}

    @cached_property
    def _single_moves(self) -> list[Program | None]:
        return list(single_moves(self.space))

    def _promising(self, state: SearchState, pool: list[Route], wanted: int, rng: np.random.Generator) -> list[Route]:
        evidence = self._evidence(state)
        assert evidence is not None
        model = evidence.model
        features = Features.of(pool)
        kept = np.argsort(-model.mean(features), kind="stable")[: max(_CONSIDERED, wanted)]
        mean, covariance = model.joint(features[kept])
        return [pool[kept[place]] for place in draw_best(mean, covariance, 3 * wanted, wanted, rng)]

    def tell(self, state: SearchState, asked: Round, outcomes: Sequence[Outcome]) -> SearchState:
        """Learn how large effects are, and move the policy to the routes that are probably good."""
        check_outcomes(self.ask(state), asked, outcomes)
        told = state.told(asked, outcomes)
        if asked.number == len(self.chunks):
            return told
        evidence = self._learn(told, Sizes(*state.arrays["sizes"]), sweeps=_SWEEPS)
        if evidence is None:
            return told
        told = replace(told, arrays={**told.arrays, "sizes": np.array(dataclasses.astuple(evidence.model.sizes))})
        programs = {draw.proposal.route: draw.proposal.program for draw in told.draws}
        best = [
            place
            for place in np.argsort(-evidence.mean, kind="stable")[:_PROMISING]
            if programs[evidence.routes[place]]
        ]
        weights = np.exp((evidence.mean[best] - evidence.mean.max()) / self.settings.policy_temperature)
        prior = MarkovPolicy(self.space, state.arrays["prior"])
        policy = prior.updated(
            [programs[evidence.routes[place]] for place in best],  # type: ignore[misc]
            (self.settings.policy_weight * weights / weights.sum()).tolist(),
            alpha=1.0,
        )
        told = replace(told, arrays={**told.arrays, "policy": policy.table})
        self._known[told] = evidence
        return told

    def _evidence(self, state: SearchState) -> Evidence | None:
        """What the scores say; None as long as no route but the control was scored."""
        if state not in self._known:
            self._known[state] = self._learn(state, Sizes(*state.arrays["sizes"]), sweeps=0)
        return self._known[state]

    def _learn(self, state: SearchState, begin: Sizes, *, sweeps: int) -> Evidence | None:
        return learn(self._shown(state), self._standard.route, begin, sweeps=sweeps)

    def _best(self, state: SearchState) -> list[Route]:
        """Scored routes, the most promising first."""
        evidence = self._evidence(state)
        if evidence is None:
            return []
        return [evidence.routes[place] for place in np.argsort(-evidence.mean, kind="stable")]

    def _shown(self, state: SearchState) -> list[Draw]:
        """What the search learns from: the confirmation stays out, it judges what was learned."""
        return [draw for draw in state.draws if draw.round < len(self.chunks)]

    def _finalists(self, state: SearchState) -> list[Route]:
        own = EmpiricalScores.of(self._shown(state)).ranked()[: bool(self.settings.n_empirical_best)]
        return list(dict.fromkeys([*self._best(state)[: self.settings.finalists], *own]))

    def candidates(self, state: SearchState) -> tuple[Candidate, ...]:
        """The standard pass and the finalists."""
        check_state(self.identity, state)
        last = [draw.proposal.route for draw in state.draws if draw.round == len(self.chunks)]
        best = last[1:] or self._finalists(state)
        policy = self.policy(state)
        found = []
        for rank, route in enumerate([self._standard.route, *best], 1):
            program = route.shortest_program()
            probability = policy.log_probability(program)
            found.append(Candidate(route, program, probability, rank=rank, expected=self._expected(state, route)))
        return tuple(found)

    def _expected(self, state: SearchState, route: Route) -> ExpectedGain | None:
        evidence = self._evidence(state)
        if evidence is None:
            return None
        if not route.is_standard and route not in self._best(state)[: self.settings.finalists]:
            # A finalist by its own scores: the model, which expects no such route, would only speak against it.
            return EmpiricalScores.of(self._shown(state)).expected(route)
        mean, covariance = evidence.model.joint(Features.of([route]))
        return ExpectedGain(float(mean[0]), max(float(covariance[0, 0]), 0.0))
