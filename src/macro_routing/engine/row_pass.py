"""One pass over some tokens in which every row has a route of its own.

Rows wait until it is their layer's turn: a layer is run on all rows that need it next, in one call. A hundred rows on a
hundred routes so take a few calls per layer instead of a hundred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from macro_routing.engine.flight.schedule import NOTHING, Visit, quick_order, visits_of
from macro_routing.engine.shared_pass import Segment, States, continue_rows, fresh_slot, inputs_of, slots_for
from macro_routing.models.layer_inputs import LayerInputs
from macro_routing.models.routing import add_state, decoder_of
from macro_routing.routes.route import Route


@dataclass(frozen=True)
class Turn:
    """A layer, and the rows whose turn it is, each with its visit."""

    layer: int
    rows: NDArray[np.int64]
    visits: tuple[Visit, ...]


def turns(routes: Sequence[Route]) -> Iterator[Turn]:
    """Turns that take every row through all steps of its route."""
    ways = [visits_of(place, route) for place, route in enumerate(routes)]
    orders = [[step.layer for step in route.steps] for route in routes]
    done = np.zeros(len(routes), dtype=np.int64)
    waiting = np.array([order[0] for order in orders])
    for layer in quick_order(orders):
        rows = np.flatnonzero(waiting == layer)
        yield Turn(layer, rows, tuple(ways[row][done[row]] for row in rows))
        done[rows] += 1
        waiting[rows] = [orders[row][done[row]] if done[row] < len(orders[row]) else NOTHING for row in rows]


class RowPass:
    """Segments made ready for one model; the first segment's rows have the routes, later ones follow their parents."""

    def __init__(self, model: Any, segments: Sequence[Segment]) -> None:
        """Work out what each layer is given for each segment."""
        self._model = model
        self._layers = decoder_of(model).layers
        self._slots, self._cache = slots_for(model)
        self._segments = segments
        self._inputs = [inputs_of(model, segment) for segment in segments]
        # Who continues whom is known here, so no turn has to wait for the device to tell.
        self._parents = [None if one.parents is None else one.parents.cpu().numpy() for one in segments]
        self._owners = [np.arange(len(segments[0].ids))]
        for parents in self._parents[1:]:
            assert parents is not None
            self._owners.append(self._owners[-1][parents])

    @torch.no_grad()
    def run(self, routes: Sequence[Route], on_turn: Callable[[Turn, Any], None] = lambda _turn, _slot: None) -> States:
        """The state of every row at the end of its route; ``on_turn`` is given each turn's cache before it is gone."""
        states = [given.embedded.clone() for given in self._inputs]
        shelves = 1 + max(
            (visit.keep_at for place, route in enumerate(routes) for visit in visits_of(place, route)), default=NOTHING
        )
        kept = [state.new_zeros(shelves, *state.shape) for state in states]
        for turn in turns(routes):
            on_turn(turn, self._take(turn, states, kept))
        return states

    def _take(self, turn: Turn, states: States, kept: States) -> Any:
        slot = fresh_slot(self._slots[turn.layer])
        self._cache.layers[turn.layer] = slot
        chosen = np.full(len(self._owners[0]), NOTHING)
        chosen[turn.rows] = np.arange(len(turn.rows))
        before: NDArray[np.int64] | None = None
        for place, (segment, given) in enumerate(zip(self._segments, self._inputs, strict=True)):
            visits = chosen[self._owners[place]]  # of each of the segment's rows, or nothing
            places = np.flatnonzero(visits != NOTHING)
            if len(places) == 0:
                break  # nor does anything follow these rows
            device = states[place].device
            if before is not None:
                parents = self._parents[place]
                assert parents is not None
                # Those rows are in ascending order, so a search finds where each parent lies among them.
                continue_rows(slot, _on(np.searchsorted(before, parents[places]), device))
            rows = _on(places, device)
            mine = [turn.visits[visit] for visit in visits[places]]
            hidden = _with_adds(states[place][rows], kept[place], places, mine)
            arguments = {**_rows_of(given, turn.layer, rows, len(segment.ids)), given.cache_name: self._cache}
            output = self._layers[turn.layer](hidden, **arguments)
            found = output[0] if isinstance(output, tuple) else output
            states[place][rows] = found.to(device)
            _keep(kept[place], places, mine, states[place])
            before = places
        self._cache.layers[turn.layer] = self._slots[turn.layer]
        return slot


def _on(places: NDArray[np.int64], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(places).to(device, non_blocking=True)


def _with_adds(
    hidden: torch.Tensor, kept: torch.Tensor, rows: NDArray[np.int64], visits: Sequence[Visit]
) -> torch.Tensor:
    """The input of a turn: rows whose step adds an earlier state have it added."""
    sources = [(one.add_from, one.coefficient) for one in visits]
    for source, coefficient in sorted({one for one in sources if one[0] != NOTHING}):
        mine = np.array([place for place, one in enumerate(sources) if one == (source, coefficient)])
        earlier = kept[source, _on(rows[mine], kept.device)]
        adding = _on(mine, hidden.device)
        hidden[adding] = add_state(hidden[adding], earlier, coefficient)
    return hidden


def _keep(kept: torch.Tensor, rows: NDArray[np.int64], visits: Sequence[Visit], states: torch.Tensor) -> None:
    """Put the states aside that a later step adds."""
    for shelf in sorted({one.keep_at for one in visits if one.keep_at != NOTHING}):
        mine = _on(rows[[place for place, one in enumerate(visits) if one.keep_at == shelf]], kept.device)
        kept[shelf, mine] = states[mine]


def _rows_of(given: LayerInputs, layer: int, rows: torch.Tensor, size: int) -> dict[str, Any]:
    """A layer's arguments for some of ``size`` rows; what is the same for all rows stays as it is."""

    def chosen(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(chosen(one) for one in value)
        # Tensors with one axis are positions in the text, not rows.
        if isinstance(value, torch.Tensor) and value.dim() > 1 and value.shape[0] == size:
            return value[rows.to(value.device)]
        return value

    return {name: chosen(value) for name, value in given.arguments[layer].items()}
