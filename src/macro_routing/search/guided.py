"""The default search: different routes on fresh examples every round, chosen by a Gaussian process over all scores.

Every round has a chunk of examples of its own and includes the standard pass as a control. A Gaussian process
(``route_gp``) predicts the gain of any route; Thompson samples from it decide which routes are scored next, so
promising routes are scored again on every new chunk. The Markov policy is the prior moved to the routes that are
probably good; it proposes routes to the process, by sampling and exact decoding. Part of the training examples is a
holdout: in a last round the finalists and the standard pass are scored on these examples, which had no influence on the
search.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from macro_routing.errors import SettingsError
from macro_routing.routes.route import Program, Route
from macro_routing.routes.space import RouteSpace
from macro_routing.search.candidate_pool import list_single_moves, mutate_routes, sample_programs
from macro_routing.search.empirical_scores import EmpiricalScores
from macro_routing.search.gp_fit import GPFit
from macro_routing.search.guided_settings import GuidedSettings
from macro_routing.search.policy import MarkovPolicy, Table
from macro_routing.search.policy_search import PolicySearcher, PolicyState
from macro_routing.search.random_streams import RandomStream, make_generator
from macro_routing.search.route_features import RouteFeatures
from macro_routing.search.route_gp import KERNELS, KernelParameters, thompson_sample
from macro_routing.search.searcher import (
    Candidate,
    Draw,
    ExpectedGain,
    Outcome,
    PlannedRound,
    Proposal,
    Round,
    SearchState,
)
from macro_routing.search.top_k import decode_top_routes
from macro_routing.settings import check_integer

_MIN_CHUNK = 8
"""Minimum number of examples of a round, unless there are hardly any."""
_N_CONSIDERED = 350
"""Number of routes with the highest expected gain among which Thompson sampling chooses."""
_RETRY_PSEUDO_EXAMPLES = 40
"""Pseudo-examples for choosing routes to score again by their empirical scores: one good round is enough."""
_MAX_DRAWS = 1000
"""Maximum number of routes of a round, whatever the budget pays for."""
_MAX_FIRST_SAMPLES = 5000
"""Maximum number of programs sampled for the first round."""
_VERSION = 3
"""Version of the algorithm: states of other versions are rejected."""
_FIT_SWEEPS = 1
"""Sweeps over the kernel parameters after every round."""
_N_PROMISING = 40
"""Number of best routes from which edits are taken, and to which the policy moves."""


@dataclass(frozen=True, eq=False, kw_only=True)
class GuidedState(PolicyState):
    """The state of the guided search."""

    prior_table: Table
    """``MarkovPolicy.table`` of the prior, from which every round's policy is computed."""
    kernel_parameters: KernelParameters


