"""Tasks generated from a seed: no download, reproducible, no question twice."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from macro_routing.settings import check_integer
from macro_routing.tasks.task import CHOICE, LETTERS, NUMBER, Example

Rng = np.random.Generator


@dataclass(frozen=True)
class SyntheticTask:
    """A generator of questions."""

    name: str
    kind: str
    make_question: Callable[[Rng], tuple[str, str, tuple[str, ...]]]
    """Makes one question, its answer (with choices: the text of the correct choice) and its choices."""
    note: str
    prompts: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Prompts that differ from those of the task's kind."""
    training: int = 2000
    """Questions in the training pool."""
    test: int = 1000


def generate_pools(task: SyntheticTask, seed: int) -> dict[str, tuple[Example, ...]]:
    """Generate pools of distinct questions; another seed gives other questions."""
    check_integer("seed", seed, minimum=0, maximum=2**32 - 1)
    return dict(_generate_pools(task, seed))


@functools.lru_cache(maxsize=8)
def _generate_pools(task: SyntheticTask, seed: int) -> dict[str, tuple[Example, ...]]:
    """Remember the last ones: a study loads the same task for every search, and half a second is a tiny search."""
    rng = np.random.default_rng([seed, *task.name.encode()])
    pools: dict[str, tuple[Example, ...]] = {}
    seen: set[str] = set()
    for name, size in (("train", task.training), ("test", task.test)):
        examples: list[Example] = []
        while len(examples) < size:
            example = _make_example(task, rng, f"{task.name}/{seed}/{name}/{len(examples)}")
            if example.question not in seen:
                seen.add(example.question)
                examples.append(example)
        pools[name] = tuple(examples)
    return pools


def _make_example(task: SyntheticTask, rng: Rng, key: str) -> Example:
    question, correct, choices = task.make_question(rng)
    if not choices:
        return Example(key, question, correct)
    order = tuple(choices[index] for index in rng.permutation(len(choices)))
    return Example(key, question, LETTERS[order.index(correct)], order)


def _pick_words(rng: Rng, words: tuple[str, ...], size: int) -> list[str]:
    return [words[index] for index in rng.choice(len(words), size=size, replace=False)]


# --- counting and arithmetic --------------------------------------------------------------------------------------

_THINGS = {
    "fruits": ("apple", "banana", "orange", "peach", "pear", "plum", "grape", "lemon", "mango", "fig"),
    "animals": ("cat", "dog", "cow", "goat", "duck", "horse", "rabbit", "snail", "mouse", "pig"),
    "musical instruments": (
        "flute",
        "piano",
        "drum",
        "violin",
        "trumpet",
        "guitar",
        "harp",
        "cello",
        "clarinet",
        "tuba",
    ),
    "pieces of furniture": ("chair", "table", "bed", "couch", "lamp", "stove", "shelf", "desk", "bench", "stool"),
}
_COUNTS = ("a", "two", "three", "four", "five")


def _make_counting_question(rng: Rng) -> tuple[str, str, tuple[str, ...]]:
    asked, other = _pick_words(rng, tuple(_THINGS), 2)
    listed, total = [], 0
    for kind, limit in ((asked, 7), (other, 4)):
        for thing in _pick_words(rng, _THINGS[kind], int(rng.integers(2, limit))):
            count = int(rng.integers(1, len(_COUNTS) + 1)) if rng.random() < 0.4 else 1
            listed.append(_format_counted_noun(thing, count))
            total += count if kind == asked else 0
    order = [listed[index] for index in rng.permutation(len(listed))]
    return f"I have {', '.join(order[:-1])}, and {order[-1]}. How many {asked} do I have?", str(total), ()


def _format_counted_noun(thing: str, count: int) -> str:
    plural = {"mouse": "mice", "couch": "couches", "bench": "benches", "peach": "peaches", "shelf": "shelves"}
    if count == 1:
        return f"{'an' if thing[0] in 'aeiou' else 'a'} {thing}"
    return f"{_COUNTS[count - 1]} {plural.get(thing, thing + 's')}"


def _make_arithmetic_question(rng: Rng) -> tuple[str, str, tuple[str, ...]]:
    """Two brackets with three small numbers each, as in multi-step arithmetic benchmarks."""
    left, right = _make_sum_with_product_question(rng), _make_sum_with_product_question(rng)
    joined = str(rng.choice(["+", "-"]))
    value = left[1] + right[1] if joined == "+" else left[1] - right[1]
    return f"({left[0]}) {joined} ({right[0]}) =", str(value), ()


def _make_sum_with_product_question(rng: Rng) -> tuple[str, int]:
    first, second, third = (int(number) for number in rng.integers(1, 10, size=3))
    sign = str(rng.choice(["+", "-"]))
    product = second * third
    return f"{first} {sign} {second} * {third}", first + product if sign == "+" else first - product


# --- short likelihood tasks ---------------------------------------------------------------------------------------


def _make_sequence_question(rng: Rng) -> tuple[str, str, tuple[str, ...]]:
    """Three terms of an arithmetic sequence within 1 to 99: which is the fourth?"""
    while True:
        start, step = int(rng.integers(1, 100)), int(rng.choice([-1, 1]) * rng.integers(2, 21))
        if 1 <= start + 3 * step <= 99:
            break
    following = start + 3 * step
    others = [value for value in range(following - 9, following + 10) if value != following and 1 <= value <= 99]
    choices = (following, *(int(value) for value in rng.choice(others, size=3, replace=False)))
    return f"{start}, {start + step}, {start + 2 * step},", str(following), tuple(map(str, choices))


def _make_category_question(rng: Rng) -> tuple[str, str, tuple[str, ...]]:
    """Four things of four kinds: which one is of the given kind?"""
    kinds = _pick_words(rng, tuple(_THINGS), 4)
    things = [_pick_words(rng, _THINGS[kind], 1)[0] for kind in kinds]
    asked = int(rng.integers(4))
    kind = {"pieces of furniture": "piece of furniture"}.get(kinds[asked], kinds[asked].removesuffix("s"))
    return f"{', '.join(things)}. The {kind} is the", things[asked], tuple(things)


_PLAIN = {"likelihood": "{question}", "letters": "{question}\n{choices}\nAnswer:"}
SYNTHETIC_TASKS = {
    task.name: task
    for task in (
        SyntheticTask("counting", NUMBER, _make_counting_question, "how many of one kind in a list of things"),
        SyntheticTask("arithmetic", NUMBER, _make_arithmetic_question, "two brackets with a product each"),
        SyntheticTask(
            "sequence",
            CHOICE,
            _make_sequence_question,
            "the next number of an even sequence, four choices",
            _PLAIN,
            1200,
        ),
        SyntheticTask("category", CHOICE, _make_category_question, "which of four things is of a kind", _PLAIN),
    )
}
