"""What every kind of run has: configuration, evaluator, splits, a planned search, and how it is run in its folder."""

import dataclasses
import itertools
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from macro_routing.evaluation import Evaluator, ScoreStore
from macro_routing.evaluation.model_answers import mean_input_tokens
from macro_routing.evaluation.outcomes import ExampleOutcome
from macro_routing.evaluation.statistics import PairedComparison, compare_paired
from macro_routing.models.environment import describe_environment
from macro_routing.routes.route import Route
from macro_routing.runs.config import RunConfig
from macro_routing.runs.folder import ANSWERS, FORMAT, RunFolder
from macro_routing.runs.options import CONFIG_FILE, format_config_as_toml
from macro_routing.runs.progress import Listener, Listeners, RunLog, RunPlan
from macro_routing.runs.result import RunResult, minimum_detectable_gain
from macro_routing.runs.search_building import SearchPlan
from macro_routing.search import MacroSearch, Searcher
from macro_routing.search.decision_settings import DecisionSettings
from macro_routing.search.mixture_controls import ControlSearch
from macro_routing.tasks import Splits, Task, make_splits
from macro_routing.version import __version__

_PROMPT_EXAMPLES = 64
"""Training examples that the mean prompt length is measured on."""


@dataclass(frozen=True, eq=False)
class PreparedRun(ABC):
    """A run with everything loaded and checked; what kind of search it is, its subclasses say."""

    config: RunConfig
    evaluator: Evaluator
    splits: Splits
    searcher: SearchPlan
    listener: Listener
    guards: Mapping[str, Task] = field(default_factory=dict)
    """Other tasks that the chosen route must not harm."""
    prepared_at: float = field(default_factory=time.perf_counter)

    @property
    def decision(self) -> DecisionSettings:
        """The settings of the final decision, as they are for this way of answering."""
        return self.config.resolve_decision(self.evaluator.decoding)

    @property
    def plan(self) -> RunPlan:
        """What is going to be done, at most."""
        test = len(self.splits.test)
        validation = self.searcher.max_candidates * len(self.splits.validation)
        validation += self.max_mixtures * len(self.holdout)
        return RunPlan(
            self.evaluator.frozen.name,
            self.evaluator.task.name,
            self.evaluator.decoding.mode,
            self.config.method,
            self.config.seed,
            self.evaluator.frozen.layers,
            self.searcher.max_rounds,
            self.searcher.max_draws_per_round,
            len(self.splits.train),
            len(self.splits.validation),
            test,
            self.searcher.max_evaluations() + validation + self.max_tested_routes * test,
            minimum_detectable_gain(test),
            describe_schedule(self.searcher),
            len(self.holdout),
            self.decision.describe() if self.decides_by_test else "",
            self.describe_decision_power(),
        )

    @property
    def max_tested_routes(self) -> int:
        """Routes that meet the test set: the result and the standard pass; for MACRO two more variants."""
        return 4 if isinstance(self.searcher, MacroSearch) else 2

    @property
    def max_mixtures(self) -> int:
        """Mixtures among the finalists; they meet the holdout after the search."""
        return 0

    @property
    def decides_by_test(self) -> bool:
        """Whether the final decision selects the route, not validation alone."""
        return False

    @property
    def holdout(self) -> Sequence[int]:
        """Training examples that the search does not use."""
        return ()

    def describe_decision_power(self) -> str:
        """What the final decision can show; empty where a run makes none."""
        return ""

    @property
    def score_store(self) -> ScoreStore:
        """Where scores are kept; to be closed when the run is over."""
        assert self.evaluator.store is not None
        return self.evaluator.store

    def make_run_json_contents(self) -> dict[str, Any]:
        """What the run is, for its folder."""
        frozen = self.evaluator.frozen
        resolved = {
            "searcher": json.loads(self.searcher.identity),
            "search": {
                "rounds": self.searcher.max_rounds,
                "draws": self.searcher.max_draws_per_round,
                "max_evaluations": self.searcher.max_evaluations(),
            },
            "decoding": dataclasses.asdict(self.evaluator.decoding),
            "units": dataclasses.asdict(self.evaluator.examples_per_unit),
            "data": dataclasses.asdict(self.config.resolve_data_sizes(frozen)),
        }
        return {
            "format": FORMAT,
            "macro": __version__,
            "started": time.strftime("%Y-%m-%d %H:%M:%S"),
            "config": {"given": self.config.to_toml_tables(), "resolved": resolved},
            "model": {"name": frozen.name, "layers": frozen.layers, "weights_id": frozen.weights_id},
            "scope": self.evaluator.scope,
            "splits": describe_splits(self.splits),
            "guards": {
                name: make_splits(task, seed=self.config.seed, test_seed=self.config.data.test_seed).fingerprints
                for name, task in self.guards.items()
            },
            "store": str(self.score_store.path.resolve()),
            "environment": {fact.topic: fact.finding for fact in describe_environment()},
        }

    def run(self, folder: RunFolder) -> RunResult:
        """Run to the end, from wherever the folder stands, and write its manifest."""
        listener = Listeners([self.listener, RunLog(folder)])
        evaluator = dataclasses.replace(self.evaluator, report=listener.on_message)
        run = dataclasses.replace(self, listener=listener, evaluator=evaluator)
        folder.write_text(CONFIG_FILE, format_config_as_toml(self.config.to_toml_tables()) + "\n")
        listener.on_plan(run.plan)
        result = run.search_and_test(folder)
        if not self.score_store.path.is_file():
            listener.on_message(
                f"{self.score_store.path} was removed during the run; its scores are lost, the run is not"
            )
        folder.write_manifest()
        listener.on_result(result)
        return result

    @abstractmethod
    def search_and_test(self, folder: RunFolder) -> RunResult:
        """Search and test, and write the result into the folder."""

    @property
    def progress_reporting_evaluator(self) -> Evaluator:
        """The evaluator; the listener gets the number of outcomes as they are computed."""
        listener = self.listener
        return dataclasses.replace(self.evaluator, on_outcomes=listener.on_outcomes, on_known=listener.on_known)

    def write_test_answers(
        self, folder: RunFolder, answers: Mapping[str, Sequence[ExampleOutcome]], **more: Any
    ) -> None:
        """Test answers by route, with the questions, so that a report needs nothing but the folder."""
        values = {
            "examples": [dataclasses.asdict(example) for example in self.splits.test],
            "routes": {
                route: [_outcome_to_json(outcome) for outcome in outcomes] for route, outcomes in answers.items()
            },
        }
        folder.write_json(ANSWERS, {**values, **more})

    def compare_with_standard(
        self, routed: Sequence[ExampleOutcome], standard: Sequence[ExampleOutcome]
    ) -> PairedComparison:
        """The result's answers to the test set against those of the standard pass."""
        standard_correct, routed_correct = (
            [outcome.correct for outcome in outcomes] for outcomes in (standard, routed)
        )
        is_same_route = routed is standard
        return compare_paired(standard_correct, routed_correct, seed=self.config.seed, is_same_route=is_same_route)

    @cached_property
    def prompt_tokens(self) -> float:
        """Mean input tokens of an example, choices included, over some training examples."""
        return mean_input_tokens(
            self.evaluator.frozen, self.evaluator.task, self.splits.train[:_PROMPT_EXAMPLES], self.evaluator.decoding
        )

    @property
    def standard_route(self) -> Route:
        """The model's standard pass."""
        return Route.standard(self.evaluator.frozen.layers)


