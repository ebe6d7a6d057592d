"""What the route costs beside the standard pass, as far as the run has measured it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from macro_routing.report.formatting import (
    NO_VALUE,
    format_count,
    format_duration,
    format_kibibytes,
    format_mebibytes,
    format_milliseconds,
    format_points,
)
from macro_routing.report.markup import Markup, element, joined
from macro_routing.report.tables import table
from macro_routing.routes.route import Route
from macro_routing.runs.progress import RoundReport

_COLUMNS = ("", "layers applied", "cache per token", "reading the prompts", "time per token", "peak memory")
_TIMES = ("prompt_seconds", "token_seconds")
_NAMES = ("layers", "cache_bytes_per_token", "prompt_seconds", "token_seconds", "peak_bytes")


def cost_table(route: Route, cost: Mapping[str, Any] | None) -> Markup:
    """Layers, time and memory of both; what was not measured is said to be so."""
    standard = Route.standard(route.layers)
    rows = [_figures(one, cost) for one in (standard, route)]
    shown = [[element("b", name), *_written(row)] for name, row in zip(("standard pass", "route"), rows, strict=True)]
    noise = _noise(cost)
    change = [
        "difference",
        *[
            _change(before, after, noise if name in _TIMES else 0.0)
            for name, before, after in zip(_NAMES, *rows, strict=True)
        ],
    ]
    last = change if not route.is_standard else ()
    return joined(
        table(_COLUMNS, shown, numbers=_COLUMNS[1:], last=last),
        *[element("p", note, class_="note") for note in _notes(cost)],
    )


def search_cost(rounds: Sequence[RoundReport]) -> Markup | None:
    """What the search itself took."""
    if not rounds:
        return None
    done, saved = sum(one.run for one in rounds), sum(one.saved for one in rounds)
    return element(
        "p",
        f"The search took {format_duration(sum(one.seconds for one in rounds))} for {len(rounds)} rounds:"
        f" {format_count(done)} evaluations were worked out, {format_count(saved)} more were not needed.",
    )


def _figures(route: Route, cost: Mapping[str, Any] | None) -> list[float | None]:
    measured = {} if cost is None else cost["routes"].get(str(route), {})
    return [measured.get(name, route.length if name == "layers" else None) for name in _NAMES]


def _written(row: Sequence[float | None]) -> list[str]:
    layers, cache, prompt, token, peak = row
    return [
        format_count(layers or 0),
        *(
            "not measured" if value is None else show(value)
            for value, show in zip(
                (cache, prompt, token, peak),
                (format_kibibytes, format_milliseconds, format_milliseconds, format_mebibytes),
                strict=True,
            )
        ),
    ]


def _change(before: float | None, after: float | None, noise: float) -> str:
    if not before or after is None:
        return NO_VALUE
    change = after / before - 1
    return f"within the noise of {100 * noise:.0f} %" if abs(change) <= noise else f"{format_points(change)} %"


def _noise(cost: Mapping[str, Any] | None) -> float:
    """How far turns of the same route lay apart; runs of earlier versions did not keep it."""
    return 0.0 if cost is None else max((one.get("noise", 0.0) for one in cost["routes"].values()), default=0.0)


def _notes(cost: Mapping[str, Any] | None) -> list[str]:
    if cost is None:
        return ["Time and memory were not measured; runs of this version do that at their end."]
    turns = max((one.get("turns", 0) for one in cost["routes"].values()), default=0)
    notes = ["Layers and cache follow from the route: every layer applied keeps keys and values of its own."]
    if "not_measured" in cost:
        notes.append(f"Time and memory were not measured: {cost['not_measured']}.")
    elif turns:
        notes.append(
            f"Time: {cost['prompts']} training prompts at once, read and continued by {cost['tokens']} tokens, one call"
            f" of the model per token; the fastest of {turns} turns on {cost['device']}, both routes in turn. A"
            " difference no larger than the one between a route's own two fastest turns is called noise."
        )
        has_peak = any(one.get("peak_bytes") is not None for one in cost["routes"].values())
        notes.append(
            "Memory: the most that was allocated meanwhile, weights included."
            if has_peak
            else f"Memory was not measured: only CUDA devices count it, and this was {cost['device']}."
        )
    return notes
