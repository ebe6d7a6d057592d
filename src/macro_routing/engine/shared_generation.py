"""Greedy answers of many routes: shared prefill, several stages in one go, finished rows leave the batch.

The prompts run through the prefix tree of the routes; every route then decodes from the caches of its own steps.
A row whose stage is over is dictated the text that opens the next one, token by token, while others still write.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from macro_routing.engine.batches import Tokens, plan_batches
from macro_routing.engine.flight.texts import fits
from macro_routing.engine.generation import Generated
from macro_routing.engine.prefix_tree import plan_tree
from macro_routing.engine.prompt_segments import prompt_segments
from macro_routing.engine.shared_pass import SharedPass
from macro_routing.engine.writing import Stage, Writer, Written
from macro_routing.models.lens import read_out
from macro_routing.models.routing import apply_route
from macro_routing.routes.route import Route

if TYPE_CHECKING:
    from macro_routing.engine.flight.decoder import FlightDecoder

_WORTH_LEAVING = 0.75
"""Finished rows are dropped when the rest is at most this share of the batch: dropping copies the caches."""


@dataclass(frozen=True)
class Generation:
    """What is to be written, and within which limits."""

    stages: tuple[Stage, ...]
    most_tokens: int = 16384
    """Tokens that may be cached at once, prompts and budgets together."""
    stop_loops: bool = False
    """Whether a text that has entered an exact loop is carried on to its budget without asking the model."""

    @property
    def room(self) -> int:
        """Tokens that a prompt may be followed by."""
        return sum(stage.budget + len(stage.bridge) for stage in self.stages)


def generate_of_routes(
    model: Any,
    routes: Sequence[Route],
    prompts: Sequence[Tokens],
    wanted: Generation,
    flight: FlightDecoder | None = None,
) -> dict[Route, list[tuple[Generated, ...]]]:
    """What every different route of ``model`` writes after each prompt, one text per stage; in flight where given."""
    if flight is not None and fits(wanted.stages):
        from macro_routing.engine.flight.generation import generate_in_flight  # needs triton

        return generate_in_flight(flight, routes, prompts, wanted.stages, stop_loops=wanted.stop_loops)
    found: dict[Route, list[tuple[Generated, ...]]] = {route: [()] * len(prompts) for route in routes}
    for batch in plan_batches([len(prompt) + wanted.room for prompt in prompts], wanted.most_tokens):
        chosen = [prompts[place] for place in batch]
        for route, written in _prefilled(model, routes, chosen, wanted):
            for place, texts in zip(batch, _finished(model, route, chosen, written, wanted), strict=True):
                found[route][place] = texts
    return found


def generate_of_pairs(
    model: Any, pairs: Sequence[tuple[Route, Tokens]], wanted: Generation, flight: FlightDecoder | None = None
) -> list[tuple[Generated, ...]]:
    """What each pair's route writes after its prompt; in flight different routes decode together, prompt by prompt."""
    places = by_route([route for route, _ in pairs])
    if flight is not None and fits(wanted.stages) and not wanted.stop_loops:
        from macro_routing.engine.flight.generation import generate_pairs_in_flight  # needs triton

        return generate_pairs_in_flight(flight, pairs, wanted.stages)
    found: list[tuple[Generated, ...]] = [()] * len(pairs)
    for route, mine in places.items():
        prompts = [pairs[place][1] for place in mine]
        for place, texts in zip(mine, generate_of_routes(model, [route], prompts, wanted, flight)[route], strict=True):
            found[place] = texts
    return found


def by_route(routes: Sequence[Route]) -> dict[Route, list[int]]:
    """Every different route with its places, in the order of their first."""
    found: dict[Route, list[int]] = {}
    for place, route in enumerate(routes):
        found.setdefault(route, []).append(place)
    return found


def _finished(
    model: Any, route: Route, prompts: Sequence[Tokens], written: Sequence[Written], wanted: Generation
) -> list[tuple[Generated, ...]]:
    """Rows that left in a loop before their last stage go on after the text they would have come to."""
    found = [row.texts for row in written]
    for done in range(1, len(wanted.stages)):
        left = [place for place, row in enumerate(written) if len(row.texts) == done]
        if left:
            longer = [(*prompts[place], *written[place].context(wanted.stages)) for place in left]
            rest = generate_of_routes(model, [route], longer, replace(wanted, stages=wanted.stages[done:]))[route]
            for place, texts in zip(left, rest, strict=True):
                found[place] += texts
    return found


@torch.no_grad()
def _prefilled(
    model: Any, routes: Sequence[Route], prompts: list[Tokens], wanted: Generation
) -> Iterator[tuple[Route, list[Written]]]:
    segments = prompt_segments(model, prompts, wanted.room)
    plan = plan_tree(routes)
    for arrival in SharedPass(model, segments).run(plan, keep_caches=True):
        route = plan.routes[arrival.route]
        logits = read_out(model, arrival.states[-1][:, -1:])[:, -1]
        # The slots stay as they are for the other routes: growing or selecting makes new tensors.
        slots = [copy.copy(slot) for slot in arrival.slots]
        routed = model if route.is_standard else apply_route(model, route, allow_untested=True)
        writers = [Writer(wanted.stages, stop_loops=wanted.stop_loops) for _ in prompts]
        _decode(routed, slots, segments[-1].mask, logits.argmax(-1).tolist(), writers)
        yield route, [writer.written for writer in writers]


def _decode(model: Any, slots: list[Any], mask: torch.Tensor, tokens: list[int], writers: list[Writer]) -> None:
    """Let all rows write until each is done; ``tokens`` are the first ones predicted."""
    from transformers import DynamicCache

    cache = DynamicCache(config=model.config)
    cache.layers = slots
    positions = mask.sum(dim=1)
    rows = list(writers)
    while True:
        feed = [writer.take(token) for writer, token in zip(rows, tokens, strict=True)]
        going = [place for place, token in enumerate(feed) if token is not None]
        if not going:
            return
        if len(going) <= _WORTH_LEAVING * len(rows):
            chosen = torch.tensor(going, device=mask.device)
            cache.batch_select_indices(chosen)
            mask, positions = mask[chosen], positions[chosen]
            rows, feed = [rows[place] for place in going], [feed[place] for place in going]
        mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
        output = model(
            torch.tensor([[token or 0] for token in feed], device=mask.device),
            attention_mask=mask,
            position_ids=positions[:, None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        positions = positions + 1
        tokens = output.logits[:, -1].argmax(-1).tolist()
