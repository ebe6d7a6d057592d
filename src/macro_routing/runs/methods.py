"""Ways to search, by name: MACRO, its control and its peers, each given the same data and the same budget.

The budget is counted in route × example outcomes that a search asks for, stored or not. Without one, a method gets what
MACRO itself asks for under the same settings.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from macro_routing.errors import SettingsError, suggest_name
from macro_routing.peers.per_example_search import PerExampleSearch
from macro_routing.peers.per_example_settings import ColaSettings, DrLLMSettings
from macro_routing.routes.space import RouteSpace
from macro_routing.search import GuidedSearch, GuidedSettings, RandomSearch, RandomSettings, Searcher
from macro_routing.search.decision_settings import SPEED, DecisionSettings
from macro_routing.search.fixed_route_count_search import (
    FixedRouteCountSearch,
    RouteListSearch,
    StandardPassMethod,
    list_early_exit_routes,
    list_layer_drop_routes,
)
from macro_routing.search.fixed_route_count_settings import FixedRouteCountSettings, LayerDropSettings
from macro_routing.search.guided_settings import ContrastiveSettings
from macro_routing.search.macro import MacroSearch, RestartedSearch
from macro_routing.search.method_names import METHOD_NAMES
from macro_routing.search.mixture_controls import (
    CONTRASTIVE,
    DOLA,
    PMI,
    READOUTS,
    ROUTE_AVERAGE,
    SKIP_LAYER_CD,
    ControlSearch,
)
from macro_routing.search.policy_settings import MacroSettings
from macro_routing.search.random_streams import assign_examples_to_rounds
from macro_routing.search.rys import BlockBeamSearch, BlockSweep, LayerRepeatCountSweep, RYSSurrogateSearch
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
SearchPlan = Searcher | PerExampleSearch | ControlSearch
"""A search of some method."""


@dataclass(frozen=True)
class MethodInputs:
    """What a method is built from."""

    space: RouteSpace
    examples: int
    """Training examples there are."""
    test: int
    """Test examples there are: an oracle searches on them."""
    budget: int | None
    seed: int
    settings: Any
    paper: MacroSettings
    """MACRO's settings under the same preset: they say what a method without a budget of its own may spend."""
    influence: Callable[[], Sequence[float]]
    """How much each layer changes its input; measured when it is asked for."""
    decision: DecisionSettings = field(default_factory=DecisionSettings)
    given: frozenset[str] = frozenset()
    """Names of the settings that were given; the preset and the defaults set the others."""

    @property
    def resolved_budget(self) -> int:
        """The budget in numbers."""
        if self.budget is not None:
            return self.budget
        return MacroSearch(self.space, self.examples, self.paper, self.seed).max_evaluations()


@dataclass(frozen=True)
class Method:
    """One way to search."""

    title: str
    """How its chosen route is called."""
    settings: type
    build: Callable[[MethodInputs], SearchPlan]
    kind: str = ROUTE_SEARCH
    """``search`` for routes; ``control`` for mixtures by a simple rule; ``router`` and ``oracle`` for what gives every
    example its own."""
    needs_likelihood: bool = False
    """Whether it compares choices by likelihood, and cannot write text."""


def _build_macro(inputs: MethodInputs) -> MacroSearch:
    examples = _count_affordable_training_examples(inputs.settings, inputs.examples, inputs.budget)
    return MacroSearch(inputs.space, examples, inputs.settings, inputs.seed)


def _build_guided_search(inputs: MethodInputs) -> GuidedSearch:
    """The default search; without a budget it spends what MACRO would, or what the given number of draws needs."""
    budget, settings = inputs.budget, inputs.settings
    mixtures = (inputs.decision.members or 1) - 1
    if budget is None and "draws" in inputs.given:
        # Half of the budget is for mixtures, so that the draws are those that were asked for.
        paid = dataclasses.replace(settings, draws=settings.draws * (2 if mixtures else 1))
        budget = paid.min_evaluations(inputs.examples, mixtures)
    elif budget is None and inputs.examples < inputs.paper.iterations:  # too few for MACRO to say what it would spend
        budget = max(inputs.paper.draws * inputs.examples, settings.min_evaluations(3, mixtures))
    return GuidedSearch(
        inputs.space, inputs.examples, budget or inputs.resolved_budget, settings, inputs.seed, inputs.decision
    )


def _build_restarted_search(inputs: MethodInputs) -> RestartedSearch:
    return RestartedSearch(_build_macro(inputs), inputs.resolved_budget)


