"""The steps of a route or a mixture in a vLLM decoder: shared weights, one KV cache slot per step.

vLLM keeps a slot per ``Attention`` and finds both by the attention's name, in the static forward context. The first
step of a layer uses the layer itself. Every further step uses copies of the three objects on the way to its attention
(layer, ``self_attn``, ``attn``), the last one with a new name. All weights stay the same objects. Layers that are
never used get no slot.
"""

import copy
from collections.abc import Sequence
from typing import Any

from torch import nn

from macro_routing.errors import ModelError
from macro_routing.models.layer_copies import shallow_copy
from macro_routing.routes.mixture import Mixture


def check_engine_config(config: Any, mixture: Mixture) -> None:
    """Reject engine settings that do not work with a routed model, or with a mixture."""
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
        "a mixture needs the logits of all tokens in one place; leave out enable_batch_sharded_sampling": (
            not mixture.is_single and getattr(config.parallel_config, "enable_batch_sharded_sampling", False)
        ),
        "a mixture has no embeddings, it predicts tokens only; drop runner pooling, or serve a single route": (
            not mixture.is_single and config.model_config.runner_type == "pooling"
        ),
    }
    for reason, applies in reasons.items():
        if applies:
            raise ModelError(reason)


def build_step_layers(
    decoder: nn.Module, numbers: Sequence[int], compilation: Any, prefix: str
) -> tuple[list[Any], nn.ModuleList]:
    """Build the layer of every step from the layers' numbers, and the attentions that repeats need."""
    layers: Any = decoder.layers
    slots = compilation.static_forward_context
    visited: set[int] = set()
    steps: list[Any] = []
    added = nn.ModuleList()
    for number in numbers:
        layer = layers[number]
        if number in visited:
            # vLLM reads a slot's index from the number in its name; numbers from `layers` on are free.
            layer = _copy_with_own_cache(layer, f"{prefix}.layers.{len(layers) + len(added)}.self_attn.attn")
            added.append(layer.self_attn.attn)
            slots[layer.self_attn.attn.layer_name] = layer.self_attn.attn
        visited.add(number)
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
