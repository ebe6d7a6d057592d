"""Find the decoder in a transformers model, count its layers, reject adapters that would change them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from macro_routing.errors import ModelError


def get_decoder(model: Any) -> Any:
    """The module that owns the list of layers."""
    decoder: Any = model.get_decoder() if hasattr(model, "get_decoder") else model
    if not isinstance(getattr(decoder, "layers", None), nn.ModuleList):
        raise ModelError(
            f"{type(model).__name__} has no list of decoder layers where transformers models keep it;"
            " of a loaded model pass its .model"
        )
    return decoder


def count_model_layers(model: Any) -> int:
    """The number of layers, which must equal a route's ``layers``."""
    return len(get_decoder(model).layers)


@contextmanager
def remove_hooks_on_exit(handles: Iterable[Any]) -> Iterator[None]:
    """Remove hooks, of which ``handles`` come from their registration, at the end of a block."""
    registered = list(handles)
    try:
        yield
    finally:
        for handle in registered:
            handle.remove()


def check_has_no_adapter(model: Any) -> None:
    """Reject a model with a LoRA or other adapter, which was trained for the standard order of layers."""
    configured = not isinstance(getattr(model, "peft_config", AdapterRejector()), AdapterRejector)
    if (
        configured
        or getattr(model, "_hf_peft_config_loaded", False)
        or any(type(part).__module__.startswith("peft.") for part in model.modules())
    ):
        raise ModelError(
            "models with a LoRA or other PEFT adapter are not supported;"
            " merge it first (model.merge_and_unload()), save the result and load that"
        )


def reject_new_adapter(*_args: Any, **_kwargs: Any) -> None:
    """Raise the error of a routed model that gets an adapter."""
    raise ModelError(
        "a routed model cannot take a LoRA or other PEFT adapter; merge the adapter into the model"
        " (merge_and_unload), save the result, and apply a route to that"
    )


class AdapterRejector(dict[str, Any]):
    """Rejects adapters: PEFT registers an adapter here before it changes a model's modules.

    A routed model shares most modules with the original, which an adapter would change too. Other modules exist once
    per step, while an adapter has one entry per layer.
    """

    __setitem__ = update = reject_new_adapter