def _build_random_search(inputs: MethodInputs) -> RandomSearch:
    """More draws where the budget has more to give than MACRO's own number of them."""
    settings, examples = inputs.settings, inputs.examples
    if inputs.budget is not None:
        examples = _count_affordable_training_examples(settings, examples, inputs.budget)
        spent = sum(map(len, assign_examples_to_rounds(examples, settings.iterations, settings.replay, inputs.seed)))
        settings = dataclasses.replace(settings, draws=inputs.budget // spent)
    return RandomSearch(inputs.space, examples, settings, inputs.seed)


def _count_affordable_training_examples(
    settings: MacroSettings | RandomSettings, available: int, budget: int | None
) -> int:
    """The most training examples whose rounds stay within the budget."""

    def count_macro_evaluations(examples: int) -> int:
        rounds = assign_examples_to_rounds(examples, settings.iterations, settings.replay, seed=0)
        return settings.draws * sum(map(len, rounds))

    if budget is None or count_macro_evaluations(available) <= budget:
        return available
    minimum = settings.iterations
    if count_macro_evaluations(minimum) > budget:
        raise SettingsError(
            f"budget = {budget} is not allowed: {settings.iterations} rounds of {settings.draws} draws need"
            f" {count_macro_evaluations(minimum)} evaluations at least; give more, or fewer iterations and draws"
        )
    affordable, upper = minimum, available
    while upper - affordable > 1:
        middle = (affordable + upper) // 2
        affordable, upper = (middle, upper) if count_macro_evaluations(middle) <= budget else (affordable, middle)
    return affordable


def _build_budgeted_search(search: type[FixedRouteCountSearch], inputs: MethodInputs) -> FixedRouteCountSearch:
    return search(inputs.space.layers, inputs.examples, inputs.resolved_budget, inputs.settings, inputs.seed)


def _build_route_list_sweep(name: str, inputs: MethodInputs) -> RouteListSearch:
    """Early exit, or ShortGPT: every route of a list."""
    layers, settings = inputs.space.layers, inputs.settings
    if name == "early-exit":
        routes = list_early_exit_routes(layers)
    else:
        routes = list_layer_drop_routes(inputs.influence(), settings.max_dropped or max(1, layers // 2))
    final_set = FixedRouteCountSettings(k=settings.k, anchored=settings.anchored)
    return RouteListSearch(layers, inputs.examples, inputs.resolved_budget, final_set, inputs.seed, routes, name)


def _build_per_example_search(
    inputs: MethodInputs, *, extended: bool = False, every_example: bool = False
) -> PerExampleSearch:
    """Tree searches over the training examples; the oracle searches every test example."""
    examples = inputs.test if every_example else inputs.examples
    return PerExampleSearch(
        inputs.space,
        examples,
        inputs.settings,
        inputs.budget,
        inputs.seed,
        extended=extended,
        every_example=every_example,
    )


def _build_control(control: str, inputs: MethodInputs) -> ControlSearch:
    if control == CONTRASTIVE and not inputs.settings.amateur:
        raise SettingsError(NO_AMATEUR)
    return ControlSearch.beside_guided_search(control, _build_guided_search(inputs))


def _make_control_method(
    title: str, control: str, settings: type = GuidedSettings, *, needs_likelihood: bool = False
) -> Method:
    return Method(f"{title} (control)", settings, partial(_build_control, control), CONTROL, needs_likelihood)


METHODS: dict[str, Method] = {
    GUIDED: Method("MACRO, guided", GuidedSettings, _build_guided_search),
    MACRO: Method("MACRO", MacroSettings, _build_macro),
    "macro-restarts": Method("MACRO, restarted", MacroSettings, _build_restarted_search),
    RANDOM: Method("random search", RandomSettings, _build_random_search),
    "rys": Method("RYS", BlockSweepSettings, partial(_build_budgeted_search, BlockSweep)),
    "rys-counts": Method("RYS, counts", RepeatCountSettings, partial(_build_budgeted_search, LayerRepeatCountSweep)),
    "rys-beam": Method("RYS, beam", BlockBeamSettings, partial(_build_budgeted_search, BlockBeamSearch)),
    "rys-surrogate": Method(
        "RYS, surrogate", RYSSurrogateSettings, partial(_build_budgeted_search, RYSSurrogateSearch)
    ),
    "shortgpt": Method("ShortGPT", LayerDropSettings, partial(_build_route_list_sweep, "shortgpt")),
    "early-exit": Method("early exit", FixedRouteCountSettings, partial(_build_route_list_sweep, "early-exit")),
    "drllm": Method("Dr.LLM", DrLLMSettings, _build_per_example_search, "router"),
    "drllm-ext": Method("Dr.LLM+Ext.", DrLLMSettings, partial(_build_per_example_search, extended=True), "router"),
    "cola": Method("CoLA (oracle)", ColaSettings, partial(_build_per_example_search, every_example=True), "oracle"),
    PMI: _make_control_method("PMI", PMI, needs_likelihood=True),
    DOLA: _make_control_method("DoLa, static", DOLA),
    SKIP_LAYER_CD: _make_control_method("SkipLayerCD", SKIP_LAYER_CD),
    ROUTE_AVERAGE: _make_control_method("average of routes", ROUTE_AVERAGE),
    READOUTS: _make_control_method("read-outs", READOUTS, needs_likelihood=True),
    CONTRASTIVE: _make_control_method("contrastive", CONTRASTIVE, ContrastiveSettings, needs_likelihood=True),
    STANDARD: Method("standard pass", FixedRouteCountSettings, partial(_build_budgeted_search, StandardPassMethod)),
}
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
