"""Three ways to let a model answer: two-stage generation, direct generation, likelihood over choices.

``answer_examples`` runs one model plainly and is the oracle; ``answer_with_every_route`` runs many routes of a model
through the shared engine. Both use the same prompts and graders.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from macro_routing.engine.batching import Tokens
from macro_routing.engine.decoders import AUTO, get_fused_decoder
from macro_routing.engine.generation import DecodingStage, GenerationRequest, StageTexts, generate_reasoning_then_answer
from macro_routing.engine.likelihood import (
    MAX_STATE_BYTES,
    ChoiceItem,
    score_choices,
    score_choices_for_pairs,
    score_choices_for_routes,
)
from macro_routing.engine.memory import max_cached_tokens
from macro_routing.engine.route_generation import generate_for_pairs, generate_for_routes
from macro_routing.errors import TaskError
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.outcomes import ExampleOutcome
from macro_routing.models.chat import encode_messages
from macro_routing.models.frozen import FrozenModel
from macro_routing.routes.mixture import Mixture, RouteOrMixture, Source, require_single_route, to_mixture
from macro_routing.routes.route import Route
from macro_routing.tasks.prompts import DIRECT, LIKELIHOOD, REASONING, build_completion_prompt, build_messages
from macro_routing.tasks.task import LETTERS, Example, Task


def answer_examples(
    frozen: FrozenModel, model: Any, task: Task, examples: Sequence[Example], decoding: DecodingSettings
) -> list[ExampleOutcome]:
    """Let ``model`` (``frozen`` or a routed form of it) answer ``examples``, and grade its answers.

    By likelihood no model of a mixture: its weighted sums are not log-probabilities of a distribution.
    """
    if decoding.mode == LIKELIHOOD:
        require_single_route(getattr(model, "macro_route", None) or Route.standard(frozen.layers), "this function")
        items = build_choice_items(frozen, task, examples, by_letter=decoding.by_letter)
        return grade_choice_likelihoods(examples, score_choices(model, items), decoding)
    prompts, stages = encode_prompts_and_generation_stages(frozen, task, examples, decoding)
    return grade_texts(frozen, task, examples, generate_reasoning_then_answer(model, prompts, stages))


def answer_with_every_route(  # noqa: PLR0913
    frozen: FrozenModel,
    routes: Sequence[RouteOrMixture],
    task: Task,
    examples: Sequence[Example],
    decoding: DecodingSettings,
    *,
    hidden_state_bytes: int = MAX_STATE_BYTES,
    decoder: str = AUTO,
) -> dict[RouteOrMixture, list[ExampleOutcome]]:
    """Let every route or mixture answer ``examples``, all together; ``decoder`` says how text is generated."""
    if decoding.mode == LIKELIHOOD:
        sources = list(dict.fromkeys(member.source for route in routes for member in to_mixture(route).members))
        scored: dict[Source, list[list[float]]] = {}
        for with_question in (True, False):
            if members := [route for route, reads in sources if reads == with_question]:
                items = build_choice_items(
                    frozen, task, examples, by_letter=decoding.by_letter, with_question=with_question
                )
                by_route = score_choices_for_routes(frozen.model, members, items, hidden_state_bytes=hidden_state_bytes)
                scored |= {(route, with_question): values for route, values in by_route.items()}
        return {
            route: grade_choice_likelihoods(examples, combine_choice_scores(to_mixture(route), scored), decoding)
            for route in routes
        }
    prompts, stages = encode_prompts_and_generation_stages(frozen, task, examples, decoding)
    request = _make_generation_request(frozen, routes, stages, decoding)
    generated = generate_for_routes(frozen.model, routes, prompts, request, get_fused_decoder(frozen, decoder))
    return {route: grade_texts(frozen, task, examples, generated[route]) for route in routes}


def answer_pairs(
    frozen: FrozenModel,
    pairs: Sequence[tuple[Route, Example]],
    task: Task,
    decoding: DecodingSettings,
    *,
    decoder: str = AUTO,
) -> list[ExampleOutcome]:
    """The outcome of each pair's route on its example, for methods that give every example its own route."""
    routes, examples = [route for route, _ in pairs], [example for _, example in pairs]
    if decoding.mode == LIKELIHOOD:
        items = build_choice_items(frozen, task, examples, by_letter=decoding.by_letter)
        scored = score_choices_for_pairs(frozen.model, list(zip(routes, items, strict=True)))
        return grade_choice_likelihoods(examples, scored, decoding)
    prompts, stages = encode_prompts_and_generation_stages(frozen, task, examples, decoding)
    request = _make_generation_request(frozen, routes, stages, decoding)
    prompt_pairs = list(zip(routes, prompts, strict=True))
    texts = generate_for_pairs(frozen.model, prompt_pairs, request, get_fused_decoder(frozen, decoder))
    return grade_texts(frozen, task, examples, texts)


