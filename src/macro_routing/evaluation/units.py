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
_UNCUT = 0.3
"""Share of a race's examples on which hardly any route can be given up, unless the elite is very good."""
_ORDER = 20_240_501
"""Seed of the order in which a race visits its units; any fixed number does."""


@dataclass(frozen=True)
class UnitSizes:
    """Examples per unit, and what may be held while a unit runs."""

    race: int = 8
    """While routes race, on the first examples: hardly any route can be given up there."""
    fine: int = 2
    """On the later ones: small units stop a hopeless route where it becomes hopeless, large ones use a GPU better."""
    whole: int = 64
    """Where every route sees every example."""
    state_megabytes: int = 2048
    """Most memory for hidden states that are held for branches of the prefix tree still to come."""

    def __post_init__(self) -> None:
        """Refuse empty units."""
        check_integer("race (examples per unit)", self.race, minimum=1)
        check_integer("fine (examples per unit)", self.fine, minimum=1)
        check_integer("whole (examples per unit)", self.whole, minimum=1)
        check_integer("state_megabytes", self.state_megabytes, minimum=1)

    @classmethod
    def for_device(cls, device: str) -> UnitSizes:
        """What suits a kind of device.

        A GPU takes hardly longer for eighty examples than for eight, since it waits for the longest answer in any case;
        with units of 32 a round took longer raced than scored to the end.
        """
        return cls() if device == "cpu" else cls(race=80, fine=80, whole=1024)


def units_in_order(examples: Sequence[Example], size: int) -> list[Unit]:
    """Units as the examples come, so that a longer list begins with the units of a shorter one."""
    return [tuple(examples[start : start + size]) for start in range(0, len(examples), size)]


def units_for_race(examples: Sequence[Example], sizes: UnitSizes) -> list[Unit]:
    """Units of similar length (little padding), visited in mixed order (the first ones are no easier than others)."""
    order = sorted(range(len(examples)), key=lambda place: (_length(examples[place]), place))
    return [tuple(examples[order[place]] for place in part) for part in race_parts(len(order), sizes)]


def race_parts(count: int, sizes: UnitSizes) -> list[list[int]]:
    """Places 0 … count - 1 as units: neighbours together, larger units in mixed order, all but the first cut finely."""
    parts = np.array_split(np.arange(count), -(-count // sizes.race))
    mixed = [parts[place] for place in np.random.default_rng(_ORDER).permutation(len(parts))]
    uncut = int(_UNCUT * len(mixed))
    fine = [piece for part in mixed[uncut:] for piece in np.array_split(part, -(-len(part) // sizes.fine))]
    return [part.tolist() for part in (*mixed[:uncut], *fine)]


def _length(example: Example) -> int:
    return len(example.question) + sum(map(len, example.choices))
