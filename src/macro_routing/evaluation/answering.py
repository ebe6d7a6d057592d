"""Three ways to let a model answer: two-stage generation, direct generation, likelihood over choices.

``answer`` runs one model plainly and is the oracle; ``answer_routes`` runs many routes of a model through the shared
engine. Both put the same questions and grade alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from macro_routing.engine.batching import Tokens
from macro_routing.engine.decoders import AUTO, get_fused_decoder
from macro_routing.engine.generation import DecodingStage, GenerationRequest, StageTexts, generate_stages
from macro_routing.engine.likelihood import ChoiceItem, score_choices
from macro_routing.engine.memory import max_cached_tokens
from macro_routing.engine.route_generation import generate_for_pairs, generate_for_routes
from macro_routing.engine.shared_likelihood import (
    STATE_BYTES,
    score_choices_for_pairs,
    score_choices_for_routes,
)
from macro_routing.errors import TaskError
from macro_routing.evaluation.decoding import Decoding
from macro_routing.evaluation.outcome import ExampleOutcome
from macro_routing.models.chat import encode_messages
from macro_routing.models.frozen import FrozenModel
from macro_routing.routes.route import Route
from macro_routing.tasks.prompts import DIRECT, LIKELIHOOD, REASONING, build_completion_prompt, build_messages
from macro_routing.tasks.task import LETTERS, Example, Task


def answer(
    frozen: FrozenModel, model: Any, task: Task, examples: Sequence[Example], decoding: Decoding
) -> list[ExampleOutcome]:
    """Let ``model`` (``frozen`` or a routed form of it) answer ``examples`` and grade what it says."""
    if decoding.mode == LIKELIHOOD:
        items = choice_items(frozen, task, examples, by_letter=decoding.by_letter)
        return judged(examples, score_choices(model, items), decoding)
    asked = _ask(frozen, task, examples, decoding)
    texts = generate_stages(model, asked.prompts, asked.stages)
    return [_graded(frozen, task, *row) for row in zip(examples, texts, strict=True)]


def answer_routes(  # noqa: PLR0913
    frozen: FrozenModel,
    routes: Sequence[Route],
    task: Task,
    examples: Sequence[Example],
    decoding: Decoding,
    *,
    state_bytes: int = STATE_BYTES,
    decoder: str = AUTO,
) -> dict[Route, list[ExampleOutcome]]:
    """What ``answer`` gives for every route of the model, worked out together; ``decoder`` says how texts are made."""
    if decoding.mode == LIKELIHOOD:
        items = choice_items(frozen, task, examples, by_letter=decoding.by_letter)
        scored = score_choices_for_routes(frozen.model, routes, items, state_bytes=state_bytes)
        return {route: judged(examples, values, decoding) for route, values in scored.items()}
    asked = _ask(frozen, task, examples, decoding)
    room = max_cached_tokens(frozen.model, max(route.length for route in routes))
    wanted = GenerationRequest(asked.stages, room, decoding.stop_loops)
    written = generate_for_routes(frozen.model, routes, asked.prompts, wanted, get_fused_decoder(frozen, decoder))
    return {
        route: [_graded(frozen, task, *row) for row in zip(examples, texts, strict=True)]
        for route, texts in written.items()
    }


def answer_pairs(
    frozen: FrozenModel,
    pairs: Sequence[tuple[Route, Example]],
    task: Task,
    decoding: Decoding,
    *,
    decoder: str = AUTO,
) -> list[ExampleOutcome]:
    """What each pair's route makes of its example, for searches and routers that give every example its own route."""
    examples = [example for _, example in pairs]
    if decoding.mode == LIKELIHOOD:
        items = choice_items(frozen, task, examples, by_letter=decoding.by_letter)
        asked_of = [(route, item) for (route, _), item in zip(pairs, items, strict=True)]
        values = score_choices_for_pairs(frozen.model, asked_of)
        return judged(examples, values, decoding)
    asked = _ask(frozen, task, examples, decoding)
    room = max_cached_tokens(frozen.model, max(route.length for route, _ in pairs))
    wanted = GenerationRequest(asked.stages, room, decoding.stop_loops)
    prompted = [(route, prompt) for (route, _), prompt in zip(pairs, asked.prompts, strict=True)]
    written = generate_for_pairs(frozen.model, prompted, wanted, get_fused_decoder(frozen, decoder))
    return [_graded(frozen, task, *row) for row in zip(examples, written, strict=True)]


# --- likelihood ---------------------------------------------------------------------------------------------------


def judged(
    examples: Sequence[Example], log_likelihoods: Sequence[Sequence[float]], decoding: Decoding
) -> list[ExampleOutcome]:
    """Outcomes from the log-likelihoods of every example's choices."""
    found = []
    for example, values in zip(examples, log_likelihoods, strict=True):
        if not all(map(math.isfinite, values)):  # a route whose numbers overflow has no opinion
            found.append(ExampleOutcome(correct=False, prediction=""))
            continue
        # Per byte of text, so that long choices are not at a disadvantage and tokenizers compare alike.
        sizes = [1 if decoding.by_letter else len(choice.encode()) for choice in example.choices]
        best = max(range(len(values)), key=lambda place: values[place] / sizes[place])
        found.append(ExampleOutcome(best == example.correct_choice, LETTERS[best]))
    return found