@dataclass(frozen=True)
class GuidedSearch(PolicySearcher):
    """The guided search over one route space."""

    space: RouteSpace
    examples: int
    budget: int
    """Maximum number of evaluations (route × example)."""
    settings: GuidedSettings = field(default_factory=GuidedSettings)
    seed: int = 0
    allowed_routes: frozenset[Route] | None = None
    """Only these routes are proposed, as when recorded scores are replayed."""

    name = "guided"
    state_type = GuidedState

    def __post_init__(self) -> None:
        """Reject bad seeds, and a budget too small for a round."""
        check_integer("budget", self.budget, minimum=1)
        super().__post_init__()
        for route in self.allowed_routes or ():
            self.space.check_route(route)

    # --- examples of every round ----------------------------------------------------------------------------------

    @cached_property
    def _used_examples(self) -> int:
        """Number of training examples that the budget pays for with ``settings.draws`` draws."""
        used = min(self.examples, self.budget * 1000 // self.settings.min_evaluations(1000) + 1)
        while used and self.settings.min_evaluations(used) > self.budget:
            used -= 1
        if self.examples < 3:
            raise SettingsError(
                f"{self.examples} training examples are not allowed: the guided search needs 3 or more, to search and"
                " to confirm"
            )
        if used < 3:
            raise SettingsError(
                f"budget = {self.budget} is not allowed: {self.settings.draws} routes a round and a confirmation on 3"
                f" examples need {self.settings.min_evaluations(3)} evaluations; give a larger budget, or fewer draws"
            )
        return used

    @cached_property
    def _example_order(self) -> list[int]:
        rng = make_generator(self.seed, RandomStream.GUIDED_EXAMPLES)
        order: list[int] = rng.permutation(self.examples)[: self._used_examples].tolist()
        return order

    @cached_property
    def holdout(self) -> tuple[int, ...]:
        """Training examples that only the confirmation uses."""
        return tuple(self._example_order[: int(self.settings.holdout * self._used_examples)])

    @property
    def max_error_probability(self) -> float:
        """Maximum probability that the chosen route is no better than the standard pass."""
        return self.settings.max_error_probability

    @cached_property
    def chunks(self) -> list[tuple[int, ...]]:
        """Training examples of every round but the confirmation."""
        searched = self._example_order[len(self.holdout) :]
        rounds = max(1, min(self.settings.rounds, len(searched) // _MIN_CHUNK))
        return [tuple(chunk.tolist()) for chunk in np.array_split(searched, rounds)]

    @cached_property
    def draws_per_round(self) -> int:
        """Routes per round, the standard pass included: as many as the budget pays for, up to a limit."""
        searched = self._used_examples - len(self.holdout)
        return min(_MAX_DRAWS, int((self.budget - self.settings.k * len(self.holdout)) // searched))

    @cached_property
    def round_plan(self) -> tuple[PlannedRound, ...]:
        """A round per chunk, and the confirmation on the holdout."""
        confirmation = [PlannedRound(self.settings.k, self.holdout)] if self.holdout else []
        return (*(PlannedRound(self.draws_per_round, chunk) for chunk in self.chunks), *confirmation)

    def _identity_fields(self) -> dict[str, Any]:
        allowed = None if self.allowed_routes is None else sorted(map(str, self.allowed_routes))
        return {**asdict(replace(self, allowed_routes=None)), "allowed_routes": allowed, "version": _VERSION}

    # --- ask and tell ---------------------------------------------------------------------------------------------

    def start_from_prior(self, prior: MarkovPolicy) -> GuidedState:
        """The state before the first round with another prior, such as the policy of an earlier run."""
        parameters = KERNELS[self.settings.kernel]
        return GuidedState(
            self.identity, policy_table=prior.table, prior_table=prior.table, kernel_parameters=parameters
        )

    @cached_property
    def _standard_proposal(self) -> Proposal:
        route = Route.standard(self.space.layers)
        return Proposal(route, route.shortest_program())

    def _ask(self, state: GuidedState) -> Round | None:
        if state.rounds == len(self.chunks):
            finalists = [Proposal(route, route.shortest_program()) for route in self._select_finalists(state)]
            return self._make_round(state, [self._standard_proposal, *finalists])
        rng = make_generator(self.seed, RandomStream.GUIDED_CHOICE, state.rounds)
        pool = self._candidate_pool(state, rng)
        choose = self._choose_first_round if self._fitted_gp(state) is None else self._choose_by_scores
        chosen = choose(state, pool, rng)[: self.draws_per_round - 1]
        return self._make_round(state, [self._standard_proposal, *(Proposal(route, pool[route]) for route in chosen)])

    def _candidate_pool(self, state: GuidedState, rng: np.random.Generator) -> dict[Route, Program | None]:
        """Different routes to choose from, without the standard pass, each with a program."""
        policy = self.policy(state)
        programs = [draw.proposal.program for draw in state.draws] + self._single_moves
        if best := self._rank_scored_routes(state):
            programs += mutate_routes(self.space, best[: self.settings.incumbents], best[:_N_PROMISING])
            samples = self.settings.policy_samples
            programs += sample_programs(policy, samples, rng) if samples else []
        else:
            few_moves = len(self._single_moves) < self.draws_per_round
            samples = min(20 * self.draws_per_round, _MAX_FIRST_SAMPLES) if few_moves else 0
            programs += sample_programs(policy, samples, rng)
        expanded = ((program.expand(self.space.layers), program) for program in programs if program is not None)
        pool: dict[Route, Program | None] = {route: program for route, program in expanded if not route.is_standard}
        if self.allowed_routes is None:
            return pool
        allowed = sorted((route for route in self.allowed_routes if not route.is_standard), key=str)
        known = {route: program for route, program in pool.items() if route in self.allowed_routes}
        return known | {route: route.shortest_program() for route in allowed}

    @cached_property
    def _single_moves(self) -> list[Program | None]:
        return list(list_single_moves(self.space))

    def _choose_first_round(
        self, state: GuidedState, pool: dict[Route, Program | None], rng: np.random.Generator
    ) -> list[Route]:
        """Nothing is scored yet: the prior's most probable routes, where earlier knowledge shows, then random ones."""
        decoded = {
            candidate.route: candidate.program
            for candidate in decode_top_routes(self.policy(state), 1 + (self.draws_per_round - 1) // 4)
            if self.allowed_routes is None or candidate.route in self.allowed_routes
        }
        others = [route for route in pool if route not in decoded]
        pool |= decoded
        first = [route for route in decoded if not route.is_standard]
        return [*first, *(others[index] for index in rng.permutation(len(others)))]

    def _choose_by_scores(
        self, state: GuidedState, pool: dict[Route, Program | None], rng: np.random.Generator
    ) -> list[Route]:
        """The best routes by their empirical scores, then Thompson samples of the Gaussian process."""
        fit, wanted = self._fitted_gp(state), self.draws_per_round - 1
        assert fit is not None
        ranked = EmpiricalScores.from_draws(state.draws).rank_routes(_RETRY_PSEUDO_EXAMPLES)
        empirical_best = [route for route in ranked if route in pool][: self.settings.n_empirical_best]
        routes = list(pool)
        features = RouteFeatures.from_routes(routes)
        considered = np.argsort(-fit.gp.predict_mean(features), kind="stable")[: max(_N_CONSIDERED, wanted)]
        mean, covariance = fit.gp.predict_joint(features[considered])
        sampled = thompson_sample(mean, covariance, 3 * wanted, wanted, rng)
        return list(dict.fromkeys([*empirical_best, *(routes[considered[index]] for index in sampled)]))

    def _tell(self, state: GuidedState, asked: Round, outcomes: Sequence[Outcome]) -> GuidedState:  # noqa: ARG002
        """Fit the kernel parameters, and move the policy to the routes that are probably good."""
        if asked.number == len(self.chunks):
            return state
        fit = self._fit_draws(state, sweeps=_FIT_SWEEPS)
        if fit is None:
            return state
        policy = self._updated_policy(state, fit)
        told = replace(state, kernel_parameters=fit.gp.parameters, policy_table=policy.table)
        told.cached("fit", lambda: fit)
        return told

    def _updated_policy(self, state: GuidedState, fit: GPFit) -> MarkovPolicy:
        """The prior moved to the promising routes, weighted by their expected gains."""
        programs = {draw.proposal.route: draw.proposal.program for draw in state.draws}
        ranked = np.argsort(-fit.mean, kind="stable")[:_N_PROMISING]
        best = [(index, program) for index in ranked if (program := programs[fit.routes[index]])]
        weights = np.exp((fit.mean[[index for index, _ in best]] - fit.mean.max()) / self.settings.policy_temperature)
        return MarkovPolicy(self.space, state.prior_table).updated(
            [program for _, program in best],
            (self.settings.policy_weight * weights / weights.sum()).tolist(),
            alpha=1.0,
        )

    def _fitted_gp(self, state: GuidedState) -> GPFit | None:
        """The Gaussian process given all scores; None as long as only the standard pass was scored."""
        return state.cached("fit", lambda: self._fit_draws(state, sweeps=0))

    def _fit_draws(self, state: GuidedState, *, sweeps: int) -> GPFit | None:
        draws = self._search_draws(state)
        return GPFit.from_draws(draws, self._standard_proposal.route, state.kernel_parameters, sweeps=sweeps)

    def _rank_scored_routes(self, state: GuidedState) -> list[Route]:
        """Scored routes, highest expected gain first."""
        fit = self._fitted_gp(state)
        return [] if fit is None else fit.rank_routes()

    def _search_draws(self, state: GuidedState) -> list[Draw]:
        """All draws but those of the confirmation, which judges what was learned from the others."""
        return [draw for draw in state.draws if draw.round < len(self.chunks)]

    def _select_finalists(self, state: GuidedState) -> list[Route]:
        ranked = EmpiricalScores.from_draws(self._search_draws(state)).rank_routes()
        empirical_best = ranked[: bool(self.settings.n_empirical_best)]
        return list(dict.fromkeys([*self._rank_scored_routes(state)[: self.settings.finalists], *empirical_best]))

    def candidates(self, state: SearchState) -> tuple[Candidate, ...]:
        """The standard pass and the finalists."""
        policy = self.policy(state)
        assert isinstance(state, GuidedState)
        confirmed = [draw.proposal.route for draw in state.draws if draw.round == len(self.chunks)]
        candidates = []
        for rank, route in enumerate(
            [self._standard_proposal.route, *(confirmed[1:] or self._select_finalists(state))], 1
        ):
            program = route.shortest_program()
            expected = self._expected_gain(state, route)
            candidates.append(Candidate(route, program, policy.log_probability(program), rank=rank, expected=expected))
        return tuple(candidates)

    def _expected_gain(self, state: GuidedState, route: Route) -> ExpectedGain | None:
        fit = self._fitted_gp(state)
        if fit is None:
            return None
        if not route.is_standard and route not in self._rank_scored_routes(state)[: self.settings.finalists]:
            # A finalist by its empirical scores: the process does not expect such routes and would underrate it.
            return EmpiricalScores.from_draws(self._search_draws(state)).expected_gain(route)
        mean, covariance = fit.gp.predict_joint(RouteFeatures.from_routes([route]))
        return ExpectedGain(float(mean[0]), max(float(covariance[0, 0]), 0.0))
