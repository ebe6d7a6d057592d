"""What a run came to: the variants on the test set, and a verdict in a sentence."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from macro_routing.errors import RunError
from macro_routing.evaluation.final_decision import find_detectable_gain
from macro_routing.evaluation.outcomes import ExampleOutcome
from macro_routing.evaluation.statistics import PairedComparison, smallest_detectable_gain, wilson_interval
from macro_routing.routes.mixture import Mixture, RouteOrMixture, parse_program_or_mixture
from macro_routing.runs.final_selection import FinalSelection
from macro_routing.runs.folder import RESULT, RunFolder, use_current_names
from macro_routing.runs.methods import METHODS
from macro_routing.search.decision_settings import SPEED, DecisionSettings
from macro_routing.tasks.task import Example

SELECTED = {name: method.title for name, method in METHODS.items()}
"""How the chosen route is called, by method."""
TOP_1, NO_DECODING, STANDARD = "MACRO (top-1)", "MACRO (no Vit.)", "standard"
TOP_1_ANCHORED = "MACRO (top-1, anchored)"
"""The paper's top-1 row of models with an anchored final set, if it means the first of that set: the standard pass."""
LEVEL = 0.05
ROUTE, ROUTER, ORACLE, TWO_MODELS = "route", "router", "oracle", "two models"
_NO_ROUTE = {
    ROUTER: "its result is a router, which decides for each prompt; it runs through transformers alone",
    ORACLE: "its result is an oracle, which knows the answers; it is a bound, nothing to run",
    TWO_MODELS: "its result adds the predictions of two models, which no route does",
}


@dataclass(frozen=True)
class RouteTestResult:
    """A route by one of the ways to choose it, on the test set."""

    name: str
    """How the route was chosen."""
    route: str
    """The route in the paper's notation."""
    length: float
    """Layers applied; the mean where prompts differ."""
    correct: int
    """Number of correct answers."""
    n: int
    """Number of test examples."""
    truncated_share: float
    """Share of answers that reached a token limit, from 0 to 1."""
    tokens: float
    """Mean number of generated tokens per answer."""

    @property
    def accuracy(self) -> float:
        """Share of correct answers."""
        return self.correct / self.n


@dataclass(frozen=True)
class RunResult:
    """The end of a run."""

    route: str
    """The chosen route in the paper's notation."""
    layers: int
    """Number of layers of the model."""
    variants: tuple[RouteTestResult, ...]
    """Every variant on the test set, the standard pass among them."""
    comparison: PairedComparison
    """The chosen route against the standard pass, on the test set."""
    detectable: float
    """Smallest gain that this test set could have shown, as a share."""
    verdict: str
    """The result in a sentence."""
    folder: str
    """The run's folder."""
    kind: str = ROUTE
    """A route can be exported and served; a router decides for each prompt; an oracle is only a bound."""
    recommended: bool = True
    """False where the test set speaks against what was returned."""
    training_accuracy: float | None = None
    """Of a control, on the examples on which it learned."""

    @property
    def best_route(self) -> RouteOrMixture:
        """The chosen route or mixture, where the result is one."""
        if self.kind != ROUTE:
            raise RunError(f"{self.folder} holds no route: {_NO_ROUTE[self.kind]}")
        return parse_program_or_mixture(self.route, self.layers)

    @property
    def is_gain(self) -> bool:
        """Whether the test set shows a gain."""
        return self.kind != ORACLE and self.comparison.difference > 0 and self.comparison.p_value < LEVEL

    def to_json(self) -> dict[str, Any]:
        """Plain values; infinity, which JSON does not have, is null."""
        detectable = self.detectable if math.isfinite(self.detectable) else None
        more = {"detectable": detectable, "difference": self.comparison.difference, "is_gain": self.is_gain}
        return {**dataclasses.asdict(self), **more}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "RunResult":
        """The result that ``to_json`` wrote."""
        built = {
            # Runs of earlier versions say nothing of their kind: they were routes.
            "kind": ROUTE,
            "recommended": True,
            "training_accuracy": None,
            **values,
            "variants": tuple(RouteTestResult(**use_current_names(variant)) for variant in values["variants"]),
            "comparison": PairedComparison(**values["comparison"]),
            "detectable": math.inf if values["detectable"] is None else values["detectable"],
        }
        return cls(**{field.name: built[field.name] for field in dataclasses.fields(cls)})


