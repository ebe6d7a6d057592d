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
from macro_routing.evaluation.model_answers import compute_choice_sizes
from macro_routing.evaluation.outcomes import RacedRoundScores
from macro_routing.evaluation.racing import NEVER
from macro_routing.evaluation.statistics import wilson_interval
from macro_routing.routes import Route, RouteFile
from macro_routing.routes.mixture import Mixture, RouteOrMixture
from macro_routing.runs import folder as files
from macro_routing.runs.final_selection import FinalSelection, MixtureCandidate, select_by_decision, select_route
from macro_routing.runs.folder import RunFolder
from macro_routing.runs.methods import METHODS, list_used_decision_settings
from macro_routing.runs.prepared_run import PreparedRun
from macro_routing.runs.presets import PAPER
from macro_routing.runs.progress import RoundReport
from macro_routing.runs.result import (
    NO_DECODING,
    STANDARD,
    TOP_1,
    TOP_1_ANCHORED,
    RunResult,
    describe_chance_level,
    make_route_result,
    make_route_test_result,
)
from macro_routing.runs.route_cost import measure_cost
from macro_routing.search import Candidate, GuidedSearch, MacroSearch, Round, Score, Searcher, SearchState, StoppedScore
from macro_routing.search.decision_settings import SPEED
from macro_routing.search.guided import GuidedState
from macro_routing.tasks.splits import make_splits
from macro_routing.version import __version__
from macro_routing.workers.worker_settings import WorkerError


