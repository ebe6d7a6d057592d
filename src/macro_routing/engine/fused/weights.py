"""A model's weights as the kernels need them: projections of the same input concatenated in one tensor.

The model's own parameters become views of that tensor, so nothing is stored twice and the eager path runs unchanged.
Quantized weights are the exception.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from macro_routing.engine.fused.quantized import get_weight, is_4bit
from macro_routing.models.find_decoder import get_decoder
from macro_routing.models.hidden_states import get_cache_layer_templates
from macro_routing.models.support import caps_attention_scores, get_text_config

NO_WINDOW = 2**30
"""The window of a layer that attends to all tokens."""
SILU, GELU = "silu", "gelu_pytorch_tanh"


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
class MLP:
    """A gated MLP."""

    gate_up: Linear
    down: Linear


@dataclass(frozen=True, eq=False)
class Experts:
    """A mixture of gated MLPs; a router chooses some of them for every token."""

    router: Linear
    gate_up: torch.Tensor
    """``[experts, 2 · intermediate, width]``: the gates, then what they are multiplied with."""
    down: torch.Tensor
    """``[experts, width, intermediate]``"""
    chosen: int
    """Experts per token."""
    normalized: bool
    """Whether the probabilities of the chosen experts are divided by their sum."""
    rounded: bool
    """Whether these probabilities are rounded to the model's dtype."""


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """The weights of one layer; a norm that the layer does not have is None."""

    pre_attn_norm: torch.Tensor | None
    qkv: Linear
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None
    attention_out: Linear
    attn_output_norm: torch.Tensor | None
    """Of the attention's output, before it is added to the state."""
    pre_mlp_norm: torch.Tensor | None
    mlp: MLP | Experts
    mlp_output_norm: torch.Tensor | None
    """Of the MLP's output, before it is added to the state."""
    window: int
    """Tokens that the attention sees, the new one included."""


@dataclass(frozen=True)
class LayerForm:
    """What the kernels of a model's layers are compiled for, besides sizes."""

    round_before_weight: bool
    """Whether RMS norms round the normalized state before they multiply it by the weight, or only after."""
    norm_whole_projection: bool
    """Whether the norms of queries and keys are over all heads together."""
    gelu: bool
    """Whether the activation is GELU (its tanh form) instead of SiLU."""
    score_cap: float
    """Attention scores are kept below this by a tanh; 0 where they are not."""
    logit_cap: float
    """The same for logits."""
    embedding_scale: float


@dataclass(frozen=True, eq=False)
class ModelShape:
    """Sizes of a model."""

    width: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    """Of an expert where the MLP is a mixture of experts."""
    vocabulary: int
    epsilon: float
    scale: float
    """Factor of the attention scores before the softmax."""


@dataclass(frozen=True, eq=False)
class ModelWeights:
    """The weights of all layers, of the embeddings and of the head."""

    shape: ModelShape
    form: LayerForm
    embeddings: torch.Tensor
    layers: tuple[LayerWeights, ...]
    norm: torch.Tensor
    head: Linear


