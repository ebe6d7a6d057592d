"""Ways to search, by name: MACRO, its control and its peers, each given the same data and the same budget.

The budget is counted in route × example outcomes that a search asks for, stored or not. Without one, a method gets what
MACRO itself asks for under the same settings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from macro_routing.errors import SettingsError, suggestion
from macro_routing.peers.label_search import ColaSettings, DrLLMSettings, LabelSearch
from macro_routing.routes.route import Route
from macro_routing.routes.space import RouteSpace
from macro_routing.search.budgeted_search import BudgetedSearch, FinalSetSettings
from macro_routing.search.example_schedule import assign_examples
from macro_routing.search.guided import GuidedSearch
from macro_routing.search.guided_settings import GuidedSettings
from macro_routing.search.macro import MacroSearch, MacroSettings
from macro_routing.search.method_names import METHOD_NAMES
from macro_routing.search.random_search import RandomSearch, RandomSettings
from macro_routing.search.restarts import RestartedSearch
from macro_routing.search.route_list_sweep import (
    RouteListSweep,
    StandardOnly,
    drop_least_influential,
    list_early_exits,
)
from macro_routing.search.rys_beam import BeamSettings, RepeatBeam
from macro_routing.search.rys_counts import CountSettings, CountSweep
from macro_routing.search.rys_surrogate import SurrogateSearch, SurrogateSettings
from macro_routing.search.rys_sweep import BlockSweep, SweepSettings
from macro_routing.search.searcher import SearchPlan
from macro_routing.settings import build_settings, check_integer

MAX_EVALUATIONS = 10_000_000
"""The largest budget; the paper's is below fifty thousand."""
GUIDED, MACRO, RANDOM, STANDARD = "guided", "macro", "random", "standard"


@dataclass(frozen=True)
class Search:
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

    @property
    def to_spend(self) -> int:
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
    build: Callable[[Search], SearchPlan]
    kind: str = "search"
    """``search`` for routes; ``router`` and ``oracle`` for what gives every example its own."""


def _macro(search: Search) -> MacroSearch:
    examples = _affordable(search.settings, search.examples, search.budget)
    return MacroSearch(search.space, examples, search.settings, search.seed)


def guided(search: Search) -> GuidedSearch:
    """The default search; without a budget it may spend what MACRO would."""
    budget = search.budget
    if budget is None and search.examples < search.paper.iterations:  # too few for MACRO to say what it would spend
        budget = max(search.paper.draws * search.examples, search.settings.min_evaluations(3))
    return GuidedSearch(search.space, search.examples, budget or search.to_spend, search.settings, search.seed)


def _restarted(search: Search) -> RestartedSearch:
    return RestartedSearch(_macro(search), search.to_spend)