@dataclass(frozen=True, eq=False)
class SearchRun(PreparedRun):
    """A run whose result is a route."""

    searcher: Searcher
    first_state: SearchState = field(kw_only=True)
    """The state before the first round."""

    def search_and_test(self, folder: RunFolder) -> RunResult:
        """Search, select and test."""
        state = self._search(folder)
        choice = self._select_candidate(folder, state)
        result = self._test_routes(folder, state, choice)
        folder.write_json(files.RESULT, result.to_json())
        folder.write_text(files.ROUTE, self._format_route_file(result, choice))
        self._measure_cost(folder, choice.route)
        return result

    @property
    def decides_by_test(self) -> bool:
        """Whether the final decision is a test on examples that the search does not use, or validation alone."""
        return isinstance(self.searcher, GuidedSearch) or self.config.decision.objective == SPEED

    @property
    def holdout(self) -> Sequence[int]:
        """Training examples that the search does not use."""
        return self.searcher.holdout if isinstance(self.searcher, GuidedSearch) else ()

    def describe_decision_power(self) -> str:
        """What the final decision can show; empty where validation alone selects."""
        if not self.decides_by_test:
            return ""
        return describe_decision_power(self.config.decision, len(self.holdout) + len(self.splits.validation))

    # --- searching ------------------------------------------------------------------------------------------------

    def _search(self, folder: RunFolder) -> SearchState:
        state = folder.load_last_state()
        if state is None:
            state = self.first_state
            folder.save_round(state, None)
        self.listener.on_stage("search", self.searcher.max_evaluations(state.rounds))
        reserved = self.plan.max_evaluations - self.searcher.max_evaluations()
        # The finalists meet what was held back even when time is up.
        reserved += self.searcher.max_candidates * len(self.holdout)
        deadline = _Deadline(self.config.max_minutes, reserved)
        while not folder.has_file(files.ENDED) and (asked := self.searcher.ask(state)) is not None:
            start = time.perf_counter()
            try:
                raced, standard = self._score_round(asked, deadline)
            except _DeadlineReached:
                folder.write_json(files.ENDED, {"reason": "max_minutes", "rounds": state.rounds})
                self.listener.on_message(f"time is up after {state.rounds} rounds; selecting among what was found")
                break
            state = self.searcher.tell(state, asked, raced.outcomes)
            report = self._make_round_report(asked, raced, standard, time.perf_counter() - start)
            folder.save_round(state, dataclasses.asdict(report))
            self.listener.on_round(report)
        return state

    def _score_round(self, asked: Round, deadline: "_Deadline") -> tuple[RacedRoundScores, RacedRoundScores]:
        """The round's draws, and the standard pass on the same examples."""

        def report_count_and_check_deadline(count: int) -> None:
            self.listener.on_outcomes(count)
            deadline.raise_if_reached(count)

        evaluator = dataclasses.replace(self.evaluator, on_outcomes=report_count_and_check_deadline)
        examples = [self.splits.train[index] for index in asked.examples]
        draws = [proposal.route for proposal in asked.proposals]
        raced = evaluator.race_draws(draws, examples, asked.keep, self.config.racing)
        return raced, evaluator.race_draws([self.standard_route], examples, 1, NEVER)

    def _make_round_report(
        self, asked: Round, raced: RacedRoundScores, standard: RacedRoundScores, seconds: float
    ) -> RoundReport:
        """Best and median of the draws beside the standard pass; stopped draws are counted, never averaged."""
        complete = [outcome.accuracy for outcome in raced.outcomes if isinstance(outcome, Score)]
        (baseline,) = standard.outcomes
        assert isinstance(baseline, Score)
        low, high = wilson_interval(baseline.accuracy, baseline.total)
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
            cut_off=raced.truncated_share,
            seconds=seconds,
            asked=raced.requested,
            work=sum(route.length * (count * self.prompt_tokens + tokens) for route, count, tokens in raced.answers),
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
        self.listener.on_stage("validation", (len(candidates) + len(mixtures)) * len(self.splits.validation))
        routes: list[RouteOrMixture] = [candidate.route for candidate in candidates]
        if self.decides_by_test:
            routes = list(dict.fromkeys([self.standard_route, *routes, *mixtures]))
            held = self.holdout
            choice = select_by_decision(
                [*candidates, *map(MixtureCandidate, mixtures)],
                self.progress_reporting_evaluator.evaluate(routes, self.splits.validation),
                self.progress_reporting_evaluator.evaluate(routes, [self.splits.train[index] for index in held])
                if held
                else {},
                self.config.decision,
                self._find_guard_task_objection,
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

    def _fit_mixtures(self, state: SearchState) -> list[Mixture]:
        """Mixtures of the routes that were scored on all examples of the search."""
        if not isinstance(self.searcher, GuidedSearch) or not isinstance(state, GuidedState):
            return []
        if not (routes := self.searcher.list_member_candidates(state)):
            return []
        examples = [self.splits.train[index] for index in self.searcher.searched_examples]
        evaluations = self.evaluator.evaluate(routes, examples)  # the score store holds them
        by_letter = self.evaluator.decoding.by_letter
        mixtures = fit_mixtures(
            evaluations,
            [example.correct_choice for example in examples],
            [compute_choice_sizes(example, by_letter=by_letter) for example in examples],
            self.searcher.decision,
            self.config.seed,
        )
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
            guard = dataclasses.replace(
                self.progress_reporting_evaluator, task=task, decoding=self.config.resolve_decoding(task)
            )
            evaluations = guard.evaluate([self.standard_route, route], examples)
            if reason := evaluations[route].failure:
                return f"it could not be run on {name}: {reason}"
            drop = 100 * (evaluations[self.standard_route].score.accuracy - evaluations[route].score.accuracy)
            if drop > settings.max_drop:
                return f"it costs {drop:.1f} points on {name} (n = {len(examples)}; allowed {settings.max_drop:g})"
        return ""

    def _test_routes(self, folder: RunFolder, state: SearchState, choice: FinalSelection) -> RunResult:
        """The one time the test set is looked at."""
        variants: list[tuple[str, RouteOrMixture]] = [
            (METHODS[self.config.method].title, choice.route),
            *self._list_macro_variant_routes(state),
            (STANDARD, self.standard_route),
        ]
        different = list(dict.fromkeys(route for _, route in variants))
        self.listener.on_stage("test", len(different) * len(self.splits.test))
        evaluations = self.progress_reporting_evaluator.evaluate(different, self.splits.test)
        for route in (choice.route, self.standard_route):
            if reason := evaluations[route].failure:  # answers that were never given do not count as wrong
                raise WorkerError(f"the route {route} could not be tested: {reason}; fix the cause and resume the run")
        for name, route in variants:
            if reason := evaluations[route].failure:
                self.listener.on_message(f"{name} is left out: {route} could not be tested: {reason}")
        tested = [(name, evaluations[route]) for name, route in variants if not evaluations[route].failure]
        answers = {str(evaluation.route): evaluation.outcomes for _, evaluation in tested}
        self.write_test_answers(folder, answers)
        comparison = self.compare_with_standard(
            evaluations[choice.route].outcomes, evaluations[self.standard_route].outcomes
        )
        made = [
            make_route_test_result(name, str(evaluation.route), evaluation.route.length, evaluation.outcomes)
            for name, evaluation in tested
        ]
        result = make_route_result(choice, made, comparison, str(folder.path), self.config.decision)
        return dataclasses.replace(result, verdict=result.verdict + describe_chance_level(self.splits.test, comparison))

    def _measure_cost(self, folder: RunFolder, route: RouteOrMixture) -> None:
        """On training examples: nothing is asked of the test set a second time."""
        if not folder.has_file(files.COST):
            different = list(dict.fromkeys([self.standard_route, route]))
            if len(different) > 1:
                self.listener.on_message("measuring what the route costs beside the standard pass")
            folder.write_json(files.COST, measure_cost(self.evaluator, different, self.splits.train))

    def _list_macro_variant_routes(self, state: SearchState) -> list[tuple[str, Route]]:
        if not isinstance(self.searcher, MacroSearch):
            return []  # the variants are MACRO's
        best = self.searcher.best_draw(state)
        top = [(TOP_1, self.searcher.candidate_of_most_probable_program(state).route)]
        if self.config.preset == PAPER and self.searcher.settings.final_set == "anchored":
            top.append((TOP_1_ANCHORED, self.standard_route))
        return [*top, (NO_DECODING, best.proposal.route)] if best is not None else top

    def _format_route_file(self, result: RunResult, choice: FinalSelection) -> str:
        frozen, comparison = self.evaluator.frozen, result.comparison
        return RouteFile(
            result.best_route,
            frozen.name,
            frozen.weights_id,
            frozen.numerics_id,
            self.evaluator.task.name,
            revision=self.config.loading.revision,
            decoding=self.evaluator.scope["decoding"],
            scores={
                "test": {**dataclasses.asdict(comparison), "difference": comparison.difference},
                "validation": choice.validation_score,
                **({"decision": choice.decision_evidence} if choice.decision_evidence else {}),
                "verdict": result.verdict,
            },
            found_by={
                "method": self.config.method,
                "preset": self.config.preset,
                "seed": self.config.seed,
                "test_seed": self.config.data.test_seed,
                "macro": __version__,
                "settings": dataclasses.asdict(self.searcher.settings),
                "decision": {
                    name: getattr(self.config.decision, name)
                    for name in list_used_decision_settings(self.config.method, self.config.decision.objective)
                },
            },
            recommended=result.recommended,
            recommendation=result.verdict,
        ).to_json()


class _DeadlineReached(Exception):  # noqa: N818 it is no error
    """The time for searching is over."""


class _Deadline:
    """Ends a search in time: of its minutes enough are left to select and test."""

    def __init__(self, minutes: float | None, reserved: int) -> None:
        """``reserved`` evaluations will be needed after the search."""
        self._start = time.monotonic()
        self._seconds = None if minutes is None else 60 * minutes
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
