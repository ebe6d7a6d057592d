"""A run from start to end: ask, score, tell; decode, validate, choose; test once.

Everything a run decides follows from its configuration: rounds are drawn from named random streams, outcomes come from
fixed work units. So a run that was killed and resumed ends as one that was never stopped.
"""

import dataclasses
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from macro_routing.evaluation.final_decision import describe_decision_power
from macro_routing.evaluation.mixture_weights import fit_mixtures
from macro_routing.evaluation.outcomes import RacedRoundScores
from macro_routing.evaluation.scoring_settings import NEVER
from macro_routing.evaluation.statistics import wilson_interval
from macro_routing.routes.mixture import Mixture, RouteOrMixture, to_mixture
from macro_routing.runs import folder as files
from macro_routing.runs.final_selection import FinalSelection, MixtureCandidate, select_by_decision, select_route
from macro_routing.runs.folder import RunFolder
from macro_routing.runs.presets import PAPER
from macro_routing.runs.progress import RoundReport
from macro_routing.runs.result import NO_DECODING, TOP_1, TOP_1_ANCHORED, RunResult
from macro_routing.runs.route_run import NamedRoute, RouteRun
from macro_routing.search import Candidate, GuidedSearch, MacroSearch, Round, Score, Searcher, SearchState, StoppedScore
from macro_routing.search.decision_settings import SPEED
from macro_routing.search.guided import MEMBERS, GuidedState
from macro_routing.tasks.prompts import LIKELIHOOD
from macro_routing.tasks.splits import make_splits
from macro_routing.tasks.task import number_groups


