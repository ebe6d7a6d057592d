"""4-bit weights of bitsandbytes for the fused decoder: de-quantized once, to what bitsandbytes multiplies with.

For more than a few rows bitsandbytes itself de-quantizes a weight to the dtype of the states before every product. The
de-quantized weights are kept beside the quantized ones, which the eager path goes on using.
"""

from typing import Any

import torch
from torch import nn

from macro_routing.models.find_decoder import get_decoder

MAX_MEMORY_SHARE = 0.75
"""Share of the device's memory that weights may take, the de-quantized ones included."""


_PROJECTIONS = frozenset(
    ("q_proj", "k_proj", "v_proj", "qkv_proj", "o_proj", "gate_proj", "up_proj", "gate_up_proj", "down_proj")
)


def list_projections(layer: Any) -> list[Any]:
    """The modules of a layer that project states, whatever class a quantization has made of them."""
    return [module for name, module in layer.named_modules() if name.rpartition(".")[2] in _PROJECTIONS]


def is_plain_linear(module: Any) -> bool:
    """Whether a module is a linear map with a plain tensor; torchao puts other tensors into the same class."""
    return type(module) is nn.Linear and type(module.weight.data) is torch.Tensor and module.weight.is_floating_point()


def is_4bit(linear: Any) -> bool:
    """Whether a linear map has 4-bit weights of bitsandbytes."""
    return type(linear).__module__.startswith("bitsandbytes.") and hasattr(linear.weight, "quant_state")


def has_4bit_weights(model: Any) -> bool:
    """Whether the fused decoder keeps weights of a model a second time, de-quantized."""
    return any(is_4bit(module) for layer in get_decoder(model).layers for module in list_projections(layer))


def get_weight(linear: Any) -> torch.Tensor:
    """The weight of a linear map, de-quantized if it is quantized."""
    weight: torch.Tensor = linear.weight
    if not is_4bit(linear):
        return weight
    from bitsandbytes.functional import dequantize_4bit

    return dequantize_4bit(weight.data, linear.weight.quant_state)


def find_unsupported_quantization(model: Any) -> str | None:
    """Why the weights of a model cannot be de-quantized for the fused decoder; None when they can, or need not be."""
    config = getattr(model.config, "quantization_config", None)
    if config is None:
        return None
    method = config.get("quant_method") if isinstance(config, dict) else getattr(config, "quant_method", None)
    projections = [module for layer in get_decoder(model).layers for module in list_projections(layer)]
    if any(type(projection).__name__ == "Linear8bitLt" for projection in projections):
        return "bitsandbytes rounds states to 8 bits before it multiplies 8-bit weights, which the kernels do not"
    quantized = [projection for projection in projections if is_4bit(projection)]
    if method != "bitsandbytes" or not all(is_4bit(linear) or is_plain_linear(linear) for linear in projections):
        return "its weights are quantized, and not by bitsandbytes to 4 bits"
    if any(
        getattr(linear.weight.quant_state, "packing_format_for_cpu", False)
        or {linear.weight.quant_state.dtype, linear.compute_dtype or model.dtype} != {model.dtype}
        for linear in quantized
    ):
        return f"its 4-bit weights are not de-quantized to {model.dtype}, its dtype"
    needed = sum(linear.in_features * linear.out_features for linear in quantized) * model.dtype.itemsize
    return None if _fits_into_memory(model, needed) else f"its de-quantized weights ({needed / 1e9:.0f} GB) do not fit"


def _fits_into_memory(model: Any, needed: int) -> bool:
    """Whether the device holds so many more bytes of weights; of its whole memory, so that the answer never changes."""
    if model.device.type != "cuda":
        return True
    total = torch.cuda.get_device_properties(model.device).total_memory
    held = sum(parameter.nbytes for parameter in model.parameters())
    return bool(held + needed <= MAX_MEMORY_SHARE * total)
