"""Searches with something changed: each variant over all tasks and seeds, compared on the same examples."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from macro_routing.report.formatting import format_mean_and_deviation, format_number_of
from macro_routing.runs.comparison_results import MethodRun
from macro_routing.runs.config import RunConfig
from macro_routing.runs.result import STANDARD
from macro_routing.studies.context import StudyContext
from macro_routing.studies.paired_comparisons import SeedPairs, make_mean_difference_cells
from macro_routing.studies.tables import Column
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode

VariantRuns = Mapping[tuple[TaskWithAnswerMode, int], MethodRun]
"""By task and seed."""

ACCURACY_COLUMN = Column("correct, %", lambda row: format_mean_and_deviation(row["accuracy"], row["spread"]))
LAYERS_COLUMN = Column("layers run", lambda row: f"{row['layers']:.1f}")


@dataclass(frozen=True)
class SearchVariant:
    """A search by its name in the table."""

    name: str
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings by table (space, search, data) that differ from the study's."""


@dataclass(frozen=True)
class SearchVariantRunner:
    """The tasks and seeds that every variant is searched with."""

    context: StudyContext
    tasks: Sequence[TaskWithAnswerMode]
    seeds: Sequence[int]

    def run_variants(self, variants: Sequence[SearchVariant]) -> dict[str, VariantRuns]:
        """By variant's name its searches; missing ones run now. An impossible one is rejected before the first runs."""
        planned = {variant.name: self._plan_searches(variant) for variant in variants}
        self.context.check_planned_searches_can_run(
            search for plan in planned.values() for (_, seed), search in plan.items() if seed == self.seeds[0]
        )
        return {
            name: {key: self.context.load_or_search(*search) for key, search in plan.items()}
            for name, plan in planned.items()
        }

    def _plan_searches(self, variant: SearchVariant) -> dict[tuple[TaskWithAnswerMode, int], tuple[str, RunConfig]]:
        """By task and seed: the name and the configuration of a search."""
        return {
            (task, seed): (f"{variant.name}-{task}-{seed}", self.context.make_run_config(task, seed, **variant.changes))
            for seed in self.seeds
            for task in self.tasks
        }

    def describe_averages(self, runs: VariantRuns) -> str:
        """What was averaged, and what an interval over test examples leaves out: another search finds another route."""
        sizes = {
            task: dict.fromkeys(len(runs[task, seed].right[STANDARD]) for seed in self.seeds) for task in self.tasks
        }
        tasks = "; ".join(f"{task} n = {', '.join(map(str, counts))}" for task, counts in sizes.items())
        counts = format_number_of(len(self.tasks), "task"), format_number_of(len(self.seeds), "seed")
        return (
            f"Mean over {counts[0]} ({tasks}) and {counts[1]} ({', '.join(map(str, self.seeds))}); ± is the sample"
            " standard deviation over seeds. The compared routes are those that these searches found. Intervals"
            " resample test examples and p is a sign-flip test over them: neither includes the variation between"
            " searches."
        )

    def pair_outcomes_by_seed(
        self, baseline: VariantRuns, baseline_choice: str, compared: VariantRuns, choice: str
    ) -> list[SeedPairs]:
        """By task and seed: which examples each of the two choices has correct."""
        return [
            [(baseline[task, seed].right[baseline_choice], compared[task, seed].right[choice]) for seed in self.seeds]
            for task in self.tasks
        ]

    def summarize_variant(
        self, name: str, runs: VariantRuns, choice: str, baseline: VariantRuns | None = None, baseline_choice: str = ""
    ) -> dict[str, Any]:
        """Accuracy over tasks and seeds of the route chosen by ``choice``, and its difference to the baseline's."""
        accuracy = {key: statistics.mean(map(float, run.right[choice].values())) for key, run in runs.items()}
        by_seed = [statistics.mean(accuracy[task, seed] for task in self.tasks) for seed in self.seeds]
        chosen = [variant for run in runs.values() for variant in run.result.variants if variant.name == choice]
        row: dict[str, Any] = {
            "variant": name,
            "accuracy": statistics.mean(by_seed),
            "spread": statistics.stdev(by_seed) if len(self.seeds) > 1 else None,
            "by_task": {str(task): statistics.mean(accuracy[task, seed] for seed in self.seeds) for task in self.tasks},
            "layers": statistics.mean(variant.length for variant in chosen),
            "rounds_seconds": statistics.mean(run.seconds for run in runs.values()),
            "seeds": len(self.seeds),
            "tasks": len(self.tasks),
        }
        if baseline is not None:
            row |= make_mean_difference_cells(self.pair_outcomes_by_seed(baseline, baseline_choice, runs, choice))
        return row

    def summarize_standard_pass(self, runs: VariantRuns) -> dict[str, Any]:
        """The standard pass on the same examples."""
        return {**self.summarize_variant("standard pass", runs, STANDARD), "rounds_seconds": 0.0}
