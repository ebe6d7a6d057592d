"""How answers are obtained: settings that can be read and checked without a model."""

from dataclasses import dataclass
from typing import Annotated

from macro_routing.settings import AllowedRange, CheckedSettings, check_choice
from macro_routing.tasks.prompts import DIRECT, LIKELIHOOD, MODES, REASONING
from macro_routing.tasks.task import CHOICE, Task


@dataclass(frozen=True)
class DecodingSettings(CheckedSettings):
    """How answers are obtained; part of a score's key."""

    mode: str = DIRECT
    """``reasoning`` (two stages), ``direct`` or ``likelihood``."""
    reasoning_budget: Annotated[int, AllowedRange(1)] = 400
    """Maximum reasoning tokens."""
    answer_budget: Annotated[int, AllowedRange(1)] = 128
    """Maximum answer tokens."""
    by_letter: bool = False
    """Likelihood: compare the choices' letters instead of their texts."""
    stop_loops: bool = False
    """Generation: extend a text that has entered an exact loop to its budget without running the model."""

    def __post_init__(self) -> None:
        """Reject impossible settings by name."""
        check_choice("mode", self.mode, MODES)
        super().__post_init__()

    @property
    def max_new_tokens(self) -> int:
        """Maximum tokens generated per example; 0 when choices are compared by likelihood."""
        return {REASONING: self.reasoning_budget + self.answer_budget, DIRECT: self.answer_budget}.get(self.mode, 0)


def default_answer_mode(task: Task) -> str:
    """How a task is answered by default: choices are compared by likelihood, other answers are generated."""
    return LIKELIHOOD if task.kind == CHOICE else DIRECT
