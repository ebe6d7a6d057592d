"""Log-likelihoods of choices after a prompt: for one model or route, for many routes at once, or with a route per item.

``score_choices`` is the plain form: one forward pass over the prompts, then the choices continue its cache. The other
forms share layers between routes and are tested against it: the same layers see the same tensors, except that a common
prefix of all prompts is computed once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from typing import Any

import torch

from macro_routing.engine.batching import Tokens, compute_position_ids, pad_left, run_in_batches
from macro_routing.engine.layer_graphs import MAX_REPLAYED_TOKENS, LayerGraphs, can_replay_layers
from macro_routing.engine.prefix_tree import plan_prefix_trees
from macro_routing.engine.shared_forward import (
    ForwardTokenChunk,
    HiddenStates,
    PrefixTreeForward,
    RoutePerRowForward,
    split_prompts_at_common_prefix,
)
from macro_routing.models.hidden_states import apply_lm_head
from macro_routing.models.support import get_text_config
from macro_routing.routes.route import Route

MAX_STATE_BYTES = 2 << 30
"""Default limit on the hidden states that are kept for branches still to run."""
MAX_BATCH_TOKENS = {"cpu": 8_192, "cuda": 32_768}
"""Tokens per batch where all rows have the same routes, counted with the prompt once per choice."""
MAX_PAIR_TOKENS = {"cpu": 8_192, "cuda": 262_144}
"""Tokens per batch where rows have different routes: a layer call has few of the rows, so a GPU needs many of them."""
MAX_LOGIT_BYTES = 1 << 30
"""Logits computed at once: with a large vocabulary they would take more memory than everything else."""
REPLAYS_LAYERS = True
"""Whether layers of small batches are replayed from CUDA graphs, on a GPU; scores are equal without."""
_ROWS_PER_CHUNK = 8
"""Rows whose logits fit into a CPU's cache together."""


@dataclass(frozen=True)
class ChoiceItem:
    """A prompt and the choices that may continue it, as tokens."""

    prompt: Tokens
    choices: tuple[Tokens, ...]

    @property
    def num_required_cache_tokens(self) -> int:
        """Tokens in memory: the prompt is cached once per choice."""
        return (len(self.prompt) + max(map(len, self.choices))) * len(self.choices)


def score_choices(model: Any, items: Sequence[ChoiceItem], *, max_tokens: int = 8192) -> list[list[float]]:
    """The log-probability of every choice of every item, summed over its tokens; ``model`` may be routed."""
    return run_in_batches(
        partial(_score_batch, model), items, [item.num_required_cache_tokens for item in items], max_tokens
    )


def score_choices_for_routes(
    model: Any,
    routes: Sequence[Route],
    items: Sequence[ChoiceItem],
    *,
    max_tokens: int | None = None,
    hidden_state_bytes: int = MAX_STATE_BYTES,
) -> dict[Route, list[list[float]]]:
    """``score_choices`` of every different route of ``model``, which is not routed itself."""
    max_tokens = max_tokens or MAX_BATCH_TOKENS.get(model.device.type, MAX_BATCH_TOKENS["cpu"])
    score_batch = partial(_score_batch_for_routes, model, routes, hidden_state_bytes)
    rows = run_in_batches(score_batch, items, [item.num_required_cache_tokens for item in items], max_tokens)
    return {route: [row[route] for row in rows] for route in routes}


def score_choices_for_pairs(
    model: Any, pairs: Sequence[tuple[Route, ChoiceItem]], *, max_tokens: int | None = None
) -> list[list[float]]:
    """``score_choices`` of each pair's route on its item, with different routes in one batch."""
    max_tokens = max_tokens or MAX_PAIR_TOKENS.get(model.device.type, MAX_PAIR_TOKENS["cpu"])
    lengths = [item.num_required_cache_tokens for _, item in pairs]
    return run_in_batches(partial(_score_batch_of_pairs, model), pairs, lengths, max_tokens)


