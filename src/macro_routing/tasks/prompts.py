"""Prompts: system text, templates, few-shot examples; all can be changed, all are versioned."""

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
class PromptTemplates:
    """The prompt templates of a task, with the fields ``{question}`` and ``{choices}`` (one letter per line)."""

    system: str = ""
    """System text; if empty the chat template's default is used."""
    reasoning: str = "{question}\n\nThink step by step, then give the final answer."
    """The user's turn in the mode reasoning."""
    direct: str = "{question}\n\nGive only the final answer, without any explanation."
    """The user's turn in the mode direct."""
    cue: str = "The final answer is"
    """The text before the answer, after reasoning that was truncated or has no think block."""
    likelihood: str = "Question: {question}\nAnswer:"
    """Plain text before each choice in the mode likelihood, without the chat template."""
    letters: str = "Question: {question}\n{choices}\nAnswer:"
    """Plain text before the letter of a choice."""
    few_shot: tuple[tuple[str, str], ...] = ()
    """Few-shot examples, (question, answer), shown before the question."""

    def __post_init__(self) -> None:
        """Reject templates without the question or with unknown fields."""
        for name in ("system", "reasoning", "direct", "cue", "likelihood", "letters"):
            if not isinstance(getattr(self, name), str):
                raise SettingsError(f"the prompt {name!r} must be a string")
        for name in ("reasoning", "direct", "likelihood", "letters"):
            text = getattr(self, name)
            try:
                parsed = [part for part in Formatter().parse(text) if part[1] is not None]
                fields = {field for _, field, form, conversion in parsed if not form and not conversion}
            except ValueError as error:
                raise SettingsError(f"the prompt {name!r} is malformed: {error}") from None
            if "question" not in fields or len(fields) < len({part[1:] for part in parsed}) or fields - _FIELDS:
                raise SettingsError(
                    f"the prompt {name!r} must contain {{question}}, may contain {{choices}}, and no other field"
                )
        if not isinstance(self.few_shot, list | tuple) or any(
            not isinstance(pair, list | tuple) or len(pair) != 2 for pair in self.few_shot
        ):
            raise SettingsError("few_shot must be a list of [question, answer] pairs")
        shots = tuple((str(question), str(answer)) for question, answer in self.few_shot)
        object.__setattr__(self, "few_shot", shots)

    @property
    def texts_digest(self) -> str:
        """A digest of all texts; part of a score's key."""
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
"""Templates by kind of task; the others are the defaults above."""


def format_choices(choices: Sequence[str]) -> str:
    """Format choices one per line, with letters."""
    return "\n".join(f"{chr(ord('A') + index)}. {choice}" for index, choice in enumerate(choices))


def build_messages(texts: PromptTemplates, mode: str, question: str, choices: Sequence[str]) -> Messages:
    """Build the conversation up to the model's turn, for the modes reasoning and direct."""
    check_choice("mode", mode, (REASONING, DIRECT))
    template = texts.reasoning if mode == REASONING else texts.direct
    full_question = f"{question}\n\n{format_choices(choices)}" if choices and "{choices}" not in template else question
    turns = [{"role": "system", "content": texts.system}] if texts.system else []
    for example_question, answer in texts.few_shot:
        turns += [
            {"role": "user", "content": _fill_template(template, example_question, ())},
            {"role": "assistant", "content": answer},
        ]
    return (*turns, {"role": "user", "content": _fill_template(template, full_question, choices)})


def build_completion_prompt(texts: PromptTemplates, question: str, choices: Sequence[str], *, by_letter: bool) -> str:
    """Build the plain text before the choices or their letters, for the mode likelihood."""
    template = texts.letters if by_letter else texts.likelihood
    shots = [
        f"{_fill_template(template, example_question, ())} {answer}\n\n" for example_question, answer in texts.few_shot
    ]
    system = f"{texts.system}\n\n" if texts.system else ""
    return system + "".join(shots) + _fill_template(template, question, choices)


def _fill_template(template: str, question: str, choices: Sequence[str]) -> str:
    return template.format(question=question, choices=format_choices(choices))
