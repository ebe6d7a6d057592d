"""The default search: different routes on new examples every round, chosen by a Gaussian process over all scores.

Every round that looks for routes has a chunk of examples of its own and includes the standard pass as a control. A
Gaussian process (``route_gp``) predicts the gain of any route; Thompson samples from it decide which routes are scored
next, so promising routes are scored again on every new chunk. The Markov policy is the prior moved to the routes that
are probably good; it proposes routes to the process, by sampling and exact decoding. Where a mixture is wanted, half of
the budget goes to one more round: candidates for its members, all on all examples of the search. Part of the training
examples is a holdout: in a last round the finalists and the standard pass are scored on them.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macro_routing.errors import SettingsError
from macro_routing.routes.mixture import Mixture
from macro_routing.routes.route import Program, Route
from macro_routing.routes.space import RouteSpace
from macro_routing.search.decision_settings import SPEED, DecisionSettings
from macro_routing.search.empirical_scores import EmpiricalScores
from macro_routing.search.guided_settings import GuidedSettings
from macro_routing.search.policy import MarkovPolicy
from macro_routing.search.policy_search import PolicySearcherBase, PolicySearchState
from macro_routing.search.random_streams import RandomStreamPurpose, make_generator, permute_groups
from macro_routing.search.route_edits import count_edits, extract_program_edits, list_single_moves, mutate_routes
from macro_routing.search.route_features import RouteFeatures
from macro_routing.search.route_gp import KERNELS, GPKernelParameters, ObservedAccuracies, RouteGP, thompson_sample
from macro_routing.search.searcher import Candidate, Draw, Outcome, Proposal, Round, RoundSize, Score
from macro_routing.search.top_k import decode_top_routes
from macro_routing.search.utility import compute_utility, expected_layers_saved
from macro_routing.settings import check_integer

MEMBERS, CONFIRMATION = "mixture members", "confirmation"
"""Rounds that do not look for routes: candidates for a mixture, and the finalists on the holdout."""
_N_DECODED = 20
"""Number of most probable routes of the policy in every round's pool."""
_MAX_EDITS = 6
"""Sampled programs with more edits are left out: they score near zero."""
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
_VERSION = 6
"""Version of the algorithm: states of other versions are rejected."""
_FIT_SWEEPS = 1
"""Sweeps over the kernel parameters after every round."""
_N_PROMISING = 40
"""Number of best routes from which edits are taken, and to which the policy moves."""
_CANDIDATES_PER_BEST_ROUTE = 5
"""One in this many candidates for members is among the best scored routes; the others leave out or repeat a layer."""


@dataclass(frozen=True, eq=False, kw_only=True)
class GuidedState(PolicySearchState):
    """The state of the guided search."""

    prior_table: NDArray[np.float64]
    """``MarkovPolicy.table`` of the prior, from which every round's policy is computed."""
    kernel_parameters: GPKernelParameters


