"""What the paper's units would cost: evaluations by the settings, hours by a recorded speed; no model is needed."""

import functools
from collections.abc import Callable, Iterable, Sequence

from macro_routing.peers.per_example_search import PUBLISHED_EXAMPLES
from macro_routing.runs.config import RunConfig
from macro_routing.runs.methods import STANDARD
from macro_routing.search.random_streams import assign_examples_to_rounds
from macro_routing.studies.paper_config import (
    COST,
    LOGIT_LENS,
    MAIN_TABLE,
    ONE_ROUTE,
    PaperConfig,
    PaperItem,
    PaperUnit,
    is_router,
)
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode
from macro_routing.tasks.benchmarks import BENCHMARKS

_TESTED_ROUTES = 4
"""MACRO, its two variants and the standard pass."""
_OTHER_TEST_SIZE = 1000
"""Test examples of a task that says nothing of them."""


def count_unit_evaluations(config: PaperConfig, unit: PaperUnit) -> int:
    """Evaluations that a unit asks for at most, with as many examples as the settings name."""
    item, tasks = unit.item, unit.item.settings.task_names
    first = config.make_run_config(unit.model, tasks[0].task)
    search = _count_search(first)

    def count_test(task: TaskWithAnswerMode) -> int:
        published = BENCHMARKS[task.task].test_size if task.task in BENCHMARKS else None
        size = published or _OTHER_TEST_SIZE
        return min(size, first.data.test or size)

    if item.study == MAIN_TABLE:
        test = count_test(TaskWithAnswerMode.parse(unit.task))
        if is_router(unit.method):
            return _count_labels(first, unit.method) + 2 * test
        return test if unit.method == STANDARD else search + _TESTED_ROUTES * test
    if item.study == COST:
        return int(2 * item.settings.items * (item.settings.repeats + 1))
    if item.study == LOGIT_LENS:
        return 2 * int(item.settings.items)
    return _count_study(item, search, count_test)


def _count_study(item: PaperItem, search: int, count_test: Callable[[TaskWithAnswerMode], int]) -> int:
    tasks, settings = item.settings.task_names, item.settings
    tests = sum(map(count_test, tasks))
    if item.study == ONE_ROUTE:
        # The search tests its variants on the pool; then the route and the standard pass are tested by task.
        return search + _TESTED_ROUTES * tests + 2 * sum(map(count_test, settings.study_task_names))
    if item.study == "transfer":
        return len(tasks) * (search + tests) + _TESTED_ROUTES * tests
    variants = 4 if item.study == "ablation" else len(settings.values) + 1
    return variants * len(settings.seeds) * (len(tasks) * search + _TESTED_ROUTES * tests)


def _count_search(config: RunConfig) -> int:
    """Of MACRO: its rounds, and validation."""
    settings = config.build_search_settings({})
    examples = _count_round_examples(config.data.training, settings.iterations, settings.replay)
    return int(settings.draws * examples + settings.k * config.data.validation)


@functools.cache
def _count_round_examples(training: int, iterations: int, replay: float) -> int:
    return sum(map(len, assign_examples_to_rounds(training, iterations, replay, seed=0)))


def _count_labels(config: RunConfig, method: str) -> int:
    """Of Dr.LLM: its published tree searches."""
    settings = config.build_search_settings({}, method)
    return int(min(PUBLISHED_EXAMPLES, config.data.training) * (settings.simulations + 1))


def divide_units(config: PaperConfig, units: Sequence[PaperUnit], parts: int) -> list[list[PaperUnit]]:
    """Units in so many parts of about the same estimated time; within a part the given order is kept.

    The longest unit goes first, each to the part with the least so far. What is done already does not matter: every
    machine divides alike.
    """
    times = [count_unit_evaluations(config, unit) * config.models[unit.model]["parameters"] for unit in units]
    sums = [0.0] * parts
    indexes: list[list[int]] = [[] for _ in range(parts)]
    for index in sorted(range(len(units)), key=lambda index: -times[index]):
        least = min(range(parts), key=lambda part: (sums[part], len(indexes[part])))
        sums[least] += times[index]
        indexes[least].append(index)
    return [[units[index] for index in sorted(of_part)] for of_part in indexes]


def estimate_hours(config: PaperConfig, units: Iterable[PaperUnit]) -> float | None:
    """Hours of one GPU; None without a recorded speed."""
    if (speed := config.throughput) is None:
        return None
    seconds = sum(
        count_unit_evaluations(config, unit)
        * speed.seconds_per_evaluation
        * config.models[unit.model]["parameters"]
        / speed.parameters
        for unit in units
    )
    return float(seconds) / 3600
