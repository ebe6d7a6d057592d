"""Generation for many routes, or for pairs of route and prompt, with the fused decoder where one is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from macro_routing.engine.batching import Tokens
from macro_routing.engine.fused.stage_tables import supports_stages
from macro_routing.engine.generation import GenerationRequest, StageTexts, extend_prompt, group_by_route
from macro_routing.engine.shared_generation import generate_eager
from macro_routing.routes.route import Route

if TYPE_CHECKING:  # needs triton
    from macro_routing.engine.fused.decoder import FusedDecoder

_Pairs = Sequence[tuple[Route, Tokens]]


def generate_for_routes(
    model: Any,
    routes: Sequence[Route],
    prompts: Sequence[Tokens],
    request: GenerationRequest,
    fused: FusedDecoder | None = None,
) -> dict[Route, list[StageTexts]]:
    """The texts of every different route of ``model`` after each prompt, one text per stage."""
    if fused is not None and supports_stages(request.stages):
        from macro_routing.engine.fused.generation import generate_fused

        texts = generate_fused(fused, routes, prompts, request)
    else:
        texts = generate_eager(model, routes, prompts, request)
    pairs = [(route, prompt) for route in texts for prompt in prompts]
    rows = iter(
        _finish_stopped_sequences(model, pairs, [row for rows in texts.values() for row in rows], request, fused)
    )
    return {route: [next(rows) for _ in prompts] for route in texts}


def generate_for_pairs(
    model: Any, pairs: _Pairs, request: GenerationRequest, fused: FusedDecoder | None = None
) -> list[StageTexts]:
    """The texts of each pair's route after its prompt; the fused decoder runs different routes in one batch."""
    return _finish_stopped_sequences(model, pairs, _decode_pairs(model, pairs, request, fused), request, fused)


def _decode_pairs(
    model: Any, pairs: _Pairs, request: GenerationRequest, fused: FusedDecoder | None
) -> list[StageTexts]:
    if fused is not None and supports_stages(request.stages):
        from macro_routing.engine.fused.generation import generate_pairs_fused

        return generate_pairs_fused(fused, pairs, request)
    texts: list[StageTexts] = [()] * len(pairs)
    for route, indices in group_by_route([route for route, _ in pairs]).items():
        rows = generate_eager(model, [route], [pairs[index][1] for index in indices], request)[route]
        for index, row in zip(indices, rows, strict=True):
            texts[index] = row
    return texts


def _finish_stopped_sequences(
    model: Any, pairs: _Pairs, texts: list[StageTexts], request: GenerationRequest, fused: FusedDecoder | None
) -> list[StageTexts]:
    """``texts`` with the later stages of sequences that a loop stopped, decoded from the prompts that they led to."""
    for done in range(1, len(request.stages)):
        stopped = [index for index, row in enumerate(texts) if len(row) == done]
        if stopped:
            extended = [(pairs[n][0], extend_prompt(pairs[n][1], texts[n], request.stages)) for n in stopped]
            rest = _decode_pairs(model, extended, replace(request, stages=request.stages[done:]), fused)
            for index, row in zip(stopped, rest, strict=True):
                texts[index] += row
    return texts
