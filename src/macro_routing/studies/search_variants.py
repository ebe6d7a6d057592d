"""A search with something changed: over tasks and seeds, each variant beside the unchanged one on the same examples."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from macro_routing.runs.comparison_results import MethodRun
from macro_routing.runs.result import STANDARD
from macro_routing.studies.context import StudyContext
from macro_routing.studies.paired_comparisons import seeds_row
from macro_routing.studies.task_names import TaskName

Cells = dict[tuple[TaskName, int], MethodRun]
"""By task and seed."""


@dataclass(frozen=True)
class Variant:
    """A search by its name in the table."""

    name: str
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings by table (space, search, data) that differ from the study's."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """More values for its row."""


def searches_note(tasks: Sequence[TaskName], seeds: Sequence[int], cells: Cells) -> str:
    """What was averaged, and what an interval over test examples does not hold: another search finds another route."""
    told = "; ".join(f"{task} n = {', '.join(_sizes(task, cells))}" for task in tasks)
    return (
        f"Mean over {len(tasks)} task(s) ({told}) and {len(seeds)} seed(s) ({', '.join(map(str, seeds))}); ± is the"
        " sample standard deviation over seeds. Compared are the routes that these searches found. Intervals resample"
        " test examples and p is a sign-flip test over them: how much searches vary is no part of either."
    )


def _sizes(task: TaskName, cells: Cells) -> list[str]:
    """Test examples of a task; one number where all seeds have as many."""
    return list(dict.fromkeys(str(len(arm.right[STANDARD])) for (one, _), arm in cells.items() if one == task))


def check_variants(context: StudyContext, variants: Sequence[Variant], tasks: Sequence[TaskName], seed: int) -> None:
    """Refuse before the first search what one of them would refuse."""
    context.check_searches(
        (_search_name(one, task, seed), context.config(task, seed, **one.changes)) for one in variants for task in tasks
    )


def _search_name(variant: Variant, task: TaskName, seed: int) -> str:
    return f"{variant.name}-{task}-{seed}"


def run_variant(context: StudyContext, variant: Variant, tasks: Sequence[TaskName], seeds: Sequence[int]) -> Cells:
    """The searches of a variant, those that are missing run now."""
    return {
        (task, seed): context.search(_search_name(variant, task, seed), context.config(task, seed, **variant.changes))
        for seed in seeds
        for task in tasks
    }


def variant_row(name: str, cells: Cells, choice: str, compared: Cells | None, against: str) -> dict[str, Any]:
    """Accuracy over tasks and seeds of the route chosen by ``choice``, and its difference to another's ``against``.

    ``compared`` None leaves the difference out: it would be one to itself.
    """
    tasks = list(dict.fromkeys(task for task, _ in cells))
    seeds = list(dict.fromkeys(seed for _, seed in cells))
    accuracy = {cell: _accuracy(arm, choice) for cell, arm in cells.items()}
    by_seed = [statistics.mean(accuracy[task, seed] for task in tasks) for seed in seeds]
    row: dict[str, Any] = {
        "variant": name,
        "accuracy": statistics.mean(by_seed),
        "spread": statistics.stdev(by_seed) if len(seeds) > 1 else None,
        "by_task": {str(task): statistics.mean(accuracy[task, seed] for seed in seeds) for task in tasks},
        "layers": statistics.mean(_length(arm, choice) for arm in cells.values()),
        "rounds_seconds": statistics.mean(arm.seconds for arm in cells.values()),
        "seeds": len(seeds),
        "tasks": len(tasks),
    }
    if compared is not None:
        row |= seeds_row(
            [
                [(compared[task, seed].right[against], cells[task, seed].right[choice]) for seed in seeds]
                for task in tasks
            ]
        )
    return row


def standard_row(cells: Cells) -> dict[str, Any]:
    """The standard pass on the same examples."""
    return {**variant_row("standard pass", cells, STANDARD, None, ""), "rounds_seconds": 0.0}


def _accuracy(arm: MethodRun, choice: str) -> float:
    return statistics.mean(map(float, arm.right[choice].values()))


def _length(arm: MethodRun, choice: str) -> float:
    return next(one.length for one in arm.result.variants if one.name == choice)
