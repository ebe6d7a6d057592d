"""Examples and tasks."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from macro_routing.tasks.grading import Grader
    from macro_routing.tasks.prompts import PromptTemplates

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
NUMBER, CHOICE, MATH, TEXT = "number", "choice", "math", "text"


@dataclass(frozen=True)
class Example:
    """One question with its correct answer; with choices the answer is the letter of the correct choice."""

    id: str
    """Name of the example within its task."""
    question: str
    """The question."""
    answer: str
    """The correct answer."""
    choices: tuple[str, ...] = ()
    """The choices, if any."""
    group: str = ""
    """Variants of one question share a group and are never in different splits."""

    @cached_property
    def normalized_question(self) -> str:
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
    prompts: PromptTemplates
    test_size: int | None = None
    """Number of test examples in the paper; None for all."""
    pools: dict[str, tuple[Example, ...]] = field(default_factory=dict, compare=False, repr=False)
    """Examples by the name of their original split."""
    keeps_validation: bool = False
    """Whether validation examples come from the pool of that name only."""
    repeated_rows: int = 0
    """Rows of the user's files that were left out because they repeat another row."""


def number_groups(examples: Iterable[Example]) -> tuple[int, ...] | None:
    """The number of each example's group, an example without one alone; None where no example has a group."""
    examples = list(examples)
    if not any(example.group for example in examples):
        return None
    numbers: dict[tuple[str, str], int] = {}
    keys = [(example.group, "" if example.group else example.id) for example in examples]
    return tuple(numbers.setdefault(key, len(numbers)) for key in keys)


def fingerprint_examples(examples: Iterable[Example]) -> str:
    """Digest examples: contents and order."""
    digest = hashlib.sha256()
    for example in examples:
        content = [example.id, example.question, example.answer, list(example.choices), example.group]
        digest.update(json.dumps(content, ensure_ascii=False).encode())
    return digest.hexdigest()[:16]


# --- identity of questions ----------------------------------------------------------------------------------------
# Splits must not share a question. Case, spaces and punctuation do not matter, calculations do. So the ends of numbers
# stay, and signs between numbers or single letters: "36 - 32" differs from "36 + 32", and "1 + 13" from "11 + 3", but
# "half-time" equals "half time".

_TOKENS = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+|[-+*/^=<>%×÷−·√]")


def normalize_question(text: str) -> str:
    """Normalize a question for comparison; in a text without letters all signs stay."""
    folded = text.casefold()
    if not re.search(r"[a-z]", folded):
        return re.sub(r"\s+", "", re.sub(r"(?<=\d)\s+(?=\d)", "_", folded))
    tokens = list(_TOKENS.finditer(folded))
    parts: list[str] = []
    for index, token in enumerate(tokens):
        before = tokens[index - 1].group() if index else ""
        if _is_number(token.group()):
            parts.append(("_" if _is_number(before) else "") + token.group().replace(",", ""))
        elif token.group().isalpha() or _is_arithmetic_sign(token, before, tokens[index + 1 : index + 2]):
            parts.append(token.group())
    return "".join(parts)


def _is_arithmetic_sign(sign: re.Match[str], before: str, after: Sequence[re.Match[str]]) -> bool:
    """Whether a sign belongs to a calculation and does not join words."""
    if sign.group() == "%":
        return _is_number(before)
    if not after:
        return False
    operand = after[0]
    touches = operand.start() == sign.end() and not sign.string[: sign.start()][-1:].isalnum()
    is_negative = sign.group() in "-−" and touches and _is_number(operand.group())
    return sign.group() == "√" or is_negative or (_is_operand(before) and _is_operand(operand.group()))


def _is_number(token: str) -> bool:
    return token[:1].isdigit()


def _is_operand(token: str) -> bool:
    return _is_number(token) or (len(token) == 1 and token.isalpha())
