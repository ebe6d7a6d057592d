"""Runs of controls: a mixture by a simple rule from training scores, confirmed by nothing, tested once.

A control's result is a route or a mixture like any other, but for contrastive decoding, which adds a second model.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from macro_routing.errors import SettingsError
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.mixture_controls import find_control_mixture
from macro_routing.evaluation.mixture_weights import collect_scores, fit_weights
from macro_routing.evaluation.model_answers import grade_choice_likelihoods
from macro_routing.evaluation.outcomes import ExampleOutcome, RouteEvaluation
from macro_routing.evaluation.statistics import wilson_interval
from macro_routing.models.catalog import fetch_model_folder
from macro_routing.models.frozen import load_model, load_tokenizer
from macro_routing.models.load_options import LoadOptions
from macro_routing.routes.route import Route
from macro_routing.runs import folder as files
from macro_routing.runs.final_selection import FinalSelection, select_without_decision
from macro_routing.runs.folder import RunFolder
from macro_routing.runs.methods import METHODS
from macro_routing.runs.progress import RoundReport
from macro_routing.runs.result import (
    STANDARD,
    TWO_MODELS,
    RunResult,
    make_per_example_result,
    make_route_test_result,
)
from macro_routing.runs.route_run import RouteRun
from macro_routing.search.mixture_controls import ControlSearch
from macro_routing.search.searcher import Draw, Proposal, SearchState
from macro_routing.tasks.task import Example
from macro_routing.workers.worker_settings import WorkerError


@dataclass(frozen=True, eq=False)
class ControlRun(RouteRun):
    """A control whose result is a route or a mixture."""

    searcher: ControlSearch

    @property
    def training_examples(self) -> list[Example]:
        """What the control learns on."""
        return [self.splits.train[index] for index in self.searcher.searched_examples]

    def search_and_test(self, folder: RunFolder) -> RunResult:
        """Score the sources, find the mixture, test it."""
        if folder.has_file(files.CANDIDATES):
            with folder.explain_damaged_files(files.CANDIDATES):
                choice = FinalSelection.from_json(folder.read_json(files.CANDIDATES), self.evaluator.frozen.layers)
        else:
            choice = self._find_mixture(folder)
        result = self.test_route(folder, choice)
        trained = self.evaluator.evaluate([choice.route], self.training_examples)[choice.route]
        return self.write_result(folder, choice, dataclasses.replace(result, training_accuracy=trained.score.accuracy))

    def _find_mixture(self, folder: RunFolder) -> FinalSelection:
        self.listener.on_stage("search", self.searcher.max_evaluations())
        examples = self.training_examples
        with folder.time_round(1) as get_seconds:
            evaluations = self.progress_reporting_evaluator.evaluate(self.searcher.sources, examples)
            route = find_control_mixture(self.searcher.control, evaluations, lambda: self.label_choices(examples))
            evaluations |= self.progress_reporting_evaluator.evaluate([route], examples)
            self.save_only_round(folder, list(evaluations.values()), get_seconds())
        self.listener.on_stage("validation", len(self.splits.validation))
        validated = self.progress_reporting_evaluator.evaluate([route], self.splits.validation)
        choice = select_without_decision(route, validated)
        folder.write_json(files.CANDIDATES, choice.to_json())
        return choice

    def save_only_round(self, folder: RunFolder, evaluations: Sequence[RouteEvaluation], seconds: float) -> None:
        """Keep all scores, those of the standard pass first, as the run's only round, unless it is kept already."""
        if folder.read_round_reports():
            return
        scores, n = [evaluation.score for evaluation in evaluations], len(self.searcher.searched_examples)
        low, high = wilson_interval(scores[0].accuracy, n)
        accuracies = sorted(score.accuracy for score in scores)
        computed = sum(n - evaluation.from_store for evaluation in evaluations)
        tokens = [n * (self.prompt_tokens + evaluation.mean_tokens) for evaluation in evaluations]
        report = RoundReport(
            number=1,
            rounds=1,
            examples=n,
            best=accuracies[-1],
            median=accuracies[len(accuracies) // 2],
            stopped=0,
            different=len(scores),
            standard=scores[0].accuracy,
            standard_low=low,
            standard_high=high,
            run=computed,
            saved=0,
            truncated_share=sum(evaluation.truncated_share for evaluation in evaluations) / len(scores),
            seconds=seconds,
            asked=n * len(scores),
            work=sum(evaluation.route.length * read for evaluation, read in zip(evaluations, tokens, strict=True)),
            known=n * len(scores) - computed,
            draws=len(scores),
        )
        # Another model's standard pass looks like this one's where both have as many layers; it comes later.
        own = {one.route: one for one in reversed(evaluations) if one.route.layers == self.searcher.layers}
        draws = tuple(
            Draw(0, Proposal(route), evaluation.score)
            for route, evaluation in reversed(own.items())
            if isinstance(route, Route)
        )
        folder.save_round(SearchState(self.searcher.identity, rounds=1, draws=draws), dataclasses.asdict(report))
        self.listener.on_round(report)


@dataclass(frozen=True, eq=False)
class ContrastiveRun(ControlRun):
    """The model and a smaller one of the same tokenizer, with fitted weights; no route runs two models."""

    def search_and_test(self, folder: RunFolder) -> RunResult:
        """Fit the weights of both models on training examples, and test their sum."""
        examples = self.training_examples
        with folder.time_round(1) as get_seconds:
            amateur = self._load_amateur_evaluator()
            self.listener.on_stage("search", self.searcher.max_evaluations())
            trained = self._evaluate_both(amateur, examples)
            self.save_only_round(folder, trained, get_seconds())
        self.listener.on_stage("test", 2 * len(self.splits.test))
        tested = self._evaluate_both(amateur, self.splits.test)
        labels = self.label_choices(examples)
        routes, scores = collect_scores(trained, labels)
        weights = fit_weights(scores, np.array(labels.answers))[0].tolist() if len(routes) > 1 else [1.0, 0.0]
        outcomes = self._add_log_likelihoods(tested, weights, self.splits.test)
        learned = self._add_log_likelihoods(trained, weights, examples)
        names = [Path(evaluator.frozen.name).name for evaluator in (self.evaluator, amateur)]
        name = f"{weights[0]:.3g} {names[0]} {weights[1]:+.3g} {names[1]}"
        result = self._make_result(folder, name, outcomes, list(tested[0].outcomes), amateur.frozen.layers)
        accuracy = sum(outcome.correct for outcome in learned) / len(learned)
        result = dataclasses.replace(result, training_accuracy=accuracy)
        folder.write_json(files.RESULT, result.to_json())
        return result

    @property
    def _amateur(self) -> tuple[str, LoadOptions]:
        """The name of the smaller model, and how it is loaded."""
        name: str = self.searcher.settings.amateur  # type: ignore[attr-defined]  # its settings are ContrastiveSettings
        return name, dataclasses.replace(self.config.loading, revision=None)

    def check_amateur(self) -> None:
        """Reject a smaller model that is not found, or that has another tokenizer, before anything is run."""
        name, loading = self._amateur
        frozen = self.evaluator.frozen
        if load_tokenizer(fetch_model_folder(name), name, loading).get_vocab() != frozen.tokenizer.get_vocab():
            raise SettingsError(
                f"amateur = {name} has another tokenizer than {frozen.name}; name a model with the same tokenizer"
            )

    def _load_amateur_evaluator(self) -> Evaluator:
        name, loading = self._amateur
        self.listener.on_message(f"loading {name}")
        amateur = load_model(name, loading, self.listener.on_message)
        return dataclasses.replace(self.progress_reporting_evaluator, frozen=amateur, executor=None)

    def _evaluate_both(self, amateur: Evaluator, examples: Sequence[Example]) -> list[RouteEvaluation]:
        routes = (self.standard_route, Route.standard(amateur.frozen.layers))
        evaluators = (self.progress_reporting_evaluator, amateur)
        both = [
            evaluator.evaluate([route], examples)[route] for evaluator, route in zip(evaluators, routes, strict=True)
        ]
        if reason := both[0].failure:
            raise WorkerError(f"the standard pass could not be scored: it {reason}; fix the cause and resume the run")
        return both

    def _add_log_likelihoods(
        self, both: Sequence[RouteEvaluation], weights: Sequence[float], examples: Sequence[Example]
    ) -> list[ExampleOutcome]:
        """Outcomes of the weighted sum; wrong where numbers overflowed in one of the models."""
        combined = [
            [
                sum(weight * value for weight, value in zip(weights, values, strict=True))
                for values in zip(*(outcome.log_likelihoods for outcome in outcomes), strict=False)
            ]
            or [math.nan]
            for outcomes in zip(*(evaluation.outcomes for evaluation in both), strict=True)
        ]
        return grade_choice_likelihoods(examples, combined, self.evaluator.decoding)

    def _make_result(
        self,
        folder: RunFolder,
        name: str,
        outcomes: list[ExampleOutcome],
        standard: list[ExampleOutcome],
        amateur_layers: int,
    ) -> RunResult:
        self.write_test_answers(folder, {name: outcomes, str(self.standard_route): standard})
        title, layers = METHODS[self.config.method].title, self.standard_route.length
        variants = [
            make_route_test_result(title, name, layers + amateur_layers, outcomes),
            make_route_test_result(STANDARD, str(self.standard_route), layers, standard),
        ]
        comparison = self.compare_with_standard(outcomes, standard)
        return make_per_example_result(layers, variants, comparison, str(folder.path), TWO_MODELS)
