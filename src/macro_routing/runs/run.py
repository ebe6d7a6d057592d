"""A run from start to end: ask, score, tell; decode, validate, choose; test once.

Everything a run decides follows from its configuration: rounds are drawn from named random streams, outcomes come from
fixed work units. So a run that was killed and resumed ends as one that was never stopped.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from macro_routing.evaluation.evaluation_results import RaceResult, RouteEvaluation
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.graded_answers import mean_input_tokens
from macro_routing.evaluation.racing import NEVER
from macro_routing.evaluation.score_store import ScoreStore
from macro_routing.models.environment import describe_environment
from macro_routing.routes.route import Route
from macro_routing.runs import folder as files
from macro_routing.runs.config import RunConfig
from macro_routing.runs.cost import measure_cost
from macro_routing.runs.deadline import Deadline, TimeUp
from macro_routing.runs.final_selection import FinalSelection, select_confirmed_route, select_route
from macro_routing.runs.folder import RunFolder
from macro_routing.runs.progress import Listener, Listeners, Plan
from macro_routing.runs.result import (
    NO_DECODING,
    SELECTED,
    STANDARD,
    TOP_1,
    RunResult,
    make_route_result,
    minimum_detectable_gain,
)
from macro_routing.runs.round_report import make_round_report
from macro_routing.runs.run_log import RunLog
from macro_routing.search.macro import MacroSearch
from macro_routing.search.searcher import Candidate, HoldoutSearcher, Round, Searcher, SearchState
from macro_routing.tasks.splits import Splits, make_splits
from macro_routing.tasks.task import Example, Task
from macro_routing.workers.worker_settings import WorkerError

_READ_EXAMPLES = 64
"""Training examples that say how long a prompt is."""


@dataclass(frozen=True, eq=False)
class PreparedRun:
    """A run that is ready to go."""

    config: RunConfig
    evaluator: Evaluator
    splits: Splits
    searcher: Searcher
    guards: dict[str, Task]
    listener: Listener
    beginning: SearchState
    """The state before the first round."""

    @property
    def plan(self) -> Plan:
        """What is going to be done, at most."""
        test = len(self.splits.test)
        validation = self.searcher.max_candidates * len(self.splits.validation)
        return Plan(
            self.evaluator.frozen.name,
            self.evaluator.task.name,
            self.evaluator.decoding.mode,
            self.config.method,
            self.config.seed,
            self.evaluator.frozen.layers,
            self.searcher.max_rounds,
            self.searcher.max_draws,
            len(self.splits.train),
            len(self.splits.validation),
            test,
            self.searcher.max_evaluations() + validation + 4 * test,
            minimum_detectable_gain(test),
        )

    @property
    def store(self) -> ScoreStore:
        """Where scores are kept; to be closed when the run is over."""
        assert self.evaluator.store is not None
        return self.evaluator.store

    def header(self) -> dict[str, Any]:
        """What the run is, for its folder."""
        from macro_routing.version import __version__

        frozen = self.evaluator.frozen
        resolved = {
            "searcher": json.loads(self.searcher.identity),
            "search": {
                "rounds": self.searcher.max_rounds,
                "draws": self.searcher.max_draws,
                "max_evaluations": self.searcher.max_evaluations(),
            },
            "decoding": dataclasses.asdict(self.evaluator.decoding),
            "units": dataclasses.asdict(self.evaluator.unit_sizes),
            "data": dataclasses.asdict(self.config.resolve_data(frozen)),
        }
        return {
            "format": files.FORMAT,
            "macro": __version__,
            "started": time.strftime("%Y-%m-%d %H:%M:%S"),
            "config": {"given": self.config.to_tables(), "resolved": resolved},
            "model": {"name": frozen.name, "layers": frozen.layers, "weights_id": frozen.weights_id},
            "scope": self.evaluator.scope,
            "splits": {
                name: [len(self.splits.get_split(name)), mark] for name, mark in self.splits.fingerprints.items()
            },
            "guards": {
                name: make_splits(task, seed=self.config.seed).fingerprints for name, task in self.guards.items()
            },
            "store": str(self.store.path.resolve()),
            "environment": {fact.topic: fact.finding for fact in describe_environment()},
        }

    def run(self, place: RunFolder) -> RunResult:
        """The whole run, from wherever its folder stands."""
        listener = Listeners([self.listener, RunLog(place)])
        evaluator = dataclasses.replace(self.evaluator, report=listener.on_message)
        return dataclasses.replace(self, listener=listener, evaluator=evaluator)._run(place)  # noqa: SLF001

    def _run(self, place: RunFolder) -> RunResult:
        self.listener.on_plan(self.plan)
        state = self._search(place)
        choice = self._choose(place, state)
        result = self._test(place, state, choice)
        place.write_json(files.RESULT, result.to_json())
        place.write_text(files.ROUTE, self._route_file(result, choice))
        self._measure_cost(place, choice.route)
        place.write_manifest()
        self.listener.on_result(result)
        return result

    # --- searching ------------------------------------------------------------------------------------------------

    def _search(self, place: RunFolder) -> SearchState:
        state = place.last_state()
        if state is None:
            state = self.beginning
            place.save_round(state, None)
        plan = self.plan
        self.listener.on_stage("search", self.searcher.max_evaluations(state.rounds))
        left_over = plan.max_evaluations - self.searcher.max_evaluations()
        if isinstance(self.searcher, HoldoutSearcher):  # its finalists meet what was held back even when time is up
            left_over += self.searcher.max_candidates * len(self.searcher.holdout)
        deadline = Deadline(self.config.max_minutes, left_over)
        while not place.has_file(files.ENDED) and (asked := self.searcher.ask(state)) is not None:
            start = time.perf_counter()
            try:
                raced, standard = self._score(asked, deadline)
            except TimeUp:
                place.write_json(files.ENDED, {"reason": "max_minutes", "rounds": state.rounds})
                self.listener.on_message(f"time is up after {state.rounds} rounds; selecting among what was found")
                break
            state = self.searcher.tell(state, asked, raced.outcomes)
            seconds = time.perf_counter() - start
            report = make_round_report(asked, plan.rounds, raced, standard, seconds, self._prompt_tokens)
            place.save_round(state, dataclasses.asdict(report))
            self.listener.on_round(report)
        return state

    def _score(self, asked: Round, deadline: Deadline) -> tuple[RaceResult, RaceResult]:
        """The round's draws, and the standard pass on the same examples."""

        def count(outcomes: int) -> None:
            self.listener.on_outcomes(outcomes)
            deadline.check(outcomes)

        evaluator = dataclasses.replace(self.evaluator, on_outcomes=count)
        examples = [self.splits.train[place] for place in asked.examples]
        draws = [proposal.route for proposal in asked.proposals]
        raced = evaluator.race_draws(draws, examples, asked.keep, self.config.racing)
        return raced, evaluator.race_draws([self._standard], examples, 1, NEVER)

    @cached_property
    def _prompt_tokens(self) -> float:
        """Tokens that an example is read with, choices included: the mean over some training examples."""
        return mean_input_tokens(
            self.evaluator.frozen, self.evaluator.task, self.splits.train[:_READ_EXAMPLES], self.evaluator.decoding
        )

    @property
    def _standard(self) -> Route:
        return Route.standard(self.evaluator.frozen.layers)

    # --- choosing and testing -------------------------------------------------------------------------------------

    def _evaluated(self, routes: Sequence[Route], examples: Sequence[Example]) -> dict[Route, RouteEvaluation]:
        evaluator = dataclasses.replace(self.evaluator, on_outcomes=self.listener.on_outcomes)
        return evaluator.evaluate(routes, examples)

    def _choose(self, place: RunFolder, state: SearchState) -> FinalSelection:
        if place.has_file(files.CANDIDATES):
            with place.explain_damage(files.CANDIDATES):
                return FinalSelection.from_json(place.read_json(files.CANDIDATES), self.evaluator.frozen.layers)
        candidates = self.searcher.candidates(state) or (Candidate(self._standard),)
        self.listener.on_stage("validation", len(candidates) * len(self.splits.validation))
        routes = [candidate.route for candidate in candidates]
        if isinstance(self.searcher, HoldoutSearcher):
            routes = list(dict.fromkeys([self._standard, *routes]))
            holdout = [self.splits.train[number] for number in self.searcher.holdout]
            choice = select_confirmed_route(
                candidates,
                self._evaluated(routes, self.splits.validation),
                self._evaluated(routes, holdout),
                self.searcher.max_error_probability,
                self._costs_too_much,
            )
        else:
            choice = select_route(
                candidates,
                self._evaluated(routes, self.splits.validation),
                lambda tied: self._evaluated(tied, self.splits.train),
                self._costs_too_much,
            )
        place.write_json(files.CANDIDATES, choice.to_json())
        return choice

    def _costs_too_much(self, route: Route) -> str:
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
            found = guard.evaluate([self._standard, route], examples)
            if reason := found[route].failure:
                return f"it could not be run on {name}: {reason}"
            drop = 100 * (found[self._standard].score.accuracy - found[route].score.accuracy)
            if drop > settings.max_drop:
                return f"it costs {drop:.1f} points on {name} (n = {len(examples)}; allowed {settings.max_drop:g})"
        return ""

    def _test(self, place: RunFolder, state: SearchState, choice: FinalSelection) -> RunResult:
        """The one time the test set is looked at."""
        variants = [(SELECTED[self.config.method], choice.route), *self._variants(state), (STANDARD, self._standard)]
        different = list(dict.fromkeys(route for _, route in variants))
        self.listener.on_stage("test", len(different) * len(self.splits.test))
        found = self._evaluated(different, self.splits.test)
        for route in (choice.route, self._standard):
            if reason := found[route].failure:  # answers that were never given are no wrong answers
                raise WorkerError(f"the route {route} could not be tested: {reason}; mend it and resume the run")
        for name, route in variants:
            if reason := found[route].failure:
                self.listener.on_message(f"{name} is left out: {route} could not be tested: {reason}")
        tested = [(name, found[route]) for name, route in variants if not found[route].failure]
        place.write_json(files.ANSWERS, _answers(self.splits.test, {one.route: one for _, one in tested}))
        refused = f", {choice.refused}" if choice.refused else ""
        return make_route_result(tested, choice.route, self.config.seed, str(place.path), refused)

    def _measure_cost(self, place: RunFolder, route: Route) -> None:
        """On training examples: nothing is asked of the test set a second time."""
        if not place.has_file(files.COST):
            self.listener.on_message("measuring what the route costs beside the standard pass")
            different = list(dict.fromkeys([self._standard, route]))
            place.write_json(files.COST, measure_cost(self.evaluator, different, self.splits.train))

    def _variants(self, state: SearchState) -> list[tuple[str, Route]]:
        if not isinstance(self.searcher, MacroSearch):
            return []  # the variants are MACRO's
        best = self.searcher.best_draw(state)
        top = (TOP_1, self.searcher.most_probable_candidate(state).route)
        return [top, (NO_DECODING, best.proposal.route)] if best is not None else [top]

    def _route_file(self, result: RunResult, choice: FinalSelection) -> str:
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


def _answers(examples: Sequence[Example], found: dict[Route, RouteEvaluation]) -> dict[str, Any]:
    """Test answers of all variants, with the questions, so that a report needs nothing but the folder."""
    return {
        "examples": [dataclasses.asdict(example) for example in examples],
        "routes": {str(route): [dataclasses.asdict(o) for o in one.outcomes] for route, one in found.items()},
    }
