"""A model's weights as the kernels need them: projections of the same input concatenated in one tensor.

The model's own parameters become views of that tensor, so nothing is stored twice and the eager path runs unchanged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from macro_routing.models.find_decoder import get_decoder


@dataclass(frozen=True, eq=False)
class Linear:
    """The map ``x · weightᵀ + bias``."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None

    def apply_into(self, inputs: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Write the result to ``out``."""
        if self.bias is None:
            return torch.mm(inputs, self.weight.t(), out=out)
        return torch.addmm(self.bias, inputs, self.weight.t(), out=out)


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """The weights of one layer."""

    pre_attn_norm: torch.Tensor
    qkv: Linear
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None
    attention_out: Linear
    post_attn_norm: torch.Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, eq=False)
class ModelShape:
    """Sizes of a model."""

    width: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    vocabulary: int
    epsilon: float
    scale: float
    """Factor of the attention scores before the softmax."""


@dataclass(frozen=True, eq=False)
class ModelWeights:
    """The weights of all layers, of the embeddings and of the head."""

    shape: ModelShape
    embeddings: torch.Tensor
    layers: tuple[LayerWeights, ...]
    norm: torch.Tensor
    head: Linear


@torch.no_grad()
def fuse_weights(model: Any) -> ModelWeights:
    """The weights of a supported model; its projections become views of the concatenated ones."""
    decoder = get_decoder(model)
    layers = tuple(_fuse_layer_weights(layer) for layer in decoder.layers)
    attention, mlp = decoder.layers[0].self_attn, decoder.layers[0].mlp
    shape = ModelShape(
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


def _fuse_layer_weights(layer: Any) -> LayerWeights:
    attention, mlp = layer.self_attn, layer.mlp
    query_norm, key_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
    return LayerWeights(
        layer.input_layernorm.weight,
        _concatenate_linears([attention.q_proj, attention.k_proj, attention.v_proj]),
        query_norm.weight if query_norm is not None else None,
        key_norm.weight if key_norm is not None else None,
        Linear(attention.o_proj.weight, attention.o_proj.bias),
        layer.post_attention_layernorm.weight,
        _concatenate_linears([mlp.gate_proj, mlp.up_proj]),
        Linear(mlp.down_proj.weight, mlp.down_proj.bias),
    )


def _concatenate_linears(linears: Sequence[Any]) -> Linear:
    weight = torch.cat([linear.weight for linear in linears])
    for linear, part in zip(linears, torch.split(weight, [len(linear.weight) for linear in linears]), strict=True):
        linear.weight.data = part
    bias = torch.cat([linear.bias for linear in linears]) if linears[0].bias is not None else None
    return Linear(weight, bias)
