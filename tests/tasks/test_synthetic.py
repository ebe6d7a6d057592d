import pytest

from macro_routing.tasks import SYNTHETIC_TASKS, load_task, make_splits, synthetic


@pytest.mark.parametrize("name", SYNTHETIC_TASKS)
def test_made_by_the_seed_and_disjoint(name):
    task = load_task(name, seed=5)
    synthetic._generate_pools.cache_clear()
    assert task.pools == load_task(name, seed=5).pools
    assert task.pools["test"] != load_task(name, seed=6).pools["test"]
    questions = [example.question for pool in task.pools.values() for example in pool]
    assert len(set(questions)) == len(questions)
    splits = make_splits(task, seed=0)
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (1000, 100, 1000)


def test_answers_are_right():
    for example in load_task("arithmetic").pools["test"][:200]:
        left, sign, right = example.question.removesuffix(" =").replace("(", "").partition(") ")
        del sign
        operator, right = right[0], right[2:].removesuffix(")")
        value = _value(left) + _value(right) if operator == "+" else _value(left) - _value(right)
        assert example.answer == str(value)
    for example in load_task("sequence").pools["test"][:200]:
        first, second, third = (int(word) for word in example.question.strip(",").split(", "))
        assert example.choices[example.correct_choice] == str(third + third - second)
        assert second - first == third - second
    for example in load_task("counting").pools["test"][:200]:
        assert 2 <= int(example.answer) <= 30


def _value(text):
    first, sign, second, _, third = text.split()
    product = int(second) * int(third)
    return int(first) + product if sign == "+" else int(first) - product


@pytest.mark.parametrize("name", ["sequence", "category"])
def test_right_choices_are_everywhere_and_choices_differ(name):
    examples = load_task(name).pools["test"]
    assert all(len(set(example.choices)) == 4 for example in examples)
    places = [example.correct_choice for example in examples]
    assert all(200 <= places.count(place) <= 300 for place in range(4))
