"""Which models decode in flight, and why others take the eager path."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import nn

from macro_routing.models.routing import decoder_of
from macro_routing.models.support import text_config

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""``model_type`` of architectures whose layers the kernels know."""
_MOVING_ROTARY = ("dynamic", "longrope")
"""Rotary tables that depend on the length of the text."""
LEAST_HEAD = 32
"""Narrower heads are too small for the matrix units."""


def refusal(model: Any, *, interpreted: bool = False) -> str | None:
    """Why ``model`` cannot decode in flight; None when it can. ``interpreted`` kernels run without a GPU, for tests."""
    config = text_config(model.config)
    reasons = {
        "it is not on a CUDA device": model.device.type != "cuda" and not interpreted,
        "triton is not installed": importlib.util.find_spec("triton") is None,
        f"{config.model_type} layers have no kernels (only {', '.join(FAMILIES)})": config.model_type not in FAMILIES,
        "its weights are quantized": getattr(model.config, "quantization_config", None) is not None,
        "it is spread over several devices": len({weight.device for weight in model.parameters()}) > 1,
        "its activation is not silu": getattr(config, "hidden_act", "silu") != "silu",
        f"its dtype is {model.dtype}": model.dtype not in (torch.bfloat16, torch.float16, torch.float32),
    }
    return next((reason for reason, applies in reasons.items() if applies), None) or _shape_refusal(model, config)


def _shape_refusal(model: Any, config: Any) -> str | None:
    layer = decoder_of(model).layers[0]
    linears = [one for one in layer.modules() if isinstance(one, nn.Linear)]
    width = layer.self_attn.head_dim
    reasons = {
        "its layers are not made of plain linear maps": len(linears) != 7
        or any(type(one) is not nn.Linear for one in linears),
        "its weights are moved in and out by hooks": any(hasattr(one, "_hf_hook") for one in layer.modules()),
        "some layers see only a window": _has_windows(model),
        "its rotary table depends on the length of the text": _rotary_kind(config) in _MOVING_ROTARY,
        f"its heads are {width} wide (a power of 2, at least {LEAST_HEAD}, is needed)": width & (width - 1) != 0
        or width < LEAST_HEAD,
        "only a part of each head is rotated": getattr(config, "partial_rotary_factor", None) not in (None, 1, 1.0),
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def _has_windows(model: Any) -> bool:
    from transformers import DynamicCache

    slots: list[Any] = DynamicCache(config=model.config).layers
    return any(slot.is_sliding for slot in slots)


def _rotary_kind(config: Any) -> str:
    given = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    return str(given.get("rope_type", "default"))