@dataclass(frozen=True)
class GuidedSearch(PolicySearcherBase):
    """The guided search over one route space."""

    space: RouteSpace
    examples: int
    budget: int
    """Maximum number of evaluations (route × example)."""
    settings: GuidedSettings = field(default_factory=GuidedSettings)
    seed: int = 0
    decision: DecisionSettings = field(default_factory=DecisionSettings)
    allowed_routes: frozenset[Route] | None = None
    """Only these routes are proposed, as when recorded scores are replayed."""
    groups: tuple[int, ...] | None = None
    """The number of each example's group: examples of a group are all in the holdout, or none is; None: no groups."""

    name = "guided"
    state_type = GuidedState

    def __post_init__(self) -> None:
        """Reject bad seeds, a budget too small for a round, and groups of other examples."""
        check_integer("budget", self.budget, minimum=1)
        if self.groups is not None and len(self.groups) != self.examples:
            raise SettingsError(f"{len(self.groups)} group numbers do not fit {self.examples} examples; give one each")
        super().__post_init__()
        for route in self.allowed_routes or ():
            self.space.check_route(route)

    # --- examples of every round ----------------------------------------------------------------------------------

    @cached_property
    def _affordable_example_count(self) -> int:
        """Number of training examples that the budget pays for with ``settings.draws`` draws."""
        return self.settings.count_affordable_examples(self.examples, self.budget, self.max_mixtures)

    @cached_property
    def _example_order(self) -> list[int]:
        rng = make_generator(self.seed, RandomStreamPurpose.GUIDED_EXAMPLES)
        shuffled = rng.permutation(self.examples) if self.groups is None else permute_groups(self.groups, rng)
        return [int(example) for example in shuffled[: self._affordable_example_count]]

    @cached_property
    def holdout(self) -> tuple[int, ...]:
        """Training examples that only the confirmation uses."""
        order, size = self._example_order, int(self.settings.holdout * self._affordable_example_count)
        while self.groups is not None and size > 0 and self.groups[order[size - 1]] == self.groups[order[size]]:
            size -= 1
        return tuple(order[:size])

    @cached_property
    def examples_by_round(self) -> list[tuple[int, ...]]:
        """Training examples of every round but the members' and the confirmation."""
        rounds = max(1, min(self.settings.iterations, len(self.searched_examples) // _MIN_CHUNK))
        return [tuple(chunk.tolist()) for chunk in np.array_split(self.searched_examples, rounds)]

    @cached_property
    def searched_examples(self) -> tuple[int, ...]:
        """Training examples of all rounds but the confirmation."""
        return tuple(self._example_order[len(self.holdout) :])

    @cached_property
    def draws_per_round(self) -> int:
        """Routes per round, the standard pass included: as many as the budget pays for, or half where mixtures are."""
        return self._affordable_draws - self.n_member_candidates

    @cached_property
    def _affordable_draws(self) -> int:
        """Routes that the budget pays for on every searched example."""
        confirming = (self.settings.k + self.max_mixtures) * len(self.holdout)
        paid = (self.budget - confirming) // len(self.searched_examples)
        return min(_MAX_DRAWS, int(paid))

    @cached_property
    def n_member_candidates(self) -> int:
        """Candidates for the members of a mixture, the standard pass with and without the question included."""
        return self._affordable_draws // 2 if self.max_mixtures else 0

    @property
    def scores_without_question(self) -> bool:
        """Whether the run scores the standard pass without the question, too, in the round of the members."""
        is_affordable = self.decision.max_cost is None or self.decision.max_cost >= 2
        return self.n_member_candidates > 2 and is_affordable and self.allowed_routes is None

    @property
    def max_mixtures(self) -> int:
        """Mixtures among the finalists: of 2, 3, … members. Each has one route more than the one before."""
        assert self.decision.members is not None
        return self.decision.members - 1

    @property
    def max_candidates(self) -> int:
        """Maximum number of routes and mixtures to be validated."""
        return self.settings.k + self.max_mixtures

    @cached_property
    def _confirmation_round(self) -> int:
        return len(self.examples_by_round) + bool(self.n_member_candidates)

    @cached_property
    def planned_round_sizes(self) -> tuple[RoundSize, ...]:
        """A round per chunk, that of a mixture's members, and the confirmation on the holdout."""
        members = (
            [RoundSize(self.n_member_candidates, self.searched_examples, MEMBERS)] if self.n_member_candidates else []
        )
        confirmation = [RoundSize(self.settings.k, self.holdout, CONFIRMATION)] if self.holdout else []
        return (*(RoundSize(self.draws_per_round, chunk) for chunk in self.examples_by_round), *members, *confirmation)

    def _search_identity_fields(self) -> dict[str, Any]:
        allowed = None if self.allowed_routes is None else sorted(map(str, self.allowed_routes))
        fields = {**asdict(replace(self, allowed_routes=None)), "allowed_routes": allowed, "version": _VERSION}
        if self.groups is None:
            del fields["groups"]
        return fields

    # --- ask and tell ---------------------------------------------------------------------------------------------

    def start_from_given_prior(self, prior: MarkovPolicy) -> GuidedState:
        """The state before the first round with another prior, such as the policy of an earlier run."""
        parameters = KERNELS[self.settings.kernel]
        return GuidedState(
            self.identity, policy_table=prior.table, prior_table=prior.table, kernel_parameters=parameters
        )

    @cached_property
    def _standard_proposal(self) -> Proposal:
        route = Route.standard(self.space.layers)
        return Proposal(route, route.program_with_earliest_rejoin())

    def _ask(self, state: GuidedState) -> Round | None:
        if state.rounds >= len(self.examples_by_round):
            is_confirmation = state.rounds == self._confirmation_round
            routes = self._select_finalists(state) if is_confirmation else self._select_member_candidates(state)
            proposals = [Proposal(route, route.program_with_earliest_rejoin()) for route in routes]
            return self._make_round_from_proposals(state, [self._standard_proposal, *proposals])
        rng = make_generator(self.seed, RandomStreamPurpose.GUIDED_CHOICE, state.rounds)
        pool = self._build_candidate_pool(state, rng)
        choose = self._choose_first_routes if self._fitted_gp(state) is None else self._propose_best_and_thompson_routes
        chosen = choose(state, pool, rng)[: self.draws_per_round - 1]
        return self._make_round_from_proposals(
            state, [self._standard_proposal, *(Proposal(route, pool[route]) for route in chosen)]
        )

    def _build_candidate_pool(self, state: GuidedState, rng: np.random.Generator) -> dict[Route, Program | None]:
        """Different routes to choose from, without the standard pass, each with a program."""
        policy = self.policy(state)
        programs: list[Program] = []
        if best := self._list_routes_by_expected_utility(state):
            programs += mutate_routes(self.space, best[: self.settings.incumbents], best[:_N_PROMISING])
            samples = self.settings.policy_samples
            programs += self._propose_programs(policy, samples, rng) if samples else []
        else:
            few_moves = len(self._single_moves) < self.draws_per_round
            samples = min(20 * self.draws_per_round, _MAX_FIRST_SAMPLES) if few_moves else 0
            programs += self._propose_programs(policy, samples, rng)
        drawn = ((draw.proposal.route, draw.proposal.program) for draw in state.draws if draw.proposal.program)
        new = ((program.to_route(self.space.layers), program) for program in programs)
        pool: dict[Route, Program | None] = {
            route: program
            for route, program in (*drawn, *self._single_moves, *new)
            if self.decision.can_meet_objective(route)
        }
        if self.allowed_routes is None:
            return pool
        allowed = sorted((route for route in self.allowed_routes if self.decision.can_meet_objective(route)), key=str)
        known = {route: program for route, program in pool.items() if route in self.allowed_routes}
        return known | {route: route.program_with_earliest_rejoin() for route in allowed}

    @cached_property
    def _single_moves(self) -> list[tuple[Route, Program]]:
        """Always in the pool; single adds are too many."""
        return list_single_moves(self.space)

    def _propose_programs(self, policy: MarkovPolicy, count: int, rng: np.random.Generator) -> list[Program]:
        """The policy's most probable different routes and ``count`` samples, those with few edits."""
        decoded = [candidate.program for candidate in decode_top_routes(policy, _N_DECODED) if candidate.program]
        sampled = (policy.sample_actions(rng) for _ in range(count))
        kept = (actions for actions in sampled if count_edits(self.space, actions) <= _MAX_EDITS)
        return [
            *(program for program in decoded if len(extract_program_edits(self.space, program)) <= _MAX_EDITS),
            *map(self.space.program_from_actions, kept),
        ]

    def _choose_first_routes(
        self, state: GuidedState, pool: dict[Route, Program | None], rng: np.random.Generator
    ) -> list[Route]:
        """Nothing is scored yet: the prior's most probable routes, where earlier knowledge shows, then random ones."""
        decoded = {
            candidate.route: candidate.program
            for candidate in decode_top_routes(self.policy(state), 1 + (self.draws_per_round - 1) // 4)
            if self.decision.can_meet_objective(candidate.route)
            and (self.allowed_routes is None or candidate.route in self.allowed_routes)
        }
        others = [route for route in pool if route not in decoded]
        pool |= decoded
        return [*decoded, *(others[index] for index in rng.permutation(len(others)))]

    def _propose_best_and_thompson_routes(
        self, state: GuidedState, pool: dict[Route, Program | None], rng: np.random.Generator
    ) -> list[Route]:
        """The best routes by their empirical scores, then Thompson samples of the Gaussian process."""
        gp, wanted = self._fitted_gp(state), self.draws_per_round - 1
        assert gp is not None
        ranked = EmpiricalScores.from_scored_draws(state.draws).rank_routes(_RETRY_PSEUDO_EXAMPLES)
        empirical_best = [route for route in ranked if route in pool][: self.settings.n_empirical_best]
        routes = list(pool)
        features = RouteFeatures.from_routes(routes)
        utility = compute_utility(self.decision, routes, gp.predict_mean(features)[:, None])[:, 0]
        considered = np.argsort(-utility, kind="stable")[: max(_N_CONSIDERED, wanted)]
        mean, covariance = gp.predict_gain_covariance(features[considered])
        among = [routes[index] for index in considered]
        sampled = thompson_sample(
            mean, covariance, 3 * wanted, wanted, rng, lambda gains: compute_utility(self.decision, among, gains)
        )
        return list(dict.fromkeys([*empirical_best, *(routes[considered[index]] for index in sampled)]))

    def _tell(self, state: GuidedState, asked: Round, outcomes: Sequence[Outcome]) -> GuidedState:  # noqa: ARG002
        """Fit the kernel parameters, and move the policy to the routes that are probably good."""
        if asked.number == self._confirmation_round:
            return state
        gp = self._fit_gp(state, sweeps=_FIT_SWEEPS)
        if gp is None:
            return state
        policy = self._fit_policy_to_promising_routes(state, gp)
        learned = replace(state, kernel_parameters=gp.parameters, policy_table=policy.table)
        learned.get_or_compute("gp", lambda: gp)
        return learned

    def _fit_policy_to_promising_routes(self, state: GuidedState, gp: RouteGP) -> MarkovPolicy:
        """The prior moved to the promising routes, weighted by their expected utilities."""
        programs = {draw.proposal.route: draw.proposal.program for draw in state.draws}
        utilities = self._rank_by_expected_utility(gp)
        promising = list(utilities.items())[:_N_PROMISING]
        best = [(program, utility) for route, utility in promising if (program := programs[route])]
        gaps = np.array([utility for _, utility in best]) - max(utilities.values())
        weights = np.exp(gaps / self.settings.policy_temperature)
        return MarkovPolicy(self.space, state.prior_table).update_from_programs(
            [program for program, _ in best],
            (self.settings.policy_weight * weights / weights.sum()).tolist(),
            alpha=1.0,
        )

    def _fitted_gp(self, state: GuidedState) -> RouteGP | None:
        """The Gaussian process given all scores; None as long as only the standard pass was scored."""
        return state.get_or_compute("gp", lambda: self._fit_gp(state, sweeps=0))

    def _fit_gp(self, state: GuidedState, *, sweeps: int) -> RouteGP | None:
        scores = ObservedAccuracies.from_scored_draws(
            self._list_draws_before_confirmation(state), self._standard_proposal.route
        )
        only_standard = len(scores.routes) == 1
        return None if only_standard else RouteGP.fit(scores, start=state.kernel_parameters, sweeps=sweeps)

    def _list_routes_by_expected_utility(self, state: GuidedState) -> list[Route]:
        """Scored routes, highest expected utility first."""
        gp = self._fitted_gp(state)
        if gp is None:
            return []
        ranked = list(self._rank_by_expected_utility(gp))
        if self.decision.objective != SPEED or not ranked:
            return ranked
        first, rest = ranked[:_N_CONSIDERED], ranked[_N_CONSIDERED:]
        mean, covariance = gp.predict_gain_covariance(RouteFeatures.from_routes(first))
        saved = expected_layers_saved(self.decision, first, mean, np.diag(covariance), len(self.holdout))
        return [*(first[index] for index in np.argsort(-saved, kind="stable")), *rest]

    def _rank_by_expected_utility(self, gp: RouteGP) -> dict[Route, float]:
        """The utility of the expected gain of every scored route, highest first."""
        gains = {
            route: gain
            for route, gain in gp.scored_route_expected_gains.items()
            if self.decision.can_meet_objective(route)
        }
        utility = compute_utility(self.decision, list(gains), np.array([*gains.values()])[:, None])[:, 0]
        routes = list(gains)
        return {routes[index]: float(utility[index]) for index in np.argsort(-utility, kind="stable")}

    def _list_draws_before_confirmation(self, state: GuidedState) -> list[Draw]:
        """All draws but those of the confirmation, which judges what was learned from the others."""
        return [draw for draw in state.draws if draw.round < self._confirmation_round]

    def _select_member_candidates(self, state: GuidedState) -> list[Route]:
        """Some of the best routes, then the standard pass without one layer or with one layer twice.

        A negative weight takes away what a damaged route predicts, so candidates need not be good.
        """
        wanted = self.n_member_candidates - 1 - self.scores_without_question
        best = [route for route in self._list_routes_by_expected_utility(state) if self._can_join_standard_pass(route)]
        return list(dict.fromkeys([*best[: wanted // _CANDIDATES_PER_BEST_ROUTE], *self._simple_routes]))[:wanted]

    def _can_join_standard_pass(self, route: Route) -> bool:
        """Whether a mixture of the route and the standard pass is affordable."""
        return self.decision.is_affordable(Mixture.from_weights([(self._standard_proposal.route, 1), (route, 1)]))

    @cached_property
    def _simple_routes(self) -> list[Route]:
        """The standard pass without one layer, then with one layer twice, each in random order."""
        rng = make_generator(self.seed, RandomStreamPurpose.GUIDED_MEMBERS)
        layers, allowed = self.space.layers, self.allowed_routes
        routes = [route for route, _ in self._single_moves]
        routes = [
            routes[index] for index in rng.permutation(len(routes)) if allowed is None or routes[index] in allowed
        ]
        routes = [route for route in routes if self._can_join_standard_pass(route)]
        return [route for length in (layers - 1, layers + 1) for route in routes if route.length == length]

    def list_member_candidates(self, state: GuidedState) -> list[Route]:
        """The routes that were scored on all searched examples, the standard pass first."""
        scored = [draw for draw in state.draws if len(self.examples_by_round) <= draw.round < self._confirmation_round]
        return [draw.proposal.route for draw in scored if isinstance(draw.outcome, Score)]

    def _select_finalists(self, state: GuidedState) -> list[Route]:
        ranked = EmpiricalScores.from_scored_draws(self._list_draws_before_confirmation(state)).rank_routes()
        useful = [route for route in ranked if self.decision.can_meet_objective(route)]
        empirical_best = useful[: bool(self.settings.n_empirical_best)]
        return list(
            dict.fromkeys([*self._list_routes_by_expected_utility(state)[: self.settings.finalists], *empirical_best])
        )

    def _list_candidates(self, state: GuidedState) -> tuple[Candidate, ...]:
        """The standard pass and the finalists."""
        confirmed = [draw.proposal.route for draw in state.draws if draw.round == self._confirmation_round]
        routes = [self._standard_proposal.route, *(confirmed[1:] or self._select_finalists(state))]
        return tuple(self._make_candidate(state, route, rank) for rank, route in enumerate(routes, 1))

    def _make_candidate(self, state: GuidedState, route: Route, rank: int) -> Candidate:
        policy = self.policy(state)
        program = policy.find_most_probable_program(route)
        return Candidate(route, program, policy.log_probability(program), rank=rank)
