"""How routes are scored on examples: in units of which sizes, and which routes are stopped early."""

from dataclasses import dataclass
from typing import Annotated

from macro_routing.settings import AllowedRange, CheckedSettings

NEVER, EXACT, STATISTICAL = "never", "exact", "statistical"
RACING_MODES = (EXACT, STATISTICAL, NEVER)
"""Modes of racing, as ``racing`` explains them."""
_UNIT_SIZE = AllowedRange(1, symbol="examples per unit")


@dataclass(frozen=True)
class UnitSizes(CheckedSettings):
    """Examples per unit, and the memory that a unit may use for shared states."""

    race: Annotated[int, _UNIT_SIZE] = 8
    """In a race, on the first examples: hardly any route can be stopped there."""
    race_late: Annotated[int, _UNIT_SIZE] = 2
    """In a race, on the later examples: small units stop a losing route early, large ones use a GPU better."""
    full: Annotated[int, _UNIT_SIZE] = 64
    """Where every route is scored on every example."""
    state_megabytes: Annotated[int, AllowedRange(1)] = 2048
    """Maximum memory for hidden states that are kept for other branches of the prefix tree."""

    @classmethod
    def for_device(cls, device: str) -> "UnitSizes":
        """Sizes that suit a device type.

        A GPU takes hardly longer for eighty examples than for eight, since it waits for the longest answer in any case;
        with units of 32 a round took longer raced than fully scored.
        """
        return cls() if device == "cpu" else cls(race=80, race_late=80, full=1024)
