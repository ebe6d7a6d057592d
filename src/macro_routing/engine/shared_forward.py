"""One forward pass for many routes at once: all routes over the same rows, or every row with a route of its own.

``PrefixTreeForward`` computes every common prefix of steps once. In ``RoutePerRowForward`` a layer runs on all rows
that need it next, in one call, and the other rows wait. So a hundred rows with a hundred routes take a few calls per
layer.

The tokens come as *segments*; each segment continues the rows of the one before: a common prefix of all prompts (one
row), the prompts, the choices that follow them. A layer runs on all segments in turn with a cache layer of its own, so
the keys and values of a step are freed after the step unless the caller keeps them.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from macro_routing.engine.batching import Tokens, choose_shared_prompt_prefix_length, compute_position_ids, pad_left
from macro_routing.engine.layer_graphs import MIN_REPLAYED_CALLS, LayerGraphs
from macro_routing.engine.layer_schedule import (
    NONE,
    LayerCall,
    RouteStep,
    merge_layer_orders_fast,
    schedule_layer_calls,
)
from macro_routing.engine.prefix_tree import EMBEDDINGS, LayerApplication, PrefixTreePlan
from macro_routing.models.find_decoder import get_decoder
from macro_routing.models.hidden_states import (
    LayerInputs,
    compute_layer_keyword_arguments,
    get_cache_layer_templates,
)
from macro_routing.models.layer_copies import add_hidden_state
from macro_routing.routes.route import Route

HiddenStates = list[torch.Tensor]
"""A hidden state per segment, ``[rows, tokens, width]``."""
_Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ForwardTokenChunk:
    """Tokens that are fed together."""

    ids: torch.Tensor
    """``[rows, tokens]``"""
    mask: torch.Tensor
    """``[rows, tokens so far]``, this segment's tokens last; 0 at padding."""
    parents: torch.Tensor | None = None
    """The row of the segment before that each row continues; None for the first segment."""


@dataclass(frozen=True, eq=False)
class RouteForwardResult:
    """The result of one route."""

    route_index: int
    """Index among the plan's routes."""
    states: HiddenStates
    cache_layers: list[Any]
    """The cache layer of every step; None where caches are not kept."""


class LayerByLayerForward:
    """A forward pass over segments, layer by layer; each layer call has a cache layer of its own."""

    def __init__(self, model: Any, segments: Sequence[ForwardTokenChunk]) -> None:
        """Compute the arguments of every layer for each segment."""
        from transformers import DynamicCache

        self._layers = get_decoder(model).layers
        self._empty_layers = get_cache_layer_templates(model)
        self._cache: Any = DynamicCache()
        self._cache.layers = list(self._empty_layers)
        self._segments = segments
        self._inputs = [_compute_layer_arguments_for_token_chunk(model, segment) for segment in segments]

    def _install_cache_layer(self, layer: int) -> Any:
        """Put a new cache layer at the place where ``layer`` looks for it."""
        empty = self._empty_layers[layer]
        # ``copy.copy`` gives the same, but is several times slower.
        cache_layer = object.__new__(type(empty))
        cache_layer.__dict__.update(empty.__dict__)
        self._cache.layers[layer] = cache_layer
        return cache_layer

    def _clear_cache_layer(self, layer: int) -> None:
        self._cache.layers[layer] = self._empty_layers[layer]

    def _call_layer(self, layer: int, hidden: torch.Tensor, arguments: dict[str, Any], cache_name: str) -> torch.Tensor:
        output = self._layers[layer](hidden, **{**arguments, cache_name: self._cache})
        state: torch.Tensor = output[0] if isinstance(output, tuple) else output
        return state


