"""What a quantization leaves as it is, said when a model is loaded."""

import warnings
from typing import Any

from macro_routing.models.catalog import MessageCallback, ignore_message
from macro_routing.models.support import get_text_config


def describe_unquantized_weights(config: Any, dtype: str) -> str | None:
    """What a quantization by bitsandbytes leaves as it is; None where it reaches all large weights.

    It replaces linear maps, and transformers keeps the experts of a layer in one tensor each.
    """
    text = get_text_config(config)
    if not any(getattr(text, name, None) for name in ("num_local_experts", "num_experts")):
        return None
    return (
        f"warning: the experts of this model stay in {dtype}: bitsandbytes quantizes linear maps alone, so nearly as"
        " much memory is needed as without quantization"
    )


def warn_of_unquantized_weights(config: Any, dtype: str | None, report: MessageCallback) -> None:
    """To the caller's messages, or as a Python warning where it takes none; no ``dtype``: nothing is quantized."""
    message = None if dtype is None else describe_unquantized_weights(config, dtype)
    if message is not None and report is ignore_message:
        warnings.warn(message.removeprefix("warning: "), stacklevel=3)  # the line that called load_model
    elif message is not None:
        report(message)