@dataclass(frozen=True, eq=False)
class ChoiceBatch:
    """Items as tensors: the prompts, and the tokens of each choice after its first one."""

    prompt_ids: torch.Tensor
    """``[items, tokens]``, padded on the left; so is ``prompt_mask``."""
    prompt_mask: torch.Tensor
    item_indices: torch.Tensor
    """``[choices]``: the item of each choice."""
    first_tokens: torch.Tensor
    """``[choices]``"""
    choice_offsets: Tokens
    """The first choice of each item, and the number of choices."""
    long_choices: torch.Tensor
    """Choices with more than one token; only these continue the prompt's cache."""
    input_ids: torch.Tensor
    """``[long choices, tokens]``: all but the last token, padded on the right; ``target_*`` have the same shape."""
    target_ids: torch.Tensor
    target_mask: torch.Tensor

    @classmethod
    def from_padded_choice_items(cls, items: Sequence[ChoiceItem], device: Any) -> "ChoiceBatch":
        """Pad and index the items."""
        prompt_ids, prompt_mask = pad_left([item.prompt for item in items], device)
        choices = [choice for item in items for choice in item.choices]
        long_choices = [index for index, choice in enumerate(choices) if len(choice) > 1]
        width = max([len(choices[index]) for index in long_choices], default=1) - 1

        def pad_right(rows: list[list[int]]) -> torch.Tensor:
            return torch.tensor([row + [0] * (width - len(row)) for row in rows], dtype=torch.long, device=device)

        return cls(
            prompt_ids,
            prompt_mask,
            torch.tensor([index for index, item in enumerate(items) for _ in item.choices], device=device),
            torch.tensor([choice[0] for choice in choices], device=device),
            (0, *accumulate(len(item.choices) for item in items)),
            torch.tensor(long_choices, dtype=torch.long, device=device),
            pad_right([list(choices[index][:-1]) for index in long_choices]),
            pad_right([list(choices[index][1:]) for index in long_choices]),
            pad_right([[1] * (len(choices[index]) - 1) for index in long_choices]),
        )

    @property
    def has_long_choices(self) -> bool:
        """Whether any choice continues the prompt's cache."""
        return len(self.long_choices) > 0

    @cached_property
    def item_index_per_long_choice(self) -> torch.Tensor:
        """The item that each long choice continues."""
        return self.item_indices[self.long_choices]

    @cached_property
    def target_positions(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows and columns of the targets that are not padding; cached, since it waits for the device."""
        rows, columns = self.target_mask.nonzero(as_tuple=True)
        return rows, columns

    def compute_first_token_log_probs(self, prompt_logits: torch.Tensor, first_item: int = 0) -> torch.Tensor:
        """Log-probabilities of the first token of the choices of some items, by the logits after their prompts."""
        logits = prompt_logits.float()  # [items, vocabulary]
        choices = slice(self.choice_offsets[first_item], self.choice_offsets[first_item + len(logits)])
        items = self.item_indices[choices] - first_item
        # The logit minus the normalizer: a log-softmax would be computed for all tokens, and one is needed.
        return logits[items, self.first_tokens[choices]] - _compute_logits_logsumexp(logits)[items]

    def sum_choice_log_probs(self, totals: torch.Tensor, target_log_probs: torch.Tensor | None) -> torch.Tensor:
        """Log-probabilities of all choices, ``[choices]``, on the device: nothing waits for it here.

        ``totals`` are those of the first tokens. ``target_log_probs`` is ``[long choices, tokens]``; its values at
        padding do not count.
        """
        if target_log_probs is not None:
            totals[self.long_choices] += (target_log_probs * self.target_mask).sum(dim=1)
        return totals

    def split_by_item(self, totals: torch.Tensor) -> list[list[list[float]]]:
        """By row of ``totals``, ``[rows, choices]``, and by item; the one copy from the device."""
        choices_per_item = torch.bincount(self.item_indices).tolist()
        return [[values.tolist() for values in torch.split(row, choices_per_item)] for row in totals.cpu()]


def compute_log_probs(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """The log-probability of ``tokens``, one for each row of ``logits``."""
    logits = logits.float()
    return logits.gather(-1, tokens[..., None])[..., 0] - _compute_logits_logsumexp(logits)


def _compute_logits_logsumexp(logits: torch.Tensor) -> torch.Tensor:
    """The log-sum-exp of every row; on a CPU a few rows at a time, since memory is the bottleneck there."""
    if logits.device.type != "cpu":
        return logits.logsumexp(dim=-1)
    chunks = [logits[start : start + _ROWS_PER_CHUNK] for start in range(0, len(logits), _ROWS_PER_CHUNK)]
    return torch.cat([rows.logsumexp(dim=-1) for rows in chunks])


@torch.no_grad()
def _score_batch(model: Any, items: list[ChoiceItem]) -> list[list[float]]:
    batch = ChoiceBatch.from_padded_choice_items(items, model.device)
    output = model(
        batch.prompt_ids,
        attention_mask=batch.prompt_mask,
        position_ids=compute_position_ids(batch.prompt_mask),
        use_cache=True,
        logits_to_keep=1,
    )
    target_log_probs = None
    if batch.has_long_choices:
        cache = output.past_key_values
        cache.batch_select_indices(batch.item_index_per_long_choice)
        mask = torch.cat([batch.prompt_mask[batch.item_index_per_long_choice], batch.target_mask], dim=1)
        positions = compute_position_ids(mask)[:, -batch.input_ids.shape[1] :]
        logits = model(
            batch.input_ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
        ).logits
        target_log_probs = compute_log_probs(logits, batch.target_ids)
    first_log_probs = batch.compute_first_token_log_probs(output.logits[:, -1])
    totals = batch.sum_choice_log_probs(first_log_probs, target_log_probs)
    return batch.split_by_item(totals[None])[0]


@torch.no_grad()
def _score_batch_for_routes(
    model: Any, routes: Sequence[Route], hidden_state_bytes: int, items: list[ChoiceItem]
) -> list[dict[Route, list[float]]]:
    batch = ChoiceBatch.from_padded_choice_items(items, model.device)
    new_tokens = batch.input_ids.shape[-1] if batch.has_long_choices else 0
    segments = _add_long_choices_segment(
        split_prompts_at_common_prefix(model, [item.prompt for item in items], new_tokens), batch
    )
    tokens = sum(segment.ids.numel() for segment in segments)
    graphs = LayerGraphs() if REPLAYS_LAYERS and tokens <= MAX_REPLAYED_TOKENS and can_replay_layers(model) else None
    forward = PrefixTreeForward(model, segments, graphs)
    totals = {
        plan.routes[finished.route_index]: _score_choices_from_states(model, batch, finished.states)
        for plan in plan_prefix_trees(routes, max(2, hidden_state_bytes // forward.hidden_state_bytes))
        for finished in forward.run_prefix_tree(plan)
    }
    by_route = batch.split_by_item(torch.stack([*totals.values()]))
    return [dict(zip(totals, by_item, strict=True)) for by_item in zip(*by_route, strict=True)]


@torch.no_grad()
def _score_batch_of_pairs(model: Any, pairs: Sequence[tuple[Route, ChoiceItem]]) -> list[list[float]]:
    batch = ChoiceBatch.from_padded_choice_items([item for _, item in pairs], model.device)
    segments = _add_long_choices_segment([ForwardTokenChunk(batch.prompt_ids, batch.prompt_mask)], batch)
    states = RoutePerRowForward(model, segments).compute_final_hidden_states([route for route, _ in pairs])
    return batch.split_by_item(_score_choices_from_states(model, batch, states)[None])[0]


def _add_long_choices_segment(segments: list[ForwardTokenChunk], batch: ChoiceBatch) -> list[ForwardTokenChunk]:
    """The prompts' segments, and one for the long choices where there are any."""
    if not batch.has_long_choices:
        return segments
    mask = torch.cat([segments[-1].mask[batch.item_index_per_long_choice], batch.target_mask], dim=1)
    return [*segments, ForwardTokenChunk(batch.input_ids, mask, batch.item_index_per_long_choice)]


def _score_choices_from_states(model: Any, batch: ChoiceBatch, states: HiddenStates) -> torch.Tensor:
    prompt_state, choice_state = (states[-2], states[-1]) if batch.has_long_choices else (states[-1], None)
    size = _count_rows_of_logits(model)
    first_log_probs = torch.cat(
        [
            batch.compute_first_token_log_probs(apply_lm_head(model, states[:, -1:])[:, -1], number * size)
            for number, states in enumerate(torch.split(prompt_state, size))
        ]
    )
    target_log_probs = None if choice_state is None else _compute_target_log_probs(model, batch, choice_state)
    return batch.sum_choice_log_probs(first_log_probs, target_log_probs)


def _count_rows_of_logits(model: Any) -> int:
    """Rows whose logits, in 32 bits, are in memory at once."""
    vocabulary: int = get_text_config(model.config).vocab_size
    return max(1, MAX_LOGIT_BYTES // (vocabulary * torch.float32.itemsize))


def _compute_target_log_probs(model: Any, batch: ChoiceBatch, state: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of the long choices' targets, in chunks, without padding."""
    log_probs = torch.zeros(batch.target_ids.shape, device=batch.target_ids.device)
    rows, columns = batch.target_positions
    chunk_size = _count_rows_of_logits(model)
    for chunk in zip(torch.split(rows, chunk_size), torch.split(columns, chunk_size), strict=True):
        hidden = state[tuple(indices.to(state.device) for indices in chunk)]
        logits = apply_lm_head(model, hidden[None])[0].to(log_probs.device)
        log_probs[chunk] = compute_log_probs(logits, batch.target_ids[chunk])
    return log_probs
