"""How probable each choice is after a prompt, for many routes at once over a prefix tree.

Scores equal those of ``likelihood`` route by route: the same layers see the same tensors, except that a beginning
common to all prompts is computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from macro_routing.engine.batches import plan_batches
from macro_routing.engine.likelihood import ChoiceBatch, ChoiceItem, log_probabilities
from macro_routing.engine.prefix_tree import plan_within
from macro_routing.engine.prompt_segments import prompt_segments
from macro_routing.engine.row_pass import RowPass
from macro_routing.engine.shared_pass import Segment, SharedPass, States
from macro_routing.models.lens import read_out
from macro_routing.models.support import text_config
from macro_routing.routes.route import Route

STATE_BYTES = 2 << 30
"""Default bound on the hidden states that are held for branches still to come."""
PAIR_TOKENS = {"cpu": 8_192, "cuda": 262_144}
"""Tokens read at once where rows have routes of their own: a turn has few of the rows, so a GPU needs many of them."""
LOGIT_BYTES = 1 << 30
"""Logits that exist at once: a large vocabulary would need more memory for them than for everything else."""


def choice_log_likelihoods_of_routes(
    model: Any,
    routes: Sequence[Route],
    items: Sequence[ChoiceItem],
    *,
    most_tokens: int = 8192,
    state_bytes: int = STATE_BYTES,
) -> dict[Route, list[list[float]]]:
    """``choice_log_likelihoods`` of every different route of ``model``, which is not routed itself."""
    found: dict[Route, list[list[float]]] = {route: [[] for _ in items] for route in routes}
    for batch in plan_batches([item.size for item in items], most_tokens):
        for route, values in _score_batch(model, routes, [items[place] for place in batch], state_bytes):
            for place, value in zip(batch, values, strict=True):
                found[route][place] = value
    return found


@torch.no_grad()
def _score_batch(
    model: Any, routes: Sequence[Route], items: list[ChoiceItem], state_bytes: int
) -> list[tuple[Route, list[list[float]]]]:
    batch = ChoiceBatch.of(items, model.device)
    segments = prompt_segments(model, [item.prompt for item in items], batch.fed.shape[-1] if batch.longer else 0)
    prompts = len(segments) - 1
    if batch.longer:
        whole = torch.cat([segments[prompts].mask[batch.branches], batch.real], dim=1)
        segments.append(Segment(batch.fed, whole, batch.branches))
    shared = SharedPass(model, segments)
    return [
        (plan.routes[arrival.route], _totals(model, batch, arrival.states, prompts))
        for plan in plan_within(routes, max(2, state_bytes // shared.state_bytes))
        for arrival in shared.run(plan)
    ]


def _totals(model: Any, batch: ChoiceBatch, states: States, prompts: int) -> list[list[float]]:
    after_prompt = read_out(model, states[prompts][:, -1:])[:, -1]
    return batch.totals(after_prompt, _later(model, batch, states[prompts + 1]) if batch.longer else None)


def _later(model: Any, batch: ChoiceBatch, state: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of the longer choices' later tokens, read where there is one and some at a time."""
    found = torch.zeros(batch.wanted.shape, device=batch.wanted.device)
    rows, columns = batch.later_tokens
    most = max(1, LOGIT_BYTES // (text_config(model.config).vocab_size * found.element_size()))
    for some in zip(torch.split(rows, most), torch.split(columns, most), strict=True):
        hidden = state[tuple(one.to(state.device) for one in some)]
        found[some] = log_probabilities(read_out(model, hidden[None])[0].to(found.device), batch.wanted[some])
    return found


def choice_log_likelihoods_of_pairs(
    model: Any, pairs: Sequence[tuple[Route, ChoiceItem]], *, most_tokens: int | None = None
) -> list[list[float]]:
    """``choice_log_likelihoods`` of each pair's route on its item, rows on different routes together."""
    found: list[list[float]] = [[]] * len(pairs)
    most_tokens = most_tokens or PAIR_TOKENS.get(model.device.type, PAIR_TOKENS["cpu"])
    for batch in plan_batches([item.size for _, item in pairs], most_tokens):
        for place, values in zip(batch, _score_pairs(model, [pairs[place] for place in batch]), strict=True):
            found[place] = values
    return found


@torch.no_grad()
def _score_pairs(model: Any, pairs: Sequence[tuple[Route, ChoiceItem]]) -> list[list[float]]:
    batch = ChoiceBatch.of([item for _, item in pairs], model.device)
    segments = [Segment(batch.ids, batch.mask)]
    if batch.longer:
        whole = torch.cat([batch.mask[batch.branches], batch.real], dim=1)
        segments.append(Segment(batch.fed, whole, batch.branches))
    return _totals(model, batch, RowPass(model, segments).run([route for route, _ in pairs]), 0)
