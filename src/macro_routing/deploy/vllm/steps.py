"""The steps of a route in a vLLM decoder: shared weights, one KV cache slot per step.

vLLM keeps a slot per ``Attention`` and finds both by the attention's name, in the static forward context. The first
step of a layer uses the layer itself. Every further step uses copies of the three objects on the way to its attention
(layer, ``self_attn``, ``attn``), the last one with a new name. All weights stay the same objects. Layers that are
never used get no slot.
"""

import copy
from typing import Any

from torch import nn

from macro_routing.errors import ModelError
from macro_routing.models.layer_copies import shallow_copy
from macro_routing.routes.route import Route


def check_engine_config(config: Any) -> None:
    """Reject engine settings that do not work with a routed model."""
    reasons = {
        "LoRA adapters cannot be used on a routed model in vLLM; merge the adapter into the checkpoint": (
            config.lora_config is not None
        ),
        "speculative decoding cannot be used with a route in vLLM; drop the speculative configuration": (
            config.speculative_config is not None
        ),
        "a route cannot be split over pipeline stages in vLLM; use pipeline_parallel_size 1": (
            config.parallel_config.pipeline_parallel_size > 1
        ),
    }
    for reason, applies in reasons.items():
        if applies:
            raise ModelError(reason)


def build_step_layers(
    decoder: nn.Module, route: Route, compilation: Any, prefix: str
) -> tuple[list[Any], nn.ModuleList]:
    """Build the layer of every step, and the attentions that repeats need."""
    layers: Any = decoder.layers
    slots = compilation.static_forward_context
    visited: set[int] = set()
    steps: list[Any] = []
    added = nn.ModuleList()
    for step in route.steps:
        layer = layers[step.layer]
        if step.layer in visited:
            # vLLM reads a slot's index from the number in its name; numbers from `layers` on are free.
            layer = _copy_with_own_cache(layer, f"{prefix}.layers.{len(layers) + len(added)}.self_attn.attn")
            added.append(layer.self_attn.attn)
            slots[layer.self_attn.attn.layer_name] = layer.self_attn.attn
        visited.add(step.layer)
        steps.append(layer)
    for number in set(range(len(layers))) - visited:
        del slots[layers[number].self_attn.attn.layer_name]
    return steps, added


def _copy_with_own_cache(layer: Any, name: str) -> Any:
    """Copy the layer with its own KV cache slot."""
    repeated = shallow_copy(layer)
    repeated.self_attn = shallow_copy(layer.self_attn)
    attention = shallow_copy(layer.self_attn.attn)
    attention.layer_name = name
    attention.impl = copy.copy(attention.impl)  # some kernels keep state per layer
    repeated.self_attn.attn = attention
    return repeated