def read_result(folder: RunFolder) -> RunResult:
    """A finished run's result, with the path where its folder is now."""
    with folder.explain_damaged_files(RESULT):
        return dataclasses.replace(RunResult.from_json(folder.read_json(RESULT)), folder=str(folder.path))


def make_route_test_result(name: str, route: str, length: float, outcomes: Sequence[ExampleOutcome]) -> RouteTestResult:
    """A row of the result's table from its answers to the test set."""
    n = len(outcomes)
    truncated = sum(outcome.truncated for outcome in outcomes) / n
    tokens = sum(outcome.generated_token_count for outcome in outcomes) / n
    return RouteTestResult(name, route, length, sum(outcome.correct for outcome in outcomes), n, truncated, tokens)


def make_route_result(
    selection: FinalSelection,
    variants: Sequence[RouteTestResult],
    comparison: PairedComparison,
    folder: str,
    decision: DecisionSettings,
) -> RunResult:
    """The result of a search for a route."""
    route, detectable = selection.route, minimum_detectable_gain(comparison.n, comparison)
    recommended = route.is_standard or comparison.difference > min(0.0, decision.required_gain(route))
    if route.is_standard:
        reason = f", {selection.refused}" if selection.refused else ""
        found = "route with fewer layers that is as accurate" if decision.objective == SPEED else "better route"
        power = _describe_decision_power(decision, selection.held_out) or _describe_test_power(detectable)
        verdict = f"No {found} was found: the standard pass was chosen{reason} ({power})."
    elif decision.objective == SPEED:
        verdict = _describe_noninferiority(route, comparison, decision.margin / 100)
    else:
        what = "mixture" if isinstance(route, Mixture) else "route"
        verdict = _describe_gain(comparison, detectable, what, selection.decision_evidence)
    if not route.is_standard and decision.objective != SPEED:
        verdict += f" It runs {_describe_route_layer_count(route)}."
    if not recommended:
        verdict += (
            " So the standard pass is recommended instead. This was decided with the test set, which therefore does not"
            " measure the recommendation."
        )
    return RunResult(
        str(route), route.layers, tuple(variants), comparison, detectable, verdict, folder, recommended=recommended
    )


def make_per_example_result(
    layers: int, variants: Sequence[RouteTestResult], comparison: PairedComparison, folder: str, kind: str
) -> RunResult:
    """The result of what is not a route: its own variant, then that of the standard pass."""
    detectable = minimum_detectable_gain(comparison.n, comparison)
    verdict = _describe_gain(comparison, detectable, "sum of both models" if kind == TWO_MODELS else "router")
    if kind == ORACLE:
        verdict = (
            f"An upper bound, not a method: with the answers known, {100 * comparison.routed:.1f} % of {comparison.n}"
            f" examples have a route that gets them right; the standard pass gets {100 * comparison.baseline:.1f} %."
        )
    return RunResult(variants[0].route, layers, tuple(variants), comparison, detectable, verdict, folder, kind)


def minimum_detectable_gain(n: int, comparison: PairedComparison | None = None) -> float:
    """The smallest gain that ``n`` examples show in four of five cases; infinity when none could be.

    Routes that differ on many examples need a larger gain to be told apart; a fifth of them is assumed, or what was
    seen, and more only where that would show nothing at all.
    """
    seen = (comparison.fixed + comparison.broken) / n if comparison is not None else 0.0
    shares = [share / 10 for share in range(2, 11) if share / 10 > seen]
    gains = (smallest_detectable_gain(n, share) for share in [max(seen, 0.2), *shares])
    return next((gain for gain in gains if math.isfinite(gain)), math.inf)


