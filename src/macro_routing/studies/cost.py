"""What a route costs to run: time per item and peak memory beside the standard pass, on this engine (paper, "Cost").

Both arms answer the same items as the task is answered, turn by turn, so that a machine that slows down slows both. A
route that writes less looks faster than it is: time per step, over texts of equal length, stands beside time per item.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.work_units import split_into_units
from macro_routing.report.formatting import format_points, shorten_model_name
from macro_routing.report.interval_chart import OPEN, IntervalRow, intervals_figure
from macro_routing.routes.route import Route
from macro_routing.runs.cost import PROMPTS, measure_cost
from macro_routing.studies.columns import text_column
from macro_routing.studies.context import StudyContext, Subject, mark_of
from macro_routing.studies.paired_comparisons import short_route
from macro_routing.studies.settings import CostSettings
from macro_routing.studies.study_result import TABLE, StudyResult
from macro_routing.studies.tables import Column, Table
from macro_routing.tasks.task import Example

STUDY = "cost"


def run_cost(context: StudyContext, subject: Subject, settings: CostSettings) -> StudyResult:
    """Time both arms on every task's first test items."""
    tasks, items, turns = settings.task_names or (subject.task,), settings.items, settings.repeats
    route = subject.route
    routes = {"standard": context.standard, "route": route}
    rows = []
    for task in tasks:
        run = context.prepared(task, subject.seed)
        examples = run.splits.test[:items]
        mark = {**mark_of(run.evaluator, examples), "route": str(route), "turns": turns}

        def measure(evaluator: Evaluator = run.evaluator, some: Sequence[Example] = examples) -> dict[str, Any]:
            return measure_arms(evaluator, routes, some, turns)

        rows += _rows(str(task), route, context.cell(f"on-{task}", mark, measure), len(examples))
    routed = [row for row in rows if row["arm"] == "route"]
    memory = [row["memory_overhead"] for row in rows if row.get("memory_overhead") is not None]
    told = f"{format_points(statistics.mean(memory))} % memory" if memory else "memory is counted on a GPU only"
    headline = (
        f"{route.length} layers instead of {route.layers} ({format_points(route.length / route.layers - 1)} %):"
        f" {_time_told(routed)}; {told}."
    )
    device = context.frozen.model.device
    notes = (
        (
            f"Median of {turns} turns on {device}, decoder {context.base.decoder}; overheads are ratios of turns that"
            " followed each other, with the lowest and the highest. One untimed turn goes first."
        ),
        (
            f"A step writes one token for each of {PROMPTS} prompts at once, by the plain path and to equal length: it"
            " says what a route costs by itself, where time per item also says how much it writes. Nothing is tested"
            " here: turns on one machine are no sample of machines."
        ),
    )
    title = f"Cost of {route}"
    shown = [
        IntervalRow(row["task"], 100 * row["lowest"], 100 * row["overhead"], 100 * row["highest"], OPEN)
        for row in rows
        if row["arm"] == "route"
    ]
    shape = intervals_figure(
        STUDY,
        f"Time per item on {device} ({shorten_model_name(context.base.model)}): median, lowest, highest turn",
        f"percent more than the standard pass: {short_route(route, 80)}",
        shown,
        0.0,
    )
    figure = replace(shape, legend=())  # its colours judge nothing
    return StudyResult(
        STUDY, headline, {TABLE: Table(title, _columns(), rows, notes)}, [figure], 0, {"route": str(route)}
    )


def _time_told(routed: Sequence[dict[str, Any]]) -> str:
    """Time per step where texts are written, and by task per item, which depends on how much a route writes."""
    by_task = ", ".join(f"{row['task']} {format_points(row['overhead'])} %" for row in routed)
    equal = [row["equal_overhead"] for row in routed if row.get("equal_overhead") is not None]
    per_token = f"{format_points(statistics.mean(equal))} % time per step of texts of equal length; " if equal else ""
    return f"{per_token}time per item, longer or shorter answers included: {by_task}"


def measure_arms(
    evaluator: Evaluator, routes: dict[str, Route], examples: Sequence[Example], turns: int
) -> dict[str, Any]:
    """Seconds, tokens and memory of every turn, past the store."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in routes}
    for turn in range(turns + 1):
        # Whoever goes first in a turn may find the machine warm or cold, so they take turns in that, too.
        for name, route in sorted(routes.items(), reverse=bool(turn % 2)):
            measured = _one_turn(evaluator, route, examples)
            if turn:  # what is done once (compiling, capturing) is not timed
                found[name].append(measured)
    return {"turns": found, "equal": measure_cost(evaluator, list(routes.values()), examples)}


def _one_turn(evaluator: Evaluator, route: Route, examples: Sequence[Example]) -> dict[str, Any]:
    device = evaluator.frozen.model.device
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
    started = time.perf_counter()
    outcomes = [
        outcome
        for unit in split_into_units(examples, evaluator.unit_sizes.full)
        for outcome in evaluator.run_unit([route], unit)[route]
    ]
    if on_gpu:
        torch.cuda.synchronize(device)
    return {
        "seconds": time.perf_counter() - started,
        "tokens": sum(one.tokens for one in outcomes),
        "peak_bytes": int(torch.cuda.max_memory_allocated(device)) if on_gpu else None,
    }


def _rows(task: str, route: Route, measured: dict[str, Any], items: int) -> list[dict[str, Any]]:
    rows = []
    for name, turns in measured["turns"].items():
        seconds = statistics.median(one["seconds"] for one in turns)
        tokens = turns[0]["tokens"]
        peaks = [one["peak_bytes"] for one in turns]
        rows.append(
            {
                "task": task,
                "arm": name,
                "layers": route.layers if name == "standard" else route.length,
                "items": items,
                "item_seconds": seconds / items,
                "item_tokens": tokens / items,
                "token_seconds": seconds / tokens if tokens else None,
                "peak_bytes": max(peaks) if peaks[0] is not None else None,
            }
        )
    pairs = zip(measured["turns"]["standard"], measured["turns"]["route"], strict=True)
    ratios = [routed["seconds"] / standard["seconds"] - 1 for standard, routed in pairs]
    standard, routed = rows
    routed |= {"overhead": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)}
    equal = [one.get("token_seconds") for one in measured["equal"]["routes"].values()]
    if all(equal):
        standard["equal_seconds"], routed["equal_seconds"] = equal[0], equal[-1]
        routed["equal_overhead"] = equal[-1] / equal[0] - 1
    if standard["peak_bytes"]:
        routed["memory_overhead"] = routed["peak_bytes"] / standard["peak_bytes"] - 1
    return rows


def _columns() -> list[Column]:
    def number(heading: str, key: str, form: str, scale: float = 1.0) -> Column:
        return Column(
            heading, lambda row: "" if row.get(key) is None else form.format(scale * row[key]).replace("-", "−")
        )

    return [
        text_column("task", "task"),
        text_column("", "arm"),
        number("layers", "layers", "{:.0f}"),
        number("items", "items", "{:.0f}"),
        number("ms per item", "item_seconds", "{:.1f}", 1000),
        number("more time, %", "overhead", "{:+.1f}", 100),
        number("lowest", "lowest", "{:+.1f}", 100),
        number("highest", "highest", "{:+.1f}", 100),
        number("tokens per item", "item_tokens", "{:.1f}"),
        number("ms per step", "equal_seconds", "{:.1f}", 1000),
        number("more per step, %", "equal_overhead", "{:+.1f}", 100),
        number("peak memory, MiB", "peak_bytes", "{:,.0f}", 2**-20),
        number("more memory, %", "memory_overhead", "{:+.1f}", 100),
    ]
