"""What builds the search of each method, from the route space, the data, the settings and the budget."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from macro_routing.errors import SettingsError
from macro_routing.peers.per_example_search import PerExampleSearch
from macro_routing.routes.space import RouteSpace
from macro_routing.runs.methods import GUIDED, MACRO, METHODS, NO_AMATEUR, RANDOM, STANDARD
from macro_routing.search.decision_settings import DecisionSettings
from macro_routing.search.fixed_route_count_search import (
    FixedRouteCountSearch,
    RouteListSearch,
    StandardPassMethod,
    list_early_exit_routes,
    list_layer_drop_routes,
)
from macro_routing.search.fixed_route_count_settings import FixedRouteCountSettings
from macro_routing.search.guided import GuidedSearch
from macro_routing.search.macro import MacroSearch, RestartedSearch
from macro_routing.search.method_names import CONTRASTIVE, DOLA, PMI, READOUTS, ROUTE_AVERAGE, SKIP_LAYER_CD
from macro_routing.search.mixture_controls import ControlSearch
from macro_routing.search.policy_settings import MacroSettings, RandomSettings
from macro_routing.search.random_search import RandomSearch
from macro_routing.search.random_streams import assign_examples_to_rounds
from macro_routing.search.rys import BlockBeamSearch, BlockSweep, LayerRepeatCountSweep, RYSSurrogateSearch
from macro_routing.search.searcher import Searcher

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
    groups: tuple[int, ...] | None = None
    """The number of each training example's group, see ``number_groups``."""

    @property
    def resolved_budget(self) -> int:
        """The budget in numbers."""
        if self.budget is not None:
            return self.budget
        return MacroSearch(self.space, self.examples, self.paper, self.seed).max_evaluations()


def build_search(method: str, inputs: MethodInputs) -> SearchPlan:
    """The search of a method, by its name in ``METHODS``."""
    return _BUILDERS[method](inputs)


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
        inputs.space,
        inputs.examples,
        budget or inputs.resolved_budget,
        settings,
        inputs.seed,
        inputs.decision,
        groups=inputs.groups,
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


_BUILDERS: dict[str, Callable[[MethodInputs], SearchPlan]] = {
    GUIDED: _build_guided_search,
    MACRO: _build_macro,
    "macro-restarts": _build_restarted_search,
    RANDOM: _build_random_search,
    "rys": partial(_build_budgeted_search, BlockSweep),
    "rys-counts": partial(_build_budgeted_search, LayerRepeatCountSweep),
    "rys-beam": partial(_build_budgeted_search, BlockBeamSearch),
    "rys-surrogate": partial(_build_budgeted_search, RYSSurrogateSearch),
    "shortgpt": partial(_build_route_list_sweep, "shortgpt"),
    "early-exit": partial(_build_route_list_sweep, "early-exit"),
    "drllm": _build_per_example_search,
    "drllm-ext": partial(_build_per_example_search, extended=True),
    "cola": partial(_build_per_example_search, every_example=True),
    **{
        control: partial(_build_control, control)
        for control in (PMI, DOLA, SKIP_LAYER_CD, ROUTE_AVERAGE, READOUTS, CONTRASTIVE)
    },
    STANDARD: partial(_build_budgeted_search, StandardPassMethod),
}
assert tuple(_BUILDERS) == tuple(METHODS)
