"""Generation for many routes, or for pairs of route and prompt, with the fused decoder where one is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from macro_routing.engine.batching import Tokens
from macro_routing.engine.generation import GenerationRequest, StageTexts, group_by_route
from macro_routing.engine.shared_generation import generate_eager
from macro_routing.routes.route import Route

if TYPE_CHECKING:  # needs triton
    from macro_routing.engine.fused.decoder import FusedDecoder


def generate_for_routes(
    model: Any,
    routes: Sequence[Route],
    prompts: Sequence[Tokens],
    request: GenerationRequest,
    fused: FusedDecoder | None = None,
) -> dict[Route, list[StageTexts]]:
    """The texts of every different route of ``model`` after each prompt, one text per stage."""
    if fused is None or not fused.supports_stages(request.stages):
        return generate_eager(model, routes, prompts, request)
    from macro_routing.engine.fused.generation import generate_fused

    return generate_fused(fused, routes, prompts, request.stages, stop_loops=request.stop_loops)


def generate_for_pairs(
    model: Any, pairs: Sequence[tuple[Route, Tokens]], request: GenerationRequest, fused: FusedDecoder | None = None
) -> list[StageTexts]:
    """The texts of each pair's route after its prompt; the fused decoder runs different routes in one batch."""
    if fused is not None and fused.supports_stages(request.stages) and not request.stop_loops:
        from macro_routing.engine.fused.generation import generate_pairs_fused

        return generate_pairs_fused(fused, pairs, request.stages)
    texts: list[StageTexts] = [()] * len(pairs)
    for route, indices in group_by_route([route for route, _ in pairs]).items():
        prompts = [pairs[index][1] for index in indices]
        for index, row in zip(
            indices, generate_for_routes(model, [route], prompts, request, fused)[route], strict=True
        ):
            texts[index] = row
    return texts
