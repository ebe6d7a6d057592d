"""Which models and decoding stages the fused decoder supports, and why others decode eagerly."""

import importlib.util
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from macro_routing.engine.generation import DecodingStage
from macro_routing.engine.shared_forward import get_cache_layer_templates
from macro_routing.models.find_decoder import get_decoder
from macro_routing.models.support import get_text_config

SUPPORTED_MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")
"""``model_type`` of the architectures that the kernels implement."""
MIN_HEAD_SIZE = 32
"""Smaller heads do not fill the tensor cores."""
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
        "its weights are quantized": getattr(model.config, "quantization_config", None) is not None,
        "it is spread over several devices": len({weight.device for weight in model.parameters()}) > 1,
        "its activation is not silu": getattr(config, "hidden_act", "silu") != "silu",
        f"its dtype is {model.dtype}": model.dtype not in (torch.bfloat16, torch.float16, torch.float32),
    }
    return next((reason for reason, applies in problems.items() if applies), None) or _find_unsupported_layer_reason(
        model, config
    )


def _find_unsupported_layer_reason(model: Any, config: Any) -> str | None:
    layer = get_decoder(model).layers[0]
    linears = [module for module in layer.modules() if isinstance(module, nn.Linear)]
    head_size = layer.self_attn.head_dim
    rotary = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    problems = {
        "its layers are not made of plain linear maps": len(linears) != 7
        or any(type(linear) is not nn.Linear for linear in linears),
        "its weights are moved in and out by hooks": any(hasattr(module, "_hf_hook") for module in layer.modules()),
        "some layers have a sliding window": any(cache.is_sliding for cache in get_cache_layer_templates(model)),
        "its rotary table depends on the length of the text": rotary.get("rope_type") in _LENGTH_DEPENDENT_ROTARY,
        f"its head size is {head_size} (it must be a power of 2, at least {MIN_HEAD_SIZE})": head_size < MIN_HEAD_SIZE
        or head_size & (head_size - 1) != 0,
        "only a part of each head is rotated": getattr(config, "partial_rotary_factor", None) not in (None, 1, 1.0),
    }
    return next((reason for reason, applies in problems.items() if applies), None)
