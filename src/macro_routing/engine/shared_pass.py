"""One pass over some tokens for many routes at once, every common prefix of steps computed once.

The tokens come as *segments*, each continuing the rows of the one before: a beginning common to all prompts (one
row), the prompts, the choices that follow them. A layer is run on all segments in turn, with a cache of its own, so
the keys and values of a step are gone when the step is done unless somebody wants to keep them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch

from macro_routing.engine.batches import positions_of
from macro_routing.engine.prefix_tree import EMBEDDINGS, Application, TreePlan
from macro_routing.models.layer_inputs import LayerInputs, layer_inputs
from macro_routing.models.routing import add_state, decoder_of

States = list[torch.Tensor]
"""A hidden state per segment, ``[rows, tokens, width]``."""


@dataclass(frozen=True, eq=False)
class Segment:
    """Tokens that are fed together."""

    ids: torch.Tensor
    """``[rows, tokens]``"""
    mask: torch.Tensor
    """``[rows, tokens so far]``, this segment's own last; 0 where a token is padding."""
    parents: torch.Tensor | None = None
    """Which row of the segment before each row continues; None for the first segment."""


@dataclass(frozen=True, eq=False)
class Arrival:
    """A route at its end."""

    route: int
    """Place among the plan's routes."""
    states: States
    slots: list[Any]
    """The cache of every step, where caches are kept."""


class SharedPass:
    """Segments made ready for one model."""

    def __init__(self, model: Any, segments: Sequence[Segment]) -> None:
        """Work out what each layer is given for each segment."""
        self._empty, self._cache = slots_for(model)
        self._layers = decoder_of(model).layers
        self._segments = segments
        self._inputs = [inputs_of(model, segment) for segment in segments]

    @property
    def state_bytes(self) -> int:
        """What one state of all segments takes."""
        return sum(given.embedded.numel() * given.embedded.element_size() for given in self._inputs)

    @torch.no_grad()
    def run(self, plan: TreePlan, *, keep_caches: bool = False) -> Iterator[Arrival]:
        """Yield every route as it arrives; what it brings may be used until the next one is asked for."""
        states: dict[int, States] = {EMBEDDINGS: [given.embedded for given in self._inputs]}
        slots: dict[int, Any] = {}
        sources: dict[int, int] = {}
        for application in plan.applications:
            number = application.state
            sources[number] = application.source
            states[number], slot = self._apply(application, states)
            if keep_caches:
                slots[number] = slot
            for route in application.ends:
                yield Arrival(route, states[number], _path(number, sources, slots) if keep_caches else [])
            for state in application.last_reads:
                del states[state]
            for state in application.closes:
                slots.pop(state, None)

    def _apply(self, application: Application, states: dict[int, States]) -> tuple[States, Any]:
        # The layer's own slot in the cache is the step's, a new one every time.
        slot = fresh_slot(self._empty[application.layer])
        self._cache.layers[application.layer] = slot
        found: States = []
        for place, (segment, given) in enumerate(zip(self._segments, self._inputs, strict=True)):
            hidden = states[application.source][place]
            if application.add is not None:
                assert application.added is not None
                earlier = states[application.added][place]
                hidden = add_state(hidden, earlier.to(hidden.device), application.add.coefficient)
            if segment.parents is not None:
                continue_rows(slot, segment.parents)
            arguments = {**given.arguments[application.layer], given.cache_name: self._cache}
            output = self._layers[application.layer](hidden, **arguments)
            found.append(output[0] if isinstance(output, tuple) else output)
        self._cache.layers[application.layer] = self._empty[application.layer]
        return found, slot


_EMPTY: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()


def empty_slots(model: Any) -> list[Any]:
    """A cache slot per layer, to be copied and never filled.

    Made once per model: reading them off a configuration takes longer than a small layer takes to run.
    """
    from transformers import DynamicCache

    if model not in _EMPTY:
        _EMPTY[model] = list(DynamicCache(config=model.config).layers)
    return _EMPTY[model]


def fresh_slot(empty: Any) -> Any:
    """A copy of a slot; ``copy.copy`` gives the same, but takes several times as long, and one is made per step."""
    slot = object.__new__(type(empty))
    slot.__dict__.update(empty.__dict__)
    return slot


def continue_rows(slot: Any, parents: torch.Tensor) -> None:
    """Give every row of the next segment the keys and values of the row that it continues."""
    from transformers.cache_utils import CacheLayerMixin

    if type(slot).reorder_cache is CacheLayerMixin.reorder_cache and len(slot.keys) == 1:
        # All rows continue one: a view does, the tokens that come next are joined to a copy of it anyway.
        slot.keys, slot.values = (one.expand(len(parents), -1, -1, -1) for one in (slot.keys, slot.values))
    else:
        # Not batch_select_indices: it picks the same rows, but by a kernel several times slower.
        slot.reorder_cache(parents)


def slots_for(model: Any) -> tuple[list[Any], Any]:
    """An empty slot per layer, and a cache that holds them until a layer is run."""
    from transformers import DynamicCache

    cache: Any = DynamicCache()
    empty = empty_slots(model)
    cache.layers = list(empty)
    return empty, cache


def inputs_of(model: Any, segment: Segment) -> LayerInputs:
    """What the layers are given for a segment."""
    tokens = segment.ids.shape[1]
    positions = positions_of(segment.mask)[:, -tokens:]
    return layer_inputs(model, segment.ids, segment.mask, positions, cached=segment.mask.shape[1] - tokens)


def _path(number: int, sources: dict[int, int], slots: dict[int, Any]) -> list[Any]:
    """The caches of all steps down to this one, first step first."""
    found = []
    while number != EMBEDDINGS:
        found.append(slots[number])
        number = sources[number]
    return found[::-1]
