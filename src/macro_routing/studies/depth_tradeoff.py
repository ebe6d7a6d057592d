"""Accuracy against depth: the best routes that one search's policy writes within several limits on their length."""

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from macro_routing.errors import RunError, SettingsError
from macro_routing.report.formatting import (
    format_p_in_sentence,
    format_percent_number,
    format_points,
    format_points_interval,
)
from macro_routing.routes.route import Route
from macro_routing.routes.space import RouteSpace
from macro_routing.runs.folder import RunFolder
from macro_routing.search.policy import MarkovPolicy
from macro_routing.search.policy_search import PolicySearchState
from macro_routing.search.top_k import decode_top_routes
from macro_routing.studies.context import RouteWithSearchedTask, StudyContext
from macro_routing.studies.paired_comparisons import (
    add_holm_correction,
    compute_paired_score_difference,
    draw_differences,
    make_corrected_comparison_table,
)
from macro_routing.studies.settings import DepthTradeoffSettings
from macro_routing.studies.study_result import StudyResult
from macro_routing.studies.tables import Column, difference_columns, make_text_column, number_column, percentage_column

STUDY = "depth-tradeoff"
_COLUMNS = [
    Column("depth", lambda row: f"{row['depth']:g}×"),
    number_column("layers, at most", "limit"),
    number_column("layers", "length"),
    percentage_column("validation, %", "validation"),
    percentage_column("test, %", "accuracy"),
    *difference_columns("against the standard pass, points"),
    make_text_column("route", "route", is_code=True),
]


def load_policy(run: RunFolder) -> MarkovPolicy:
    """The policy that a run's search has come to."""
    state = run.load_last_state()
    if not isinstance(state, PolicySearchState):
        raise RunError(
            f"{run.path} holds no policy: its search has none, or never began; use a run of --method guided or macro"
        )
    return MarkovPolicy(RouteSpace(**json.loads(state.identity)["space"]), state.policy_table)


def run_depth_tradeoff(
    context: StudyContext, subject: RouteWithSearchedTask, policy: MarkovPolicy, settings: DepthTradeoffSettings
) -> StudyResult:
    """Decode under every limit, choose by validation, compare on the test set."""
    task, seed, layers = subject.task, subject.seed, context.frozen_model.layers
    limits = {depth: int(depth * layers + 1e-9) for depth in sorted(set(settings.depths))}
    decoded = _decode_routes_per_depth_limit(policy, settings.k, limits, layers)
    names = {route: f"route-{number}" for number, route in enumerate(decoded)} | {context.standard_route: "standard"}
    validated = context.score_routes(
        "validation", task, seed, {names[route]: route for route in decoded}, split="validation"
    )
    validation = {route: validated["routes"][names[route]]["correct"] for route in [*decoded, context.standard_route]}
    chosen: dict[float, Route] = {}
    for depth, limit in limits.items():
        # Also routes decoded under another limit: a larger one allows whatever a smaller one does.
        fitting = [route for route in validation if route.length <= limit]
        # Of equals the shorter, then the more probable.
        chosen[depth] = max(fitting, key=lambda route: (sum(validation[route]), -route.length))
    tested = context.score_routes(
        "test", task, seed, {names[route]: route for route in chosen.values() if not route.is_standard}
    )
    standard = tested["routes"]["standard"]
    rows: list[dict[str, Any]] = []
    for depth, route in chosen.items():
        scores = tested["routes"][names[route]]
        is_known = any(row["route"] == str(route) for row in rows)  # compared at a smaller depth already
        row = {
            "depth": depth,
            "limit": limits[depth],
            "length": route.length,
            "route": str(route),
            "validation": statistics.mean(validation[route]),
            "accuracy": statistics.mean(scores["correct"]),
            **compute_paired_score_difference(standard, scores),
        }
        rows.append({**row, "p": None} if is_known else row)
    rows = add_holm_correction(rows)
    labels = [
        (f"at most {row['limit']} layers ({row['depth']:g}×): a route of {row['length']}", row)
        for row in copy_p_values_by_route(rows)
    ]
    title = f"Against the standard pass, by depth ({context.describe_model_and_tasks([task])}, n = {rows[0]['n']})"
    note = (
        f"The {settings.k} most probable different routes within each limit, decoded exactly from one policy. Of all of"
        " them, and the standard pass, the best by validation within a limit is compared with the standard pass on the"
        f" test set (seed {seed}, n = {rows[0]['n']}); a route that several limits choose is compared once. The"
        f" standard pass has {format_percent_number(statistics.mean(validation[context.standard_route]))} % on the"
        f" validation set and {format_percent_number(statistics.mean(standard['correct']))} % on the test set. Nothing"
        " was searched again."
    )
    table = make_corrected_comparison_table(f"The best routes of one policy by depth on {task}", _COLUMNS, rows, note)
    figure = draw_differences(STUDY, title, labels)
    return StudyResult(STUDY, summarize_most_accurate_depth(rows, layers), table, [figure], {"layers": layers})


def _decode_routes_per_depth_limit(
    policy: MarkovPolicy, k: int, limits: Mapping[float, int], layers: int
) -> list[Route]:
    """The most probable routes within each limit, each once."""
    if policy.space.layers != layers:
        raise RunError(f"the policy is of a model with {policy.space.layers} layers, this one has {layers}")
    decoded = {depth: decode_top_routes(policy, k, limit) for depth, limit in limits.items() if limit >= 1}
    if empty := [f"{depth:g}" for depth in limits if not decoded.get(depth)]:
        raise SettingsError(f"no route of the policy is so short: depth {', '.join(empty)}; name larger --depths")
    return list(dict.fromkeys(candidate.route for routes in decoded.values() for candidate in routes))


def copy_p_values_by_route(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For the figure: a route that several limits choose has the p-value of its one comparison."""
    known = {row["route"]: row["p_holm"] for row in rows if row["p_holm"] is not None}
    return [{**row, "p_holm": known.get(row["route"])} for row in rows]


def summarize_most_accurate_depth(rows: Sequence[Mapping[str, Any]], layers: int) -> str:
    """The depth with the best validation accuracy, never the best test accuracy; of equals the shorter."""
    best = max(rows, key=lambda row: (row["validation"], -row["length"]))
    intro = f"Within {best['depth']:g} times the depth of the model, validation selects"
    if best["p_holm"] is None:
        return (
            f"{intro} the standard pass itself: {format_percent_number(best['accuracy'])} % correct (n = {best['n']})."
        )
    return (
        f"{intro} {best['length']} layers instead of {layers}: {format_percent_number(best['accuracy'])} % correct,"
        f" {format_points(best['difference'])} points against the standard pass"
        f" ({format_points_interval(best['low'], best['high'])}; p {format_p_in_sentence(best['p_holm'])}, corrected;"
        f" n = {best['n']})."
    )
