"""Generation with the fused decoder, in groups of routes and prompts that fit into memory."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from macro_routing.engine.batching import Tokens
from macro_routing.engine.fused.batch_plan import RequestGroup
from macro_routing.engine.fused.decoder import FusedDecoder
from macro_routing.engine.generation import GenerationRequest, StageTexts, group_by_route, max_new_tokens
from macro_routing.routes.route import Route

MAX_SEQUENCES = 2048
"""Sequences that decode together: more of them do not use the device better."""


def generate_fused(
    decoder: FusedDecoder, routes: Sequence[Route], prompts: Sequence[Tokens], request: GenerationRequest
) -> dict[Route, list[StageTexts]]:
    """The texts of every different route after each prompt.

    With ``stop_loops`` a sequence that a loop stopped has fewer texts than stages.
    """
    texts: dict[Route, list[StageTexts]] = {route: [()] * len(prompts) for route in routes}
    # Routes with a common prefix share the prefill, so they decode together.
    ordered = sorted(texts, key=_list_layers)
    for group, indices in _split_routes_and_prompts(
        ordered, prompts, max_new_tokens(request.stages), decoder.max_cached_tokens
    ):
        requests = [RequestGroup(group, [prompts[index] for index in indices])]
        (decoded,) = decoder.decode_groups(requests, request)
        for route, rows in zip(group, decoded, strict=True):
            for index, row in zip(indices, rows, strict=True):
                texts[route][index] = row
    return texts


def generate_pairs_fused(
    decoder: FusedDecoder, pairs: Sequence[tuple[Route, Tokens]], request: GenerationRequest
) -> list[StageTexts]:
    """The texts of each pair's route after its prompt: a request group per route, as many together as fit."""
    texts: list[StageTexts] = [()] * len(pairs)
    for group in _split_pairs(pairs, max_new_tokens(request.stages), decoder.max_cached_tokens):
        requests = [RequestGroup([route], [pairs[index][1] for index in indices]) for route, indices in group.items()]
        for indices, (rows,) in zip(group.values(), decoder.decode_groups(requests, request), strict=True):
            for index, row in zip(indices, rows, strict=True):
                texts[index] = row
    return texts


def _list_layers(route: Route) -> list[int]:
    return [step.layer for step in route.steps]


def _split_pairs(
    pairs: Sequence[tuple[Route, Tokens]], new_tokens: int, max_cached_tokens: int
) -> Iterator[dict[Route, list[int]]]:
    """The pairs' indices by route, in groups that stay within the limits of memory and sequences."""
    by_route = group_by_route([route for route, _ in pairs])
    group: dict[Route, list[int]] = {}
    sequences = tokens = 0
    # Routes with a common prefix need the same layers at the same time, so they decode together.
    for route in sorted(by_route, key=_list_layers):
        for index in by_route[route]:
            needed = (len(pairs[index][1]) + new_tokens) * route.length
            if group and (sequences + 1 > MAX_SEQUENCES or tokens + needed > max_cached_tokens):
                yield group
                group, sequences, tokens = {}, 0, 0
            group.setdefault(route, []).append(index)
            sequences, tokens = sequences + 1, tokens + needed
    if group:
        yield group


def _split_routes_and_prompts(
    routes: Sequence[Route], prompts: Sequence[Tokens], new_tokens: int, max_cached_tokens: int
) -> Iterator[tuple[Sequence[Route], list[int]]]:
    """Routes and indices of prompts that decode together: all prompts if they fit, then as many routes as fit."""
    region_tokens = max(map(len, prompts)) + new_tokens
    longest_route = max(route.length for route in routes)
    max_sequences = max(1, min(MAX_SEQUENCES, max_cached_tokens // (region_tokens * longest_route)))
    by_length = sorted(range(len(prompts)), key=lambda index: (-len(prompts[index]), index))
    for indices in np.array_split(by_length, math.ceil(len(prompts) / max_sequences)):
        routes_per_group = max(1, max_sequences // len(indices))
        for group in np.array_split(np.arange(len(routes)), math.ceil(len(routes) / routes_per_group)):
            yield [routes[number] for number in group], indices.tolist()
