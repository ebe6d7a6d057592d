"""Several tasks as one: every example is asked and graded by its own task's rules."""

import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.outcomes import ExampleOutcome
from macro_routing.evaluation.work_items import WorkUnit
from macro_routing.routes.mixture import RouteOrMixture
from macro_routing.runs.prepared_run import PreparedRun
from macro_routing.tasks.grading import GRADERS
from macro_routing.tasks.prompts import PromptTemplates
from macro_routing.tasks.splits import TEST, TRAIN, VALIDATION
from macro_routing.tasks.task import TEXT, Example, Task

_MARK = "::"
"""Between a member's name and its own example's name."""
POOL = "pool"


@dataclass(frozen=True, eq=False)
class MultiTaskEvaluator(Evaluator):
    """Scores routes on examples of several tasks; each is answered by its own task's evaluator."""

    members: Mapping[str, Evaluator] = field(default_factory=dict)

    @property
    def scope(self) -> dict[str, Any]:
        """What decides an outcome in any of the members."""
        return {**super().scope, "pool": {name: member.scope for name, member in self.members.items()}}

    def run_routes_on_unit(
        self, routes: Sequence[RouteOrMixture], unit: WorkUnit
    ) -> dict[RouteOrMixture, list[ExampleOutcome]]:
        """The unit's examples by their tasks, and the answers in the unit's order again."""
        tasks = [get_member_task(example) for example in unit]
        examples_by_task = {
            name: tuple(example for example, task in zip(unit, tasks, strict=True) if task == name)
            for name in dict.fromkeys(tasks)
        }
        answered = {
            name: self.members[name].run_routes_on_unit(routes, part) for name, part in examples_by_task.items()
        }
        outcomes: dict[RouteOrMixture, list[ExampleOutcome]] = {}
        for route in routes:
            remaining = {name: iter(by_route[route]) for name, by_route in answered.items()}
            outcomes[route] = [next(remaining[task]) for task in tasks]
        return outcomes


def get_member_task(example: Example) -> str:
    """The task that an example of a pool came from."""
    return example.id.split(_MARK, 1)[0]


def count_shared_examples(runs: Mapping[str, PreparedRun], tested: Collection[str]) -> dict[str, dict[str, int]]:
    """By task, its training and validation examples whose questions are among ``tested``; tasks with none left out."""
    counts = {
        name: {
            split: sum(example.normalized_question in tested for example in run.splits.get_split(split))
            for split in (TRAIN, VALIDATION)
        }
        for name, run in runs.items()
    }
    return {name: count for name, count in counts.items() if any(count.values())}


def make_pooled_task(runs: Mapping[str, PreparedRun], tested: Collection[str] = ()) -> Task:
    """One task of several tasks' splits, which stay what they are: no test example becomes a training one.

    Training and validation examples whose normalized questions are among ``tested`` are left out.
    """
    pools = {split: tuple(_interleave_examples(runs, split)) for split in (TRAIN, VALIDATION, TEST)}
    for split in (TRAIN, VALIDATION):
        pools[split] = tuple(example for example in pools[split] if example.normalized_question not in tested)
    # Prompts and grader are never used: every example is asked by its own task.
    return Task(POOL, TEXT, GRADERS["text"], PromptTemplates(), None, pools, keeps_validation=True)


def _interleave_examples(runs: Mapping[str, PreparedRun], split: str) -> Iterator[Example]:
    """One example of each task after the other, so that the first N are of all tasks."""
    for row in itertools.zip_longest(*(run.splits.get_split(split) for run in runs.values())):
        for name, example in zip(runs, row, strict=True):
            if example is not None:
                yield dataclasses.replace(example, id=f"{name}{_MARK}{example.id}")


def with_multitask_evaluator(run: PreparedRun, members: Mapping[str, PreparedRun]) -> PreparedRun:
    """The same run, its examples answered by their own tasks' rules."""
    plain = {item.name: getattr(run.evaluator, item.name) for item in dataclasses.fields(Evaluator)}
    evaluators = {name: member.evaluator for name, member in members.items()}
    return dataclasses.replace(run, evaluator=MultiTaskEvaluator(**plain, members=evaluators))
