"""Examples and tasks."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from macro_routing.tasks.grading import Grader
from macro_routing.tasks.prompts import PromptTexts
from macro_routing.tasks.question_identity import normalize_question

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
NUMBER, CHOICE, MATH, TEXT = "number", "choice", "math", "text"


@dataclass(frozen=True)
class Example:
    """One question with its correct answer; with choices the answer is the letter of the correct choice."""

    id: str
    question: str
    answer: str
    choices: tuple[str, ...] = ()
    group: str = ""
    """Variants of one question share a group and are never in different splits."""

    @cached_property
    def key(self) -> str:
        """The normalized question, for comparison across splits; choices are ignored."""
        return normalize_question(self.question)

    @property
    def correct_choice(self) -> int:
        """Index of the correct choice."""
        return LETTERS.index(self.answer)


@dataclass(frozen=True)
class Task:
    """A named task: prompts, grader and pools of examples."""

    name: str
    kind: str
    """``number``, ``choice``, ``math`` or ``text``."""
    grader: Grader
    prompts: PromptTexts
    test_size: int | None = None
    """Number of test examples in the paper; None for all."""
    pools: dict[str, tuple[Example, ...]] = field(default_factory=dict, compare=False, repr=False)
    """Examples by the name of their original split."""
    keeps_validation: bool = False
    """Whether validation examples come from the pool of that name only."""


def fingerprint_examples(examples: Iterable[Example]) -> str:
    """Digest examples: contents and order."""
    digest = hashlib.sha256()
    for example in examples:
        content = [example.id, example.question, example.answer, list(example.choices), example.group]
        digest.update(json.dumps(content, ensure_ascii=False).encode())
    return digest.hexdigest()[:16]
