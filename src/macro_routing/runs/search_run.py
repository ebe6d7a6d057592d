"""A run from start to end: ask, score, tell; decode, validate, choose; test once.

Everything a run decides follows from its configuration: rounds are drawn from named random streams, outcomes come from
fixed work units. So a run that was killed and resumed ends as one that was never stopped.
"""

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from macro_routing.evaluation.outcomes import RaceResult, RouteEvaluation
from macro_routing.evaluation.racing import NEVER
from macro_routing.routes.route import Route
from macro_routing.runs import folder as files
from macro_routing.runs.cost import measure_cost
from macro_routing.runs.deadline import Deadline, TimeUp
from macro_routing.runs.final_selection import FinalSelection, select_confirmed_route, select_route
from macro_routing.runs.folder import RunFolder
from macro_routing.runs.prepared_run import PreparedRun
from macro_routing.runs.result import (
    NO_DECODING,
    SELECTED,
    STANDARD,
    TOP_1,
    RunResult,
    make_route_result,
)
from macro_routing.runs.round_report import make_round_report
from macro_routing.search.guided import GuidedSearch
from macro_routing.search.macro import MacroSearch
from macro_routing.search.searcher import Candidate, Round, Searcher, SearchState
from macro_routing.tasks.splits import make_splits
from macro_routing.tasks.task import Example
from macro_routing.workers.worker_settings import WorkerError


