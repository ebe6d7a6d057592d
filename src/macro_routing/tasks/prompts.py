"""How a question is put: system text, wording, few-shot examples; all the user's to change, all versioned."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from string import Formatter
from typing import Any

from macro_routing.errors import SettingsError
from macro_routing.settings import check_choice

REASONING, DIRECT, LIKELIHOOD = "reasoning", "direct", "likelihood"
MODES = (REASONING, DIRECT, LIKELIHOOD)
Messages = tuple[Mapping[str, str], ...]
_FIELDS = {"question", "choices"}


@dataclass(frozen=True)
class PromptTexts:
    """The texts of a task's prompts. ``{question}`` and ``{choices}`` (lettered, one per line) are filled in."""

    system: str = ""
    """System text; empty leaves the chat template's own."""
    reasoning: str = "{question}\n\nThink step by step, then give the final answer."
    """The user's turn when the model may reason first."""
    direct: str = "{question}\n\nGive only the final answer, without any explanation."
    """The user's turn when the model answers at once."""
    cue: str = "The final answer is"
    """What the answer continues after a reasoning that was closed for the model, or came without a think block."""
    likelihood: str = "Question: {question}\nAnswer:"
    """Plain text that each choice continues, without the chat template."""
    letters: str = "Question: {question}\n{choices}\nAnswer:"
    """Plain text that a choice's letter continues."""
    few_shot: tuple[tuple[str, str], ...] = ()
    """Worked examples, (question as it is put, answer), shown before the question."""

    def __post_init__(self) -> None:
        """Refuse wordings that leave out the question or name an unknown field."""
        for name in ("system", "reasoning", "direct", "cue", "likelihood", "letters"):
            if not isinstance(getattr(self, name), str):
                raise SettingsError(f"the prompt {name!r} must be a text")
        for name in ("reasoning", "direct", "likelihood", "letters"):
            text = getattr(self, name)
            try:
                parsed = [part for part in Formatter().parse(text) if part[1] is not None]
                fields = {field for _, field, form, conversion in parsed if not form and not conversion}
            except ValueError as error:
                raise SettingsError(f"the prompt {name!r} is malformed: {error}") from None
            if "question" not in fields or len(fields) < len({part[1:] for part in parsed}) or fields - _FIELDS:
                raise SettingsError(
                    f"the prompt {name!r} must hold {{question}}, may hold {{choices}}, and nothing else"
                )
        shots = tuple((str(question), str(answer)) for question, answer in _check_few_shot(self.few_shot))
        object.__setattr__(self, "few_shot", shots)

    @property
    def version(self) -> str:
        """Changes with every text; part of a score's key."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


DEFAULT_TEXTS: dict[str, dict[str, Any]] = {
    "choice": {
        "reasoning": "{question}\n\nThink step by step, then give the letter of the right choice.",
        "direct": "{question}\n\nAnswer with the letter of the right choice only.",
        "cue": "The letter of the right choice is",
    },
    "number": {
        "reasoning": "{question}\n\nThink step by step, then give the final answer as a number.",
        "direct": "{question}\n\nGive only the final answer as a number, without any explanation.",
        "cue": "The final answer is",
    },
    "math": {
        "reasoning": "{question}\n\nThink step by step, then give the final answer in \\boxed{{}}.",
        "direct": "{question}\n\nGive only the final answer in \\boxed{{}}, without any explanation.",
        "cue": "The final answer is",
    },
    "text": {},
}
"""What differs from the texts above by kind of task."""


def _check_few_shot(few_shot: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    if not isinstance(few_shot, list | tuple) or any(
        not isinstance(pair, list | tuple) or len(pair) != 2 for pair in few_shot
    ):
        raise SettingsError("few_shot must be a list of [question, answer] pairs")
    return few_shot


def format_choices(choices: Sequence[str]) -> str:
    """Choices one per line, with their letters."""
    return "\n".join(f"{chr(ord('A') + place)}. {choice}" for place, choice in enumerate(choices))


def build_messages(texts: PromptTexts, mode: str, question: str, choices: Sequence[str]) -> Messages:
    """The conversation up to the model's turn, for the generating modes."""
    check_choice("mode", mode, (REASONING, DIRECT))
    wording = texts.reasoning if mode == REASONING else texts.direct
    asked = f"{question}\n\n{format_choices(choices)}" if choices and "{choices}" not in wording else question
    turns = [{"role": "system", "content": texts.system}] if texts.system else []
    for shown, answer in texts.few_shot:
        turns += [
            {"role": "user", "content": _fill_template(wording, shown, ())},
            {"role": "assistant", "content": answer},
        ]
    return (*turns, {"role": "user", "content": _fill_template(wording, asked, choices)})


def build_completion_prompt(texts: PromptTexts, question: str, choices: Sequence[str], *, by_letter: bool) -> str:
    """The plain text that choices (or their letters) continue, for the likelihood mode."""
    wording = texts.letters if by_letter else texts.likelihood
    shots = [f"{_fill_template(wording, shown, ())} {answer}\n\n" for shown, answer in texts.few_shot]
    system = f"{texts.system}\n\n" if texts.system else ""
    return system + "".join(shots) + _fill_template(wording, question, choices)


def _fill_template(wording: str, question: str, choices: Sequence[str]) -> str:
    return wording.format(question=question, choices=format_choices(choices))
