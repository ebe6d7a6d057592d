"""The prompts' forward pass: it fills the cache of a model runner and predicts the first token of every sequence."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from macro_routing.engine.batching import batch_by_length, pad_left
from macro_routing.engine.fused.batch_plan import MAX_PREFILL_TOKENS, BatchPlan, PromptBatch
from macro_routing.engine.fused.device_tables import enumerate_within_groups
from macro_routing.engine.fused.model_runner import ModelRunner
from macro_routing.engine.layer_schedule import LayerCall
from macro_routing.engine.prefix_tree import plan_prefix_tree
from macro_routing.engine.shared_forward import (
    ForwardTokenChunk,
    PrefixTreeForward,
    RouteForwardResult,
    RoutePerRowForward,
    split_prompts_at_common_prefix,
)
from macro_routing.models.hidden_states import apply_lm_head
from macro_routing.models.mixing import combine_logits
from macro_routing.routes.mixture import Mixture, RouteOrMixture


def prefill_prompts(model: Any, runner: ModelRunner, plan: BatchPlan) -> torch.Tensor:
    """Fill the cache and reset the sequences; the first token that each sequence predicts."""
    tokens = torch.zeros(plan.num_sequences, dtype=torch.int32, device=runner.states.device)
    # With one route per group, a forward pass per group would leave the device idle.
    if len(plan.groups) > 1 and all(len(group.routes) == 1 and not group.mixtures for group in plan.groups):
        _prefill_mixed_routes(model, runner, plan, tokens)
    else:
        for batch in plan.batches:
            _prefill_over_prefix_tree(model, runner, batch, tokens)
    runner.reset_sequences()
    return tokens


def _prefill_over_prefix_tree(model: Any, runner: ModelRunner, batch: PromptBatch, tokens: torch.Tensor) -> None:
    """Prefill a batch with all routes of its group, over their prefix tree."""
    segments = split_prompts_at_common_prefix(model, batch.prompts, batch.new_tokens)
    mask = segments[-1].mask
    # Padding stands between a common prefix and the rest of a prompt; in the cache it goes to the front.
    token_order = mask.argsort(dim=1, stable=True) if len(segments) > 1 else None
    tree = plan_prefix_tree(batch.routes)
    last_states: dict[int, torch.Tensor] = {}
    for finished in PrefixTreeForward(model, segments).run_prefix_tree(tree, keep_caches=True):
        sequences = batch.sequences_of_route(finished.route_index)
        last_states[finished.route_index] = finished.states[-1][:, -1:].clone()
        runner.start[sequences] = (mask == 0).sum(dim=1).to(torch.int32)
        runner.position[sequences] = batch.padded_prompt_length - 1
        _copy_prompt_cache_to_route(runner, batch, finished, token_order)
    _predict_first_tokens(model, batch, last_states, tokens)


def _prefill_mixed_routes(model: Any, runner: ModelRunner, plan: BatchPlan, tokens: torch.Tensor) -> None:
    """Prefill groups with one route each: prompts with different routes run together."""
    all_rows = [(batch, row) for batch in plan.batches for row in range(len(batch.prompts))]
    for indices in batch_by_length([batch.padded_prompt_length for batch, _ in all_rows], MAX_PREFILL_TOKENS):
        rows = [all_rows[index] for index in indices]
        # As long as in the cache: the longest prompt of a batch may be prefilled at another time than this one.
        length = max(batch.padded_prompt_length for batch, _ in rows)
        ids, mask = pad_left([batch.prompts[row] for batch, row in rows], tokens.device, min_length=length)

        def copy_prefill_cache(call: LayerCall, cache_layer: Any, rows: list[tuple[PromptBatch, int]] = rows) -> None:
            _copy_call_cache_to_regions(
                runner, [(*rows[route_step.route], route_step.step) for route_step in call.steps], cache_layer
            )

        routes = [batch.routes[0] for batch, _ in rows]
        (states,) = RoutePerRowForward(model, [ForwardTokenChunk(ids, mask)]).compute_final_hidden_states(
            routes, copy_prefill_cache
        )
        sequences = torch.tensor([batch.first_sequence + row for batch, row in rows], device=tokens.device)
        tokens[sequences] = _predict_tokens(model, states)
        lengths = [
            (batch.padded_prompt_length, batch.padded_prompt_length - len(batch.prompts[row])) for batch, row in rows
        ]
        prompt_length, padding = torch.tensor(lengths, dtype=torch.int32, device=tokens.device).unbind(1)
        runner.start[sequences], runner.position[sequences] = padding, prompt_length - 1


def _predict_first_tokens(
    model: Any, batch: PromptBatch, last_states: Mapping[int, torch.Tensor], tokens: torch.Tensor
) -> None:
    """The first token of every sequence; the members of a mixture get the same."""
    answers: Sequence[RouteOrMixture] = batch.mixtures or batch.routes
    members = len(batch.routes) // len(answers)
    for number, answer in enumerate(answers):
        routes = range(number * members, (number + 1) * members)
        logits = [apply_lm_head(model, last_states[route])[:, -1] for route in routes]
        chosen = (combine_logits(logits, answer) if isinstance(answer, Mixture) else logits[0]).argmax(-1)
        for route in routes:
            tokens[batch.sequences_of_route(route)] = chosen.to(torch.int32)


def _predict_tokens(model: Any, states: torch.Tensor) -> torch.Tensor:
    return apply_lm_head(model, states[:, -1:])[:, -1].argmax(-1).to(torch.int32)


def _copy_prompt_cache_to_route(
    runner: ModelRunner, batch: PromptBatch, finished: RouteForwardResult, token_order: torch.Tensor | None
) -> None:
    """Copy the prompts' keys and values to a route's regions; ``token_order`` reorders the tokens of each row."""
    index = finished.route_index
    start, end = batch.route_cache_start(index), batch.route_cache_start(index + 1)
    shape = (batch.routes[index].length, len(batch.prompts), batch.tokens_per_cache_region)
    for cache, name in ((runner.keys, "keys"), (runner.values, "values")):
        regions = cache[:, start:end].view(
            cache.shape[0], *shape, cache.shape[2]
        )  # [KV heads, steps, rows, tokens, head]
        for step, cache_layer in enumerate(finished.cache_layers):
            source = getattr(cache_layer, name)
            if token_order is not None:
                source = source.take_along_dim(token_order[:, None, :, None], dim=2)
            # A layer with a sliding window keeps only the tokens that the next one sees.
            length = batch.padded_prompt_length
            regions[:, step, :, length - source.shape[2] : length].copy_(source.transpose(0, 1))


def _copy_call_cache_to_regions(
    runner: ModelRunner, steps: Sequence[tuple[PromptBatch, int, int]], cache_layer: Any
) -> None:
    """Copy the keys and values of a layer call to its (batch, row, step)s' regions, with the batch's padding."""
    region_starts = np.array(
        [
            batch.cache_start + (step * len(batch.prompts) + row) * batch.tokens_per_cache_region
            for batch, row, step in steps
        ]
    )
    lengths = np.array([batch.padded_prompt_length for batch, _, _ in steps])
    cached = cache_layer.keys.shape[2]
    # A layer with a sliding window keeps only the tokens that the next one sees.
    kept = np.minimum(lengths, cached)
    # Token by token: its row, its column in the cache layer (rows are aligned at the end), its place in the cache.
    row, offset = enumerate_within_groups(kept)
    places = np.stack([row, cached - kept[row] + offset, region_starts[row] + (lengths - kept)[row] + offset])
    rows, columns, targets = torch.from_numpy(places).to(runner.keys.device)
    for cache, source in ((runner.keys, cache_layer.keys), (runner.values, cache_layer.values)):
        cache[:, targets] = source.transpose(0, 1)[:, rows, columns]