class PrefixTreeForward(LayerByLayerForward):
    """The forward pass of many routes, over their prefix tree."""

    def __init__(self, model: Any, segments: Sequence[ForwardTokenChunk], graphs: LayerGraphs | None = None) -> None:
        """With ``graphs`` the layers that are called several times are captured and replayed."""
        super().__init__(model, segments)
        self._graphs = graphs
        self._replayed_layers: frozenset[int] = frozenset()

    @property
    def hidden_state_bytes(self) -> int:
        """The size of one hidden state of all segments."""
        return sum(inputs.embedded.numel() * inputs.embedded.element_size() for inputs in self._inputs)

    @torch.no_grad()
    def run_prefix_tree(self, plan: PrefixTreePlan, *, keep_caches: bool = False) -> Iterator[RouteForwardResult]:
        """Yield every route when it ends; its tensors are valid until the next one is yielded."""
        states: dict[int, HiddenStates] = {EMBEDDINGS: [inputs.embedded for inputs in self._inputs]}
        if self._graphs is not None and not keep_caches:
            calls = Counter(application.layer for application in plan.applications)
            self._replayed_layers = frozenset(layer for layer in calls if calls[layer] >= MIN_REPLAYED_CALLS)
        path = [EMBEDDINGS]  # the states from the root of the tree to the current one, and the caches of their steps
        cache_layers: list[Any] = []
        for application in plan.applications:
            depth = path.index(application.source) + 1
            del path[depth:], cache_layers[depth - 1 :]
            states[application.state], cache_layer = self._apply_layer(application, states)
            path.append(application.state)
            cache_layers.append(cache_layer if keep_caches else None)
            for route in application.finished_routes:
                yield RouteForwardResult(route, states[application.state], list(cache_layers))
            for state in application.freed_states:
                del states[state]

    def _apply_layer(self, application: LayerApplication, states: dict[int, HiddenStates]) -> tuple[HiddenStates, Any]:
        hidden = states[application.source]
        if application.add is not None:
            assert application.added_state is not None
            coefficient, earlier = application.add.coefficient, states[application.added_state]
            hidden = [
                add_hidden_state(state, added.to(state.device), coefficient)
                for state, added in zip(hidden, earlier, strict=True)
            ]
        if self._graphs is not None and application.layer in self._replayed_layers:
            run = partial(self._run_layer, application.layer)
            return self._graphs.run(application.layer, hidden, lambda states: run(states)[0]), None
        return self._run_layer(application.layer, hidden)

    def _run_layer(self, layer: int, hidden: HiddenStates) -> tuple[HiddenStates, Any]:
        """A layer on the states of all segments, with a new cache."""
        cache_layer = self._install_cache_layer(layer)
        outputs: HiddenStates = []
        for state, segment, inputs in zip(hidden, self._segments, self._inputs, strict=True):
            if segment.parents is not None:
                copy_parent_cache_rows(cache_layer, segment.parents)
            outputs.append(self._call_layer(layer, state, inputs.arguments[layer], inputs.cache_name))
        self._clear_cache_layer(layer)
        return outputs, cache_layer


