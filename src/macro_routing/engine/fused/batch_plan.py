"""The batches of a fused decoding call: which prompts run together, and where each sequence lies in the cache."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from macro_routing.engine.batching import Tokens, batch_by_length
from macro_routing.engine.fused.device_tables import SequenceTable
from macro_routing.engine.generation import group_indices_by_route
from macro_routing.routes.mixture import Mixture, RouteOrMixture, to_mixture
from macro_routing.routes.route import Route

MAX_SEQUENCES = 2048
"""Sequences that decode together: more of them do not use the device better."""
MAX_PREFILL_TOKENS = 16384
"""Tokens of prompts that are prefilled together, with padding."""
_Result = TypeVar("_Result")


@dataclass(frozen=True, eq=False)
class RoutesOverSamePrompts:
    """Different routes that all continue the same prompts, or mixtures of equally many routes."""

    routes: Sequence[Route]
    prompts: Sequence[Tokens]
    mixtures: Sequence[Mixture] = ()
    """Whose members the routes are, one mixture after the other; empty where every route answers alone."""

    @classmethod
    def from_routes(cls, routes: Sequence[RouteOrMixture], prompts: Sequence[Tokens]) -> "RoutesOverSamePrompts":
        """A group of routes, or of mixtures of equally many routes."""
        members = [route for group in routes for route in to_mixture(group).routes]
        return cls(members, prompts, [route for route in routes if isinstance(route, Mixture)])

    @property
    def members(self) -> int:
        """Routes of each mixture; 0 where every route answers alone."""
        return len(self.mixtures[0].members) if self.mixtures else 0


@dataclass(frozen=True, eq=False)
class PromptBatch:
    """Prompts of a group that are prefilled together; a sequence is one of them with one route.

    In the cache every step of every sequence has a region of ``tokens_per_cache_region`` tokens: route by route, step
    by step, row by row.
    """

    group: int
    routes: Sequence[Route]
    first_route: int
    """Index of its first route among the routes of all groups."""
    prompt_indices: Sequence[int]
    """Indices of its prompts within the group."""
    prompts: list[Tokens]
    new_tokens: int
    """The largest number of tokens that may follow a prompt."""
    cache_start: int
    """First token of its regions in the cache."""
    first_sequence: int

    mixtures: Sequence[Mixture]
    """Whose members the routes are; empty where every route answers alone."""

    @property
    def padded_prompt_length(self) -> int:
        """Tokens of a prompt, with padding."""
        return max(map(len, self.prompts))

    @property
    def tokens_per_cache_region(self) -> int:
        """Tokens of one step of one sequence."""
        return self.padded_prompt_length + self.new_tokens

    def route_cache_start(self, index: int) -> int:
        """First token of a route's regions; the index after the last route gives the start of the next batch."""
        steps = sum(route.length for route in self.routes[:index])
        return self.cache_start + steps * len(self.prompts) * self.tokens_per_cache_region

    def sequences_of_route(self, index: int) -> slice:
        """The sequences of a route."""
        first = self.first_sequence + index * len(self.prompts)
        return slice(first, first + len(self.prompts))

    @property
    def sequences_by_answer(self) -> NDArray[np.int64]:
        """The sequences, those that write one answer together as neighbours."""
        answers = len(self.mixtures) or len(self.routes)
        numbers = np.arange(len(self.routes) * len(self.prompts)).reshape(answers, -1, len(self.prompts))
        return self.first_sequence + numbers.swapaxes(1, 2).ravel()


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """All batches, one after the other in the cache."""

    groups: Sequence[RoutesOverSamePrompts]
    batches: tuple[PromptBatch, ...]

    @property
    def routes(self) -> list[Route]:
        """The routes of all groups, group by group."""
        return [route for group in self.groups for route in group.routes]

    @property
    def num_sequences(self) -> int:
        """The number of sequences of all batches."""
        return sum(len(batch.routes) * len(batch.prompts) for batch in self.batches)

    @property
    def planned_cache_tokens(self) -> int:
        """Tokens of all regions."""
        return self.batches[-1].route_cache_start(len(self.batches[-1].routes))

    @property
    def sequence_table(self) -> SequenceTable:
        """Route, cache regions and part in a mixture of every sequence."""
        weights = [weight for group in self.groups for mixture in group.mixtures for weight in mixture.weights]
        references = [mixture.reference for group in self.groups for mixture in group.mixtures for _ in mixture.members]
        parts = [
            (
                np.full(len(batch.prompts), batch.first_route + index),
                batch.route_cache_start(index) + batch.tokens_per_cache_region * np.arange(len(batch.prompts)),
                np.full(len(batch.prompts), len(batch.prompts) * batch.tokens_per_cache_region),
            )
            for batch in self.batches
            for index in range(len(batch.routes))
        ]
        routes, starts, strides = (np.concatenate(column) for column in zip(*parts, strict=True))
        return SequenceTable(
            routes,
            starts,
            strides,
            np.concatenate([batch.sequences_by_answer for batch in self.batches]),
            self.groups[0].members,
            np.array(weights or np.ones(len(self.routes)), dtype=np.float32)[routes],
            np.array(references or np.zeros(len(self.routes)), dtype=np.int32)[routes],
        )

    def arrange_results_by_route_and_prompt(self, results: Sequence[_Result]) -> list[list[list[_Result]]]:
        """The sequences' results by group, route and prompt."""
        grouped = [[[results[0]] * len(group.prompts) for _ in group.routes] for group in self.groups]
        for batch in self.batches:
            for route in range(len(batch.routes)):
                for index, result in zip(batch.prompt_indices, results[batch.sequences_of_route(route)], strict=True):
                    grouped[batch.group][route][index] = result
        return grouped


