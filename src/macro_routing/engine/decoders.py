"""The choice of the decoder: fused where the model and its device support it, else eager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from macro_routing.errors import ModelError
from macro_routing.settings import check_choice

if TYPE_CHECKING:
    from macro_routing.engine.fused.decoder import FusedDecoder
    from macro_routing.models.frozen import FrozenModel

AUTO, EAGER, FUSED = "auto", "eager", "fused"
DECODERS = (AUTO, EAGER, FUSED)
FUSED_VERSION = "fused/1"
"""Part of the key of every score that the fused decoder made; goes up when the kernels' numbers change."""
_FUSED_DECODERS: WeakKeyDictionary[FrozenModel, FusedDecoder] = WeakKeyDictionary()
"""Kept as long as the model: cache and CUDA graphs are expensive to make again."""


def fused_unsupported_reason(model: Any, choice: str = AUTO) -> str | None:
    """Why ``model`` decodes eagerly; None when it uses the fused decoder. Rejects ``fused`` where it is impossible."""
    from macro_routing.models.frozen import ModelPlaceholder

    check_choice("decoder", choice, DECODERS)
    if choice == EAGER:
        return "decoder = eager was chosen"
    if isinstance(model, ModelPlaceholder):
        reason = model.fused_unsupported_reason
    else:
        from macro_routing.engine.fused.support import find_fused_unsupported_reason

        reason = find_fused_unsupported_reason(model)
    if reason is not None and choice == FUSED:
        raise ModelError(f"decoder = fused cannot be used: {reason}; use auto or eager")
    return reason


def get_fused_decoder(frozen: FrozenModel, choice: str = AUTO) -> FusedDecoder | None:
    """The fused decoder of a model; None where it decodes eagerly."""
    if fused_unsupported_reason(frozen.model, choice) is not None:
        return None
    if frozen not in _FUSED_DECODERS:
        from macro_routing.engine.fused.decoder import FusedDecoder

        _FUSED_DECODERS[frozen] = FusedDecoder(frozen.model)
    return _FUSED_DECODERS[frozen]


def release_fused_decoder(frozen: FrozenModel) -> None:
    """Free the memory of a model's fused decoder; it is allocated again when the decoder is used next."""
    if (decoder := _FUSED_DECODERS.get(frozen)) is not None:
        decoder.release_memory()
