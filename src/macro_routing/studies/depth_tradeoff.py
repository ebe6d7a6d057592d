"""Accuracy against depth: the best routes that one search's policy writes within several limits on their length."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from macro_routing.errors import RunError, SettingsError
from macro_routing.report.formatting import format_p_relation, format_percentage, format_points, format_points_interval
from macro_routing.routes.route import Route
from macro_routing.routes.space import RouteSpace
from macro_routing.runs.folder import RunFolder
from macro_routing.search.policy import MarkovPolicy
from macro_routing.search.policy_search import PolicyState
from macro_routing.search.top_k import decode_top_routes
from macro_routing.studies.columns import comparisons_note, difference_columns, number_column, text_column
from macro_routing.studies.context import StudyContext, Subject
from macro_routing.studies.paired_comparisons import comparisons_in, difference_row, differences_figure, with_holm
from macro_routing.studies.settings import DepthTradeoffSettings
from macro_routing.studies.study_result import TABLE, StudyResult
from macro_routing.studies.tables import Column, Table

STUDY = "depth-tradeoff"


def policy_of(place: RunFolder) -> MarkovPolicy:
    """The policy that a run's search has come to."""
    state = place.last_state()
    if not isinstance(state, PolicyState):
        raise RunError(
            f"{place.path} holds no policy: its search has none, or never began; use a run of --method guided or macro"
        )
    return MarkovPolicy(RouteSpace(**json.loads(state.identity)["space"]), state.policy_table)


def run_depth_tradeoff(
    context: StudyContext, subject: Subject, policy: MarkovPolicy, settings: DepthTradeoffSettings
) -> StudyResult:
    """Decode under every limit, choose by validation, compare on the test set."""
    depths, k = settings.depths, settings.k
    layers, task, seed = context.frozen.layers, subject.task, subject.seed
    if policy.space.layers != layers:
        raise RunError(f"the policy is of a model with {policy.space.layers} layers, this one has {layers}")
    limits = {depth: int(depth * layers + 1e-9) for depth in sorted(set(depths))}
    decoded = {depth: decode_top_routes(policy, k, limit) for depth, limit in limits.items() if limit >= 1}
    if empty := [f"{depth:g}" for depth in limits if not decoded.get(depth)]:
        raise SettingsError(f"no route of the policy is so short: depth {', '.join(empty)}; name larger --depths")
    every = list(dict.fromkeys(one.route for some in decoded.values() for one in some))
    names = {route: f"route-{number}" for number, route in enumerate(every)}
    validated = context.scored("validation", task, seed, {names[route]: route for route in every}, split="validation")

    def right(found: Mapping[str, Any], route: Route) -> Sequence[int]:
        return found["routes"]["standard" if route.is_standard else names[route]]["correct"]  # type: ignore[no-any-return]

    chosen: dict[float, Route] = {}
    for depth, limit in limits.items():
        # Also routes decoded under another limit: a larger one allows whatever a smaller one does.
        fitting = [route for route in [*every, context.standard] if route.length <= limit]
        # Of equals the shorter, then the more probable.
        chosen[depth] = max(fitting, key=lambda route: (sum(right(validated, route)), -route.length))
    tested = context.scored("test", task, seed, {names[one]: one for one in chosen.values() if not one.is_standard})
    standard, control = right(tested, context.standard), right(validated, context.standard)
    rows: list[dict[str, Any]] = []
    for depth, route in chosen.items():
        row = _row(route, right(validated, route), right(tested, route), standard)
        is_known = any(one["route"] == row["route"] for one in rows)  # compared at a smaller depth already
        rows.append({"depth": depth, "limit": limits[depth], **row, **({"p": None} if is_known else {})})
    rows = with_holm(rows)
    title = f"The best routes of one policy by depth on {task}"
    shown = [
        (f"at most {row['limit']} layers ({row['depth']:g}×): a route of {row['length']}", row) for row in judged(rows)
    ]
    figures = [
        differences_figure(
            STUDY, f"Against the standard pass, by depth ({context.told([task])}, n = {len(standard)})", shown
        )
    ]
    notes = (
        (
            f"The {k} most probable different routes within each limit, decoded exactly from one policy. Of all of"
            " them, and the standard pass, the best by validation within a limit is compared with the standard pass on"
            f" the test set (seed {seed}, n = {len(standard)}); a route that several limits choose is compared once."
            f" The standard pass has {format_percentage(sum(control) / len(control))} % on the validation set and"
            f" {format_percentage(sum(standard) / len(standard))} % on the test set. Nothing was searched again."
        ),
        comparisons_note(comparisons_in(rows)),
    )
    tables = {TABLE: Table(title, _columns(), rows, notes)}
    return StudyResult(STUDY, headline_of(rows, layers), tables, figures, comparisons_in(rows), {"layers": layers})


def judged(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For the picture: a route that was compared within a smaller limit is as good within this one."""
    known = {row["route"]: row["p_holm"] for row in rows if row["p_holm"] is not None}
    return [{**row, "p_holm": known.get(row["route"])} for row in rows]


def headline_of(rows: Sequence[Mapping[str, Any]], layers: int) -> str:
    """What validation likes best of all depths, never what tests best; of equals the shorter."""
    best = max(rows, key=lambda row: (row["validation"], -row["length"]))
    told = f"Validation likes best, within {best['depth']:g} times the depth of the model,"
    if best["p_holm"] is None:
        return f"{told} the standard pass itself: {format_percentage(best['accuracy'])} % are right (n = {best['n']})."
    return (
        f"{told} {best['length']} layers instead of {layers}: {format_percentage(best['accuracy'])} % are right,"
        f" {format_points(best['difference'])} points against the standard pass"
        f" ({format_points_interval(best['low'], best['high'])}; p {format_p_relation(best['p_holm'])}, corrected;"
        f" n = {best['n']})."
    )


def _row(route: Route, on_validation: Sequence[int], on_test: Sequence[int], standard: Sequence[int]) -> dict[str, Any]:
    return {
        "length": route.length,
        "route": str(route),
        "validation": sum(on_validation) / len(on_validation),
        "accuracy": sum(on_test) / len(on_test),
        **difference_row(standard, on_test),
        **({"p": None} if route.is_standard else {}),
    }


def _columns() -> list[Column]:
    return [
        Column("depth", lambda row: f"{row['depth']:g}×"),
        number_column("layers, at most", "limit"),
        number_column("layers", "length"),
        Column("validation, %", lambda row: format_percentage(row["validation"])),
        Column("test, %", lambda row: format_percentage(row["accuracy"])),
        *difference_columns("against the standard pass, points"),
        text_column("route", "route", is_code=True),
    ]
