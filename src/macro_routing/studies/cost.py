"""What a route costs to run: time per item and peak memory beside the standard pass, on this engine (paper, "Cost").

Both routes answer the same items alternately, so that a machine that slows down slows both. A route that generates less
looks faster than it is: time per step, over texts of equal length, stands beside time per item.
"""

import functools
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.work_items import split_examples_into_work_units
from macro_routing.report.formatting import format_points, shorten_model_name, use_minus_sign
from macro_routing.report.interval_chart import OPEN, IntervalRow, draw_intervals
from macro_routing.routes.route import Route
from macro_routing.runs.route_cost import PROMPTS, measure_cost
from macro_routing.studies.context import RouteWithSearchedTask, StudyContext, fingerprint_measurement_inputs
from macro_routing.studies.paired_comparisons import truncate_route_text
from macro_routing.studies.settings import CostStudySettings
from macro_routing.studies.study_result import StudyResult
from macro_routing.studies.tables import Column, Row, Table, make_text_column, number_column
from macro_routing.tasks.task import Example

STUDY = "cost"


def run_route_cost_study(
    context: StudyContext, subject: RouteWithSearchedTask, settings: CostStudySettings
) -> StudyResult:
    """Time the route and the standard pass on every task's first test items."""
    route, repeats = subject.get_single_route("the study of cost"), settings.repeats
    routes = {"standard": context.standard_route, "route": route}
    rows: list[dict[str, Any]] = []
    for task in settings.task_names or (subject.task,):
        run = context.prepare_task(task, subject.seed)
        examples = run.splits.test[: settings.items]
        inputs = {**fingerprint_measurement_inputs(run.evaluator, examples), "route": str(route), "repeats": repeats}
        measure = functools.partial(time_routes, run.evaluator, routes, examples, repeats)
        rows += _make_timing_rows(
            str(task),
            route,
            context.load_or_measure(f"on-{task}", f"timing the route on {task}", inputs, measure),
            len(examples),
        )
    device = context.frozen_model.model.device
    notes = (
        (
            f"Median of {repeats} repeats on {device}, decoder {context.base.decoder}; overheads are medians of ratios"
            " of repeats that followed each other, with the lowest and the highest ratio; the ratio of the two medians"
            " can lie outside. One untimed repeat goes first."
        ),
        (
            f"A step generates one token for each of {PROMPTS} prompts at once, by the plain path and to equal length:"
            " it says what a route costs by itself, where time per item also depends on how much it generates. Nothing"
            " is tested here: repeats on one machine are not a sample of machines."
        ),
    )
    routed = [row for row in rows if row["arm"] == "route"]
    figure = draw_intervals(
        STUDY,
        f"Time per item on {device} ({shorten_model_name(context.base.model)}): median, lowest, highest repeat",
        f"percent more than the standard pass: {truncate_route_text(route, 80)}",
        [
            IntervalRow(row["task"], 100 * row["lowest"], 100 * row["overhead"], 100 * row["highest"], OPEN)
            for row in routed
        ],
        0.0,
        meanings={},
    )
    table = Table(f"Cost of {route}", _COLUMNS, rows, notes)
    return StudyResult(STUDY, _summarize_cost(route, routed), table, [figure], {"route": str(route)})


def _summarize_cost(route: Route, routed: Sequence[Row]) -> str:
    """Time per step, and by task per item, which depends on how much a route generates."""
    memory = [row["memory_overhead"] for row in routed if row.get("memory_overhead") is not None]
    memory_change = (
        f"{format_points(statistics.mean(memory))} % memory" if memory else "memory is counted on a GPU only"
    )
    equal = [row["equal_overhead"] for row in routed if row.get("equal_overhead") is not None]
    per_step = f"{format_points(statistics.mean(equal))} % time per step of texts of equal length; " if equal else ""
    by_task = ", ".join(f"{row['task']} {format_points(row['overhead'])} %" for row in routed)
    return (
        f"{route.length} layers instead of {route.layers} ({format_points(route.length / route.layers - 1)} %):"
        f" {per_step}time per item, longer or shorter answers included: {by_task}; {memory_change}."
    )


