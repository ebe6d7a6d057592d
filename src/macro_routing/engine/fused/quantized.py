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


def is_4bit(linear: Any) -> bool:
    """Whether a linear map has 4-bit weights of bitsandbytes."""
    return type(linear).__module__.startswith("bitsandbytes.") and hasattr(linear.weight, "quant_state")


def get_weight(linear: Any) -> torch.Tensor:
    """The weight of a linear map, de-quantized if it is quantized."""
    weight: torch.Tensor = linear.weight
    if not is_4bit(linear):
        return weight
    from bitsandbytes.functional import dequantize_4bit

    return dequantize_4bit(weight.data, linear.weight.quant_state)


def find_unsupported_quantization(model: Any) -> str | None:
    """Why the weights of a model cannot be de-quantized for the fused decoder; None when they can, or need not be."""
    if getattr(model.config, "quantization_config", None) is None:
        return None
    linears: list[Any] = [module for module in get_decoder(model).layers.modules() if isinstance(module, nn.Linear)]
    quantized = [linear for linear in linears if type(linear) is not nn.Linear]
    if any(type(linear).__name__ == "Linear8bitLt" for linear in quantized):
        return "bitsandbytes rounds states to 8 bits before it multiplies 8-bit weights, which the kernels do not"
    if not all(map(is_4bit, quantized)):
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
