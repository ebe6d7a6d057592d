"""Generation for many routes, or for pairs of route and prompt: eager, or with the fused decoder where one is given.

In eager decoding the prompts run through the prefix tree of the routes. Each route then decodes from the caches of its
own steps: all stages in one decoding loop, and finished rows leave the batch. So does a mixture, from the caches of all
its members' steps.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from macro_routing.engine.batching import Tokens, run_in_batches
from macro_routing.engine.fused.support import kernels_support_stages
from macro_routing.engine.generation import (
    GenerationRequest,
    SequenceStageTracker,
    StageTexts,
    group_indices_by_route,
    make_next_stage_prompt,
    max_new_tokens,
)
from macro_routing.engine.prefix_tree import plan_prefix_tree
from macro_routing.engine.shared_forward import (
    ForwardTokenChunk,
    PrefixTreeForward,
    RouteForwardResult,
    split_prompts_at_common_prefix,
)
from macro_routing.models.hidden_states import apply_lm_head
from macro_routing.models.mixing import combine_logits
from macro_routing.models.routing import apply_route
from macro_routing.routes.mixture import (
    Mixture,
    RouteOrMixture,
    number_prefixes,
    require_question,
    to_mixture,
    to_simplest_form,
)
from macro_routing.routes.route import Route

if TYPE_CHECKING:  # needs triton
    from macro_routing.engine.fused.decoder import FusedDecoder

_Pairs = Sequence[tuple[RouteOrMixture, Tokens]]
_MAX_KEPT_SHARE = 0.75
"""Finished rows leave when at most this share of the batch is still running: leaving copies the caches."""


def generate_for_routes(
    model: Any,
    routes: Sequence[RouteOrMixture],
    prompts: Sequence[Tokens],
    request: GenerationRequest,
    fused: FusedDecoder | None = None,
) -> dict[RouteOrMixture, list[StageTexts]]:
    """The texts of every different route or mixture of ``model`` after each prompt, one text per stage."""
    for route in routes:
        require_question(route)
    simplest = {route: to_simplest_form(to_mixture(route)) for route in routes}
    distinct = list(dict.fromkeys(simplest.values()))
    if fused is not None and kernels_support_stages(request.stages):
        texts = fused.generate_for_routes(distinct, prompts, request)
    else:
        texts = generate_eager(model, distinct, prompts, request)
    pairs = [(route, prompt) for route in texts for prompt in prompts]
    rows = iter(
        _decode_remaining_stages_after_loops(
            model, pairs, [row for rows in texts.values() for row in rows], request, fused
        )
    )
    texts = {route: [next(rows) for _ in prompts] for route in texts}
    return {route: texts[simplest[route]] for route in routes}


def generate_for_pairs(
    model: Any, pairs: _Pairs, request: GenerationRequest, fused: FusedDecoder | None = None
) -> list[StageTexts]:
    """The texts of each pair's route after its prompt; the fused decoder runs different routes in one batch."""
    for route in {route for route, _ in pairs}:
        require_question(route)
    pairs = [(to_simplest_form(to_mixture(route)), prompt) for route, prompt in pairs]
    return _decode_remaining_stages_after_loops(
        model, pairs, _generate_for_route_prompt_pairs(model, pairs, request, fused), request, fused
    )


def _generate_for_route_prompt_pairs(
    model: Any, pairs: _Pairs, request: GenerationRequest, fused: FusedDecoder | None
) -> list[StageTexts]:
    if fused is not None and kernels_support_stages(request.stages):
        return fused.generate_for_pairs(pairs, request)
    texts: list[StageTexts] = [()] * len(pairs)
    for route, indices in group_indices_by_route([route for route, _ in pairs]).items():
        rows = generate_eager(model, [route], [pairs[index][1] for index in indices], request)[route]
        for index, row in zip(indices, rows, strict=True):
            texts[index] = row
    return texts


def _decode_remaining_stages_after_loops(
    model: Any, pairs: _Pairs, texts: list[StageTexts], request: GenerationRequest, fused: FusedDecoder | None
) -> list[StageTexts]:
    """``texts`` with the later stages of sequences that a loop stopped, decoded from the prompts that they led to."""
    for done in range(1, len(request.stages)):
        stopped = [index for index, row in enumerate(texts) if len(row) == done]
        if stopped:
            extended = [(pairs[n][0], make_next_stage_prompt(pairs[n][1], texts[n], request.stages)) for n in stopped]
            rest = _generate_for_route_prompt_pairs(
                model, extended, replace(request, stages=request.stages[done:]), fused
            )
            for index, row in zip(stopped, rest, strict=True):
                texts[index] += row
    return texts


# --- eager decoding -----------------------------------------------------------------------------------------------