def describe_chance_level(test: Sequence[Example], comparison: PairedComparison) -> str:
    """A remark where the standard pass is not above guessing among the choices; empty elsewhere."""
    if not all(example.choices for example in test):
        return ""
    chance = sum(1 / len(example.choices) for example in test) / len(test)
    if wilson_interval(comparison.baseline, comparison.n)[0] > chance:
        return ""
    return (
        f" The standard pass is not above chance ({100 * comparison.baseline:.1f} % correct, guessing gives"
        f" {100 * chance:.1f} %): check the task's columns and prompt, or use a larger model."
    )


def describe_detectable_gain(gain: float, n: int) -> str:
    """What a test set can show, in words."""
    if not math.isfinite(gain):
        return f"{n} test examples are too few to show any gain"
    return f"{n} test examples can show a gain of {100 * gain:.1f} points, in four of five cases"


def _describe_decision_power(decision: DecisionSettings, held_out: int) -> str:
    if not held_out or decision.objective == SPEED:
        return f"decided on {held_out} held-out examples" if held_out else ""
    gain = find_detectable_gain(decision, held_out)
    if not math.isfinite(gain):
        return f"decided on {held_out} held-out examples, which are too few to show much"
    return f"decided on {held_out} held-out examples, which can show a gain of {100 * gain:.1f} points"


def _describe_test_power(detectable: float) -> str:
    if detectable < 1:
        return f"the data could have shown one of {100 * detectable:.1f} points"
    return "so few data can show none"


def _describe_route_layer_count(route: RouteOrMixture) -> str:
    """Its layers beside those of the standard pass."""
    change = 100 * (route.length / route.layers - 1)
    if not change:
        return f"{route.length} layers, as many as the standard pass"
    return f"{route.length} layers for {route.layers}, {abs(change):.0f} % {'more' if change > 0 else 'fewer'}"


def _describe_noninferiority(route: RouteOrMixture, comparison: PairedComparison, margin: float) -> str:
    """Whether the test set confirms that a faster route loses less than the margin."""
    gained, evidence = _format_evidence(comparison, with_p_value=False)  # it is not the p-value of the margin
    faster = f"{100 * (1 - route.length / route.layers):.0f} % fewer layers"
    if comparison.low > -margin:
        return f"As accurate as the standard pass within {100 * margin:g} points, with {faster}: {gained} ({evidence})."
    if comparison.high < -margin or (comparison.difference < 0 and comparison.p_value < LEVEL):
        return f"The route, with {faster}, is worse than the standard pass: {gained} ({evidence}). Do not use it."
    return (
        f"The test set does not show whether the route, with {faster}, loses less than {100 * margin:g} points:"
        f" {gained} ({evidence})."
    )


def _format_evidence(comparison: PairedComparison, *, with_p_value: bool = True) -> tuple[str, str]:
    """The difference, and its interval, p-value and number of examples."""
    interval = f"95 % interval {100 * comparison.low:+.1f} to {100 * comparison.high:+.1f}"
    evidence = f"{interval}{f', p = {comparison.p_value:.2g}' if with_p_value else ''}, n = {comparison.n}"
    return f"{100 * comparison.difference:+.1f} points", evidence


def _describe_gain(
    comparison: PairedComparison, detectable: float, what: str, decision: Mapping[str, Any] | None = None
) -> str:
    gained, evidence = _format_evidence(comparison)
    if comparison.p_value >= LEVEL:
        changed = 100 * (comparison.fixed + comparison.broken) / comparison.n
        power = f"with {changed:.0f} % of the verdicts changed, {_describe_test_power(detectable)}"
        passed = ""
        if decision:
            evidence_before = f"p = {decision['p_value']:.2g} on {decision['n']} held-out examples"
            passed = f" The {what} passed the decision ({evidence_before}), but the test set does not confirm it."
        is_likely_loss = comparison.difference < 0 and comparison.high <= 0 and comparison.p_value < 0.5
        begin = f"The {what} is probably worse than the standard pass" if is_likely_loss else "No evidence of a gain"
        return f"{begin}: {gained} ({evidence}); {power}.{passed}"
    if comparison.difference > 0:
        return f"The {what} is better than the standard pass by {gained} ({evidence})."
    return f"The {what} is worse than the standard pass: {gained} ({evidence}). Do not use it."