class RoutePerRowForward(LayerByLayerForward):
    """The forward pass over some segments; rows of the first segment have routes, later rows follow their parents."""

    def __init__(self, model: Any, segments: Sequence[ForwardTokenChunk]) -> None:
        """Find the row of the first segment that each row follows."""
        super().__init__(model, segments)
        # Copied to the host once, so that no layer call waits for the device.
        self._parents: list[_Indices] = [
            np.arange(len(segment.ids)) if segment.parents is None else segment.parents.cpu().numpy()
            for segment in segments
        ]
        self._first_rows = list(accumulate(self._parents, lambda first_rows, parents: first_rows[parents]))

    @torch.no_grad()
    def compute_final_hidden_states(
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
        cache_layer = self._install_cache_layer(call.layer)
        step_of_row = np.full(len(self._first_rows[0]), NONE)
        step_of_row[call.step_and_slot_indices[0]] = np.arange(len(call.steps))
        parent_rows: _Indices | None = None
        for index, (segment, inputs) in enumerate(zip(self._segments, self._inputs, strict=True)):
            step_indices = step_of_row[self._first_rows[index]]
            rows = np.flatnonzero(step_indices != NONE)
            if len(rows) == 0:
                break  # no later segment continues these rows either
            device = states[index].device
            if parent_rows is not None:
                # The cached rows are in ascending order, so a binary search finds each parent among them.
                cached_rows = np.searchsorted(parent_rows, self._parents[index][rows])
                copy_parent_cache_rows(cache_layer, _to_device(cached_rows, device))
            device_rows = _to_device(rows, device)
            steps = [call.steps[step] for step in step_indices[rows]]
            hidden = _add_kept_states(states[index][device_rows], kept[index], rows, steps)
            arguments = _select_row_arguments(inputs, call.layer, device_rows, len(segment.ids))
            output = self._call_layer(call.layer, hidden, arguments, inputs.cache_name)
            states[index][device_rows] = output.to(device)
            _keep_states(kept[index], rows, steps, states[index])
            parent_rows = rows
        self._clear_cache_layer(call.layer)
        return cache_layer


def _to_device(indices: _Indices, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(indices).to(device, non_blocking=True)


def _add_kept_states(
    hidden: torch.Tensor, kept: torch.Tensor, rows: _Indices, steps: Sequence[RouteStep]
) -> torch.Tensor:
    """``hidden`` with the kept states that some rows' steps add."""
    adds = [(step.add_slot, step.coefficient) for step in steps]
    for slot, coefficient in sorted({add for add in adds if add[0] != NONE}):
        matching = np.array([index for index, add in enumerate(adds) if add == (slot, coefficient)])
        earlier = kept[slot, _to_device(rows[matching], kept.device)]
        adding = _to_device(matching, hidden.device)
        hidden[adding] = add_hidden_state(hidden[adding], earlier, coefficient)
    return hidden


def _keep_states(kept: torch.Tensor, rows: _Indices, steps: Sequence[RouteStep], states: torch.Tensor) -> None:
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


def copy_parent_cache_rows(cache_layer: Any, parents: torch.Tensor) -> None:
    """Give every row of the next segment the keys and values of its parent row."""
    from transformers.cache_utils import CacheLayerMixin

    if type(cache_layer).reorder_cache is CacheLayerMixin.reorder_cache and len(cache_layer.keys) == 1:
        # All rows continue one: a view is enough, since the next tokens are concatenated to a copy of it anyway.
        cache_layer.keys, cache_layer.values = (
            tensor.expand(len(parents), -1, -1, -1) for tensor in (cache_layer.keys, cache_layer.values)
        )
    else:
        # Not batch_select_indices: it selects the same rows, but with a kernel that is several times slower.
        cache_layer.reorder_cache(parents)


def _compute_layer_arguments_for_token_chunk(model: Any, segment: ForwardTokenChunk) -> LayerInputs:
    """The arguments of all layers for a segment."""
    tokens = segment.ids.shape[1]
    positions = compute_position_ids(segment.mask)[:, -tokens:]
    return compute_layer_keyword_arguments(
        model, segment.ids, segment.mask, positions, cached=segment.mask.shape[1] - tokens
    )


def split_prompts_at_common_prefix(model: Any, prompts: Sequence[Tokens], new_tokens: int) -> list[ForwardTokenChunk]:
    """The prompts, after a segment for their common prefix where there is one.

    At most ``new_tokens`` tokens will follow each prompt.
    """
    shared = choose_shared_prompt_prefix_length(prompts, _max_prompt_within_sliding_window(model, new_tokens))
    ids, mask = pad_left([prompt[shared:] for prompt in prompts], model.device)
    if shared == 0:
        return [ForwardTokenChunk(ids, mask)]
    prefix = torch.tensor([prompts[0][:shared]], device=model.device)
    full_mask = torch.cat([mask.new_ones(len(prompts), shared), mask], dim=1)
    parents = torch.zeros(len(prompts), dtype=torch.long, device=model.device)
    return [ForwardTokenChunk(prefix, torch.ones_like(prefix)), ForwardTokenChunk(ids, full_mask, parents)]


def _max_prompt_within_sliding_window(model: Any, new_tokens: int) -> int | None:
    """The longest prompt that no sliding window ever moves over; None where no layer has a window."""
    windows = [layer.sliding_window for layer in get_cache_layer_templates(model) if layer.is_sliding]
    return min(windows) - new_tokens if windows else None