def _random(search: Search) -> RandomSearch:
    """More draws where the budget has more to give than MACRO's own number of them."""
    settings, examples = search.settings, search.examples
    if search.budget is not None:
        examples = _affordable(settings, examples, search.budget)
        spent = sum(map(len, assign_examples(examples, settings.iterations, settings.replay, search.seed)))
        settings = dataclasses.replace(settings, draws=search.budget // spent)
    return RandomSearch(search.space, examples, settings, search.seed)


def _affordable(settings: MacroSettings | RandomSettings, available: int, budget: int | None) -> int:
    """The most training examples whose rounds stay within the budget."""

    def asked(examples: int) -> int:
        rounds = assign_examples(examples, settings.iterations, settings.replay, seed=0)
        return settings.draws * sum(map(len, rounds))

    if budget is None or asked(available) <= budget:
        return available
    least = settings.iterations
    if asked(least) > budget:
        raise SettingsError(
            f"budget = {budget} is not allowed: {settings.iterations} rounds of {settings.draws} draws ask for"
            f" {asked(least)} outcomes at least; give more, or fewer iterations and draws"
        )
    enough, most = least, available
    while most - enough > 1:
        middle = (enough + most) // 2
        enough, most = (middle, most) if asked(middle) <= budget else (enough, middle)
    return enough


@dataclass(frozen=True)
class DropSettings(FinalSetSettings):
    """The settings of dropping layers."""

    max_dropped: int = 0
    """Most layers dropped; 0 means half of them."""

    def __post_init__(self) -> None:
        """Refuse impossible settings by name."""
        super().__post_init__()
        check_integer("max_dropped", self.max_dropped, minimum=0)


def _budgeted(kind: type[BudgetedSearch]) -> Callable[[Search], BudgetedSearch]:
    def build(search: Search) -> BudgetedSearch:
        return kind(search.space.layers, search.examples, search.to_spend, search.settings, search.seed)

    return build


def _early_exit(search: Search) -> RouteListSweep:
    return _sweep("early-exit", search, list_early_exits(search.space.layers))


def _shortgpt(search: Search) -> RouteListSweep:
    most = search.settings.max_dropped or max(1, search.space.layers // 2)
    return _sweep("shortgpt", search, drop_least_influential(search.influence(), most))


def _sweep(name: str, search: Search, routes: tuple[Route, ...]) -> RouteListSweep:
    kept = FinalSetSettings(k=search.settings.k, anchored=search.settings.anchored)
    return RouteListSweep(search.space.layers, search.examples, search.to_spend, kept, search.seed, routes, name)


def _labels(search: Search) -> LabelSearch:
    return LabelSearch(search.space, search.examples, search.settings, search.budget, search.seed)


def _extended_labels(search: Search) -> LabelSearch:
    return dataclasses.replace(_labels(search), extended=True)


def _oracle(search: Search) -> LabelSearch:
    return LabelSearch(search.space, search.test, search.settings, search.budget, search.seed, every_example=True)


METHODS: dict[str, Method] = {
    GUIDED: Method("MACRO, guided", GuidedSettings, guided),
    MACRO: Method("MACRO", MacroSettings, _macro),
    "macro-restarts": Method("MACRO, restarted", MacroSettings, _restarted),
    RANDOM: Method("random search", RandomSettings, _random),
    "rys": Method("RYS", SweepSettings, _budgeted(BlockSweep)),
    "rys-counts": Method("RYS, counts", CountSettings, _budgeted(CountSweep)),
    "rys-beam": Method("RYS, beam", BeamSettings, _budgeted(RepeatBeam)),
    "rys-surrogate": Method("RYS, surrogate", SurrogateSettings, _budgeted(SurrogateSearch)),
    "shortgpt": Method("ShortGPT", DropSettings, _shortgpt),
    "early-exit": Method("early exit", FinalSetSettings, _early_exit),
    "drllm": Method("Dr.LLM", DrLLMSettings, _labels, "router"),
    "drllm-ext": Method("Dr.LLM+Ext.", DrLLMSettings, _extended_labels, "router"),
    "cola": Method("CoLA (oracle)", ColaSettings, _oracle, "oracle"),
    STANDARD: Method("standard pass", FinalSetSettings, _budgeted(StandardOnly)),
}
assert tuple(METHODS) == METHOD_NAMES


def keep_known_settings(method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of some settings that a method has."""
    known = {field.name for field in dataclasses.fields(METHODS[method].settings)}
    return {name: value for name, value in given.items() if name in known}


def make_search_settings(method: str, preset: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """A method's settings: what was given, then what of the preset it knows."""
    for name in given:
        others = [other for other in METHODS if name in keep_known_settings(other, given)]
        if others and method not in others:
            raise SettingsError(
                f"[search]: {name} is no setting of method = {method}, but of method = {' or '.join(others[:3])};"
                " leave it out or name that method"
            )
    return build_settings(METHODS[method].settings, {**keep_known_settings(method, preset), **given}, "[search]")


def check_methods(names: Sequence[str], seeds: Sequence[int]) -> None:
    """Refuse what cannot be compared before anything is loaded."""
    for method in names:
        if method not in METHODS:
            raise SettingsError(f"{method} is no method; known: {', '.join(METHODS)}{suggestion(method, METHODS)}")
    for name, values in (("method", names), ("seed", seeds)):
        if not values:
            raise SettingsError(f"a comparison needs at least one {name}")
        if repeated := [value for place, value in enumerate(values) if value in values[:place]]:
            raise SettingsError(f"{name} {repeated[0]} is named twice; a comparison has each once")
