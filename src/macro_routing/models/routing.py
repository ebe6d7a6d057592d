"""Run a route on a frozen model: shared weights, one cache slot per step, adds at any step (specification §1).

``apply_route`` makes a new model object in milliseconds. Attention finds its cache slot by ``layer_idx`` and the model
picks masks and rotary tables by ``config.layer_types``, so a routed model is a shallow copy of the decoder whose
configuration has one entry per step, and whose steps are shallow copies of layers with a ``layer_idx`` of their own.
Only modules on the way to something that owns a ``layer_idx`` are copied; every weight stays the same tensor.
One code path for all architectures; no model file is edited.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from macro_routing.errors import ModelError, RouteError
from macro_routing.models.support import check_supported, text_config
from macro_routing.routes.route import Add, Route

_OWN_DICTIONARIES = (
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
"""What a shallow copy must not share, or a hook or module set on it would appear on the original."""


def apply_route(model: Any, route: Route, *, allow_untested: bool = False) -> Any:
    """A new model that executes ``route`` with the weights of ``model``, which stays as it is.

    The result works wherever the model did: ``forward``, ``generate``, dynamic and static caches, padding,
    ``torch.compile``, ``device_map`` and quantised weights.
    """
    _check(model, route, allow_untested)
    recorded = _recorded_classes(model)
    config = routed_config(model.config, route)
    decoder = decoder_of(model)
    steps = nn.ModuleList(_routed_steps(decoder.layers, route, text_config(config), recorded))
    routed = _copy_towards(model, decoder, config, steps)
    routed.macro_route = route
    routed.save_pretrained = functools.partial(_refuse_saving, route)
    routed.add_adapter = routed.load_adapter = _refuse_adapter
    routed.peft_config = NoAdapters()
    if getattr(model, "generation_config", None) is not None:
        routed.generation_config = copy.deepcopy(model.generation_config)
    if route.has_adds:
        decoder_of(routed).register_forward_pre_hook(_give_tape, with_kwargs=True)
    return routed


def decoder_of(model: Any) -> Any:
    """The module that owns the stack of layers."""
    decoder: Any = model.get_decoder() if hasattr(model, "get_decoder") else model
    if not isinstance(getattr(decoder, "layers", None), nn.ModuleList):
        raise ModelError(
            f"{type(model).__name__} has no list of decoder layers where transformers models keep it;"
            " of a loaded model pass its .model"
        )
    return decoder


def layer_count(model: Any) -> int:
    """How many layers the model has, which is what a route's ``layers`` must say."""
    return len(decoder_of(model).layers)


def _check(model: Any, route: Route, allow_untested: bool) -> None:
    if not isinstance(route, Route):
        raise RouteError(f"{route!r} is no Route; read it with parse_route(text, layers) first")
    if not isinstance(model, nn.Module) or not hasattr(model, "config"):
        raise ModelError(f"a {type(model).__name__} is no transformers model; of a loaded model pass its .model")
    check_supported(model.config, allow_untested=allow_untested)
    refuse_adapters(model)
    if getattr(model, "macro_route", None) is not None:
        raise ModelError("this model is routed already; apply the route to the model it was made from")
    layers = layer_count(model)
    if route.layers != layers:
        raise RouteError(f"the route is for {route.layers} layers, but the model has {layers}")


def refuse_adapters(model: Any) -> None:
    """Refuse a model with a LoRA or other adapter: what it adds to a layer was trained for that layer's one place."""
    configured = not isinstance(getattr(model, "peft_config", NoAdapters()), NoAdapters)
    if (
        configured
        or getattr(model, "_hf_peft_config_loaded", False)
        or any(type(part).__module__.startswith("peft.") for part in model.modules())
    ):
        raise ModelError(
            "models with a LoRA or other PEFT adapter are not supported;"
            " merge it first (model.merge_and_unload()), save the result and load that"
        )


class NoAdapters(dict[str, Any]):
    """Where PEFT notes an adapter before it changes a model's modules: on a routed model it may not.

    Most of those modules belong to the original as well, so an adapter would change it unnoticed; the others are there
    once per step, where an adapter has one entry per layer.
    """

    def __setitem__(self, name: str, adapter: Any) -> None:
        """Refuse."""
        _refuse_adapter()

    def update(self, *_args: Any, **_kwargs: Any) -> None:
        """Refuse."""
        _refuse_adapter()


def _refuse_adapter(*_args: Any, **_kwargs: Any) -> None:
    raise ModelError(
        "a routed model takes no LoRA or other PEFT adapter; merge the adapter into the model"
        " (merge_and_unload), save the result, and apply a route to that"
    )


def routed_config(config: Any, route: Route) -> Any:
    """The configuration with one entry per step wherever the original has one per layer."""
    routed = copy.deepcopy(config)
    text = text_config(routed)
    kinds = getattr(text, "layer_types", None)
    text.num_hidden_layers = route.length
    if kinds is not None:
        text.layer_types = [kinds[step.layer] for step in route.steps]
    return routed


# --- steps --------------------------------------------------------------------------------------------------------


def _routed_steps(layers: Any, route: Route, config: Any, recorded: tuple[type, ...]) -> Iterator[Any]:
    kept = frozenset(_source(number, step.add) for number, step in enumerate(route.steps) if step.add)
    for slot, step in enumerate(route.steps):
        layer = layers[step.layer]
        routed = _copy_with_slot(
            layer, slot, config, recorded, adding_class(layer.__class__) if route.has_adds else None
        )
        if route.has_adds:
            routed.macro_add = step.add
            routed.macro_source = None if step.add is None else _source(slot, step.add)
            routed.macro_keep = slot if slot in kept else None
        yield routed


