"""Write a route or a mixture to vLLM's ``hf_overrides`` and read it back: plain numbers in the model's configuration.

Three entries hold a route: ``macro_model_layers``, the number of layers of the model; ``macro_layers``, the layer of
every step; ``macro_adds``, for every add the step (from 0), how far it looks back, and the coefficient. A mixture has
the last two once per member, as lists of lists, and its weights in ``macro_weights``.
"""

from typing import Any

from macro_routing.errors import ModelError, RouteError, shorten_value
from macro_routing.models.support import find_unroutable_reason
from macro_routing.routes.mixture import Member, Mixture, RouteOrMixture, require_question, to_mixture, to_simplest_form
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


def make_route_overrides(route: RouteOrMixture, config: Any) -> dict[str, Any]:
    """Make the ``hf_overrides`` with which a model of this configuration runs ``route``."""
    require_question(route)
    check_architecture_and_layers(route, config)
    overrides = {"architectures": [ARCHITECTURES[config.model_type]], "macro_model_layers": route.layers}
    simplest = to_simplest_form(to_mixture(route))
    if isinstance(simplest, Route):
        return {**overrides, "macro_layers": _list_layers(simplest), "macro_adds": _list_adds(simplest)}
    return {
        **overrides,
        "macro_layers": [_list_layers(member) for member in simplest.routes],
        "macro_adds": [_list_adds(member) for member in simplest.routes],
        "macro_weights": list(simplest.weights),
    }


def _list_layers(route: Route) -> list[int]:
    return [step.layer for step in route.steps]


def _list_adds(route: Route) -> list[list[float]]:
    return [[index, step.add.back, step.add.coefficient] for index, step in enumerate(route.steps) if step.add]


def check_architecture_and_layers(route: RouteOrMixture, config: Any) -> None:
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


def read_route_from_hf_config(config: Any) -> RouteOrMixture:
    """Read the route or mixture in a configuration; reject anything but numbers of the correct type."""
    model_layers = _check_integer("macro_model_layers", getattr(config, "macro_model_layers", None))
    layers = _check_list("macro_layers", getattr(config, "macro_layers", None))
    adds = _check_list("macro_adds", getattr(config, "macro_adds", None))
    route: RouteOrMixture
    if getattr(config, "macro_weights", None) is None:
        route = _parse_route(layers, adds, model_layers)
    else:
        weights = _check_list("macro_weights", config.macro_weights)
        if not len(layers) == len(adds) == len(weights):
            raise RouteError(
                f"macro_layers, macro_adds and macro_weights are for {len(layers)}, {len(adds)} and {len(weights)}"
                " routes; a mixture has one entry per route in each"
            )
        routes = [_parse_route(*member, model_layers) for member in zip(layers, adds, strict=True)]
        route = Mixture(tuple(map(Member, routes, weights)))
    check_architecture_and_layers(route, config)
    return route


def _parse_route(layers: Any, adds: Any, model_layers: int) -> Route:
    steps = [_check_integer("macro_layers", layer) for layer in _check_list("macro_layers", layers)]
    entries = _check_list("macro_adds", adds)
    by_step = dict(_parse_macro_adds_entry(entry, len(steps)) for entry in entries)
    if len(by_step) != len(entries):
        raise RouteError("macro_adds names a step twice; a step can add one earlier state only")
    return Route(tuple(Step(layer, by_step.get(index)) for index, layer in enumerate(steps)), model_layers)


def _parse_macro_adds_entry(entry: Any, steps: int) -> tuple[int, Add]:
    if not isinstance(entry, list | tuple) or len(entry) != 3:
        raise RouteError(f"macro_adds holds {shorten_value(entry)}; every entry is [step, back, coefficient]")
    index, back = (_check_integer("macro_adds", value) for value in entry[:2])
    if not 0 <= index < steps:
        raise RouteError(f"macro_adds names step {index}, but the route has the steps 0 to {steps - 1}")
    if isinstance(entry[2], bool) or not isinstance(entry[2], int | float):
        raise RouteError(f"macro_adds holds the coefficient {shorten_value(entry[2])}, which is not a number")
    return index, Add(back, float(entry[2]))


def _check_list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise RouteError(f"{name} must be a list, not {shorten_value(value)}; `macro serve` writes it")
    return list(value)


def _check_integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RouteError(f"{name} holds {shorten_value(value)}, which is not an integer")
    return value