def choice_items(frozen: FrozenModel, task: Task, examples: Sequence[Example], *, by_letter: bool) -> list[ChoiceItem]:
    """Prompts and choices as tokens, by two calls of the tokenizer: one per text would take longer than the work.

    Choices come back in many questions, so each different text is read once.
    """
    if lacking := [example.id for example in examples if not example.choices]:
        raise TaskError(
            f"{task.name} has no choices ({lacking[0]}), so mode = likelihood cannot be used; use direct or reasoning"
        )
    prompts = [
        build_completion_prompt(task.prompts, one.question, one.choices, by_letter=by_letter) for one in examples
    ]
    texts = [LETTERS[: len(one.choices)] if by_letter else one.choices for one in examples]
    asked = frozen.tokenize_texts(prompts)
    different = list(dict.fromkeys(text for row in texts for text in row))
    read = frozen.tokenize_texts([f" {text}" for text in different], add_special_tokens=False)
    told = {text: tuple(tokens) for text, tokens in zip(different, read, strict=True)}
    return [
        ChoiceItem(tuple(prompt), tuple(told[text] for text in row)) for prompt, row in zip(asked, texts, strict=True)
    ]


# --- generation ---------------------------------------------------------------------------------------------------


def prompts_and_stages(
    frozen: FrozenModel, task: Task, examples: Sequence[Example], decoding: Decoding
) -> tuple[list[Tokens], tuple[DecodingStage, ...]]:
    """What a model is fed for ``examples``, and the stages in which it writes."""
    asked = _ask(frozen, task, examples, decoding)
    return asked.prompts, asked.stages


def prompts_of(frozen: FrozenModel, task: Task, examples: Sequence[Example], decoding: Decoding) -> list[Tokens]:
    """The prompts alone, in whatever way the model answers."""
    if decoding.mode == LIKELIHOOD:
        return [item.prompt for item in choice_items(frozen, task, examples, by_letter=decoding.by_letter)]
    return prompts_and_stages(frozen, task, examples, decoding)[0]


def mean_tokens_read(frozen: FrozenModel, task: Task, examples: Sequence[Example], decoding: Decoding) -> float:
    """Tokens that an example is read with: its prompt, and what is fed of its choices."""
    if decoding.mode == LIKELIHOOD:
        items = choice_items(frozen, task, examples, by_letter=decoding.by_letter)
        return sum(len(one.prompt) + sum(len(choice) - 1 for choice in one.choices) for one in items) / len(items)
    prompts = prompts_of(frozen, task, examples, decoding)
    return sum(map(len, prompts)) / len(prompts)


@dataclass(frozen=True)
class _Asked:
    prompts: list[Tokens]
    stages: tuple[DecodingStage, ...]


def _ask(frozen: FrozenModel, task: Task, examples: Sequence[Example], decoding: Decoding) -> _Asked:
    ends = set(frozen.chat.end_token_ids)
    last = DecodingStage(frozenset(ends), decoding.answer_budget)
    if decoding.mode == DIRECT:
        return _Asked([_prompt(frozen, task, DIRECT, example, thinking=False) for example in examples], (last,))
    think = frozen.chat.think
    closing = frozen.tokenizer.encode(think.closing, add_special_tokens=False) if think else []
    bridge = f"{think.closing}\n\n" if think else f"\n\n{task.prompts.cue}"
    first = DecodingStage(
        frozenset(ends | (set(closing) if len(closing) == 1 else set())),
        decoding.reasoning_budget,
        tuple(frozen.tokenizer.encode(bridge, add_special_tokens=False)),
    )
    return _Asked([_prompt(frozen, task, REASONING, example, thinking=True) for example in examples], (first, last))


def _graded(frozen: FrozenModel, task: Task, example: Example, texts: StageTexts) -> ExampleOutcome:
    *reasonings, last = texts
    text = _text(frozen, last.tokens)
    # The graders know this cue; a task's own may be worded in any way, but means the same.
    cued = bool(reasonings) and frozen.chat.think is None
    verdict = task.grader(f"The answer is{text}" if cued else text, example.answer, example.choices)
    return ExampleOutcome(
        verdict.correct,
        verdict.prediction,
        reasoning_tokens=sum(len(one.tokens) for one in reasonings),
        answer_tokens=len(last.tokens),
        reasoning_cut=any(one.truncated for one in reasonings),
        answer_cut=last.truncated,
        reasoning="".join(_text(frozen, one.tokens) for one in reasonings),
        text=text,
    )


def _prompt(frozen: FrozenModel, task: Task, mode: str, example: Example, *, thinking: bool) -> tuple[int, ...]:
    asked = build_messages(task.prompts, mode, example.question, example.choices)
    return encode_messages(frozen.tokenizer, asked, thinking=thinking if frozen.chat.think else None)


def _text(frozen: FrozenModel, tokens: Sequence[int]) -> str:
    return str(frozen.tokenizer.decode(tokens, skip_special_tokens=True))
