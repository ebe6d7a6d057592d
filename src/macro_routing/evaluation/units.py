"""Work units: fixed groups of examples that are run together, and stored whole or redone whole.

Which examples share a batch can change a score in its last digits. Units are therefore planned from the list of
examples and a size alone, never from what a store happens to hold or how much memory is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from macro_routing.settings import check_integer
from macro_routing.tasks.task import Example

Unit = tuple[Example, ...]
_ORDER = 20_240_501
"""Seed of the order in which a race visits its units; any fixed number does."""


@dataclass(frozen=True)
class UnitSizes:
    """Examples per unit."""

    race: int = 4
    """While routes race: small units stop a hopeless route early, large ones use a GPU better."""
    whole: int = 64
    """Where every route sees every example."""

    def __post_init__(self) -> None:
        """Refuse empty units."""
        check_integer("race (examples per unit)", self.race, least=1)
        check_integer("whole (examples per unit)", self.whole, least=1)

    @classmethod
    def for_device(cls, device: str) -> UnitSizes:
        """What suits a kind of device: a GPU takes as long for four examples as for thirty."""
        return cls() if device == "cpu" else cls(race=32, whole=256)


def units_in_order(examples: Sequence[Example], size: int) -> list[Unit]:
    """Units as the examples come, so that a longer list begins with the units of a shorter one."""
    return [tuple(examples[start : start + size]) for start in range(0, len(examples), size)]


def units_for_race(examples: Sequence[Example], size: int) -> list[Unit]:
    """Units of similar length (little padding), visited in mixed order (the first ones are no easier than others)."""
    order = sorted(range(len(examples)), key=lambda place: (_length(examples[place]), place))
    parts = np.array_split(order, -(-len(order) // size))
    mixed = np.random.default_rng(_ORDER).permutation(len(parts))
    return [tuple(examples[place] for place in parts[part]) for part in mixed]


def _length(example: Example) -> int:
    return len(example.question) + sum(map(len, example.choices))