@dataclass(frozen=True, eq=False)
class SearchRun(PreparedRun):
    """A run whose result is a route."""

    searcher: Searcher
    first_state: SearchState = field(kw_only=True)
    """The state before the first round."""

    def execute(self, folder: RunFolder) -> RunResult:
        """Search, select and test."""
        state = self._search(folder)
        choice = self._select_candidate(folder, state)
        result = self._test_routes(folder, state, choice)
        folder.write_json(files.RESULT, result.to_json())
        folder.write_text(files.ROUTE, self._format_route_file(result, choice))
        self._measure_cost(folder, choice.route)
        return result

    # --- searching ------------------------------------------------------------------------------------------------

    def _search(self, folder: RunFolder) -> SearchState:
        state = folder.last_state()
        if state is None:
            state = self.first_state
            folder.save_round(state, None)
        plan = self.plan
        self.listener.on_stage("search", self.searcher.max_evaluations(state.rounds))
        left_over = plan.max_evaluations - self.searcher.max_evaluations()
        if isinstance(self.searcher, GuidedSearch):  # its finalists meet what was held back even when time is up
            left_over += self.searcher.max_candidates * len(self.searcher.holdout)
        deadline = Deadline(self.config.max_minutes, left_over)
        while not folder.has_file(files.ENDED) and (asked := self.searcher.ask(state)) is not None:
            start = time.perf_counter()
            try:
                raced, standard = self._score_round(asked, deadline)
            except TimeUp:
                folder.write_json(files.ENDED, {"reason": "max_minutes", "rounds": state.rounds})
                self.listener.on_message(f"time is up after {state.rounds} rounds; selecting among what was found")
                break
            state = self.searcher.tell(state, asked, raced.outcomes)
            seconds = time.perf_counter() - start
            report = make_round_report(asked, plan.rounds, raced, standard, seconds, self.prompt_tokens)
            folder.save_round(state, dataclasses.asdict(report))
            self.listener.on_round(report)
        return state

    def _score_round(self, asked: Round, deadline: Deadline) -> tuple[RaceResult, RaceResult]:
        """The round's draws, and the standard pass on the same examples."""

        def count(outcomes: int) -> None:
            self.listener.on_outcomes(outcomes)
            deadline.check(outcomes)

        evaluator = dataclasses.replace(self.evaluator, on_outcomes=count)
        examples = [self.splits.train[index] for index in asked.examples]
        draws = [proposal.route for proposal in asked.proposals]
        raced = evaluator.race_draws(draws, examples, asked.keep, self.config.racing)
        return raced, evaluator.race_draws([self.standard_route], examples, 1, NEVER)

    # --- choosing and testing -------------------------------------------------------------------------------------

    def _evaluate(self, routes: Sequence[Route], examples: Sequence[Example]) -> dict[Route, RouteEvaluation]:
        evaluator = dataclasses.replace(self.evaluator, on_outcomes=self.listener.on_outcomes)
        return evaluator.evaluate(routes, examples)

    def _select_candidate(self, folder: RunFolder, state: SearchState) -> FinalSelection:
        if folder.has_file(files.CANDIDATES):
            with folder.explain_damage(files.CANDIDATES):
                return FinalSelection.from_json(folder.read_json(files.CANDIDATES), self.evaluator.frozen.layers)
        candidates = self.searcher.candidates(state) or (Candidate(self.standard_route),)
        self.listener.on_stage("validation", len(candidates) * len(self.splits.validation))
        routes = [candidate.route for candidate in candidates]
        if isinstance(self.searcher, GuidedSearch):
            routes = list(dict.fromkeys([self.standard_route, *routes]))
            holdout = [self.splits.train[number] for number in self.searcher.holdout]
            choice = select_confirmed_route(
                candidates,
                self._evaluate(routes, self.splits.validation),
                self._evaluate(routes, holdout),
                self.searcher.settings.max_error_probability,
                self._find_guard_objection,
            )
        else:
            choice = select_route(
                candidates,
                self._evaluate(routes, self.splits.validation),
                lambda tied: self._evaluate(tied, self.splits.train),
                self._find_guard_objection,
            )
        folder.write_json(files.CANDIDATES, choice.to_json())
        return choice

    def _find_guard_objection(self, route: Route) -> str:
        """Why a route must not win because of what it costs on another task; empty when it may."""
        settings = self.config.guard
        for name, task in self.guards.items():
            examples = make_splits(task, seed=self.config.seed).validation[: settings.examples]
            self.listener.on_stage(f"guard {name}", 2 * len(examples))
            guard = dataclasses.replace(
                self.evaluator,
                task=task,
                decoding=self.config.resolve_decoding(task),
                on_outcomes=self.listener.on_outcomes,
            )
            found = guard.evaluate([self.standard_route, route], examples)
            if reason := found[route].failure:
                return f"it could not be run on {name}: {reason}"
            drop = 100 * (found[self.standard_route].score.accuracy - found[route].score.accuracy)
            if drop > settings.max_drop:
                return f"it costs {drop:.1f} points on {name} (n = {len(examples)}; allowed {settings.max_drop:g})"
        return ""

    def _test_routes(self, folder: RunFolder, state: SearchState, choice: FinalSelection) -> RunResult:
        """The one time the test set is looked at."""
        variants = [
            (SELECTED[self.config.method], choice.route),
            *self._list_variants(state),
            (STANDARD, self.standard_route),
        ]
        different = list(dict.fromkeys(route for _, route in variants))
        self.listener.on_stage("test", len(different) * len(self.splits.test))
        evaluations = self._evaluate(different, self.splits.test)
        for route in (choice.route, self.standard_route):
            if reason := evaluations[route].failure:  # answers that were never given do not count as wrong
                raise WorkerError(f"the route {route} could not be tested: {reason}; fix the cause and resume the run")
        for name, route in variants:
            if reason := evaluations[route].failure:
                self.listener.on_message(f"{name} is left out: {route} could not be tested: {reason}")
        tested = [(name, evaluations[route]) for name, route in variants if not evaluations[route].failure]
        folder.write_json(files.ANSWERS, _answers_to_json(self.splits.test, {one.route: one for _, one in tested}))
        refused = f", {choice.refused}" if choice.refused else ""
        return make_route_result(tested, choice.route, self.config.seed, str(folder.path), refused)

    def _measure_cost(self, folder: RunFolder, route: Route) -> None:
        """On training examples: nothing is asked of the test set a second time."""
        if not folder.has_file(files.COST):
            self.listener.on_message("measuring what the route costs beside the standard pass")
            different = list(dict.fromkeys([self.standard_route, route]))
            folder.write_json(files.COST, measure_cost(self.evaluator, different, self.splits.train))

    def _list_variants(self, state: SearchState) -> list[tuple[str, Route]]:
        if not isinstance(self.searcher, MacroSearch):
            return []  # the variants are MACRO's
        best = self.searcher.best_draw(state)
        top = (TOP_1, self.searcher.most_probable_candidate(state).route)
        return [top, (NO_DECODING, best.proposal.route)] if best is not None else [top]

    def _format_route_file(self, result: RunResult, choice: FinalSelection) -> str:
        from macro_routing.routes.route_file import RouteFile
        from macro_routing.version import __version__

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
                "validation": choice.validation,
                "verdict": result.verdict,
            },
            found_by={
                "method": self.config.method,
                "preset": self.config.preset,
                "seed": self.config.seed,
                "macro": __version__,
                "settings": dataclasses.asdict(self.searcher.settings),
            },
        ).to_json()


def _answers_to_json(examples: Sequence[Example], found: dict[Route, RouteEvaluation]) -> dict[str, Any]:
    """Test answers of all variants, with the questions, so that a report needs nothing but the folder."""
    return {
        "examples": [dataclasses.asdict(example) for example in examples],
        "routes": {str(route): [dataclasses.asdict(o) for o in one.outcomes] for route, one in found.items()},
    }