def describe_splits(splits: Splits) -> dict[str, Any]:
    """Size and digest of each split."""
    return {name: [len(splits.get_split(name)), mark] for name, mark in splits.fingerprints.items()}


def describe_schedule(search: SearchPlan) -> str:
    """The rounds of a search in words."""
    if isinstance(search, ControlSearch):
        return f"{search.max_draws_per_round} routes at most on {len(search.searched_examples)} examples"
    if not isinstance(search, Searcher):
        return f"1 round of {search.max_draws_per_round} draws for each example"
    parts = []
    for purpose, group in itertools.groupby(search.planned_round_sizes, key=lambda size: size.purpose):
        sizes = list(group)
        examples = len({example for size in sizes for example in size.examples})
        draws = max(size.draws for size in sizes)
        rounds = f"{len(sizes)} rounds" if len(sizes) > 1 else "1 round"
        if purpose:
            parts.append(f"{purpose} of at most {draws} routes on {examples} examples")
        else:
            fewest, most = (of(len(size.examples) for size in sizes) for of in (min, max))
            parts.append(f"{rounds} of {draws} draws on {most if fewest == most else f'{fewest} to {most}'} examples")
    return ", ".join(parts) or "nothing to search"


def _outcome_to_json(outcome: ExampleOutcome) -> dict[str, Any]:
    """Without log-likelihoods, whose last digits depend on the batch."""
    return {name: value for name, value in dataclasses.asdict(outcome).items() if name != "log_likelihoods"}
