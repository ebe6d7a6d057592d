"""What is asked: examples, and the task they belong to."""

from __future__ import annotations

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
    """One question with its right answer; for choices the answer is the right choice's letter."""

    id: str
    question: str
    answer: str
    choices: tuple[str, ...] = ()
    group: str = ""
    """Siblings (variants of one question) share a group and never end up in different splits."""

    @cached_property
    def key(self) -> str:
        """The question as it is compared across splits; other choices do not make it another question."""
        return normalize_question(self.question)

    @property
    def correct_choice(self) -> int:
        """Place of the right choice."""
        return LETTERS.index(self.answer)


@dataclass(frozen=True)
class Task:
    """A name, a way to ask and a way to judge; its data comes as pools of examples."""

    name: str
    kind: str
    """``number``, ``choice``, ``math`` or ``text``."""
    grader: Grader
    prompts: PromptTexts
    test_size: int | None = None
    """How many test items the paper uses; None for all there are."""
    pools: dict[str, tuple[Example, ...]] = field(default_factory=dict, compare=False, repr=False)
    """Examples by the name of the split they came in."""
    keeps_validation: bool = False
    """Whether validation items come from the pool of that name and nowhere else, as a user who names one expects."""


def fingerprint_examples(examples: Iterable[Example]) -> str:
    """A digest of examples in order, contents included."""
    digest = hashlib.sha256()
    for example in examples:
        content = [example.id, example.question, example.answer, list(example.choices), example.group]
        digest.update(json.dumps(content, ensure_ascii=False).encode())
    return digest.hexdigest()[:16]
