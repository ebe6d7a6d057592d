"""Greedy generation in batches, in one or several stages, for example reasoning and then the answer.

``generate_reasoning_then_answer`` is the plain form: one model or route at a time. Finished rows stay until their batch
is done, and each stage starts again with a longer prompt. The faster decoders are tested against it. They decode all
stages in one loop; ``SequenceStageTracker`` is the state of one sequence there. It can stop a text that repeats itself
exactly.
"""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

import torch

from macro_routing.engine.batching import Tokens, compute_position_ids, pad_left, run_in_batches
from macro_routing.routes.mixture import RouteOrMixture

MAX_PERIOD = 64
MIN_REPEATS = 4
MIN_LOOP_TOKENS = 48
"""A loop has at least ``MIN_REPEATS`` repeats of one period and at least ``MIN_LOOP_TOKENS`` tokens."""
_LOOP_CHECK_INTERVAL = 8
"""Tokens between two checks for a loop."""


@dataclass(frozen=True)
class DecodingStage:
    """One stage of an answer: it ends with an end token or after ``max_tokens`` tokens."""

    end_tokens: Collection[int]
    max_tokens: int
    forced_tokens: Tokens = ()
    """Tokens that are fed to the model after this stage, before the next one starts."""


@dataclass(frozen=True)
class GeneratedText:
    """The tokens that a model generated in one stage."""

    tokens: Tokens
    """Without the end token."""
    truncated: bool
    """Whether ``max_tokens`` was reached before an end token."""


StageTexts = tuple[GeneratedText, ...]
"""The texts of one answer, one per finished stage."""


@dataclass(frozen=True)
class GenerationRequest:
    """What to generate after each prompt, and the limits."""

    stages: tuple[DecodingStage, ...]
    max_cached_tokens: int = 16384
    """Tokens in the cache at once, prompts and new tokens together."""
    stop_loops: bool = False
    """Whether a text that repeats itself exactly is extended to its limit without running the model."""


def max_new_tokens(stages: Sequence[DecodingStage]) -> int:
    """The largest number of tokens that can follow a prompt."""
    return sum(stage.max_tokens + len(stage.forced_tokens) for stage in stages)


def make_next_stage_prompt(prompt: Tokens, texts: Sequence[GeneratedText], stages: Sequence[DecodingStage]) -> Tokens:
    """The prompt of the next stage: ``prompt``, the finished texts and their forced tokens."""
    pieces = [(*text.tokens, *stage.forced_tokens) for text, stage in zip(texts, stages, strict=False)]
    return (*prompt, *(token for piece in pieces for token in piece))


def group_indices_by_route(routes: Sequence[RouteOrMixture]) -> dict[RouteOrMixture, list[int]]:
    """The indices of every different route or mixture, in the order of first appearance."""
    indices: dict[RouteOrMixture, list[int]] = {}
    for index, route in enumerate(routes):
        indices.setdefault(route, []).append(index)
    return indices


def generate_reasoning_then_answer(
    model: Any, prompts: Sequence[Tokens], stages: Sequence[DecodingStage], max_batch_tokens: int = 16384
) -> list[StageTexts]:
    """The texts of all stages after each prompt, stage by stage."""
    answers: list[StageTexts] = [()] * len(prompts)
    for stage in stages:
        extended = [
            make_next_stage_prompt(prompt, texts, stages) for prompt, texts in zip(prompts, answers, strict=True)
        ]
        generated = generate_greedy(
            model, extended, stage.end_tokens, stage.max_tokens, max_batch_tokens=max_batch_tokens
        )
        answers = [(*texts, text) for texts, text in zip(answers, generated, strict=True)]
    return answers


def generate_greedy(
    model: Any,
    prompts: Sequence[Tokens],
    end_tokens: Collection[int],
    max_tokens: int,
    *,
    max_batch_tokens: int = 16384,
) -> list[GeneratedText]:
    """Greedy continuations of ``prompts``, each up to an end token or ``max_tokens`` tokens."""
    generate_batch = partial(_generate_batch, model, end_tokens, max_tokens)
    rows = run_in_batches(generate_batch, prompts, [len(prompt) + max_tokens for prompt in prompts], max_batch_tokens)
    texts = [tuple(takewhile(lambda token: token not in end_tokens, row)) for row in rows]
    return [GeneratedText(tokens, truncated=len(tokens) >= max_tokens) for tokens in texts]


