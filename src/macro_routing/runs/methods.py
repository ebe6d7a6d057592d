"""Ways to search, by name: MACRO, its control and its peers, each given the same data and the same budget.

The budget is counted in route × example outcomes that a search asks for, stored or not. Without one, a method gets what
MACRO itself asks for under the same settings. Here is what the flags and the settings need of a method;
``search_building`` builds its search, which takes numpy.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from macro_routing.errors import SettingsError, suggest_name
from macro_routing.peers.per_example_settings import ColaSettings, DrLLMSettings
from macro_routing.search.decision_settings import SPEED
from macro_routing.search.fixed_route_count_settings import FixedRouteCountSettings, LayerDropSettings
from macro_routing.search.guided_settings import ContrastiveSettings, GuidedSettings
from macro_routing.search.method_names import (
    CONTRASTIVE,
    DOLA,
    METHOD_NAMES,
    PMI,
    READOUTS,
    ROUTE_AVERAGE,
    SKIP_LAYER_CD,
)
from macro_routing.search.policy_settings import MacroSettings, RandomSettings
from macro_routing.search.rys_settings import (
    BlockBeamSettings,
    BlockSweepSettings,
    RepeatCountSettings,
    RYSSurrogateSettings,
)
from macro_routing.settings import build_settings

MAX_EVALUATIONS = 10_000_000
"""The largest budget; the paper's is below fifty thousand."""
GUIDED, MACRO, RANDOM, STANDARD = "guided", "macro", "random", "standard"
ROUTE_SEARCH, CONTROL = "search", "control"
"""Kinds of methods whose result is a route or a mixture."""
NO_AMATEUR = "method contrastive needs a smaller model of the same tokenizer; give it with --amateur MODEL"


SearchSettings = (
    GuidedSettings
    | ContrastiveSettings
    | MacroSettings
    | RandomSettings
    | BlockSweepSettings
    | RepeatCountSettings
    | BlockBeamSettings
    | RYSSurrogateSettings
    | FixedRouteCountSettings
    | LayerDropSettings
    | DrLLMSettings
    | ColaSettings
)
"""The settings of some method."""


@dataclass(frozen=True)
class Method:
    """One way to search."""

    title: str
    """How its chosen route is called."""
    settings: type
    kind: str = ROUTE_SEARCH
    """``search`` for routes; ``control`` for mixtures by a simple rule; ``router`` and ``oracle`` for what gives every
    example its own."""
    needs_likelihood: bool = False
    """Whether it compares choices by likelihood, and cannot write text."""


def _make_control(title: str, settings: type = GuidedSettings, *, needs_likelihood: bool = False) -> Method:
    return Method(f"{title} (control)", settings, CONTROL, needs_likelihood)


METHODS: dict[str, Method] = {
    GUIDED: Method("MACRO, guided", GuidedSettings),
    MACRO: Method("MACRO", MacroSettings),
    "macro-restarts": Method("MACRO, restarted", MacroSettings),
    RANDOM: Method("random search", RandomSettings),
    "rys": Method("RYS", BlockSweepSettings),
    "rys-counts": Method("RYS, counts", RepeatCountSettings),
    "rys-beam": Method("RYS, beam", BlockBeamSettings),
    "rys-surrogate": Method("RYS, surrogate", RYSSurrogateSettings),
    "shortgpt": Method("ShortGPT", LayerDropSettings),
    "early-exit": Method("early exit", FixedRouteCountSettings),
    "drllm": Method("Dr.LLM", DrLLMSettings, "router"),
    "drllm-ext": Method("Dr.LLM+Ext.", DrLLMSettings, "router"),
    "cola": Method("CoLA (oracle)", ColaSettings, "oracle"),
    PMI: _make_control("PMI", needs_likelihood=True),
    DOLA: _make_control("DoLa, static"),
    SKIP_LAYER_CD: _make_control("SkipLayerCD"),
    ROUTE_AVERAGE: _make_control("average of routes"),
    READOUTS: _make_control("read-outs", needs_likelihood=True),
    CONTRASTIVE: _make_control("contrastive", ContrastiveSettings, needs_likelihood=True),
    STANDARD: Method("standard pass", FixedRouteCountSettings),
}
"""``search_building`` has what builds each of them."""
assert tuple(METHODS) == METHOD_NAMES


def keep_settings_of_method(method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of some settings that a method has."""
    known = {field.name for field in dataclasses.fields(METHODS[method].settings)}
    return {name: value for name, value in given.items() if name in known}


def list_used_decision_settings(method: str, objective: str) -> tuple[str, ...]:
    """The settings of the final decision that have an effect; without a test, validation alone selects."""
    if objective == SPEED:
        return ("objective", "max_error_probability", "margin")
    if METHODS[method].kind == CONTROL:  # they say on which examples the guided search fits its mixtures
        return ("objective", "max_cost", "members")
    return (
        ("objective", "max_error_probability", "price", "max_cost", "members") if method == GUIDED else ("objective",)
    )


def make_search_settings(method: str, preset: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """A method's settings: what was given, then what of the preset it knows."""
    for name in given:
        others = [other for other in METHODS if name in keep_settings_of_method(other, given)]
        if others and method not in others:
            raise SettingsError(
                f"[search]: {name} is not a setting of method = {method}, but of method = {' or '.join(others[:3])};"
                " leave it out or name that method"
            )
    return build_settings(METHODS[method].settings, {**keep_settings_of_method(method, preset), **given}, "[search]")


def check_requested_methods_comparable(names: Sequence[str], seeds: Sequence[int]) -> None:
    """Reject what cannot be compared before anything is loaded."""
    for method in names:
        if method not in METHODS:
            raise SettingsError(f"{method} is not a method; known: {', '.join(METHODS)}{suggest_name(method, METHODS)}")
    for name, values in (("method", names), ("seed", seeds)):
        if not values:
            raise SettingsError(f"a comparison needs at least one {name}")
        if repeated := [value for index, value in enumerate(values) if value in values[:index]]:
            raise SettingsError(f"{name} {repeated[0]} is named twice; a comparison has each once")
