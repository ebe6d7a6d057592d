"""Write a route to vLLM's ``hf_overrides`` and read it back: plain numbers in the model's configuration.

Three entries hold it: ``macro_model_layers``, the number of layers of the model; ``macro_layers``, the layer of every
step; ``macro_adds``, for every add the step (from 0), how far it looks back, and the coefficient.
"""

from typing import Any

from macro_routing.errors import ModelError, RouteError, shorten_value
from macro_routing.models.support import find_unroutable_reason
from macro_routing.routes.route import Add, Route, Step

ARCHITECTURES = {
    "llama": "MacroLlamaForCausalLM",
    "mistral": "MacroMistralForCausalLM",
    "mixtral": "MacroMixtralForCausalLM",
    "qwen2": "MacroQwen2ForCausalLM",
    "qwen3": "MacroQwen3ForCausalLM",
    "qwen3_moe": "MacroQwen3MoeForCausalLM",
}
"""``model_type`` → the routed class's name in vLLM's registry."""


def make_route_overrides(route: Route, config: Any) -> dict[str, Any]:
    """Make the ``hf_overrides`` with which a model of this configuration runs ``route``."""
    check_architecture_and_layers(route, config)
    return {
        "architectures": [ARCHITECTURES[config.model_type]],
        "macro_model_layers": route.layers,
        "macro_layers": [step.layer for step in route.steps],
        "macro_adds": [
            [index, step.add.back, step.add.coefficient] for index, step in enumerate(route.steps) if step.add
        ],
    }


def check_architecture_and_layers(route: Route, config: Any) -> None:
    """Reject an unsupported architecture and a route for another number of layers."""
    if config.model_type not in ARCHITECTURES:
        raise ModelError(
            f"{config.model_type} models cannot be routed in vLLM, only {', '.join(ARCHITECTURES)};"
            " serve it with --engine transformers"
        )
    if reason := find_unroutable_reason(config):
        raise ModelError(reason)
    if route.layers != config.num_hidden_layers:
        raise RouteError(f"the route is for {route.layers} layers, but the model has {config.num_hidden_layers}")


def read_route_from_hf_config(config: Any) -> Route:
    """Read the route in a configuration; reject anything but numbers of the correct type."""
    layers = _check_integer("macro_model_layers", getattr(config, "macro_model_layers", None))
    steps = [_check_integer("macro_layers", layer) for layer in _get_list_override("macro_layers", config)]
    entries = _get_list_override("macro_adds", config)
    adds = dict(_parse_macro_adds_entry(entry, len(steps)) for entry in entries)
    if len(adds) != len(entries):
        raise RouteError("macro_adds names a step twice; a step can add one earlier state only")
    route = Route(tuple(Step(layer, adds.get(index)) for index, layer in enumerate(steps)), layers)
    check_architecture_and_layers(route, config)
    return route


def _parse_macro_adds_entry(entry: Any, steps: int) -> tuple[int, Add]:
    if not isinstance(entry, list | tuple) or len(entry) != 3:
        raise RouteError(f"macro_adds holds {shorten_value(entry)}; every entry is [step, back, coefficient]")
    index, back = (_check_integer("macro_adds", value) for value in entry[:2])
    if not 0 <= index < steps:
        raise RouteError(f"macro_adds names step {index}, but the route has the steps 0 to {steps - 1}")
    if isinstance(entry[2], bool) or not isinstance(entry[2], int | float):
        raise RouteError(f"macro_adds holds the coefficient {shorten_value(entry[2])}, which is not a number")
    return index, Add(back, float(entry[2]))


def _get_list_override(name: str, config: Any) -> list[Any]:
    value = getattr(config, name, None)
    if not isinstance(value, list | tuple):
        raise RouteError(f"{name} must be a list, not {shorten_value(value)}; `macro serve` writes it")
    return list(value)


def _check_integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RouteError(f"{name} holds {shorten_value(value)}, which is not an integer")
    return value
