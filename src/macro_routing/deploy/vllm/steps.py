"""A route's steps inside a vLLM decoder: shared weights, one KV slot per step, none for layers never visited.

vLLM keeps a slot per ``Attention`` and finds both by the attention's name, in the static forward context. A layer's
first visit uses the layer itself; every further visit uses copies of the three objects on the way to its attention
(layer, ``self_attn``, ``attn``), the last under a name of its own. All else, so every weight, stays the same object.
"""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from macro_routing.errors import ModelError
from macro_routing.models.routing import shallow_copy
from macro_routing.routes.route import Route


def check_engine_config(config: Any) -> None:
    """Refuse, by name, what a routed model was never run with and would get wrong."""
    if config.lora_config is not None:
        raise ModelError(
            "LoRA adapters cannot be used on a routed model in vLLM; merge the adapter into the checkpoint"
        )
    if config.speculative_config is not None:
        raise ModelError("speculative decoding cannot be used with a route in vLLM; drop the speculative configuration")
    if config.parallel_config.pipeline_parallel_size > 1:
        raise ModelError("a route cannot be split over pipeline stages in vLLM; use pipeline_parallel_size 1")


def build_steps(decoder: nn.Module, route: Route, compilation: Any, prefix: str) -> tuple[list[Any], nn.ModuleList]:
    """The layer of every step, and the attentions that were added for repeats."""
    layers: Any = decoder.layers
    slots = compilation.static_forward_context
    visited: set[int] = set()
    steps: list[Any] = []
    added = nn.ModuleList()
    for step in route.steps:
        layer = layers[step.layer]
        if step.layer in visited:
            # vLLM reads a slot's place from the one number in its name; numbers from `layers` on are free.
            layer = _copy_with_own_cache(layer, f"{prefix}.layers.{len(layers) + len(added)}.self_attn.attn")
            added.append(layer.self_attn.attn)
            slots[layer.self_attn.attn.layer_name] = layer.self_attn.attn
        visited.add(step.layer)
        steps.append(layer)
    for number in set(range(len(layers))) - visited:
        del slots[layers[number].self_attn.attn.layer_name]
    return steps, added


def _copy_with_own_cache(layer: Any, name: str) -> Any:
    """The layer once more, with a KV slot of its own."""
    repeated = shallow_copy(layer)
    repeated.self_attn = shallow_copy(layer.self_attn)
    attention = shallow_copy(layer.self_attn.attn)
    attention.layer_name = name
    attention.impl = copy.copy(attention.impl)  # some kernels keep notes per layer
    repeated.self_attn.attn = attention
    return repeated
