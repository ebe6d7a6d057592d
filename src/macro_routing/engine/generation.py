"""Greedy answers in batches, with budgets; and in two stages, a reasoning and the answer after it.

Plain form: route by route, batch by batch, finished rows stay until the batch is done, and the second stage starts
over with a longer prompt. It stays as the oracle of the faster forms.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from macro_routing.engine.batches import Tokens, pad_left, plan_batches, positions_of


@dataclass(frozen=True)
class Generated:
    """What a model wrote after a prompt."""

    tokens: Tokens
    """Without the token that ended it."""
    cut_off: bool
    """Whether the budget ran out before the model ended."""


def generate(
    model: Any, prompts: Sequence[Tokens], ends: Collection[int], budget: int, *, most_tokens: int = 16384
) -> list[Generated]:
    """Greedy continuations of ``prompts``, each up to an end token or ``budget`` tokens."""
    found: list[Generated] = [Generated((), cut_off=False)] * len(prompts)
    for batch in plan_batches([len(prompt) + budget for prompt in prompts], most_tokens):
        for place, answer in zip(batch, _generate_batch(model, [prompts[n] for n in batch], ends, budget), strict=True):
            found[place] = answer
    return found


@torch.no_grad()
def _generate_batch(model: Any, prompts: list[Tokens], ends: Collection[int], budget: int) -> list[Generated]:
    feed, mask = pad_left(prompts, model.device)
    stops = torch.tensor(sorted(ends), device=feed.device)
    cache, positions = None, positions_of(mask)
    running = torch.ones(len(prompts), dtype=torch.bool, device=feed.device)
    written: list[torch.Tensor] = []
    while len(written) < budget and running.any():
        output = model(
            feed, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True, logits_to_keep=1
        )
        cache = output.past_key_values
        feed = output.logits[:, -1:].argmax(-1)
        written.append(feed[:, 0])
        running = running & ~torch.isin(feed[:, 0], stops)
        mask = torch.cat([mask, torch.ones_like(feed)], dim=1)
        positions = positions[:, -1:] + 1
    rows = torch.stack(written, dim=1).tolist() if written else [[] for _ in prompts]
    return [_until_end(row, ends, budget) for row in rows]


def _until_end(row: list[int], ends: Collection[int], budget: int) -> Generated:
    for place, token in enumerate(row):
        if token in ends:
            return Generated(tuple(row[:place]), cut_off=False)
    return Generated(tuple(row), cut_off=len(row) >= budget)


@dataclass(frozen=True)
class TwoStage:
    """A reasoning and the answer after it."""

    reasoning: Generated
    answer: Generated


def generate_in_two_stages(  # noqa: PLR0913 two stages have two of everything
    model: Any,
    prompts: Sequence[Tokens],
    *,
    reasoning_ends: Collection[int],
    reasoning_budget: int,
    bridge: Tokens,
    answer_ends: Collection[int],
    answer_budget: int,
) -> list[TwoStage]:
    """Let the model reason up to one budget, close the reasoning with ``bridge``, let it answer up to another."""
    reasonings = generate(model, prompts, reasoning_ends, reasoning_budget)
    longer = [(*prompt, *thought.tokens, *bridge) for prompt, thought in zip(prompts, reasonings, strict=True)]
    answers = generate(model, longer, answer_ends, answer_budget)
    return [TwoStage(thought, answer) for thought, answer in zip(reasonings, answers, strict=True)]
