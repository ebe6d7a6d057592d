"""Compute what every layer receives besides the hidden state, without running any layer.

Masks, rotary tables and positions depend on token positions and cache length, not on hidden states. So a copy of the
decoder whose layers only record their arguments gives them, in the same way for every architecture.
"""

import functools
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from macro_routing.models.decoder import get_decoder
from macro_routing.models.routing import shallow_copy


@dataclass(frozen=True, eq=False)
class LayerInputs:
    """The embeddings of some tokens, and each layer's other arguments for them."""

    embedded: torch.Tensor
    arguments: tuple[dict[str, Any], ...]
    """By layer; the cache is not among them."""
    cache_name: str
    """The name under which layers take their cache."""


@torch.no_grad()
def compute_layer_inputs(
    model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, position_ids: torch.Tensor, *, cached: int
) -> LayerInputs:
    """Compute the arguments for tokens that follow ``cached`` others; ``attention_mask`` covers both."""
    from transformers import DynamicCache

    decoder = get_decoder(model)
    recorded: list[tuple[torch.Tensor, dict[str, Any]]] = []
    copied = shallow_copy(decoder)
    copied._modules["layers"] = nn.ModuleList(_make_recording_layer(layer, recorded) for layer in decoder.layers)  # noqa: SLF001
    cache = DynamicCache(config=model.config)
    if cached:
        stand_in = torch.zeros(len(input_ids), 1, cached, 1, device=input_ids.device)
        for number in range(len(decoder.layers)):
            cache.update(stand_in, stand_in, number)
    copied(
        input_ids,
        attention_mask=attention_mask,
        position_ids=position_ids,
        past_key_values=cache,
        use_cache=True,
    )
    name = next(key for key, value in recorded[0][1].items() if value is cache)
    arguments = tuple({key: value for key, value in kwargs.items() if key != name} for _, kwargs in recorded)
    return LayerInputs(recorded[0][0], arguments, name)


def _make_recording_layer(layer: Any, recorded: list[Any]) -> Any:
    copied = shallow_copy(layer, _make_recording_class(layer.__class__))
    # Accelerate's hook would move the layer's weights for nothing.
    copied.__dict__.pop("forward", None)
    # Hooks that others have set must not see a run either.
    copied._forward_hooks, copied._forward_pre_hooks = OrderedDict(), OrderedDict()  # noqa: SLF001
    copied.macro_noted = recorded
    return copied


@functools.cache
def _make_recording_class(kind: Any) -> type[nn.Module]:
    def forward(self: Any, hidden_states: torch.Tensor, *_args: Any, **kwargs: Any) -> torch.Tensor:
        self.macro_noted.append((hidden_states, kwargs))
        return hidden_states

    return type(f"Noting{kind.__name__}", (kind,), {"forward": forward, "__module__": __name__})
