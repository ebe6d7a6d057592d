"""Tasks made by a seed: nothing to download, exactly repeatable, splits disjoint because no question is made twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from macro_routing.tasks.task import CHOICE, LETTERS, NUMBER, Example

Rng = np.random.Generator
POOL_SIZES = {"train": 2000, "test": 1000}


@dataclass(frozen=True)
class Synthetic:
    """A generator of questions."""

    name: str
    kind: str
    make: Callable[[Rng], tuple[str, str, tuple[str, ...]]]
    """One question, its answer (for choices: the right choice itself) and its choices."""
    note: str
    prompts: dict[str, Any]


def generate(task: Synthetic, seed: int, sizes: dict[str, int] | None = None) -> dict[str, tuple[Example, ...]]:
    """Pools of distinct questions; another seed gives other questions."""
    rng = np.random.default_rng([seed, *task.name.encode()])
    pools: dict[str, tuple[Example, ...]] = {}
    seen: set[str] = set()
    for name, size in (sizes or POOL_SIZES).items():
        made: list[Example] = []
        while len(made) < size:
            example = _example(task, rng, f"{task.name}/{seed}/{name}/{len(made)}")
            if example.question not in seen:
                seen.add(example.question)
                made.append(example)
        pools[name] = tuple(made)
    return pools


def _example(task: Synthetic, rng: Rng, key: str) -> Example:
    question, right, choices = task.make(rng)
    if not choices:
        return Example(key, question, right)
    order = tuple(choices[place] for place in rng.permutation(len(choices)))
    return Example(key, question, LETTERS[order.index(right)], order)


def _pick(rng: Rng, words: tuple[str, ...], size: int) -> list[str]:
    return [words[place] for place in rng.choice(len(words), size=size, replace=False)]


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


def _object_counting(rng: Rng) -> tuple[str, str, tuple[str, ...]]:
    asked, other = _pick(rng, tuple(_THINGS), 2)
    listed, total = [], 0
    for kind, most in ((asked, 7), (other, 4)):
        for thing in _pick(rng, _THINGS[kind], int(rng.integers(2, most))):
            count = int(rng.integers(1, len(_COUNTS) + 1)) if rng.random() < 0.4 else 1
            listed.append(_counted(thing, count))
            total += count if kind == asked else 0
    order = [listed[place] for place in rng.permutation(len(listed))]
    return f"I have {', '.join(order[:-1])}, and {order[-1]}. How many {asked} do I have?", str(total), ()


def _counted(thing: str, count: int) -> str:
    plural = {"mouse": "mice", "couch": "couches", "bench": "benches", "peach": "peaches", "shelf": "shelves"}
    if count == 1:
        return f"{'an' if thing[0] in 'aeiou' else 'a'} {thing}"
    return f"{_COUNTS[count - 1]} {plural.get(thing, thing + 's')}"


def _arithmetic(rng: Rng) -> tuple[str, str, tuple[str, ...]]:
    """Two brackets of three small numbers each, as in multi-step arithmetic benchmarks."""
    left, right = _bracket(rng), _bracket(rng)
    joined = str(rng.choice(["+", "-"]))
    value = left[1] + right[1] if joined == "+" else left[1] - right[1]
    return f"({left[0]}) {joined} ({right[0]}) =", str(value), ()


def _bracket(rng: Rng) -> tuple[str, int]:
    first, second, third = (int(number) for number in rng.integers(1, 10, size=3))
    sign = str(rng.choice(["+", "-"]))
    product = second * third
    return f"{first} {sign} {second} * {third}", first + product if sign == "+" else first - product


# --- short likelihood tasks ---------------------------------------------------------------------------------------


def _near(rng: Rng, value: int, spread: int) -> tuple[str, ...]:
    """Four different numbers around a value, the value among them."""
    steps = rng.choice(
        [step for step in range(-spread, spread + 1) if step != 0 and value + step >= 0], 3, replace=False
    )
    return (str(value), *(str(value + int(step)) for step in steps))


def _addition(rng: Rng) -> tuple[str, str, tuple[str, ...]]:
    first, second = (int(number) for number in rng.integers(10, 100, size=2))
    return f"{first} + {second} =", str(first + second), _near(rng, first + second, 12)


def _subtraction(rng: Rng) -> tuple[str, str, tuple[str, ...]]:
    second, first = sorted(int(number) for number in rng.integers(10, 100, size=2))
    return f"{first} - {second} =", str(first - second), _near(rng, first - second, 12)


def _sequence(rng: Rng) -> tuple[str, str, tuple[str, ...]]:
    start, step = int(rng.integers(1, 200)), int(rng.integers(2, 40))
    shown = [start + step * place for place in range(4)]
    following = start + 4 * step
    return ", ".join(map(str, shown)) + ",", str(following), _near(rng, following, 8)


def _larger(rng: Rng) -> tuple[str, str, tuple[str, ...]]:
    pair = [int(number) for number in rng.choice(np.arange(100, 1000), size=2, replace=False)]
    return f"The larger of {pair[0]} and {pair[1]} is", str(max(pair)), (str(pair[0]), str(pair[1]))


_COLOURS = ("red", "blue", "green", "black", "white", "yellow", "brown", "pink")
_OWNED = ("cup", "hat", "car", "book", "ball", "coat", "bag", "pen", "box", "chair")
_PEOPLE = ("Ann", "Bob", "Carl", "Dora", "Eve", "Finn", "Gina", "Hugo", "Ida", "Jack")


def _recall(rng: Rng) -> tuple[str, str, tuple[str, ...]]:
    """Whose is it: two owners, two colours, one question."""
    people, colours = _pick(rng, _PEOPLE, 2), _pick(rng, _COLOURS, 2)
    thing = _pick(rng, _OWNED, 1)[0]
    asked = int(rng.integers(2))
    text = f"{people[0]}'s {thing} is {colours[0]}. {people[1]}'s {thing} is {colours[1]}. {people[asked]}'s {thing} is"
    return text, colours[asked], tuple(colours)


def _reversed_order(rng: Rng) -> tuple[str, str, tuple[str, ...]]:
    words = _pick(rng, _COLOURS + _OWNED, 3)
    return (
        f"{' '.join(words)} reversed is",
        " ".join(reversed(words)),
        tuple(" ".join(words[place] for place in order) for order in ((2, 1, 0), (0, 1, 2), (1, 2, 0), (2, 0, 1))),
    )


_PLAIN = {"likelihood": "{question}", "letters": "{question}\n{choices}\nAnswer:"}
SYNTHETIC = {
    task.name: task
    for task in (
        Synthetic("counting", NUMBER, _object_counting, "how many of one kind in a list of things", {}),
        Synthetic("arithmetic", NUMBER, _arithmetic, "two brackets with a product each", {}),
        Synthetic("addition", CHOICE, _addition, "two-digit sums, four near choices", _PLAIN),
        Synthetic("subtraction", CHOICE, _subtraction, "two-digit differences, four near choices", _PLAIN),
        Synthetic("sequence", CHOICE, _sequence, "the next number of an even sequence", _PLAIN),
        Synthetic("larger", CHOICE, _larger, "the larger of two numbers", _PLAIN),
        Synthetic("recall", CHOICE, _recall, "which colour was whose", _PLAIN),
        Synthetic("reversal", CHOICE, _reversed_order, "three words backwards", _PLAIN),
    )
}
