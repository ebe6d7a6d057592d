"""Eager greedy decoding of many routes: shared prefill, all stages in one decoding loop, finished rows leave the batch.

The prompts run through the prefix tree of the routes. Each route then decodes from the caches of its own steps.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from macro_routing.engine.batching import Tokens, batch_by_length
from macro_routing.engine.generation import GenerationRequest, StageTexts, max_new_tokens
from macro_routing.engine.prefix_tree import plan_prefix_tree
from macro_routing.engine.shared_forward import SharedForward, make_prompt_segments
from macro_routing.engine.staged_decoding import StagedDecoder
from macro_routing.models.lens import apply_lm_head
from macro_routing.models.routing import apply_route
from macro_routing.routes.route import Route

_MAX_KEPT_SHARE = 0.75
"""Finished rows leave when at most this share of the batch is still running: leaving copies the caches."""


def generate_eager(
    model: Any, routes: Sequence[Route], prompts: Sequence[Tokens], request: GenerationRequest
) -> dict[Route, list[StageTexts]]:
    """The texts of every route of ``model`` after each prompt, decoded by the model's own code.

    With ``stop_loops`` a sequence that a loop stopped has fewer texts than stages.
    """
    texts: dict[Route, list[StageTexts]] = {route: [()] * len(prompts) for route in routes}
    lengths = [len(prompt) + max_new_tokens(request.stages) for prompt in prompts]
    for batch in batch_by_length(lengths, request.max_cached_tokens):
        batch_prompts = [prompts[index] for index in batch]
        for route, rows in _generate_batch(model, routes, batch_prompts, request):
            for index, row in zip(batch, rows, strict=True):
                texts[route][index] = row
    return texts


@torch.no_grad()
def _generate_batch(
    model: Any, routes: Sequence[Route], prompts: list[Tokens], request: GenerationRequest
) -> Iterator[tuple[Route, list[StageTexts]]]:
    segments = make_prompt_segments(model, prompts, max_new_tokens(request.stages))
    plan = plan_prefix_tree(routes)
    for finished in SharedForward(model, segments).run_plan(plan, keep_caches=True):
        route = plan.routes[finished.route_index]
        logits = apply_lm_head(model, finished.states[-1][:, -1:])[:, -1]
        # Other routes need these cache layers unchanged: growing or selecting makes new tensors.
        cache_layers = [copy.copy(layer) for layer in finished.cache_layers]
        routed = model if route.is_standard else apply_route(model, route, allow_untested=True)
        decoders = [StagedDecoder(request) for _ in prompts]
        _decode_rows(routed, cache_layers, segments[-1].mask, logits.argmax(-1).tolist(), decoders)
        yield route, [decoder.texts for decoder in decoders]


def _decode_rows(
    model: Any, cache_layers: list[Any], mask: torch.Tensor, tokens: list[int], decoders: list[StagedDecoder]
) -> None:
    """Decode until all rows are finished; ``tokens`` are the predictions after the prompts."""
    from transformers import DynamicCache

    cache = DynamicCache(config=model.config)
    cache.layers = cache_layers
    positions = mask.sum(dim=1)
    while True:
        inputs = [decoder.step(token) for decoder, token in zip(decoders, tokens, strict=True)]
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