def _source(slot: int, add: Add | None) -> int:
    """The step whose *input* is ``h_{t-back}``: the input of step ``t`` is ``h_t``, the output of the one before."""
    assert add is not None
    return slot - add.back


def _copy_with_slot(
    module: nn.Module, slot: int, config: Any, recorded: tuple[type, ...], kind: type[nn.Module] | None = None
) -> Any:
    """Copy the modules on the way to an owner of ``layer_idx`` or a recorded output; all else stays the same object."""
    copied = shallow_copy(module, kind)
    if "layer_idx" in copied.__dict__:
        copied.__dict__["layer_idx"] = slot
    if "config" in copied.__dict__:
        copied.__dict__["config"] = config
    for name, child in module._modules.items():  # noqa: SLF001
        if child is not None and _is_own(child, recorded):
            copied._modules[name] = _copy_with_slot(child, slot, config, recorded)  # noqa: SLF001
    return copied


def _is_own(module: nn.Module, recorded: tuple[type, ...]) -> bool:
    """Whether a step needs this module for itself: it holds a slot, or something that transformers hooks."""
    return any("layer_idx" in part.__dict__ or isinstance(part, recorded) for part in module.modules())


def _recorded_classes(model: Any) -> tuple[type, ...]:
    """Module classes whose outputs transformers records with hooks, such as the routers of mixtures of experts.

    A hook on a module that several steps (and the untouched model) share would record all of them.
    """
    found: list[type] = []
    for part in (model, decoder_of(model)):
        for entry in (getattr(part, "_can_record_outputs", None) or {}).values():
            for recorder in entry if isinstance(entry, list | tuple) else [entry]:
                kind = getattr(recorder, "target_class", recorder)
                found += [kind] if isinstance(kind, type) else []
    return tuple(dict.fromkeys(found))


def _refuse_saving(route: Route, *_args: Any, **_kwargs: Any) -> None:
    """``save_pretrained`` would drop adds in silence and choke on shared weights."""
    raise ModelError(
        f"a routed model ({route}) cannot be saved as a checkpoint;"
        " save the route, and apply it to the model it was made for"
    )


class Tape:
    """Hidden states of one forward pass that later steps add.

    A class of its own because accelerate rebuilds dictionaries and lists on their way to a device, which would
    lose what steps write.
    """

    __slots__ = ("states",)

    def __init__(self) -> None:
        """An empty tape."""
        self.states: dict[int, torch.Tensor] = {}


def _give_tape(_: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Every forward pass gets a new tape, so passes can be nested and nothing old is ever read."""
    return args, {**kwargs, "macro_tape": Tape()}


@functools.cache
def adding_class(kind: Any) -> type[nn.Module]:
    """The layer class with an add in front: reads and writes the tape, then runs the layer as it is."""

    def forward(self: Any, hidden_states: torch.Tensor, *args: Any, macro_tape: Tape, **kwargs: Any) -> Any:
        if self.macro_keep is not None:
            macro_tape.states[self.macro_keep] = hidden_states
        if self.macro_add is not None:
            earlier = macro_tape.states[self.macro_source].to(hidden_states.device)
            hidden_states = add_state(hidden_states, earlier, self.macro_add.coefficient)
        return kind.forward(self, hidden_states, *args, **kwargs)

    return type(f"Adding{kind.__name__}", (kind,), {"forward": forward, "__module__": __name__})


def add_state(hidden: torch.Tensor, earlier: torch.Tensor, coefficient: float) -> torch.Tensor:
    """``h_t + coefficient · h_{t-b}``, in the states' own precision."""
    return hidden + earlier if coefficient == 1.0 else hidden + coefficient * earlier


# --- copies -------------------------------------------------------------------------------------------------------


def _copy_towards(module: Any, decoder: Any, config: Any, steps: nn.ModuleList) -> Any:
    """Copy the modules from the model down to its decoder, which gets the routed steps."""
    copied = shallow_copy(module)
    if module is decoder:
        copied.config = text_config(config)
        copied._modules["layers"] = steps  # noqa: SLF001
        return copied
    copied.config = config
    for name, child in module._modules.items():  # noqa: SLF001
        if child is not None and any(part is decoder for part in child.modules()):
            copied._modules[name] = _copy_towards(child, decoder, config, steps)  # noqa: SLF001
    return copied


def shallow_copy(module: nn.Module, kind: type[nn.Module] | None = None) -> Any:
    """A new module object of the same (or the given) class with the very same weights and children."""
    chosen = kind or type(module)
    copied = chosen.__new__(chosen)
    copied.__dict__.update(module.__dict__)
    for name in _OWN_DICTIONARIES:
        if copied.__dict__.get(name) is not None:
            copied.__dict__[name] = copy.copy(copied.__dict__[name])
    if "_hf_hook" in copied.__dict__:
        _bind_accelerate_hook(copied)
    elif "forward" in copied.__dict__:
        raise ModelError(f"{type(module).__name__}.forward was replaced on this model, so a copy would not run it")
    return copied


def _bind_accelerate_hook(module: Any) -> None:
    """Let accelerate's hook act on the copy: it replaces ``forward`` by one that is bound to the original."""
    hook = module.__dict__["_hf_hook"]
    for name in ("forward", "_old_forward"):
        module.__dict__.pop(name, None)
    plain: Callable[..., Any] = module.forward

    @functools.wraps(plain)
    def forward(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = hook.pre_forward(module, *args, **kwargs)
        if hook.no_grad:
            with torch.no_grad():
                output = plain(*args, **kwargs)
        else:
            output = plain(*args, **kwargs)
        return hook.post_forward(module, output)

    module.__dict__["_old_forward"] = plain
    module.__dict__["forward"] = forward
