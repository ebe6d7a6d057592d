"""What the route costs beside the standard pass, as far as the run has measured it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from macro_routing.report.formatting import (
    NO_VALUE,
    format_count,
    format_kibibytes,
    format_mebibytes,
    format_milliseconds,
    format_points,
)
from macro_routing.report.rendering import render_template
from macro_routing.report.tables import ReportTable, Row, TableCell
from macro_routing.routes.mixture import RouteOrMixture
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


def render_route_cost_section(route: RouteOrMixture, cost: Cost | None, rounds: Sequence[RoundReport]) -> Markup:
    """Layers, time and memory of both; what was not measured says so. Below them, what the search itself took."""
    standard, routed = (_get_route_costs(arm, cost) for arm in (Route.standard(route.layers), route))
    rows: list[Row] = [
        [
            TableCell(name, kind="bold"),
            *("not measured" if costs[field] is None else show(costs[field]) for field, (_, show) in _FIELDS.items()),
        ]
        for name, costs in (("standard pass", standard), ("route", routed))
    ]
    changes = ["difference", *(_format_cost_change(field, standard, routed, cost) for field in _FIELDS)]
    columns = ["", *(column for column, _ in _FIELDS.values())]
    measured = [] if cost is None else cost["routes"].values()
    return render_template(
        "cost.html",
        table=ReportTable(columns, rows, numbers=columns[1:], footer=() if route.is_standard else changes),
        cost=cost,
        repeats=max((costs.get("turns", 0) for costs in measured), default=0),
        has_peak=any(costs.get("peak_bytes") is not None for costs in measured),
        rounds=rounds,
    )


def _get_route_costs(route: RouteOrMixture, cost: Cost | None) -> dict[str, Any]:
    measured = {} if cost is None else cost["routes"].get(str(route), {})
    return {field: measured.get(field) for field in _FIELDS} | {"layers": measured.get("layers", route.length)}


def _format_cost_change(field: str, standard: Cost, routed: Cost, cost: Cost | None) -> str:
    before, after = standard[field], routed[field]
    if not before or after is None:
        return NO_VALUE
    change = after / before - 1
    # How far repeats of the same route lie apart.
    noises = [costs.get("noise", 0.0) for costs in cost["routes"].values()] if cost is not None else []
    noise = max(noises, default=0.0) if field.endswith("_seconds") else 0.0
    return f"within the noise of {100 * noise:.0f} %" if abs(change) <= noise else f"{format_points(change)} %"