# --- likelihood ---------------------------------------------------------------------------------------------------


def combine_choice_scores(mixture: Mixture, scored: Mapping[Source, Sequence[Sequence[float]]]) -> list[list[float]]:
    """The weighted sums of the members' log-likelihoods, by example and choice."""
    if mixture.is_single:
        return [list(values) for values in scored[mixture.members[0].source]]
    by_example = zip(*(scored[member.source] for member in mixture.members), strict=True)
    return [
        [
            sum(weight * value for weight, value in zip(mixture.weights, values, strict=True))
            for values in zip(*by_member, strict=True)
        ]
        for by_member in by_example
    ]


def grade_choice_likelihoods(
    examples: Sequence[Example], log_likelihoods: Sequence[Sequence[float]], decoding: DecodingSettings
) -> list[ExampleOutcome]:
    """Outcomes from the log-likelihoods of every example's choices."""
    return [
        _grade_choice_by_likelihood(example, values, by_letter=decoding.by_letter)
        for example, values in zip(examples, log_likelihoods, strict=True)
    ]


def compute_choice_sizes(example: Example, *, by_letter: bool) -> list[int]:
    """What the log-likelihood of each choice is divided by: its bytes; 1 where only the letter is scored."""
    return [1 if by_letter else len(choice.encode()) for choice in example.choices]


def _grade_choice_by_likelihood(example: Example, values: Sequence[float], *, by_letter: bool) -> ExampleOutcome:
    if not all(map(math.isfinite, values)):  # numeric overflow on this route: no choice can be made
        return ExampleOutcome(correct=False, prediction="")
    # Per byte of text, so that long choices are not at a disadvantage and tokenizers compare alike.
    sizes = compute_choice_sizes(example, by_letter=by_letter)
    best = max(range(len(values)), key=lambda index: values[index] / sizes[index])
    return ExampleOutcome(best == example.correct_choice, LETTERS[best], log_likelihoods=tuple(values))


def build_choice_items(
    frozen: FrozenModel, task: Task, examples: Sequence[Example], *, by_letter: bool, with_question: bool = True
) -> list[ChoiceItem]:
    """Tokens of prompts and choices, by two calls of the tokenizer: one per text would take longer than the scoring.

    Choices recur in many questions, so each distinct text is tokenized once. Without the question, a prompt has the
    rest of its template; where nothing is left, choices follow the token that begins a text.
    """
    if without := [example.id for example in examples if not example.choices]:
        raise TaskError(
            f"{task.name} has no choices ({without[0]}), so mode = likelihood cannot be used; use direct or reasoning"
        )
    prompts = [
        build_completion_prompt(
            task.prompts, example.question if with_question else "", example.choices, by_letter=by_letter
        )
        for example in examples
    ]
    choices = [LETTERS[: len(example.choices)] if by_letter else example.choices for example in examples]
    distinct = list(dict.fromkeys(text for row in choices for text in row))
    encoded = frozen.tokenize_texts([f" {text}" for text in distinct], add_special_tokens=False)
    tokens = {text: tuple(ids) for text, ids in zip(distinct, encoded, strict=True)}
    return [
        ChoiceItem(tuple(prompt) or _get_first_token(frozen), tuple(tokens[text] for text in row))
        for prompt, row in zip(frozen.tokenize_texts(prompts), choices, strict=True)
    ]


def _get_first_token(frozen: FrozenModel) -> Tokens:
    """What an empty prompt is read as: the first token of a text, or the last one where the tokenizer has none."""
    first, last = frozen.tokenizer.bos_token_id, frozen.tokenizer.eos_token_id
    return (int(last if first is None else first),)


