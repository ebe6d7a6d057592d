"""What a run came to: the variants on the test set, and a verdict in a sentence."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from macro_routing.errors import RunError
from macro_routing.evaluation.statistics import PairedComparison, compare_paired, smallest_detectable_gain
from macro_routing.routes.paper_notation import parse_program
from macro_routing.routes.route import Route
from macro_routing.runs.folder import RESULT, RunFolder
from macro_routing.runs.methods import METHODS

if TYPE_CHECKING:
    from macro_routing.evaluation.outcomes import ExampleOutcome, RouteEvaluation

SELECTED = {name: method.title for name, method in METHODS.items()}
"""How the chosen route is called, by method."""
TOP_1, NO_DECODING, STANDARD = "MACRO (top-1)", "MACRO (no Vit.)", "standard"
LEVEL = 0.05
ROUTE, ROUTER, ORACLE = "route", "router", "oracle"
_NO_ROUTE = {
    ROUTER: "its result is a router, which decides for each prompt; it runs through transformers alone",
    ORACLE: "its result is an oracle, which knows the answers; it is a bound, nothing to run",
}


@dataclass(frozen=True)
class Variant:
    """A route by one of the ways to choose it, on the test set."""

    name: str
    route: str
    length: float
    """Layers applied; the mean where prompts differ."""
    correct: int
    n: int
    cut_off: float
    tokens: float

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return self.correct / self.n


@dataclass(frozen=True)
class RunResult:
    """The end of a run."""

    route: str
    layers: int
    variants: tuple[Variant, ...]
    comparison: PairedComparison
    """The chosen route against the standard pass, on the test set."""
    detectable: float
    """Smallest gain that this test set could have shown, as a share."""
    verdict: str
    folder: str
    kind: str = ROUTE
    """A route can be exported and served; a router decides for each prompt; an oracle is only a bound."""

    @property
    def best_route(self) -> Route:
        """The chosen route, where the result is one."""
        if self.kind != ROUTE:
            raise RunError(f"{self.folder} holds no route: {_NO_ROUTE[self.kind]}")
        return parse_program(self.route).expand(self.layers)

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
    def from_json(cls, values: dict[str, Any]) -> RunResult:
        """The result that ``to_json`` wrote."""
        variants = tuple(Variant(**one) for one in values["variants"])
        names = {item.name for item in dataclasses.fields(cls)} - {"variants", "comparison"}
        comparison = PairedComparison(**values["comparison"])
        # Runs of earlier versions say nothing of their kind: they were routes.
        values = {"kind": ROUTE, **values}
        values["detectable"] = math.inf if values["detectable"] is None else values["detectable"]
        return cls(variants=variants, comparison=comparison, **{name: values[name] for name in names})


def read_result(place: RunFolder) -> RunResult:
    """A finished run's result, with the place where its folder is now."""
    with place.explain_damage(RESULT):
        return dataclasses.replace(RunResult.from_json(place.read_json(RESULT)), folder=str(place.path))


def make_route_result(
    tested: Sequence[tuple[str, RouteEvaluation]], chosen: Route, seed: int, folder: str, refused: str = ""
) -> RunResult:
    """Compare the chosen route, which comes first, with the standard pass and say what that is worth."""
    selected, standard = tested[0][1], dict(tested)[STANDARD]
    comparison = compare_paired(standard.correct, selected.correct, seed=seed)
    variants = tuple(
        Variant(
            name,
            str(one.route),
            one.route.length,
            sum(one.correct),
            len(one.outcomes),
            one.truncated_share,
            one.mean_tokens,
        )
        for name, one in tested
    )
    detectable = minimum_detectable_gain(comparison.n, comparison)
    return RunResult(
        str(chosen),
        chosen.layers,
        variants,
        comparison,
        detectable,
        _make_verdict(chosen, comparison, detectable, refused),
        folder,
    )


def make_per_example_result(
    arms: Sequence[tuple[str, str, float, Sequence[ExampleOutcome]]], kind: str, layers: int, seed: int, folder: str
) -> RunResult:
    """The result of what is not a route: (name, what it is, layers applied, answers) of it and of the standard pass."""
    (_, told, _, mine), (_, _, _, standard) = arms
    comparison = compare_paired([one.correct for one in standard], [one.correct for one in mine], seed=seed)
    variants = tuple(
        Variant(
            name,
            what,
            length,
            sum(one.correct for one in found),
            len(found),
            sum(one.truncated for one in found) / len(found),
            sum(one.tokens for one in found) / len(found),
        )
        for name, what, length, found in arms
    )
    detectable = minimum_detectable_gain(comparison.n, comparison)
    verdict = _describe_gain(comparison, detectable, "router")
    if kind == ORACLE:
        verdict = (
            f"An upper bound, not a method: with the answers known, {100 * comparison.routed:.1f} % of {comparison.n}"
            f" examples have a route that gets them right; the standard pass gets {100 * comparison.baseline:.1f} %."
        )
    return RunResult(told, layers, variants, comparison, detectable, verdict, folder, kind)


def minimum_detectable_gain(n: int, comparison: PairedComparison | None = None) -> float:
    """The smallest gain that ``n`` examples show in four of five cases; infinity when none could be.

    Routes that differ on many examples need a larger gain to be told apart; a fifth of them is assumed, or what was
    seen, and more only where that would show nothing at all.
    """
    seen = (comparison.fixed + comparison.broken) / n if comparison is not None else 0.0
    shares = [share / 10 for share in range(2, 11) if share / 10 > seen]
    found = (smallest_detectable_gain(n, share) for share in [max(seen, 0.2), *shares])
    return next((gain for gain in found if math.isfinite(gain)), math.inf)


def describe_detectable_gain(gain: float, n: int) -> str:
    """What a test set can show, in words."""
    if not math.isfinite(gain):
        return f"{n} test examples are too few to show any gain"
    return f"{n} test examples can show a gain of {100 * gain:.1f} points, in four of five cases"


def _make_verdict(chosen: Route, comparison: PairedComparison, detectable: float, refused: str) -> str:
    if chosen.is_standard:
        return f"No better route was found: the standard pass was chosen{refused} ({_describe_power(detectable)})."
    return _describe_gain(comparison, detectable, "route")


def _describe_power(detectable: float) -> str:
    if detectable < 1:
        return f"the data could have shown one of {100 * detectable:.1f} points"
    return "so few data can show none"


def _describe_gain(comparison: PairedComparison, detectable: float, what: str) -> str:
    gained = f"{100 * comparison.difference:+.1f} points"
    interval = f"95 % interval {100 * comparison.low:+.1f} to {100 * comparison.high:+.1f}"
    evidence = f"{interval}, p = {comparison.p_value:.2g}, n = {comparison.n}"
    if comparison.p_value >= LEVEL:
        return f"No evidence of a gain: {gained} ({evidence}); {_describe_power(detectable)}."
    if comparison.difference > 0:
        return f"The {what} is better than the standard pass by {gained} ({evidence})."
    return f"The {what} is worse than the standard pass: {gained} ({evidence}). Do not use it."
