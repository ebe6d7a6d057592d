"""What ``shared_generation.generate_of_routes`` gives, written in flight: as many routes at once as memory allows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from macro_routing.engine.batches import Tokens
from macro_routing.engine.flight.boarding import Party
from macro_routing.engine.flight.decoder import FlightDecoder
from macro_routing.engine.generation import Generated
from macro_routing.engine.writing import Stage, Written
from macro_routing.routes.route import Route

MOST_ROWS = 2048
"""Sequences in flight: with more of them the device is not used better."""
_Texts = tuple[Generated, ...]


def generate_in_flight(
    decoder: FlightDecoder,
    routes: Sequence[Route],
    prompts: Sequence[Tokens],
    stages: Sequence[Stage],
    *,
    stop_loops: bool = False,
) -> dict[Route, list[_Texts]]:
    """What every different route writes after each prompt, one text per stage."""
    found: dict[Route, list[_Texts]] = {route: [()] * len(prompts) for route in routes}
    # Routes that begin alike share the pass over the prompts, so they fly together.
    ordered = sorted(found, key=lambda route: [step.layer for step in route.steps])
    for chosen, places in _groups(ordered, prompts, stages, decoder.most_tokens):
        (written,) = decoder.write([Party(chosen, [prompts[n] for n in places])], stages, stop_loops=stop_loops)
        for route, writers in zip(chosen, written, strict=True):
            for place, writer in zip(places, writers, strict=True):
                found[route][place] = writer.written.texts
        for done in range(1, len(stages)):
            _finish_loops(decoder, prompts, stages, done, {route: found[route] for route in chosen}, places)
    return found


def generate_pairs_in_flight(
    decoder: FlightDecoder, pairs: Sequence[tuple[Route, Tokens]], stages: Sequence[Stage]
) -> list[_Texts]:
    """What each pair's route writes after its prompt: a party per route, as many of them together as fit."""
    found: list[_Texts] = [()] * len(pairs)
    room = sum(stage.budget + len(stage.bridge) for stage in stages)
    by_route: dict[Route, list[int]] = {}
    # Routes that begin alike need the same layers at the same time, so they fly together.
    for place in sorted(range(len(pairs)), key=lambda place: [step.layer for step in pairs[place][0].steps]):
        by_route.setdefault(pairs[place][0], []).append(place)
    for group in _parties(by_route, pairs, room, decoder.most_tokens):
        parties = [Party([route], [pairs[place][1] for place in places]) for route, places in group]
        written = decoder.write(parties, stages)
        for (_, places), (writers,) in zip(group, written, strict=True):
            for place, writer in zip(places, writers, strict=True):
                found[place] = writer.written.texts
    return found


def _parties(
    by_route: dict[Route, list[int]], pairs: Sequence[tuple[Route, Tokens]], room: int, most_tokens: int
) -> Iterator[list[tuple[Route, list[int]]]]:
    """Routes with their places, in groups that stay within the memory and the useful number of rows."""
    group: list[tuple[Route, list[int]]] = []
    rows = tokens = 0
    for route, places in by_route.items():
        for place in places:
            needed = (len(pairs[place][1]) + room) * route.length
            if group and (rows + 1 > MOST_ROWS or tokens + needed > most_tokens):
                yield group
                group, rows, tokens = [], 0, 0
            if group and group[-1][0] == route:
                group[-1][1].append(place)
            else:
                group.append((route, [place]))
            rows, tokens = rows + 1, tokens + needed
    if group:
        yield group


def _groups(
    routes: Sequence[Route], prompts: Sequence[Tokens], stages: Sequence[Stage], most_tokens: int
) -> Iterator[tuple[Sequence[Route], list[int]]]:
    """Routes and places of prompts that fly together: all prompts if they fit, and as many routes as fit then."""
    lane = max(map(len, prompts)) + sum(stage.budget + len(stage.bridge) for stage in stages)
    most_rows = max(1, min(MOST_ROWS, most_tokens // (lane * max(route.length for route in routes))))
    by_length = sorted(range(len(prompts)), key=lambda place: (-len(prompts[place]), place))
    for places in np.array_split(by_length, math.ceil(len(prompts) / most_rows)):
        together = max(1, most_rows // len(places))
        for chosen in np.array_split(np.arange(len(routes)), math.ceil(len(routes) / together)):
            yield [routes[n] for n in chosen], places.tolist()


def _finish_loops(  # noqa: PLR0913
    decoder: FlightDecoder,
    prompts: Sequence[Tokens],
    stages: Sequence[Stage],
    done: int,
    found: dict[Route, list[_Texts]],
    places: Sequence[int],
) -> None:
    """Sequences that left in a loop after ``done`` stages go on after the text they would have come to."""
    left = {route: [place for place in places if len(texts[place]) == done] for route, texts in found.items()}
    left = {route: rows for route, rows in left.items() if rows}
    if not left:
        return
    parties = [
        Party([route], [(*prompts[place], *Written(found[route][place]).context(stages)) for place in rows])
        for route, rows in left.items()
    ]
    written = decoder.write(parties, stages[done:], stop_loops=True)
    for (route, rows), (writers,) in zip(left.items(), written, strict=True):
        for place, writer in zip(rows, writers, strict=True):
            found[route][place] += writer.written.texts