# --- generation ---------------------------------------------------------------------------------------------------


def encode_prompts_and_generation_stages(
    frozen: FrozenModel, task: Task, examples: Sequence[Example], decoding: DecodingSettings
) -> tuple[list[Tokens], tuple[DecodingStage, ...]]:
    """Prompt tokens of ``examples``, and the stages in which the model generates."""
    reasons = decoding.mode != DIRECT
    prompts = [
        encode_messages(
            frozen.tokenizer,
            build_messages(task.prompts, REASONING if reasons else DIRECT, example.question, example.choices),
            thinking=reasons if frozen.chat.think else None,
        )
        for example in examples
    ]
    ends = frozenset(frozen.chat.end_token_ids)
    last = DecodingStage(ends, decoding.answer_budget)
    if not reasons:
        return prompts, (last,)
    think = frozen.chat.think
    closing = frozen.tokenizer.encode(think.closing, add_special_tokens=False) if think else []
    bridge = f"{think.closing}\n\n" if think else f"\n\n{task.prompts.cue}"
    first = DecodingStage(
        ends | (frozenset(closing) if len(closing) == 1 else frozenset()),
        decoding.reasoning_budget,
        tuple(frozen.tokenizer.encode(bridge, add_special_tokens=False)),
    )
    return prompts, (first, last)


def encode_prompts(
    frozen: FrozenModel, task: Task, examples: Sequence[Example], decoding: DecodingSettings
) -> list[Tokens]:
    """Prompt tokens of ``examples`` in the mode of ``decoding``."""
    if decoding.mode == LIKELIHOOD:
        return [item.prompt for item in build_choice_items(frozen, task, examples, by_letter=decoding.by_letter)]
    return encode_prompts_and_generation_stages(frozen, task, examples, decoding)[0]


def mean_input_tokens(
    frozen: FrozenModel, task: Task, examples: Sequence[Example], decoding: DecodingSettings
) -> float:
    """Mean input tokens per example: its prompt, and what the model reads of its choices."""
    if decoding.mode == LIKELIHOOD:
        items = build_choice_items(frozen, task, examples, by_letter=decoding.by_letter)
        return sum(len(item.prompt) + sum(len(choice) - 1 for choice in item.choices) for item in items) / len(items)
    prompts = encode_prompts(frozen, task, examples, decoding)
    return sum(map(len, prompts)) / len(prompts)


def _make_generation_request(
    frozen: FrozenModel, routes: Sequence[RouteOrMixture], stages: tuple[DecodingStage, ...], decoding: DecodingSettings
) -> GenerationRequest:
    token_limit = max_cached_tokens(frozen.model, max(route.length for route in routes))
    return GenerationRequest(stages, token_limit, decoding.stop_loops)


def grade_texts(
    frozen: FrozenModel, task: Task, examples: Sequence[Example], texts: Sequence[StageTexts]
) -> list[ExampleOutcome]:
    """The outcomes of written answers."""
    return [_grade_text(frozen, task, example, stages) for example, stages in zip(examples, texts, strict=True)]


def _grade_text(frozen: FrozenModel, task: Task, example: Example, stages: StageTexts) -> ExampleOutcome:
    *reasoning, answer = stages
    text = _decode_tokens(frozen, answer.tokens)
    # The graders know this cue; a task's own cue may be worded in any way, but means the same.
    has_cue = bool(reasoning) and frozen.chat.think is None
    verdict = task.grader(f"The answer is{text}" if has_cue else text, example.answer, example.choices)
    return ExampleOutcome(
        verdict.correct,
        verdict.prediction,
        reasoning_tokens=sum(len(stage.tokens) for stage in reasoning),
        answer_tokens=len(answer.tokens),
        reasoning_truncated=any(stage.truncated for stage in reasoning),
        answer_truncated=answer.truncated,
        reasoning="".join(_decode_tokens(frozen, stage.tokens) for stage in reasoning),
        text=text,
    )


def _decode_tokens(frozen: FrozenModel, tokens: Sequence[int]) -> str:
    return str(frozen.tokenizer.decode(tokens, skip_special_tokens=True))