@torch.no_grad()
def fuse_weights(model: Any) -> ModelWeights:
    """The weights of a supported model; its projections become views of the concatenated ones."""
    decoder = get_decoder(model)
    windows = [cache.sliding_window if cache.is_sliding else NO_WINDOW for cache in get_cache_layer_templates(model)]
    layers = tuple(map(_fuse_layer_weights, decoder.layers, windows))
    first, attention = layers[0], decoder.layers[0].self_attn
    heads = first.attention_out.weight.shape[1] // attention.head_dim
    down = first.mlp.down if isinstance(first.mlp, Experts) else first.mlp.down.weight
    shape = ModelShape(
        decoder.embed_tokens.weight.shape[1],
        heads,
        (first.qkv.weight.shape[0] // attention.head_dim - heads) // 2,
        attention.head_dim,
        down.shape[-1],
        model.lm_head.weight.shape[0],
        decoder.norm.variance_epsilon if hasattr(decoder.norm, "variance_epsilon") else decoder.norm.eps,
        attention.scaling,
    )
    head = Linear(model.lm_head.weight, model.lm_head.bias)
    return ModelWeights(
        shape,
        _find_layer_form(model),
        decoder.embed_tokens.weight,
        layers,
        _scale_of_norm(decoder.norm),
        head,
    )


def _find_layer_form(model: Any) -> LayerForm:
    config, decoder = get_text_config(model.config), get_decoder(model)
    kind = config.model_type
    scale = getattr(decoder.embed_tokens, "embed_scale", None)
    return LayerForm(
        round_before_weight=not kind.startswith(("gemma", "olmo")),
        norm_whole_projection=kind.startswith("olmo"),
        gelu=get_activation(config) == GELU,
        score_cap=float(config.attn_logit_softcapping) if caps_attention_scores(config) else 0.0,
        logit_cap=float(getattr(config, "final_logit_softcapping", None) or 0),
        embedding_scale=1.0 if scale is None else float(scale.to(decoder.embed_tokens.weight.dtype)),
    )


def get_activation(config: Any) -> str:
    """The name of the MLP's activation."""
    return str(getattr(config, "hidden_activation", None) or getattr(config, "hidden_act", SILU))


def _fuse_layer_weights(layer: Any, window: int) -> LayerWeights:
    attention = layer.self_attn
    pre_attn, after_attn = getattr(layer, "input_layernorm", None), layer.post_attention_layernorm
    if after_mlp := getattr(layer, "post_feedforward_layernorm", None):
        norms = (pre_attn, after_attn, getattr(layer, "pre_feedforward_layernorm", None), after_mlp)
    else:  # despite its name, this norm is the MLP's
        norms = (pre_attn, None, after_attn, None)
    pre_attn_norm, attn_output_norm, pre_mlp_norm, mlp_output_norm = map(_scale_of_optional_norm, norms)
    return LayerWeights(
        pre_attn_norm,
        _fuse_linears(attention, "qkv_proj", ("q_proj", "k_proj", "v_proj")),
        _scale_of_optional_norm(getattr(attention, "q_norm", None)),
        _scale_of_optional_norm(getattr(attention, "k_norm", None)),
        _fuse_linear(attention.o_proj),
        attn_output_norm,
        pre_mlp_norm,
        _fuse_mlp_weights(layer.mlp),
        mlp_output_norm,
        window,
    )


def _fuse_mlp_weights(mlp: Any) -> MLP | Experts:
    if hasattr(mlp, "experts"):
        gate, experts = mlp.gate, mlp.experts
        return Experts(
            Linear(gate.weight),
            experts.gate_up_proj,
            experts.down_proj,
            gate.top_k,
            # Mixtral always normalizes, and does not round.
            normalized=getattr(gate, "norm_topk_prob", True),
            rounded=hasattr(gate, "norm_topk_prob"),
        )
    gate_up = _fuse_linears(mlp, "gate_up_proj", ("gate_proj", "up_proj"))
    return MLP(gate_up, _fuse_linear(mlp.down_proj))


def _fuse_linears(module: Any, joined: str, parts: Sequence[str]) -> Linear:
    """The concatenated projections ``parts`` of a module, which may already have them as ``joined``."""
    if (linear := getattr(module, joined, None)) is not None:
        return _fuse_linear(linear)
    return _concatenate_linears([getattr(module, part) for part in parts])


def _fuse_linear(linear: Any) -> Linear:
    return Linear(get_weight(linear), linear.bias)


def _concatenate_linears(linears: Sequence[Any]) -> Linear:
    weight = torch.cat([get_weight(linear) for linear in linears])
    for linear, part in zip(linears, torch.split(weight, [linear.out_features for linear in linears]), strict=True):
        if not is_4bit(linear):
            linear.weight.data = part
    bias = torch.cat([linear.bias for linear in linears]) if linears[0].bias is not None else None
    return Linear(weight, bias)


def _scale_of_optional_norm(norm: Any) -> torch.Tensor | None:
    return None if norm is None else _scale_of_norm(norm)


def _scale_of_norm(norm: Any) -> torch.Tensor:
    """What a norm multiplies with: Gemma's weights are that minus one."""
    weight: torch.Tensor = norm.weight
    return 1 + weight.float() if type(norm).__name__.startswith("Gemma") else weight
