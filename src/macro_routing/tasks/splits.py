"""Split a dataset into disjoint, fingerprinted training, validation and test examples (specification §5)."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from macro_routing.errors import TaskError
from macro_routing.settings import check_integer
from macro_routing.tasks.task import Example, Task, fingerprint_examples

TRAIN, VALIDATION, TEST = "train", "validation", "test"
MIN_TRAINING_POOL = 200
"""A training pool smaller than this is joined with the others."""
TEST_SHARE = 0.4
"""Share of a single pool for the test split, without a given size."""


@dataclass(frozen=True)
class Splits:
    """Training, validation and test examples, disjoint by question and group."""

    train: tuple[Example, ...]
    """Training examples."""
    validation: tuple[Example, ...]
    """Validation examples."""
    test: tuple[Example, ...]
    """Test examples."""

    def get_split(self, name: str) -> tuple[Example, ...]:
        """The examples of the split ``train``, ``validation`` or ``test``."""
        return {TRAIN: self.train, VALIDATION: self.validation, TEST: self.test}[name]

    @property
    def fingerprints(self) -> dict[str, str]:
        """Digests of the three splits: contents and order."""
        return {name: fingerprint_examples(self.get_split(name)) for name in (TRAIN, VALIDATION, TEST)}


def make_splits(
    task: Task, *, seed: int, training: int = 1000, validation: int = 100, test_seed: int | None = None
) -> Splits:
    """Split a task's pools: test examples first, then training and validation in the given ratio.

    With ``test_seed`` the test examples are the same for every ``seed``.
    """
    check_integer("seed", seed, minimum=0, maximum=2**32 - 1)
    check_integer("training", training, minimum=1)
    check_integer("validation", validation, minimum=1)
    rng = _make_split_generator(task, seed)
    test_pool, other_pool = _choose_test_and_search_pools(task)
    test_rng = rng if test_seed is None else _make_split_generator(task, test_seed)
    test, left = _split_off_test(task, test_pool, test_rng)
    if task.keeps_validation:
        return _take_splits_from_pools(task, test, rng, training, validation)
    order = _shuffle_untaken_groups(other_pool or left, test, rng)
    size = sum(len(group) for group in order)
    if size < 2:
        repeats = f" ({task.repeated_rows} rows that repeat another row are left out)" if task.repeated_rows else ""
        raise TaskError(
            f"{task.name}: after {len(test)} test items only {size} examples are left for training{repeats}; give more"
            " rows, 100 or more to find a gain"
        )
    share = min(1.0, size / (training + validation))
    train_size = training if share == 1 else min(round(training * share), size - 1)
    validation_size = validation if share == 1 else max(1, size - train_size)
    train, rest = _take_whole_example_groups(order, train_size)
    # What is left of the last group is in no split.
    return Splits(_flatten_groups(train), _flatten_groups(rest)[:validation_size], tuple(test))


def _make_split_generator(task: Task, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, *task.name.encode()])


def count_repeated_questions(task: Task) -> int:
    """Count examples that repeat a question; all examples of a question are in one split."""
    examples = [example for pool in task.pools.values() for example in pool]
    return len(examples) - len({example.normalized_question for example in examples})


def _take_splits_from_pools(
    task: Task, test: list[Example], rng: np.random.Generator, training: int, validation: int
) -> Splits:
    """Take training and validation examples each from the pool of that name."""
    chosen, _ = _take_whole_example_groups(_shuffle_untaken_groups(task.pools[VALIDATION], test, rng), validation)
    train, _ = _take_whole_example_groups(
        _shuffle_untaken_groups(task.pools[TRAIN], [*test, *_flatten_groups(chosen)], rng), training
    )
    if not train or not chosen:
        raise TaskError(f"{task.name}: every {'validation' if train else 'training'} item is also in another split")
    return Splits(_flatten_groups(train), _flatten_groups(chosen), tuple(test))


def _shuffle_untaken_groups(
    pool: Sequence[Example], taken: Sequence[Example], rng: np.random.Generator
) -> list[list[Example]]:
    """Shuffle groups of distinct questions, without those whose question or group is taken."""
    taken_keys = {example.normalized_question for example in taken} | {
        example.group for example in taken if example.group
    }
    left = [example for example in pool if not {example.normalized_question, example.group} & taken_keys]
    distinct = {
        example.normalized_question: example for example in reversed(left)
    }  # of a repeated question the first example stays
    groups = _group_inseparable_examples(list(distinct.values())[::-1])
    return [groups[index] for index in rng.permutation(len(groups))]


def _choose_test_and_search_pools(task: Task) -> tuple[list[Example], list[Example]]:
    """Choose the pool of test examples and the pool of the others ([]: what the test split leaves)."""
    pools = {name: list(examples) for name, examples in task.pools.items() if examples}
    if not pools:
        raise TaskError(f"{task.name} has no examples")
    if len(pools) == 1:
        return next(iter(pools.values())), []
    test = pools.pop(TEST, None)
    others = [example for pool in pools.values() for example in pool]
    if test is None:
        return others, []
    train = pools.get(TRAIN, [])
    return test, train if len(train) >= MIN_TRAINING_POOL else others


def _split_off_test(task: Task, pool: list[Example], rng: np.random.Generator) -> tuple[list[Example], list[Example]]:
    """Take test examples in the published number, in whole groups; return them and the rest."""
    has_test_split = TEST in task.pools and len(task.pools) > 1
    size = task.test_size or (len(pool) if has_test_split else round(TEST_SHARE * len(pool)))
    if size >= len(pool) and has_test_split:
        return pool, []
    groups = _group_inseparable_examples(pool)
    order = [groups[index] for index in rng.permutation(len(groups))]
    taken, rest = _take_whole_example_groups(order, size)
    # A question that is in the pool twice must be on one side.
    keys = {example.normalized_question for group in taken for example in group}
    return list(_flatten_groups(taken)), [
        example for group in rest for example in group if example.normalized_question not in keys
    ]


def _group_inseparable_examples(examples: Sequence[Example]) -> list[list[Example]]:
    """Group examples that must stay together: those of one group, others alone."""
    groups: dict[str, list[Example]] = {}
    for example in examples:
        groups.setdefault(example.group or example.id, []).append(example)
    return list(groups.values())


def _take_whole_example_groups(
    groups: list[list[Example]], size: int
) -> tuple[list[list[Example]], list[list[Example]]]:
    """Take whole groups of up to ``size`` examples, at least one group; return them and the rest."""
    ends = list(accumulate(map(len, groups)))
    taken = max(1, bisect_right(ends, size))
    return groups[:taken], groups[taken:]


def _flatten_groups(groups: list[list[Example]]) -> tuple[Example, ...]:
    return tuple(example for group in groups for example in group)
