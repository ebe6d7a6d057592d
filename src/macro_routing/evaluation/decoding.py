"""How answers are obtained: settings, for whoever reads or checks them without a model."""

from __future__ import annotations

from dataclasses import dataclass

from macro_routing.settings import check_boolean, check_choice, check_integer
from macro_routing.tasks.prompts import DIRECT, LIKELIHOOD, MODES, REASONING
from macro_routing.tasks.task import CHOICE, Task


@dataclass(frozen=True)
class Decoding:
    """How answers are obtained; part of a score's key."""

    mode: str = DIRECT
    """``reasoning`` (two stages), ``direct`` or ``likelihood``."""
    reasoning_budget: int = 400
    """Most tokens of reasoning."""
    answer_budget: int = 128
    """Most tokens of the answer."""
    by_letter: bool = False
    """Likelihood: compare the choices' letters instead of their texts."""
    stop_loops: bool = False
    """Generation: carry a text that has entered an exact loop on to its budget without asking the model."""

    def __post_init__(self) -> None:
        """Refuse impossible settings by name."""
        check_choice("mode", self.mode, MODES)
        check_integer("reasoning_budget", self.reasoning_budget, minimum=1)
        check_integer("answer_budget", self.answer_budget, minimum=1)
        check_boolean("by_letter", self.by_letter)
        check_boolean("stop_loops", self.stop_loops)

    @property
    def most_tokens(self) -> int:
        """Tokens that may be written for an example; none where choices are compared."""
        budgets = {REASONING: self.reasoning_budget + self.answer_budget, DIRECT: self.answer_budget}
        return budgets.get(self.mode, 0)


def automatic_mode(task: Task) -> str:
    """How a task is answered when nobody says: choices are compared by likelihood, the rest is written."""
    return LIKELIHOOD if task.kind == CHOICE else DIRECT
