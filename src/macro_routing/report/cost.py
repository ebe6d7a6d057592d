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
"""By field of cost.json: its name and how it is written."""
_MOST_NOISE = 0.25
"""Uncertainty of a difference in time above which the difference says nothing."""

Cost = Mapping[str, Any]


def render_route_cost_section(route: RouteOrMixture, cost: Cost | None, rounds: Sequence[RoundReport]) -> Markup:
    """Layers, time and memory of both; what was not measured says so. Below them, what the search itself took."""
    arms = [("standard", Route.standard(route.layers)), *([] if route.is_standard else [("route", route)])]
    costs = [_get_route_costs(arm, cost) for _, arm in arms]
    standard, routed = costs[0], costs[-1]
    rows: list[Row] = [
        [
            TableCell(name, kind="bold"),
            *("not measured" if arm[field] is None else show(arm[field]) for arm in costs),
            *([] if route.is_standard else [_format_cost_change(field, standard, routed, cost)]),
        ]
        for field, (name, show) in _FIELDS.items()
        if cost is None or field != "peak_bytes" or any(arm[field] is not None for arm in costs)
    ]
    columns = ["", *(name for name, _ in arms), *([] if route.is_standard else ["difference"])]
    measured = [] if cost is None else cost["routes"].values()
    return render_template(
        "cost.html",
        table=ReportTable(columns, rows, numbers=columns[1:]),
        cost=cost,
        repeats=max((costs.get("turns", 0) for costs in measured), default=0),
        has_peak=any(costs.get("peak_bytes") is not None for costs in measured),
        rounds=rounds,
    )


def _get_route_costs(route: RouteOrMixture, cost: Cost | None) -> dict[str, Any]:
    measured = {} if cost is None else cost["routes"].get(str(route), {})
    return {field: measured.get(field) for field in _FIELDS} | {"layers": measured.get("layers", route.length)}


def _format_cost_change(field: str, standard: Cost, routed: Cost, cost: Cost | None) -> str | TableCell:
    before, after = standard[field], routed[field]
    if not before or after is None:
        return NO_VALUE
    change = after / before - 1
    if not field.endswith("_seconds") or cost is None:
        return f"{format_points(change)} %" if change else "none"
    # Half the 95 % interval of the ratio of paired turns.
    noise = max(costs.get("noise", 0.0) for costs in cost["routes"].values())
    if noise > _MOST_NOISE:
        return TableCell("not known", f"noise {100 * noise:.0f} %")
    return (
        TableCell("none seen", f"noise {100 * noise:.0f} %") if abs(change) <= noise else f"{format_points(change)} %"
    )