def plan_batches(groups: Sequence[RoutesOverSamePrompts], new_tokens: int) -> BatchPlan:
    """Plan the batches of all groups; at most ``new_tokens`` tokens follow each prompt."""
    batches: list[PromptBatch] = []
    first_route = cache_start = sequence = 0
    for number, group in enumerate(groups):
        for indices in batch_by_length([len(prompt) for prompt in group.prompts], MAX_PREFILL_TOKENS):
            prompts = [group.prompts[index] for index in indices]
            batch = PromptBatch(
                number, group.routes, first_route, indices, prompts, new_tokens, cache_start, sequence, group.mixtures
            )
            batches.append(batch)
            cache_start = batch.route_cache_start(len(group.routes))
            sequence += len(group.routes) * len(prompts)
        first_route += len(group.routes)
    return BatchPlan(groups, tuple(batches))


def list_step_layers(route: RouteOrMixture) -> list[int]:
    """The layers of all steps, member by member; routes sorted by them share the longest prefixes."""
    return [step.layer for member in to_mixture(route).routes for step in member.steps]


def group_by_member_count(routes: Sequence[RouteOrMixture]) -> list[list[int]]:
    """Indices of the routes that can decode together: single routes, and mixtures of equally many."""
    counts = [len(route.members) if isinstance(route, Mixture) else 0 for route in routes]
    return [[index for index, other in enumerate(counts) if other == count] for count in dict.fromkeys(counts)]


def split_pairs_to_fit_memory(
    pairs: Sequence[tuple[RouteOrMixture, Tokens]], new_tokens: int, max_cached_tokens: int
) -> Iterator[dict[RouteOrMixture, list[int]]]:
    """The pairs' indices by route, in groups that stay within the limits of memory and sequences."""
    by_route = group_indices_by_route([route for route, _ in pairs])
    group: dict[RouteOrMixture, list[int]] = {}
    sequences = tokens = 0
    # Routes with a common prefix need the same layers at the same time, so they decode together.
    for route in sorted(by_route, key=list_step_layers):
        members = len(to_mixture(route).members)
        for index in by_route[route]:
            needed = (len(pairs[index][1]) + new_tokens) * len(list_step_layers(route))
            if group and (sequences + members > MAX_SEQUENCES or tokens + needed > max_cached_tokens):
                yield group
                group, sequences, tokens = {}, 0, 0
            group.setdefault(route, []).append(index)
            sequences, tokens = sequences + members, tokens + needed
    if group:
        yield group


def split_routes_to_fit_memory(
    routes: Sequence[RouteOrMixture], prompts: Sequence[Tokens], new_tokens: int, max_cached_tokens: int
) -> Iterator[tuple[Sequence[RouteOrMixture], list[int]]]:
    """Routes and indices of prompts that decode together: all prompts if they fit, then as many routes as fit."""
    tokens_per_cache_region = max(map(len, prompts)) + new_tokens
    most_steps = max(len(list_step_layers(route)) for route in routes)
    most_members = max(len(to_mixture(route).members) for route in routes)
    max_answers = min(MAX_SEQUENCES // most_members, max_cached_tokens // (tokens_per_cache_region * most_steps))
    max_answers = max(1, max_answers)
    by_length = sorted(range(len(prompts)), key=lambda index: (-len(prompts[index]), index))
    for indices in np.array_split(by_length, math.ceil(len(prompts) / max_answers)):
        routes_per_group = max(1, max_answers // len(indices))
        for group in np.array_split(np.arange(len(routes)), math.ceil(len(routes) / routes_per_group)):
            yield [routes[number] for number in group], indices.tolist()
