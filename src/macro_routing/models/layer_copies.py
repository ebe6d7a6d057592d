"""Copies of a model's modules that share its weights: what routed models and mixtures are made of.

Attention finds its cache slot by ``layer_idx``, so every step of a route is a shallow copy of a layer with a
``layer_idx`` of its own. Only modules on the way to something that owns a ``layer_idx`` are copied; every weight stays
the same tensor. Passes that add earlier hidden states keep them in ``SavedStates``.
"""

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from macro_routing.errors import ModelError, RouteError
from macro_routing.models.find_decoder import (
    AdapterRejector,
    check_has_no_adapter,
    count_model_layers,
    get_decoder,
    reject_new_adapter,
)
from macro_routing.models.support import check_model_can_be_routed, get_text_config
from macro_routing.routes.mixture import RouteOrMixture, require_question

_COPIED_DICTIONARIES = (
    "_parameters",
    "_buffers",
    "_modules",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)
"""Dictionaries that a shallow copy must not share: a hook or module set on it would appear on the original."""


def check_route_and_model(model: Any, route: RouteOrMixture, allow_untested: bool) -> None:
    """Reject a model that cannot be routed, and a route for another number of layers."""
    if not isinstance(route, RouteOrMixture):
        raise RouteError(f"{route!r} is not a Route or Mixture; parse it with parse_route or parse_mixture")
    require_question(route)
    if not hasattr(model, "modules") or not hasattr(model, "config"):
        raise ModelError(f"a {type(model).__name__} is not a transformers model")
    check_model_can_be_routed(model.config, allow_untested=allow_untested)
    check_has_no_adapter(model)
    if getattr(model, "macro_route", None) is not None:
        raise ModelError("this model is routed already; apply the route to the model it was made from")
    layers = count_model_layers(model)
    if route.layers != layers:
        raise RouteError(f"the route is for {route.layers} layers, but the model has {layers}")


def make_routed_copy(model: Any, routed_decoder: Any, config: Any, route: RouteOrMixture) -> Any:
    """Copy ``model`` with another decoder inside; the copy knows its route and rejects what would lose it."""
    routed = copy_model_with_decoder(model, get_decoder(model), routed_decoder, config)
    routed.macro_route = route
    routed.save_pretrained = functools.partial(_reject_saving, route)
    routed.add_adapter = routed.load_adapter = reject_new_adapter
    routed.peft_config = AdapterRejector()
    if getattr(model, "generation_config", None) is not None:
        routed.generation_config = copy.deepcopy(model.generation_config)
    return routed


def _reject_saving(route: RouteOrMixture, *_args: Any, **_kwargs: Any) -> None:
    """Raise: ``save_pretrained`` would silently drop adds and fail on shared weights."""
    raise ModelError(
        f"a routed model ({route}) cannot be saved as a checkpoint;"
        " save the route, and apply it to the model it was made for"
    )


def copy_with_cache_slot(
    module: nn.Module, slot: int, config: Any, recorded: tuple[type, ...], kind: type[nn.Module] | None = None
) -> Any:
    """Copy the modules on the way to a ``layer_idx`` or a recorded output; all others stay the same object."""
    copied = shallow_copy(module, kind)
    if "layer_idx" in copied.__dict__:
        copied.__dict__["layer_idx"] = slot
    if "config" in copied.__dict__:
        copied.__dict__["config"] = config
    for name, child in module._modules.items():  # noqa: SLF001
        # A step needs its own copy of modules with a cache slot, and of those that transformers hooks.
        if child is not None and any(
            "layer_idx" in part.__dict__ or isinstance(part, recorded) for part in child.modules()
        ):
            copied._modules[name] = copy_with_cache_slot(child, slot, config, recorded)  # noqa: SLF001
    return copied


def list_output_recorded_classes(model: Any) -> tuple[type, ...]:
    """List module classes whose outputs transformers records with hooks, such as mixture-of-experts routers.

    A hook on a module that several steps (and the untouched model) share would record all of them.
    """
    tables = [getattr(part, "_can_record_outputs", None) or {} for part in (model, get_decoder(model))]
    entries = [entry if isinstance(entry, list | tuple) else [entry] for table in tables for entry in table.values()]
    classes = [getattr(recorder, "target_class", recorder) for entry in entries for recorder in entry]
    return tuple(dict.fromkeys(kind for kind in classes if isinstance(kind, type)))


def make_config_with_entry_per_step(config: Any, layers: Sequence[int]) -> Any:
    """Make a configuration with one entry per step wherever the original has one per layer."""
    routed = copy.deepcopy(config)
    text_config = get_text_config(routed)
    kinds = getattr(text_config, "layer_types", None)
    text_config.num_hidden_layers = len(layers)
    if kinds is not None:
        text_config.layer_types = [kinds[layer] for layer in layers]
    return routed


class SavedStates:
    """Hidden states of one forward pass that later steps read: to add them, to begin a branch, or as a final state.

    This is a class because accelerate copies dictionaries and lists when it moves arguments to a device, which would
    lose what steps write.
    """

    __slots__ = ("states",)

    def __init__(self) -> None:
        """Start without states."""
        self.states: dict[Any, torch.Tensor] = {}


def create_saved_states_per_pass(_: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Give every forward pass new saved states, so that passes can be nested and no old state is read."""
    return args, {**kwargs, "macro_states": SavedStates()}


def add_hidden_state(hidden: torch.Tensor, earlier: torch.Tensor, coefficient: float) -> torch.Tensor:
    """``h_t + coefficient · h_{t-b}``, in the states' own precision."""
    return hidden + earlier if coefficient == 1.0 else hidden + coefficient * earlier


def copy_model_with_decoder(module: Any, decoder: Any, replacement: Any, config: Any = None) -> Any:
    """Copy the modules above the decoder, with another decoder inside, and with ``config`` where one is given."""
    if module is decoder:
        return replacement
    copied = shallow_copy(module)
    if config is not None:
        copied.config = config
    for name, child in module._modules.items():  # noqa: SLF001
        if child is not None and any(part is decoder for part in child.modules()):
            copied._modules[name] = copy_model_with_decoder(child, decoder, replacement, config)  # noqa: SLF001
    return copied


def shallow_copy(module: nn.Module, kind: type[nn.Module] | None = None) -> Any:
    """Make a new module of the same (or the given) class that shares weights and children."""
    chosen = kind or type(module)
    copied = chosen.__new__(chosen)
    copied.__dict__.update(module.__dict__)
    for name in _COPIED_DICTIONARIES:
        if copied.__dict__.get(name) is not None:
            copied.__dict__[name] = copy.copy(copied.__dict__[name])
    if "_hf_hook" in copied.__dict__:
        _bind_accelerate_hook(copied)
    elif "forward" in copied.__dict__:
        raise ModelError(f"{type(module).__name__}.forward was replaced on this model, so a copy would not run it")
    return copied


def _bind_accelerate_hook(module: Any) -> None:
    """Bind accelerate's hook to the copy; its ``forward`` is bound to the original."""
    hook = module.__dict__["_hf_hook"]
    for name in ("forward", "_old_forward"):
        module.__dict__.pop(name, None)
    plain: Callable[..., Any] = module.forward

    @functools.wraps(plain)
    def forward(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = hook.pre_forward(module, *args, **kwargs)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not hook.no_grad):
            output = plain(*args, **kwargs)
        return hook.post_forward(module, output)

    module.__dict__["_old_forward"] = plain
    module.__dict__["forward"] = forward
