"""Run a route on a frozen model: shared weights, one cache slot per step, adds at any step (specification §1).

``apply_route`` makes a new model object in milliseconds. Attention finds its cache slot by ``layer_idx`` and the model
picks masks and rotary tables by ``config.layer_types``, so a routed model is a shallow copy of the decoder whose
configuration has one entry per step, and whose steps are shallow copies of layers with a ``layer_idx`` of their own.
Only modules on the way to something that owns a ``layer_idx`` are copied; every weight stays the same tensor.
One code path for all architectures; no model file is edited.
"""

import copy
import functools
from collections.abc import Callable, Iterator, Mapping
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
from macro_routing.models.frozen import FrozenModel
from macro_routing.models.support import check_model_can_be_routed, get_text_config
from macro_routing.routes.mixture import Mixture, RouteOrMixture
from macro_routing.routes.route import Route

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


def apply_route(model: Any, route: RouteOrMixture, *, allow_untested: bool = False) -> Any:
    """Make a model that executes ``route``, or predicts with a mixture of routes, with the weights of ``model``.

    ``model`` is what ``load_model`` returns, or a transformers model.
    The result works wherever the model did: ``forward``, ``generate``, dynamic and static caches, padding,
    ``torch.compile``, ``device_map`` and quantised weights. ``model`` itself does not change.
    """
    if isinstance(route, Mixture):
        from macro_routing.models.mixing import apply_mixture

        return apply_mixture(model, route, allow_untested=allow_untested)
    if isinstance(model, FrozenModel):
        model, allow_untested = model.model, True  # it was checked when it was loaded
    check_route_and_model(model, route, allow_untested)
    config = make_config_with_entry_per_step(model.config, route)
    decoder = get_decoder(model)
    routed_decoder = shallow_copy(decoder)
    routed_decoder.config = get_text_config(config)
    routed_decoder.layers = nn.ModuleList(
        _make_step_layers(decoder.layers, route, routed_decoder.config, list_output_recorded_classes(model))
    )
    routed = copy_model_with_decoder(model, decoder, routed_decoder, config)
    routed.macro_route = route
    routed.save_pretrained = functools.partial(_reject_saving, route)
    routed.add_adapter = routed.load_adapter = reject_new_adapter
    routed.peft_config = AdapterRejector()
    if getattr(model, "generation_config", None) is not None:
        routed.generation_config = copy.deepcopy(model.generation_config)
    if route.has_adds:
        routed_decoder.register_forward_pre_hook(create_saved_states_per_pass, with_kwargs=True)
    return routed


def check_route_and_model(model: Any, route: Route, allow_untested: bool) -> None:
    """Reject a model that cannot be routed, and a route for another number of layers."""
    if not isinstance(route, Route):
        raise RouteError(f"{route!r} is not a Route; parse it with parse_route(text, layers) first")
    if not hasattr(model, "modules") or not hasattr(model, "config"):
        raise ModelError(f"a {type(model).__name__} is not a transformers model")
    check_model_can_be_routed(model.config, allow_untested=allow_untested)
    check_has_no_adapter(model)
    if getattr(model, "macro_route", None) is not None:
        raise ModelError("this model is routed already; apply the route to the model it was made from")
    layers = count_model_layers(model)
    if route.layers != layers:
        raise RouteError(f"the route is for {route.layers} layers, but the model has {layers}")


def make_config_with_entry_per_step(config: Any, route: Route) -> Any:
    """Make a configuration with one entry per step wherever the original has one per layer."""
    routed = copy.deepcopy(config)
    text = get_text_config(routed)
    kinds = getattr(text, "layer_types", None)
    text.num_hidden_layers = route.length
    if kinds is not None:
        text.layer_types = [kinds[step.layer] for step in route.steps]
    return routed


# --- steps --------------------------------------------------------------------------------------------------------


def _make_step_layers(layers: Any, route: Route, config: Any, recorded: tuple[type, ...]) -> Iterator[Any]:
    # The input of step ``t`` is ``h_t``, the output of the step before; so ``h_{t-back}`` is the input of ``t - back``.
    sources = {slot: slot - step.add.back for slot, step in enumerate(route.steps) if step.add}
    for slot, step in enumerate(route.steps):
        layer = layers[step.layer]
        kind = make_adding_layer_class(layer.__class__) if route.has_adds else None
        routed = copy_with_cache_slot(layer, slot, config, recorded, kind)
        if route.has_adds:
            routed.macro_add = step.add
            routed.macro_source = sources.get(slot)
            routed.macro_keep = slot if slot in sources.values() else None
        yield routed


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


def _reject_saving(route: Route, *_args: Any, **_kwargs: Any) -> None:
    """Raise: ``save_pretrained`` would silently drop adds and fail on shared weights."""
    raise ModelError(
        f"a routed model ({route}) cannot be saved as a checkpoint;"
        " save the route, and apply it to the model it was made for"
    )


class SavedStates:
    """Hidden states of one forward pass that later steps add.

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


@functools.cache
def make_adding_layer_class(kind: Any) -> type[nn.Module]:
    """Make a layer class with an add in front: it reads and writes the saved states, then runs the layer."""

    def forward(self: Any, hidden_states: torch.Tensor, *args: Any, macro_states: SavedStates, **kwargs: Any) -> Any:
        if self.macro_keep is not None:
            macro_states.states[self.macro_keep] = hidden_states
        if self.macro_add is not None:
            earlier = macro_states.states[self.macro_source].to(hidden_states.device)
            hidden_states = add_hidden_state(hidden_states, earlier, self.macro_add.coefficient)
        return kind.forward(self, hidden_states, *args, **kwargs)

    return type(f"Adding{kind.__name__}", (kind,), {"forward": forward, "__module__": __name__})


def add_hidden_state(hidden: torch.Tensor, earlier: torch.Tensor, coefficient: float) -> torch.Tensor:
    """``h_t + coefficient · h_{t-b}``, in the states' own precision."""
    return hidden + earlier if coefficient == 1.0 else hidden + coefficient * earlier


# --- copies -------------------------------------------------------------------------------------------------------


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
