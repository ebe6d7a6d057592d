"""Runs whose result is a route or a mixture: its test, the result, the route file and what the route costs."""

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass

from macro_routing.evaluation.mixture_weights import ChoiceLabels
from macro_routing.evaluation.model_answers import compute_choice_sizes
from macro_routing.routes import RouteFile
from macro_routing.routes.mixture import RouteOrMixture
from macro_routing.runs import folder as files
from macro_routing.runs.final_selection import FinalSelection
from macro_routing.runs.folder import RunFolder
from macro_routing.runs.methods import METHODS, list_used_decision_settings
from macro_routing.runs.prepared_run import PreparedRun
from macro_routing.runs.result import (
    STANDARD,
    RunResult,
    describe_chance_level,
    make_route_result,
    make_route_test_result,
)
from macro_routing.runs.route_cost import MAX_SECONDS, measure_cost
from macro_routing.tasks import Example
from macro_routing.tasks.task import number_groups
from macro_routing.version import __version__
from macro_routing.workers.worker_settings import WorkerError

NamedRoute = tuple[str, RouteOrMixture]
COST_SHARE = 0.1
"""Measuring the cost ends after this share of the run's time so far, but makes some turns whatever they take."""


@dataclass(frozen=True, eq=False)
class RouteRun(PreparedRun):
    """What is done with a chosen route, however it was found."""

    def write_result(self, folder: RunFolder, choice: FinalSelection, result: RunResult) -> RunResult:
        """Write the result, the route file and the cost."""
        folder.write_json(files.RESULT, result.to_json())
        folder.write_text(files.ROUTE, self._format_route_file(result, choice))
        self._measure_cost(folder, choice.route)
        return result

    def label_choices(self, examples: Sequence[Example]) -> ChoiceLabels:
        """What weights are fitted to."""
        by_letter = self.evaluator.decoding.by_letter
        return ChoiceLabels(
            [example.correct_choice for example in examples],
            [compute_choice_sizes(example, by_letter=by_letter) for example in examples],
            number_groups(examples),
        )

    def test_route(self, folder: RunFolder, choice: FinalSelection, others: Sequence[NamedRoute] = ()) -> RunResult:
        """The one time the test set is looked at, by the chosen route and by other variants with their names."""
        variants: list[NamedRoute] = [
            (METHODS[self.config.method].title, choice.route),
            *others,
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
        result = make_route_result(choice, made, comparison, str(folder.path), self.decision)
        return dataclasses.replace(result, verdict=result.verdict + describe_chance_level(self.splits.test, comparison))

    def _measure_cost(self, folder: RunFolder, route: RouteOrMixture) -> None:
        """On training examples: nothing is asked of the test set a second time."""
        if not folder.has_file(files.COST):
            different = list(dict.fromkeys([self.standard_route, route]))
            if len(different) > 1:
                self.listener.on_message("measuring what the route costs beside the standard pass")
            # Rounds before a resume count, too; where a run was not resumed, they are a part of its own time.
            rounds = sum(report.get("seconds", 0.0) for report in folder.read_round_reports())
            seconds = min(MAX_SECONDS, COST_SHARE * max(rounds, time.perf_counter() - self.prepared_at))
            folder.write_json(files.COST, measure_cost(self.evaluator, different, self.splits.train, seconds))

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
                    name: getattr(self.decision, name)
                    for name in list_used_decision_settings(self.config.method, self.decision.objective)
                },
            },
            recommended=result.recommended,
            recommendation=result.verdict,
        ).to_json()
