"""Who flies: parties of routes with their prompts, batches of prompts that are read together, places in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from macro_routing.engine.batches import Tokens, plan_batches
from macro_routing.engine.flight.tables import Seats
from macro_routing.routes.route import Route

PROMPT_TOKENS = 16384
"""Tokens of prompts that are run together, with padding."""
_Item = TypeVar("_Item")


@dataclass(frozen=True, eq=False)
class Party:
    """Different routes that all continue the same prompts."""

    routes: Sequence[Route]
    prompts: Sequence[Tokens]


@dataclass(frozen=True, eq=False)
class Batch:
    """Prompts of a party whose pass is run together; a sequence is one of them under one route.

    In the cache every step of every sequence has a lane of ``size`` tokens: route by route, step by step, row by row.
    """

    party: int
    routes: Sequence[Route]
    first_route: int
    """Place of its first route among all that fly."""
    places: Sequence[int]
    """Of its prompts within the party."""
    prompts: list[Tokens]
    room: int
    """Tokens that may follow a prompt."""
    first_token: int
    """Of its lanes in the cache."""
    first_sequence: int

    @property
    def length(self) -> int:
        """Tokens of a prompt, with padding."""
        return max(map(len, self.prompts))

    @property
    def size(self) -> int:
        """Tokens of a lane."""
        return self.length + self.room

    def first_token_of(self, place: int) -> int:
        """Where a route's lanes begin; the place after the last route is where the next batch begins."""
        steps = sum(route.length for route in self.routes[:place])
        return self.first_token + steps * len(self.prompts) * self.size

    def sequences_of(self, place: int) -> slice:
        """A route's sequences."""
        first = self.first_sequence + place * len(self.prompts)
        return slice(first, first + len(self.prompts))


@dataclass(frozen=True, eq=False)
class Boarding:
    """All batches, one after the other in the cache."""

    parties: Sequence[Party]
    batches: tuple[Batch, ...]
    room: int

    @property
    def routes(self) -> list[Route]:
        """All that fly, party by party."""
        return [route for party in self.parties for route in party.routes]

    @property
    def sequences(self) -> int:
        """How many there are."""
        return int(self.batches[-1].sequences_of(len(self.batches[-1].routes) - 1).stop)

    @property
    def tokens(self) -> int:
        """All lanes together."""
        return self.batches[-1].first_token_of(len(self.batches[-1].routes))

    @property
    def seats(self) -> Seats:
        """Route and lanes of every sequence."""
        parts = [
            (
                np.full(len(batch.prompts), batch.first_route + place),
                batch.first_token_of(place) + batch.size * np.arange(len(batch.prompts)),
                np.full(len(batch.prompts), len(batch.prompts) * batch.size),
            )
            for batch in self.batches
            for place in range(len(batch.routes))
        ]
        return Seats(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def by_party(self, found: Sequence[_Item]) -> list[list[list[_Item]]]:
        """What was found for every sequence, by party, route and prompt."""
        sorted_ = [[[found[0]] * len(party.prompts) for _ in party.routes] for party in self.parties]
        for batch in self.batches:
            for route in range(len(batch.routes)):
                for place, item in zip(batch.places, found[batch.sequences_of(route)], strict=True):
                    sorted_[batch.party][route][place] = item
        return sorted_


def board(parties: Sequence[Party], room: int) -> Boarding:
    """Plan the batches of all parties; ``room`` tokens may follow each prompt."""
    batches: list[Batch] = []
    first_route = token = sequence = 0
    for number, party in enumerate(parties):
        for places in plan_batches([len(prompt) for prompt in party.prompts], PROMPT_TOKENS):
            prompts = [party.prompts[place] for place in places]
            batch = Batch(number, party.routes, first_route, places, prompts, room, token, sequence)
            batches.append(batch)
            token = batch.first_token_of(len(party.routes))
            sequence = batch.sequences_of(len(party.routes) - 1).stop
        first_route += len(party.routes)
    return Boarding(parties, tuple(batches), room)