@torch.no_grad()
def _generate_batch(model: Any, end_tokens: Collection[int], max_tokens: int, prompts: list[Tokens]) -> list[list[int]]:
    input_ids, mask = pad_left(prompts, model.device)
    end_ids = torch.tensor(sorted(end_tokens), device=input_ids.device)
    cache, positions = None, compute_position_ids(mask)
    running = torch.ones(len(prompts), dtype=torch.bool, device=input_ids.device)
    generated: list[torch.Tensor] = []
    while len(generated) < max_tokens and running.any():
        output = model(
            input_ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache = output.past_key_values
        input_ids = output.logits[:, -1:].argmax(-1)
        generated.append(input_ids[:, 0])
        running = running & ~torch.isin(input_ids[:, 0], end_ids)
        mask = torch.cat([mask, torch.ones_like(input_ids)], dim=1)
        positions = positions[:, -1:] + 1
    return torch.stack(generated, dim=1).tolist() if generated else [[] for _ in prompts]


# --- one sequence in stages ---------------------------------------------------------------------------------------


class SequenceStageTracker:
    """Takes the predicted tokens of one sequence and returns the tokens to feed."""

    def __init__(self, request: GenerationRequest) -> None:
        """Start at the first stage; with ``stop_loops`` a text that repeats itself ends the sequence early."""
        self._stages, self._stop_loops = request.stages, request.stop_loops
        self._texts: list[GeneratedText] = []
        self._tokens: list[int] = []
        self._forced: deque[int] = deque()
        self._stopped = False

    @property
    def texts_of_finished_stages(self) -> StageTexts:
        """The texts of the finished stages; fewer than stages if a loop ended the sequence."""
        return tuple(self._texts)

    def advance_by_token(self, token: int) -> int | None:
        """Take the predicted ``token`` and return the next input token; None when the sequence is finished."""
        if self._stopped or len(self._texts) == len(self._stages):
            return None
        if self._forced:  # the prediction is ignored while forced tokens are fed
            return self._forced.popleft()
        stage = self._stages[len(self._texts)]
        if token in stage.end_tokens:
            return self._finish_stage(token, GeneratedText(tuple(self._tokens), truncated=False))
        self._tokens.append(token)
        if len(self._tokens) >= stage.max_tokens:
            return self._finish_stage(token, GeneratedText(tuple(self._tokens), truncated=True))
        if self._stop_loops and len(self._tokens) % _LOOP_CHECK_INTERVAL == 0:
            return self._stop_if_tokens_loop(token, stage)
        return token

    def _stop_if_tokens_loop(self, token: int, stage: DecodingStage) -> int | None:
        if (period := find_loop_period(self._tokens)) is None:
            return token
        # The loop would go on up to max_tokens; the caller decodes later stages from the extended prompt.
        self._texts.append(
            GeneratedText(extend_looping_tokens_to_length(self._tokens, period, stage.max_tokens), truncated=True)
        )
        self._stopped = True
        return None

    def _finish_stage(self, token: int, text: GeneratedText) -> int | None:
        forced = self._stages[len(self._texts)].forced_tokens
        self._texts.append(text)
        self._tokens = []
        if len(self._texts) == len(self._stages):
            return None
        self._forced = deque([token, *forced] if text.truncated else forced)
        # Without forced tokens the next stage starts with the token that ended this one.
        return self._forced.popleft() if self._forced else self.advance_by_token(token)


def find_loop_period(tokens: Sequence[int]) -> int | None:
    """The shortest period of the loop at the end of ``tokens``; None if they do not end in a loop."""
    size = len(tokens)
    for period in range(1, min(MAX_PERIOD, size // MIN_REPEATS) + 1):
        span = max(MIN_REPEATS * period, MIN_LOOP_TOKENS)
        if span > size:
            return None  # longer periods need even more tokens
        if tokens[size - 1] != tokens[size - 1 - period]:
            continue  # a cheap check first: slices are slow, and there are thousands of rows
        tail = tokens[size - span :]
        if tail[period:] == tail[:-period]:
            return period
    return None


def extend_looping_tokens_to_length(tokens: Sequence[int], period: int, length: int) -> tuple[int, ...]:
    """``tokens`` with their last ``period`` tokens repeated up to ``length``."""
    extended = list(tokens)
    while len(extended) < length:
        extended.append(extended[-period])
    return tuple(extended[:length])