@dataclass(frozen=True, eq=False)
class SearchRun(RouteRun):
    """A run that searches a route: ask, score, tell."""

    searcher: Searcher
    first_state: SearchState = field(kw_only=True)
    """The state before the first round."""

    def search_and_test(self, folder: RunFolder) -> RunResult:
        """Search, select and test."""
        state = self._search(folder)
        choice = self._select_candidate(folder, state)
        result = self.test_route(folder, choice, self._list_macro_variant_routes(state))
        return self.write_result(folder, choice, result)

    @property
    def decides_by_test(self) -> bool:
        """Whether the final decision is a test on examples that the search does not use, or validation alone."""
        return isinstance(self.searcher, GuidedSearch) or self.decision.objective == SPEED

    @property
    def max_mixtures(self) -> int:
        """Mixtures among the finalists; they meet the holdout after the search."""
        return self.searcher.max_mixtures if isinstance(self.searcher, GuidedSearch) else 0

    @property
    def holdout(self) -> Sequence[int]:
        """Training examples that the search does not use."""
        return self.searcher.holdout if isinstance(self.searcher, GuidedSearch) else ()

    def describe_decision_power(self) -> str:
        """What the final decision can show; empty where validation alone selects."""
        if not self.decides_by_test:
            return ""
        return describe_decision_power(self.decision, len(self.holdout) + len(self.splits.validation))

    # --- searching ------------------------------------------------------------------------------------------------

    def _search(self, folder: RunFolder) -> SearchState:
        state = folder.load_last_state()
        if state is None:
            state = self.first_state
            folder.save_round(state, None)
        self.listener.on_stage("search", self.searcher.max_evaluations(state.rounds))
        reserved = self.plan.max_evaluations - self.searcher.max_evaluations()
        # The finalists meet what was held back even when time is up.
        reserved += (self.searcher.max_candidates - self.max_mixtures) * len(self.holdout)
        used = folder.read_interrupted_seconds(state.rounds + 1)
        if self.config.max_minutes is not None:
            used += sum(report.get("seconds", 0.0) for report in folder.read_round_reports())
        deadline = _Deadline(self.config.max_minutes, reserved, used)
        while not folder.has_file(files.ENDED) and (asked := self.searcher.ask(state)) is not None:
            with folder.time_round(state.rounds + 1) as get_seconds:
                try:
                    raced, standard = self._score_round(asked, deadline)
                except _DeadlineReached:
                    folder.write_json(files.ENDED, {"reason": "max_minutes", "rounds": state.rounds})
                    self.listener.on_message(f"time is up after {state.rounds} rounds; selecting among what was found")
                    break
                state = self.searcher.tell(state, asked, raced.outcomes)
                report = self._make_round_report(asked, raced, standard, get_seconds())
                folder.save_round(state, dataclasses.asdict(report))
            self.listener.on_round(report)
        return state

    @property
    def _standard_without_question(self) -> Mixture:
        return Mixture.from_route(self.standard_route, with_question=False)

    def _asks_without_question(self, asked: Round) -> bool:
        """Whether the round has a candidate for members that is not a route: what choices score by themselves."""
        is_members_round = self.searcher.planned_round_sizes[asked.number].purpose == MEMBERS
        return is_members_round and isinstance(self.searcher, GuidedSearch) and self.searcher.scores_without_question

    def _score_round(self, asked: Round, deadline: "_Deadline") -> tuple[RacedRoundScores, RacedRoundScores]:
        """The round's draws, and the standard pass on the same examples."""

        def report_count_and_check_deadline(count: int) -> None:
            self.listener.on_outcomes(count)
            deadline.raise_if_reached(count)

        evaluator = dataclasses.replace(self.evaluator, on_outcomes=report_count_and_check_deadline)
        examples = [self.splits.train[index] for index in asked.examples]
        draws = [proposal.route for proposal in asked.proposals]
        requested = from_store = 0
        if self._asks_without_question(asked):
            (more,) = evaluator.evaluate([self._standard_without_question], examples).values()
            requested, from_store = len(examples), more.from_store
        raced = evaluator.race_draws(draws, examples, asked.keep, self.config.racing)
        raced = dataclasses.replace(
            raced, requested=raced.requested + requested, from_store=raced.from_store + from_store
        )
        return raced, evaluator.race_draws([self.standard_route], examples, 1, NEVER)

    def _make_round_report(
        self, asked: Round, raced: RacedRoundScores, standard: RacedRoundScores, seconds: float
    ) -> RoundReport:
        """Best and median of the draws beside the standard pass; stopped draws are counted, never averaged."""
        complete = [outcome.accuracy for outcome in raced.outcomes if isinstance(outcome, Score)]
        (baseline,) = standard.outcomes
        assert isinstance(baseline, Score)
        low, high = wilson_interval(baseline.accuracy, baseline.total)
        more = len(asked.examples) if self._asks_without_question(asked) else 0
        return RoundReport(
            number=asked.number + 1,
            rounds=self.searcher.max_rounds,
            examples=len(asked.examples),
            best=max(complete, default=0.0),
            median=statistics.median(complete) if complete else None,
            stopped=sum(isinstance(outcome, StoppedScore) for outcome in raced.outcomes),
            different=len({proposal.route for proposal in asked.proposals}),
            standard=baseline.accuracy,
            standard_low=low,
            standard_high=high,
            run=raced.computed_evaluations + standard.computed_evaluations,
            saved=raced.duplicates + raced.stopped,
            truncated_share=raced.truncated_share,
            seconds=seconds,
            asked=raced.requested,
            work=sum(route.length * (count * self.prompt_tokens + tokens) for route, count, tokens in raced.answers)
            + self.standard_route.length * more * self.prompt_tokens,
            known=raced.from_store,
            draws=len(asked.proposals),
            purpose=self.searcher.planned_round_sizes[asked.number].purpose,
        )

    # --- choosing and testing -------------------------------------------------------------------------------------

    def _select_candidate(self, folder: RunFolder, state: SearchState) -> FinalSelection:
        if folder.has_file(files.CANDIDATES):
            with folder.explain_damaged_files(files.CANDIDATES):
                return FinalSelection.from_json(folder.read_json(files.CANDIDATES), self.evaluator.frozen.layers)
        candidates = self.searcher.candidates(state) or (Candidate(self.standard_route),)
        mixtures = self._fit_mixtures(state)
        mixtures = [mixture for mixture in mixtures if mixture not in {candidate.route for candidate in candidates}]
        count = (len(candidates) + len(mixtures)) * len(self.splits.validation) + len(mixtures) * len(self.holdout)
        self.listener.on_stage("validation", count)
        routes: list[RouteOrMixture] = [candidate.route for candidate in candidates]
        if self.decides_by_test:
            routes = list(dict.fromkeys([self.standard_route, *routes, *mixtures]))
            held = [self.splits.train[index] for index in self.holdout]
            choice = select_by_decision(
                [*candidates, *map(MixtureCandidate, mixtures)],
                self.progress_reporting_evaluator.evaluate(routes, self.splits.validation),
                self.progress_reporting_evaluator.evaluate(routes, held) if held else {},
                self.decision,
                self._find_guard_task_objection,
                number_groups([*held, *self.splits.validation]),
            )
        else:
            choice = select_route(
                candidates,
                self.progress_reporting_evaluator.evaluate(routes, self.splits.validation),
                lambda tied: self.progress_reporting_evaluator.evaluate(tied, self.splits.train),
                self._find_guard_task_objection,
            )
        folder.write_json(files.CANDIDATES, choice.to_json())
        return choice

    def _fit_mixtures(self, state: SearchState) -> list[RouteOrMixture]:
        """Mixtures of the routes that were scored on all examples of the search."""
        if not isinstance(self.searcher, GuidedSearch) or not isinstance(state, GuidedState):
            return []
        if not (routes := self.searcher.list_member_candidates(state)):
            if self.max_mixtures:
                self.listener.on_message("no mixture was fitted: time was up before candidates for members were scored")
            return []
        examples = [self.splits.train[index] for index in self.searcher.searched_examples]
        sources: list[RouteOrMixture] = [*routes]
        if self.searcher.scores_without_question:
            sources.append(self._standard_without_question)
        evaluations = self.evaluator.evaluate(sources, examples)  # the score store holds them
        mixtures = fit_mixtures(evaluations, self.label_choices(examples), self.searcher.decision, self.config.seed)
        found = f"of up to {len(mixtures) + 1} routes" if mixtures else "none lowers the loss in cross-validation"
        self.listener.on_message(f"mixtures among the finalists: {found}")
        return mixtures

    def _find_guard_task_objection(self, route: RouteOrMixture) -> str:
        """Why a route must not win because of what it costs on another task; empty when it may."""
        settings = self.config.guard
        for name, task in self.guards.items():
            splits = make_splits(task, seed=self.config.seed, test_seed=self.config.data.test_seed)
            examples = splits.validation[: settings.examples]
            self.listener.on_stage(f"guard {name}", 2 * len(examples))
            decoding = self.config.resolve_decoding(task)
            if decoding.mode != LIKELIHOOD and to_mixture(route).compares_choices_only:
                return f"it can only compare choices, and on {name} text is written"
            guard = dataclasses.replace(self.progress_reporting_evaluator, task=task, decoding=decoding)
            evaluations = guard.evaluate([self.standard_route, route], examples)
            if reason := evaluations[route].failure:
                return f"it could not be run on {name}: {reason}"
            drop = 100 * (evaluations[self.standard_route].score.accuracy - evaluations[route].score.accuracy)
            if drop > settings.max_drop:
                return f"it costs {drop:.1f} points on {name} (n = {len(examples)}; allowed {settings.max_drop:g})"
        return ""

    def _list_macro_variant_routes(self, state: SearchState) -> list[NamedRoute]:
        if not isinstance(self.searcher, MacroSearch):
            return []  # the variants are MACRO's
        best = self.searcher.best_draw(state)
        top: list[NamedRoute] = [(TOP_1, self.searcher.candidate_of_most_probable_program(state).route)]
        if self.config.preset == PAPER and self.searcher.settings.final_set == "anchored":
            top.append((TOP_1_ANCHORED, self.standard_route))
        return [*top, (NO_DECODING, best.proposal.route)] if best is not None else top


class _DeadlineReached(Exception):  # noqa: N818 it is no error
    """The time for searching is over."""


class _Deadline:
    """Ends a search in time: of its minutes enough are left to select and test."""

    def __init__(self, minutes: float | None, reserved: int, used: float) -> None:
        """``reserved`` evaluations will be needed after the search; ``used`` seconds were before a resume."""
        self._start = time.monotonic()
        self._seconds = None if minutes is None else 60 * minutes - used
        self._reserved = reserved
        self._done = 0

    def raise_if_reached(self, outcomes: int) -> None:
        """Count outcomes just computed; raise ``_DeadlineReached`` when the rest of the time is needed for the end."""
        self._done += outcomes
        if self._seconds is None or self._done == 0:
            return
        elapsed = time.monotonic() - self._start
        if elapsed + elapsed / self._done * self._reserved > self._seconds:
            raise _DeadlineReached
