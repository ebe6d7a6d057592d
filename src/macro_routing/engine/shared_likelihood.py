"""Log-likelihoods of choices for many routes at once, over a prefix tree, or with a route per item.

The scores equal those of ``likelihood`` route by route: the same layers see the same tensors, except that a common
prefix of all prompts is computed once.
"""

from collections.abc import Sequence
from typing import Any

import torch

from macro_routing.engine.batching import batch_by_length
from macro_routing.engine.likelihood import ChoiceBatch, ChoiceItem, compute_log_probs
from macro_routing.engine.per_row_forward import PerRowForward
from macro_routing.engine.prefix_tree import plan_prefix_trees
from macro_routing.engine.shared_forward import HiddenStates, Segment, SharedForward, make_prompt_segments
from macro_routing.models.lens import apply_lm_head
from macro_routing.models.support import get_text_config
from macro_routing.routes.route import Route

MAX_STATE_BYTES = 2 << 30
"""Default limit on the hidden states that are kept for branches still to run."""
MAX_PAIR_TOKENS = {"cpu": 8_192, "cuda": 262_144}
"""Tokens per batch where rows have different routes: a layer call has few of the rows, so a GPU needs many of them."""
MAX_LOGIT_BYTES = 1 << 30
"""Logits computed at once: with a large vocabulary they would take more memory than everything else."""


def score_choices_for_routes(
    model: Any,
    routes: Sequence[Route],
    items: Sequence[ChoiceItem],
    *,
    max_tokens: int = 8192,
    state_bytes: int = MAX_STATE_BYTES,
) -> dict[Route, list[list[float]]]:
    """``score_choices`` of every different route of ``model``, which is not routed itself."""
    scores: dict[Route, list[list[float]]] = {route: [[] for _ in items] for route in routes}
    for batch in batch_by_length([item.num_cached_tokens for item in items], max_tokens):
        for route, values in _score_batch(model, routes, [items[index] for index in batch], state_bytes):
            for index, value in zip(batch, values, strict=True):
                scores[route][index] = value
    return scores


@torch.no_grad()
def _score_batch(
    model: Any, routes: Sequence[Route], items: list[ChoiceItem], state_bytes: int
) -> list[tuple[Route, list[list[float]]]]:
    batch = ChoiceBatch.from_items(items, model.device)
    new_tokens = batch.input_ids.shape[-1] if batch.long_choices else 0
    segments = _add_choice_segment(make_prompt_segments(model, [item.prompt for item in items], new_tokens), batch)
    forward = SharedForward(model, segments)
    return [
        (plan.routes[finished.route_index], _score_states(model, batch, finished.states))
        for plan in plan_prefix_trees(routes, max(2, state_bytes // forward.state_bytes))
        for finished in forward.run_plan(plan)
    ]


def _add_choice_segment(segments: list[Segment], batch: ChoiceBatch) -> list[Segment]:
    """The prompts' segments, and one for the long choices where there are any."""
    if not batch.long_choices:
        return segments
    mask = torch.cat([segments[-1].mask[batch.long_choice_items], batch.target_mask], dim=1)
    return [*segments, Segment(batch.input_ids, mask, batch.long_choice_items)]


def _score_states(model: Any, batch: ChoiceBatch, states: HiddenStates) -> list[list[float]]:
    prompt_state, choice_state = (states[-2], states[-1]) if batch.long_choices else (states[-1], None)
    prompt_logits = apply_lm_head(model, prompt_state[:, -1:])[:, -1]
    target_log_probs = None if choice_state is None else _compute_target_log_probs(model, batch, choice_state)
    return batch.sum_log_probs(prompt_logits, target_log_probs)


def _compute_target_log_probs(model: Any, batch: ChoiceBatch, state: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of the long choices' targets, in chunks, without padding."""
    log_probs = torch.zeros(batch.target_ids.shape, device=batch.target_ids.device)
    rows, columns = batch.target_positions
    chunk_size = max(1, MAX_LOGIT_BYTES // (get_text_config(model.config).vocab_size * log_probs.element_size()))
    for chunk in zip(torch.split(rows, chunk_size), torch.split(columns, chunk_size), strict=True):
        hidden = state[tuple(indices.to(state.device) for indices in chunk)]
        logits = apply_lm_head(model, hidden[None])[0].to(log_probs.device)
        log_probs[chunk] = compute_log_probs(logits, batch.target_ids[chunk])
    return log_probs


def score_choices_for_pairs(
    model: Any, pairs: Sequence[tuple[Route, ChoiceItem]], *, max_tokens: int | None = None
) -> list[list[float]]:
    """``score_choices`` of each pair's route on its item, with different routes in one batch."""
    scores: list[list[float]] = [[]] * len(pairs)
    max_tokens = max_tokens or MAX_PAIR_TOKENS.get(model.device.type, MAX_PAIR_TOKENS["cpu"])
    for batch in batch_by_length([item.num_cached_tokens for _, item in pairs], max_tokens):
        for index, values in zip(batch, _score_pair_batch(model, [pairs[index] for index in batch]), strict=True):
            scores[index] = values
    return scores


@torch.no_grad()
def _score_pair_batch(model: Any, pairs: Sequence[tuple[Route, ChoiceItem]]) -> list[list[float]]:
    batch = ChoiceBatch.from_items([item for _, item in pairs], model.device)
    segments = _add_choice_segment([Segment(batch.prompt_ids, batch.prompt_mask)], batch)
    return _score_states(model, batch, PerRowForward(model, segments).run_routes([route for route, _ in pairs]))
