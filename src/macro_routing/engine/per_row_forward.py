"""One forward pass in which every row has a route of its own.

A layer runs on all rows that need it next, in one call; the other rows wait. So a hundred rows with a hundred routes
take a few calls per layer instead of a hundred.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from macro_routing.engine.layer_schedule import NONE, LayerCall, StepRef, merge_layer_orders_fast, schedule_layer_calls
from macro_routing.engine.shared_forward import HiddenStates, Segment, SegmentForward, select_cache_rows
from macro_routing.models.layer_inputs import LayerInputs
from macro_routing.models.routing import add_hidden_state
from macro_routing.routes.route import Route

_Indices = NDArray[np.int64]


class PerRowForward(SegmentForward):
    """The forward pass over some segments; rows of the first segment have routes, later rows follow their parents."""

    def __init__(self, model: Any, segments: Sequence[Segment]) -> None:
        """Find the row of the first segment that each row follows."""
        super().__init__(model, segments)
        # Copied to the host once, so that no layer call waits for the device.
        self._parents = [None if segment.parents is None else segment.parents.cpu().numpy() for segment in segments]
        self._first_rows = [np.arange(len(segments[0].ids))]
        for parents in self._parents[1:]:
            assert parents is not None
            self._first_rows.append(self._first_rows[-1][parents])

    @torch.no_grad()
    def run_routes(
        self, routes: Sequence[Route], on_call: Callable[[LayerCall, Any], None] = lambda _call, _cache_layer: None
    ) -> HiddenStates:
        """The last state of every row; ``on_call`` gets each call's cache layer before it is freed."""
        states = [inputs.embedded.clone() for inputs in self._inputs]
        schedule = schedule_layer_calls(routes, merge_layer_orders_fast)
        kept = [state.new_zeros(schedule.kept_states, *state.shape) for state in states]
        for call in schedule.calls:
            on_call(call, self._run_layer_call(call, states, kept))
        return states

    def _run_layer_call(self, call: LayerCall, states: HiddenStates, kept: HiddenStates) -> Any:
        cache_layer = self._start_cache_layer(call.layer)
        step_of_row = np.full(len(self._first_rows[0]), NONE)
        step_of_row[call.indices[0]] = np.arange(len(call.steps))
        parent_rows: _Indices | None = None
        for index, (segment, inputs) in enumerate(zip(self._segments, self._inputs, strict=True)):
            step_indices = step_of_row[self._first_rows[index]]
            rows = np.flatnonzero(step_indices != NONE)
            if len(rows) == 0:
                break  # no later segment continues these rows either
            device = states[index].device
            if parent_rows is not None:
                parents = self._parents[index]
                assert parents is not None
                # The cached rows are in ascending order, so a binary search finds each parent among them.
                select_cache_rows(cache_layer, _to_device(np.searchsorted(parent_rows, parents[rows]), device))
            device_rows = _to_device(rows, device)
            steps = [call.steps[step] for step in step_indices[rows]]
            hidden = _add_kept_states(states[index][device_rows], kept[index], rows, steps)
            arguments = _select_row_arguments(inputs, call.layer, device_rows, len(segment.ids))
            output = self._call_layer(call.layer, hidden, arguments, inputs.cache_name)
            states[index][device_rows] = output.to(device)
            _keep_states(kept[index], rows, steps, states[index])
            parent_rows = rows
        self._end_cache_layer(call.layer)
        return cache_layer


def _to_device(indices: _Indices, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(indices).to(device, non_blocking=True)


def _add_kept_states(
    hidden: torch.Tensor, kept: torch.Tensor, rows: _Indices, steps: Sequence[StepRef]
) -> torch.Tensor:
    """``hidden`` with the kept states that some rows' steps add."""
    adds = [(step.add_slot, step.coefficient) for step in steps]
    for slot, coefficient in sorted({add for add in adds if add[0] != NONE}):
        matching = np.array([index for index, add in enumerate(adds) if add == (slot, coefficient)])
        earlier = kept[slot, _to_device(rows[matching], kept.device)]
        adding = _to_device(matching, hidden.device)
        hidden[adding] = add_hidden_state(hidden[adding], earlier, coefficient)
    return hidden


def _keep_states(kept: torch.Tensor, rows: _Indices, steps: Sequence[StepRef], states: torch.Tensor) -> None:
    """Keep the states that a later step adds."""
    for slot in sorted({step.keep_slot for step in steps if step.keep_slot != NONE}):
        matching = rows[[index for index, step in enumerate(steps) if step.keep_slot == slot]]
        device_rows = _to_device(matching, kept.device)
        kept[slot, device_rows] = states[device_rows]


def _select_row_arguments(inputs: LayerInputs, layer: int, rows: torch.Tensor, size: int) -> dict[str, Any]:
    """A layer's arguments for some of ``size`` rows; arguments without a row axis stay as they are."""

    def select_rows(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(select_rows(part) for part in value)
        # Tensors with one axis are positions in the text, not rows.
        if isinstance(value, torch.Tensor) and value.dim() > 1 and value.shape[0] == size:
            return value[rows.to(value.device)]
        return value

    return {name: select_rows(value) for name, value in inputs.arguments[layer].items()}
