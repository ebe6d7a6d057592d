"""Which models and decoding stages the fused decoder supports, and why others decode eagerly."""

import importlib.util
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from macro_routing.engine.fused.quantized import (
    find_unsupported_quantization,
    is_4bit,
    is_plain_linear,
    list_projections,
)
from macro_routing.engine.fused.weights import GELU, SILU, get_activation
from macro_routing.engine.generation import DecodingStage
from macro_routing.models.find_decoder import get_decoder
from macro_routing.models.support import caps_attention_scores, get_text_config

SUPPORTED_MODEL_TYPES = (
    "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3_text", "olmo2", "olmo3", "phi3",
)  # fmt: skip
"""``model_type`` of the architectures that the kernels implement."""
MIN_HEAD_SIZE, MAX_HEAD_SIZE = 32, 256
"""Smaller heads do not fill the tensor cores, larger ones do not fit on the chip."""
MAX_STAGES, MAX_STAGE_TOKENS = 4, 64
"""The fixed size of the stages' tables: CUDA graphs refer to them."""
_LENGTH_DEPENDENT_ROTARY = ("dynamic", "longrope")


def kernels_support_stages(stages: Sequence[DecodingStage]) -> bool:
    """Whether the kernels support these stages; there must be forced tokens between two stages."""
    return (
        len(stages) <= MAX_STAGES
        and all(max(len(stage.end_tokens), len(stage.forced_tokens)) <= MAX_STAGE_TOKENS for stage in stages)
        and all(stage.forced_tokens for stage in stages[:-1])
    )


def find_fused_unsupported_reason(model: Any, *, interpreted: bool = False) -> str | None:
    """Why ``model`` cannot use the fused decoder; None when it can.

    ``interpreted`` kernels run without a GPU, for tests.
    """
    config = get_text_config(model.config)
    types = ", ".join(SUPPORTED_MODEL_TYPES)
    problems = {
        "it is not on a CUDA device": model.device.type != "cuda" and not interpreted,
        "triton is not installed": importlib.util.find_spec("triton") is None,
        f"{config.model_type} layers have no kernels (only {types})": config.model_type not in SUPPORTED_MODEL_TYPES,
        "it is spread over several devices": len({weight.device for weight in model.parameters()}) > 1,
        f"its activation is {get_activation(config)}": get_activation(config) not in (SILU, GELU),
        f"its dtype is {model.dtype}": model.dtype not in (torch.bfloat16, torch.float16, torch.float32),
    }
    return (
        next((reason for reason, applies in problems.items() if applies), None)
        or find_unsupported_quantization(model)
        or _find_unsupported_layer_reason(model, config)
    )


def _find_unsupported_layer_reason(model: Any, config: Any) -> str | None:
    layers = get_decoder(model).layers
    projections = [module for layer in layers for module in list_projections(layer)]
    experts = [layer.mlp.experts for layer in layers if hasattr(layer.mlp, "experts")]
    head_size, rotary = layers[0].self_attn.head_dim, _list_rotary_settings(config)
    rotated = [settings.get("partial_rotary_factor") for settings in (*rotary, vars(config))]
    problems = {
        "its layers are not made of plain linear maps": not all(
            is_plain_linear(linear) or is_4bit(linear) for linear in projections
        ),
        "its head is not a plain linear map": not is_plain_linear(model.lm_head),
        "its experts are not plain tensors of its dtype": not all(
            _has_plain_weights(module, model.dtype) for module in experts
        ),
        "its weights are moved in and out by hooks": any(hasattr(module, "_hf_hook") for module in layers.modules()),
        "its attention leaves out the soft cap of scores": caps_attention_scores(config)
        and config._attn_implementation == "sdpa",  # noqa: SLF001 transformers has no public name for it
        "its tokens attend to later ones": getattr(config, "use_bidirectional_attention", False),
        "its rotary table depends on the length of the text": any(
            settings.get("rope_type") in _LENGTH_DEPENDENT_ROTARY for settings in rotary
        ),
        f"its head size is {head_size} (it must be even, and from {MIN_HEAD_SIZE} to {MAX_HEAD_SIZE})": head_size % 2
        != 0
        or not MIN_HEAD_SIZE <= head_size <= MAX_HEAD_SIZE,
        "only a part of each head is rotated": any(share not in (None, 1, 1.0) for share in rotated),
    }
    return next((reason for reason, applies in problems.items() if applies), None)


def _has_plain_weights(experts: Any, dtype: torch.dtype) -> bool:
    weights = [getattr(experts, name, None) for name in ("gate_up_proj", "down_proj")]
    return all(isinstance(weight, nn.Parameter) and weight.dtype == dtype for weight in weights)


def _list_rotary_settings(config: Any) -> list[dict[str, Any]]:
    """The settings of the rotary table, or of the table of each type of layers."""
    settings = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    return [value for value in settings.values() if isinstance(value, dict)] or [settings]