def time_routes(
    evaluator: Evaluator, routes: dict[str, Route], examples: Sequence[Example], repeats: int
) -> dict[str, Any]:
    """Seconds, tokens and memory of every repeat; the score store is not used."""
    repeats_by_route: dict[str, list[dict[str, Any]]] = {name: [] for name in routes}
    for repeat in range(repeats + 1):
        # The first of a repeat may find the machine warm or cold, so the order alternates.
        for name, route in sorted(routes.items(), reverse=bool(repeat % 2)):
            measured = _time_route_once(evaluator, route, examples)
            if repeat:  # what happens once (compilation, capture) is not timed
                repeats_by_route[name].append(measured)
    return {
        "repeats": repeats_by_route,
        "equal": measure_cost(evaluator, list(dict.fromkeys(routes.values())), examples),
    }


def _time_route_once(evaluator: Evaluator, route: Route, examples: Sequence[Example]) -> dict[str, Any]:
    device = evaluator.frozen.model.device
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
    started = time.perf_counter()
    outcomes = [
        outcome
        for unit in split_examples_into_work_units(examples, evaluator.examples_per_unit.full)
        for outcome in evaluator.run_routes_on_unit([route], unit)[route]
    ]
    if on_gpu:
        torch.cuda.synchronize(device)
    return {
        "seconds": time.perf_counter() - started,
        "tokens": sum(one.generated_token_count for one in outcomes),
        "peak_bytes": int(torch.cuda.max_memory_allocated(device)) if on_gpu else None,
    }


def _make_timing_rows(task: str, route: Route, measured: Mapping[str, Any], items: int) -> list[dict[str, Any]]:
    """A row for the standard pass and one for the route, with its overheads."""
    by_route = measured["repeats"]
    rows: list[dict[str, Any]] = []
    for name, layers in (("standard", route.layers), ("route", route.length)):
        seconds = statistics.median(repeat["seconds"] for repeat in by_route[name])
        tokens, peaks = by_route[name][0]["tokens"], [repeat["peak_bytes"] for repeat in by_route[name]]
        rows.append(
            {
                "task": task,
                "arm": name,
                "layers": layers,
                "items": items,
                "item_seconds": seconds / items,
                "item_tokens": tokens / items,
                "token_seconds": seconds / tokens if tokens else None,
                "peak_bytes": max(peaks) if peaks[0] is not None else None,
            }
        )
    pairs = zip(by_route["standard"], by_route["route"], strict=True)
    ratios = [routed["seconds"] / standard["seconds"] - 1 for standard, routed in pairs]
    standard, routed = rows
    routed |= {"overhead": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)}
    equal = [costs.get("token_seconds") for costs in measured["equal"]["routes"].values()]
    if all(equal):
        standard["equal_seconds"], routed["equal_seconds"] = equal[0], equal[-1]
        routed["equal_overhead"] = equal[-1] / equal[0] - 1
    elif route.is_standard:
        routed["equal_overhead"] = 0.0
    if standard["peak_bytes"]:
        routed["memory_overhead"] = routed["peak_bytes"] / standard["peak_bytes"] - 1
    return rows


def _make_multiplied_number_column(heading: str, key: str, template: str, factor: float = 1.0) -> Column:
    return number_column(heading, key, lambda value: use_minus_sign(template.format(factor * value)))


_COLUMNS = [
    make_text_column("task", "task"),
    make_text_column("", "arm"),
    _make_multiplied_number_column("layers", "layers", "{:.0f}"),
    _make_multiplied_number_column("items", "items", "{:.0f}"),
    _make_multiplied_number_column("ms per item", "item_seconds", "{:.1f}", 1000),
    _make_multiplied_number_column("more time, %", "overhead", "{:+.1f}", 100),
    _make_multiplied_number_column("lowest", "lowest", "{:+.1f}", 100),
    _make_multiplied_number_column("highest", "highest", "{:+.1f}", 100),
    _make_multiplied_number_column("tokens per item", "item_tokens", "{:.1f}"),
    _make_multiplied_number_column("ms per step", "equal_seconds", "{:.1f}", 1000),
    _make_multiplied_number_column("more per step, %", "equal_overhead", "{:+.1f}", 100),
    _make_multiplied_number_column("peak memory, MiB", "peak_bytes", "{:,.0f}", 2**-20),
    _make_multiplied_number_column("more memory, %", "memory_overhead", "{:+.1f}", 100),
]