def generate_eager(
    model: Any, routes: Sequence[RouteOrMixture], prompts: Sequence[Tokens], request: GenerationRequest
) -> dict[RouteOrMixture, list[StageTexts]]:
    """The texts of every route or mixture of ``model`` after each prompt, decoded by the model's own code.

    With ``stop_loops`` a sequence that a loop stopped has fewer texts than stages.
    """
    lengths = [len(prompt) + max_new_tokens(request.stages) for prompt in prompts]
    rows = run_in_batches(partial(_generate_batch, model, routes, request), prompts, lengths, request.max_cached_tokens)
    return {route: [row[route] for row in rows] for route in routes}


@torch.no_grad()
def _generate_batch(
    model: Any, routes: Sequence[RouteOrMixture], request: GenerationRequest, prompts: list[Tokens]
) -> list[dict[RouteOrMixture, StageTexts]]:
    segments = split_prompts_at_common_prefix(model, prompts, max_new_tokens(request.stages))
    texts: list[dict[RouteOrMixture, StageTexts]] = [{} for _ in prompts]
    for route, logits, cache_layers in _prefill(model, routes, segments):
        routed = model if route.is_standard else apply_route(model, route, allow_untested=True)
        decoders = [SequenceStageTracker(request) for _ in prompts]
        _decode_until_finished(routed, cache_layers, segments[-1].mask, logits.argmax(-1).tolist(), decoders)
        for row, decoder in zip(texts, decoders, strict=True):
            row[route] = decoder.texts_of_finished_stages
    return texts


def _prefill(
    model: Any, routes: Sequence[RouteOrMixture], segments: Sequence[ForwardTokenChunk]
) -> Iterator[tuple[RouteOrMixture, torch.Tensor, list[Any]]]:
    """Every route or mixture with the logits after the prompts and the cache layers of its steps."""
    forward = PrefixTreeForward(model, segments)
    plan = plan_prefix_tree([route for route in routes if isinstance(route, Route)])
    for finished in forward.run_prefix_tree(plan, keep_caches=True):
        # Other routes need these cache layers unchanged: growing or selecting makes new tensors.
        cache_layers = [copy.copy(layer) for layer in finished.cache_layers]
        yield plan.routes[finished.route_index], _compute_last_logits(model, finished), cache_layers
    for route in routes:
        if isinstance(route, Mixture):
            yield route, *_prefill_mixture(model, route, forward)


def _prefill_mixture(model: Any, mixture: Mixture, forward: PrefixTreeForward) -> tuple[torch.Tensor, list[Any]]:
    """The combined logits, and the cache layers of all members' steps in the order of the mixed model."""
    slots = number_prefixes(mixture.routes)
    cache_layers: list[Any] = [None] * len(slots)
    logits: dict[int, torch.Tensor] = {}
    for finished in forward.run_prefix_tree(plan_prefix_tree(mixture.routes), keep_caches=True):
        steps = mixture.routes[finished.route_index].steps
        logits[finished.route_index] = _compute_last_logits(model, finished)
        for length, cache_layer in enumerate(finished.cache_layers, 1):
            cache_layers[slots[steps[:length]]] = cache_layer
    return combine_logits([logits[member] for member in sorted(logits)], mixture), cache_layers


def _compute_last_logits(model: Any, finished: RouteForwardResult) -> torch.Tensor:
    return apply_lm_head(model, finished.states[-1][:, -1:])[:, -1]


def _decode_until_finished(
    model: Any, cache_layers: list[Any], mask: torch.Tensor, tokens: list[int], decoders: list[SequenceStageTracker]
) -> None:
    """Decode until all rows are finished; ``tokens`` are the predictions after the prompts."""
    from transformers import DynamicCache

    cache = DynamicCache(config=model.config)
    cache.layers = cache_layers
    positions = mask.sum(dim=1)
    while True:
        inputs = [decoder.advance_by_token(token) for decoder, token in zip(decoders, tokens, strict=True)]
        running = [row for row, token in enumerate(inputs) if token is not None]
        if not running:
            return
        if len(running) <= _MAX_KEPT_SHARE * len(decoders):
            kept = torch.tensor(running, device=mask.device)
            cache.batch_select_indices(kept)
            mask, positions = mask[kept], positions[kept]
            decoders, inputs = [decoders[row] for row in running], [inputs[row] for row in running]
        mask = torch.cat([mask, mask.new_ones(len(decoders), 1)], dim=1)
        output = model(
            torch.tensor([[token or 0] for token in inputs], device=mask.device),
            attention_mask=mask,
            position_ids=positions[:, None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        positions = positions + 1
        tokens = output.logits[:, -1].argmax(-1).tolist()
