"""What the route costs beside the standard pass, as far as the run has measured it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from macro_routing.report.formatting import (
    NO_VALUE,
    format_count,
    format_duration,
    format_kibibytes,
    format_mebibytes,
    format_milliseconds,
    format_points,
)
from macro_routing.report.rendering import render_paragraphs, render_table
from macro_routing.report.tables import Cell, DataTable, Row
from macro_routing.routes.route import Route
from macro_routing.runs.progress import RoundReport

_FIELDS: dict[str, tuple[str, Callable[[float], str]]] = {
    "layers": ("layers applied", format_count),
    "cache_bytes_per_token": ("cache per token", format_kibibytes),
    "prompt_seconds": ("reading the prompts", format_milliseconds),
    "token_seconds": ("time per token", format_milliseconds),
    "peak_bytes": ("peak memory", format_mebibytes),
}
"""By field of cost.json: its column and how it is written."""

Cost = Mapping[str, Any]


def render_cost_table(route: Route, cost: Cost | None) -> Markup:
    """Layers, time and memory of both; what was not measured says so."""
    standard, routed = (_read_costs(one, cost) for one in (Route.standard(route.layers), route))
    rows: list[Row] = [
        [
            Cell(name, kind="bold"),
            *("not measured" if costs[field] is None else show(costs[field]) for field, (_, show) in _FIELDS.items()),
        ]
        for name, costs in (("standard pass", standard), ("route", routed))
    ]
    changes = ["difference", *(_format_change(field, standard, routed, cost) for field in _FIELDS)]
    columns = ["", *(column for column, _ in _FIELDS.values())]
    footer = () if route.is_standard else changes
    return render_table(DataTable(columns, rows, numbers=columns[1:], footer=footer), _write_cost_notes(cost))


def render_search_cost(rounds: Sequence[RoundReport]) -> Markup:
    """What the search itself took."""
    done, saved = sum(one.run for one in rounds), sum(one.saved for one in rounds)
    return render_paragraphs(
        f"The search took {format_duration(sum(one.seconds for one in rounds))} for {len(rounds)} rounds:"
        f" {format_count(done)} evaluations were computed, {format_count(saved)} more were not needed."
    )


def _read_costs(route: Route, cost: Cost | None) -> dict[str, Any]:
    measured = {} if cost is None else cost["routes"].get(str(route), {})
    return {field: measured.get(field) for field in _FIELDS} | {"layers": measured.get("layers", route.length)}


def _format_change(field: str, standard: Cost, routed: Cost, cost: Cost | None) -> str:
    before, after = standard[field], routed[field]
    if not before or after is None:
        return NO_VALUE
    change, noise = after / before - 1, _timing_noise(cost) if field.endswith("_seconds") else 0.0
    return f"within the noise of {100 * noise:.0f} %" if abs(change) <= noise else f"{format_points(change)} %"


def _timing_noise(cost: Cost | None) -> float:
    """How far repeats of the same route lie apart."""
    return 0.0 if cost is None else max((one.get("noise", 0.0) for one in cost["routes"].values()), default=0.0)


def _write_cost_notes(cost: Cost | None) -> list[str]:
    if cost is None:
        return ["Time and memory were not measured; runs of this version do that at their end."]
    repeats = max((one.get("turns", 0) for one in cost["routes"].values()), default=0)
    notes = ["Layers and cache follow from the route: every layer applied keeps keys and values of its own."]
    if "not_measured" in cost:
        notes.append(f"Time and memory were not measured: {cost['not_measured']}.")
    elif repeats:
        notes.append(
            f"Time: {cost['prompts']} training prompts at once, read and continued by {cost['tokens']} tokens, one call"
            f" of the model per token; the fastest of {repeats} turns on {cost['device']}, both routes in turn. A"
            " difference no larger than the one between a route's own two fastest turns is called noise."
        )
        has_peak = any(one.get("peak_bytes") is not None for one in cost["routes"].values())
        notes.append(
            "Memory: the maximum allocated meanwhile, weights included."
            if has_peak
            else f"Memory was not measured: only CUDA devices count it, and this was {cost['device']}."
        )
    return notes
