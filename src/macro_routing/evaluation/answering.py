"""Three ways to let a model answer: two-stage generation, direct generation, likelihood over choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from macro_routing.engine.generation import generate, generate_in_two_stages
from macro_routing.engine.likelihood import ChoiceItem, choice_log_likelihoods
from macro_routing.errors import TaskError
from macro_routing.evaluation.outcome import ExampleOutcome
from macro_routing.models.chat import encode_messages
from macro_routing.models.frozen import FrozenModel
from macro_routing.settings import check_choice, check_integer, check_switch
from macro_routing.tasks.prompts import DIRECT, LIKELIHOOD, MODES, REASONING, completion, messages
from macro_routing.tasks.task import LETTERS, Example, Task


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

    def __post_init__(self) -> None:
        """Refuse impossible settings by name."""
        check_choice("mode", self.mode, MODES)
        check_integer("reasoning_budget", self.reasoning_budget, least=1)
        check_integer("answer_budget", self.answer_budget, least=1)
        check_switch("by_letter", self.by_letter)


def answer(
    frozen: FrozenModel, model: Any, task: Task, examples: Sequence[Example], decoding: Decoding
) -> list[ExampleOutcome]:
    """Let ``model`` (``frozen`` or a routed form of it) answer ``examples`` and grade what it says."""
    if decoding.mode == LIKELIHOOD:
        return _by_likelihood(frozen, model, task, examples, decoding)
    if decoding.mode == REASONING:
        return _in_two_stages(frozen, model, task, examples, decoding)
    return _directly(frozen, model, task, examples, decoding)


def _by_likelihood(
    frozen: FrozenModel, model: Any, task: Task, examples: Sequence[Example], decoding: Decoding
) -> list[ExampleOutcome]:
    items = _choice_items(frozen, task, examples, by_letter=decoding.by_letter)
    found = []
    for example, values in zip(examples, choice_log_likelihoods(model, items), strict=True):
        # Per byte of text, so that long choices are not at a disadvantage and tokenizers compare alike.
        sizes = [1 if decoding.by_letter else len(choice.encode()) for choice in example.choices]
        best = max(range(len(values)), key=lambda place: values[place] / sizes[place])
        found.append(ExampleOutcome(best == example.right_choice, LETTERS[best]))
    return found


def _choice_items(frozen: FrozenModel, task: Task, examples: Sequence[Example], *, by_letter: bool) -> list[ChoiceItem]:
    """Prompts and choices as tokens, by two calls of the tokenizer: one per text would take longer than the work."""
    if lacking := [example.id for example in examples if not example.choices]:
        raise TaskError(
            f"{task.name} has no choices ({lacking[0]}), so mode = likelihood cannot be used; use direct or reasoning"
        )
    prompts = [completion(task.prompts, one.question, one.choices, by_letter=by_letter) for one in examples]
    texts = [LETTERS[: len(one.choices)] if by_letter else one.choices for one in examples]
    asked = frozen.tokenizer(prompts)["input_ids"]
    told = iter(frozen.tokenizer([f" {text}" for row in texts for text in row], add_special_tokens=False)["input_ids"])
    return [
        ChoiceItem(tuple(prompt), tuple(tuple(next(told)) for _ in row))
        for prompt, row in zip(asked, texts, strict=True)
    ]


def _directly(
    frozen: FrozenModel, model: Any, task: Task, examples: Sequence[Example], decoding: Decoding
) -> list[ExampleOutcome]:
    prompts = [_prompt(frozen, task, DIRECT, example, thinking=False) for example in examples]
    found = []
    for example, written in zip(
        examples, generate(model, prompts, frozen.chat.end_token_ids, decoding.answer_budget), strict=True
    ):
        text = _text(frozen, written.tokens)
        verdict = task.grader(text, example.answer, example.choices)
        found.append(
            ExampleOutcome(
                verdict.correct,
                verdict.prediction,
                answer_tokens=len(written.tokens),
                answer_cut=written.cut_off,
                text=text,
            )
        )
    return found


def _in_two_stages(
    frozen: FrozenModel, model: Any, task: Task, examples: Sequence[Example], decoding: Decoding
) -> list[ExampleOutcome]:
    think = frozen.chat.think
    prompts = [_prompt(frozen, task, REASONING, example, thinking=True) for example in examples]
    cue = "" if think else task.prompts.cue
    bridge = f"{think.closing}\n\n" if think else f"\n\n{cue}"
    ends = set(frozen.chat.end_token_ids)
    closing = frozen.tokenizer.encode(think.closing, add_special_tokens=False) if think else []
    written = generate_in_two_stages(
        model,
        prompts,
        reasoning_ends=ends | (set(closing) if len(closing) == 1 else set()),
        reasoning_budget=decoding.reasoning_budget,
        bridge=tuple(frozen.tokenizer.encode(bridge, add_special_tokens=False)),
        answer_ends=ends,
        answer_budget=decoding.answer_budget,
    )
    return [_graded(frozen, task, example, cue, both) for example, both in zip(examples, written, strict=True)]


def _graded(frozen: FrozenModel, task: Task, example: Example, cue: str, both: Any) -> ExampleOutcome:
    text = _text(frozen, both.answer.tokens)
    # The graders know this cue; a task's own may be worded in any way, but means the same.
    verdict = task.grader(f"The answer is{text}" if cue else text, example.answer, example.choices)
    return ExampleOutcome(
        verdict.correct,
        verdict.prediction,
        reasoning_tokens=len(both.reasoning.tokens),
        answer_tokens=len(both.answer.tokens),
        reasoning_cut=both.reasoning.cut_off,
        answer_cut=both.answer.cut_off,
        reasoning=_text(frozen, both.reasoning.tokens),
        text=text,
    )


def _prompt(frozen: FrozenModel, task: Task, mode: str, example: Example, *, thinking: bool) -> tuple[int, ...]:
    asked = messages(task.prompts, mode, example.question, example.choices)
    return encode_messages(frozen.tokenizer, asked, thinking=thinking if frozen.chat.think else None)


def _text(frozen: FrozenModel, tokens: Sequence[int]) -> str:
    return str(frozen.tokenizer.decode(tokens, skip_special_tokens=True))
