import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macro_routing.errors import TaskError
from macro_routing.tasks import GRADERS, Example, PromptTemplates, Task, make_splits
from macro_routing.tasks.splits import count_repeated_questions


def _task(test_size=None, **pools):
    return Task("t", "number", GRADERS["number"], PromptTemplates(), test_size, pools)


def _examples(count, start=0, group=0):
    return tuple(
        Example(f"e{number}", f"question {number}", "1", group=f"g{number // group}" if group else "")
        for number in range(start, start + count)
    )


def sizes(splits):
    return len(splits.train), len(splits.validation), len(splits.test)


def test_questions_that_are_asked_again_are_counted():
    assert count_repeated_questions(_task(all=_examples(5))) == 0
    again = tuple(dataclasses.replace(one, id=f"again {one.id}") for one in _examples(3))
    assert count_repeated_questions(_task(train=_examples(5), test=again)) == 3


def test_a_large_train_split_is_used_alone():
    splits = make_splits(_task(train=_examples(300), validation=_examples(50, 300), test=_examples(40, 400)), seed=0)
    assert sizes(splits) == (273, 27, 40)


def test_a_small_train_split_is_pooled():
    splits = make_splits(_task(train=_examples(100), validation=_examples(230, 100), test=_examples(40, 400)), seed=0)
    assert sum(sizes(splits)) == 370


def test_a_single_pool_gives_two_fifths_to_the_test_split():
    assert sizes(make_splits(_task(all=_examples(250)), seed=0)) == (136, 14, 100)
    assert sizes(make_splits(_task(test=_examples(250)), seed=0)) == (136, 14, 100)


def test_the_requested_ratio_is_kept():
    assert sizes(make_splits(_task(30, all=_examples(150)), seed=0, training=60, validation=20)) == (60, 20, 30)
    assert sizes(make_splits(_task(30, all=_examples(70)), seed=0, training=60, validation=20)) == (30, 10, 30)


def test_questions_that_are_twice_in_a_pool_stay_on_one_side():
    doubled = tuple(Example(f"{copy}/{number}", f"Question, {number}!", "1") for copy in "ab" for number in range(60))
    splits = make_splits(_task(all=doubled), seed=3)
    keys = [
        {example.normalized_question for example in part} for part in (splits.train, splits.validation, splits.test)
    ]
    assert not keys[0] & keys[1]
    assert not keys[0] & keys[2]
    assert not keys[1] & keys[2]


@given(st.integers(30, 200), st.integers(1, 8), st.integers(0, 5))
def test_groups_stay_together(count, group, seed):
    splits = make_splits(_task(all=_examples(count, group=group)), seed=seed, training=20, validation=5)
    groups = [{example.group for example in part} for part in (splits.train, splits.validation, splits.test)]
    assert not groups[0] & groups[1]
    assert not groups[0] & groups[2]
    assert not groups[1] & groups[2]


def test_contents_and_order_make_the_fingerprint():
    first = make_splits(_task(all=_examples(50)), seed=0)
    changed = tuple(Example(e.id, e.question, "2") for e in _examples(50))
    assert make_splits(_task(all=changed), seed=0).fingerprints != first.fingerprints


@pytest.mark.parametrize("count", range(4, 12))
def test_small_files_still_give_every_split_something(count):
    assert min(sizes(make_splits(_task(all=_examples(count)), seed=0))) >= 1


def test_another_set_of_choices_is_not_another_question():
    def choice(number, name, choices):
        return Example(f"{name}/{number}", f"question {number}", "A", choices)

    pool = tuple(choice(n, name, (name, "other")) for name in "ab" for n in range(50))
    splits = make_splits(_task(all=pool), seed=0)
    parts = [{example.question for example in part} for part in (splits.train, splits.validation, splits.test)]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]


def test_too_little_data_is_said():
    with pytest.raises(TaskError, match="only 0 examples are left"):
        make_splits(_task(all=_examples(1)), seed=0)
    with pytest.raises(TaskError, match="has no examples"):
        make_splits(_task(), seed=0)


def test_named_splits_of_ones_own_stay_where_they_are():
    pools = {"train": _examples(300), "validation": _examples(50, 290), "test": _examples(40, 330)}
    task = dataclasses.replace(_task(**pools), keeps_validation=True)
    splits = make_splits(task, seed=0)
    assert set(splits.validation) == set(pools["validation"][:40])  # the last ten are test items
    assert set(splits.train) == set(pools["train"][:290])
    assert splits.test == pools["test"]
    assert sizes(make_splits(task, seed=0, training=20, validation=7)) == (20, 7, 40)
    with pytest.raises(TaskError, match="every validation item"):
        make_splits(dataclasses.replace(task, pools={**pools, "validation": pools["test"]}), seed=0)


def test_seeds_share_a_test_set_and_draw_the_rest():
    """A route of one seed meets no example of another seed's search."""
    task = _task(30, all=_examples(150))
    splits = [make_splits(task, seed=seed, training=60, validation=20, test_seed=7) for seed in (1, 2, 42)]
    assert len({run.fingerprints["test"] for run in splits}) == 1
    assert len({run.fingerprints["train"] for run in splits}) == 3
    test = {example.id for example in splits[0].test}
    assert not any(test & {example.id for example in (*run.train, *run.validation)} for run in splits)
    assert make_splits(task, seed=1, test_seed=8).fingerprints["test"] != splits[0].fingerprints["test"]
