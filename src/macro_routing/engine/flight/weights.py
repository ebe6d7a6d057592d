"""A model's weights as the kernels want them: projections of one input side by side, in one piece of memory.

The model's own parameters become views of that piece, so nothing is held twice and the eager path runs on unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from macro_routing.models.routing import decoder_of


@dataclass(frozen=True, eq=False)
class Linear:
    """The map ``x · weightᵀ + bias``."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None

    def into(self, given: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Write the result to ``out``."""
        if self.bias is None:
            return torch.mm(given, self.weight.t(), out=out)
        return torch.addmm(self.bias, given, self.weight.t(), out=out)


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """One layer."""

    first_norm: torch.Tensor
    attention_in: Linear
    """Queries, keys and values."""
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None
    attention_out: Linear
    second_norm: torch.Tensor
    gate_and_up: Linear
    down: Linear


@dataclass(frozen=True, eq=False)
class Shape:
    """Sizes of a model."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head: int
    inner: int
    vocabulary: int
    epsilon: float
    scale: float
    """Of the scores before the softmax."""


@dataclass(frozen=True, eq=False)
class ModelWeights:
    """All layers, and what is before and after them."""

    shape: Shape
    embeddings: torch.Tensor
    layers: tuple[LayerWeights, ...]
    norm: torch.Tensor
    head: Linear

    @property
    def layer_bytes(self) -> int:
        """Of one layer."""
        one = self.layers[0]
        maps = (one.attention_in, one.attention_out, one.gate_and_up, one.down)
        return sum(tensor.weight.numel() * tensor.weight.element_size() for tensor in maps)

    @property
    def head_bytes(self) -> int:
        """Of the map from states to logits."""
        return self.head.weight.numel() * self.head.weight.element_size()


@torch.no_grad()
def weights_of(model: Any) -> ModelWeights:
    """The weights of a supported model; joined projections take the place of its own."""
    decoder = decoder_of(model)
    layers = tuple(_layer(one) for one in decoder.layers)
    attention, mlp = decoder.layers[0].self_attn, decoder.layers[0].mlp
    shape = Shape(
        len(layers),
        decoder.embed_tokens.weight.shape[1],
        attention.q_proj.weight.shape[0] // attention.head_dim,
        attention.k_proj.weight.shape[0] // attention.head_dim,
        attention.head_dim,
        mlp.down_proj.weight.shape[1],
        model.lm_head.weight.shape[0],
        decoder.norm.variance_epsilon,
        attention.scaling,
    )
    head = Linear(model.lm_head.weight, model.lm_head.bias)
    return ModelWeights(shape, decoder.embed_tokens.weight, layers, decoder.norm.weight, head)


def _layer(layer: Any) -> LayerWeights:
    attention, mlp = layer.self_attn, layer.mlp
    query_norm, key_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
    return LayerWeights(
        layer.input_layernorm.weight,
        _joined([attention.q_proj, attention.k_proj, attention.v_proj]),
        query_norm.weight if query_norm is not None else None,
        key_norm.weight if key_norm is not None else None,
        Linear(attention.o_proj.weight, attention.o_proj.bias),
        layer.post_attention_layernorm.weight,
        _joined([mlp.gate_proj, mlp.up_proj]),
        Linear(mlp.down_proj.weight, mlp.down_proj.bias),
    )


def _joined(maps: Sequence[Any]) -> Linear:
    together = torch.cat([one.weight for one in maps])
    for one, part in zip(maps, torch.split(together, [len(one.weight) for one in maps]), strict=True):
        one.weight.data = part
    bias = torch.cat([one.bias for one in maps]) if maps[0].bias is not None else None
    return Linear(together, bias)
