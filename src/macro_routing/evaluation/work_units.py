"""Work units: fixed groups of examples that are run together, and stored or run again as a whole.

Which examples share a batch can change a score in its last digits. So units are planned from the list of examples and
a size alone, never from the contents of a store or the free memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from macro_routing.settings import check_integer
from macro_routing.tasks.task import Example

WorkUnit = tuple[Example, ...]
_EARLY_SHARE = 0.3
"""Share of a race's examples on which hardly any route can be stopped, unless the elite is very good."""
_ORDER_SEED = 20_240_501
"""Seed of the order in which a race visits its units; any fixed number works."""


@dataclass(frozen=True)
class UnitSizes:
    """Examples per unit, and the memory that a unit may use for shared states."""

    race: int = 8
    """In a race, on the first examples: hardly any route can be stopped there."""
    race_late: int = 2
    """In a race, on the later examples: small units stop a losing route early, large ones use a GPU better."""
    full: int = 64
    """Where every route is scored on every example."""
    state_megabytes: int = 2048
    """Maximum memory for hidden states that are kept for other branches of the prefix tree."""

    def __post_init__(self) -> None:
        """Reject empty units."""
        check_integer("race (examples per unit)", self.race, minimum=1)
        check_integer("race_late (examples per unit)", self.race_late, minimum=1)
        check_integer("full (examples per unit)", self.full, minimum=1)
        check_integer("state_megabytes", self.state_megabytes, minimum=1)

    @classmethod
    def for_device(cls, device: str) -> "UnitSizes":
        """Sizes that suit a device type.

        A GPU takes hardly longer for eighty examples than for eight, since it waits for the longest answer in any case;
        with units of 32 a round took longer raced than fully scored.
        """
        return cls() if device == "cpu" else cls(race=80, race_late=80, full=1024)


def split_into_units(examples: Sequence[Example], size: int) -> list[WorkUnit]:
    """Units in the order of the examples, so that a longer list starts with the units of a shorter one."""
    return [tuple(examples[start : start + size]) for start in range(0, len(examples), size)]


def plan_race_units(examples: Sequence[Example], sizes: UnitSizes) -> list[WorkUnit]:
    """Units of examples of similar length (little padding), in shuffled order (the first are not easier)."""
    by_length = sorted(range(len(examples)), key=lambda index: (_text_length(examples[index]), index))
    return [tuple(examples[by_length[rank]] for rank in unit) for unit in plan_race_indices(len(by_length), sizes)]


def plan_race_indices(count: int, sizes: UnitSizes) -> list[list[int]]:
    """Indices 0 … count - 1 as units: neighbours together, units shuffled, all but the first ones split finely."""
    units = np.array_split(np.arange(count), -(-count // sizes.race))
    shuffled = [units[number] for number in np.random.default_rng(_ORDER_SEED).permutation(len(units))]
    early = int(_EARLY_SHARE * len(shuffled))
    late = [part for unit in shuffled[early:] for part in np.array_split(unit, -(-len(unit) // sizes.race_late))]
    return [unit.tolist() for unit in (*shuffled[:early], *late)]


def _text_length(example: Example) -> int:
    return len(example.question) + sum(map(len, example.choices))
