"""One table per item of the paper from the results of its units: means over seeds, or over benchmarks."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from macro_routing.report.formatting import (
    format_mean_and_deviation,
    format_number_of,
    format_points,
    shorten_model_name,
    use_minus_sign,
)
from macro_routing.studies.one_route_for_all_tasks import INSIDE, OUTSIDE
from macro_routing.studies.paper_config import COST, ONE_ROUTE, PaperItem, PaperUnit
from macro_routing.studies.study_result import TABLE, StudyResult
from macro_routing.studies.tables import Column, Row, Table, make_text_column, number_column, percentage_column

_MEAN, _STANDARD = "mean", "L0 RJ"
_COSTS = ("overhead", "equal_overhead", "memory_overhead")


class UnitResult(NamedTuple):
    """A finished unit, and the contents of its data.json."""

    unit: PaperUnit
    data: Mapping[str, Any]

    @property
    def model(self) -> str:
        """The model as tables call it."""
        return shorten_model_name(self.unit.model)

    @property
    def rows(self) -> Sequence[Row]:
        """The rows of the unit's main table."""
        rows: Sequence[Row] = self.data["tables"][TABLE]["rows"]
        return rows


def gather_item(item: PaperItem, results: Sequence[UnitResult]) -> StudyResult:
    """An item's result from those of its finished units."""
    gather: Callable[[PaperItem, Sequence[UnitResult]], StudyResult] = {
        ONE_ROUTE: _gather_one_route,
        COST: _gather_cost,
    }.get(item.study, _gather_headlines)
    return gather(item, results)


def _gather_headlines(item: PaperItem, results: Sequence[UnitResult]) -> StudyResult:
    """What each unit came to, in its own words."""
    rows = [
        {
            "model": result.model,
            "task": str(result.unit.parsed_task) if result.unit.task else "",
            "seed": result.unit.seed,
            "result": result.data["headline"],
        }
        for result in results
    ]
    columns = [
        make_text_column("model", "model"),
        make_text_column("task", "task"),
        number_column("seed", "seed"),
        make_text_column("result", "result"),
    ]
    headline = " ".join(str(row["result"]) for row in rows)
    if len(rows) > 1:
        headline = " ".join(f"{', '.join(_name_parts(row))}: {row['result']}" for row in rows)
    return StudyResult(item.study, headline, Table(item.shows, columns, rows))


def _name_parts(row: Row) -> Iterator[str]:
    yield str(row["model"])
    if row["task"]:
        yield str(row["task"])
    if row["seed"] is not None:
        yield f"seed {row['seed']}"


# --- one route ----------------------------------------------------------------------------------------------------


def _gather_one_route(item: PaperItem, results: Sequence[UnitResult]) -> StudyResult:
    """By model and task the mean over seeds, as in the paper's table."""
    cells: dict[tuple[str, str, str], list[Row]] = {}
    for result in results:
        for row in result.rows:
            cells.setdefault((result.model, row["domain"], row["task"]), []).append(row)
    rows = [
        {
            "model": model,
            "domain": domain,
            "task": task,
            "standard": statistics.mean(row["standard"] for row in of_seeds),
            **_summarize_over_seeds(of_seeds),
        }
        for (model, domain, task), of_seeds in cells.items()
    ]
    columns = [
        make_text_column("model", "model"),
        make_text_column("", "domain"),
        make_text_column("task", "task"),
        percentage_column("standard, %", "standard"),
        Column("one route, %", lambda row: format_mean_and_deviation(row["accuracy"], row["deviation"])),
        number_column("difference, points", "difference", format_points),
        number_column("seeds", "seeds"),
    ]
    notes = [
        (
            "Means over seeds, each with a route of its own; ± is the sample standard deviation over seeds. *mean* is"
            " the unweighted mean over tasks. Nothing is tested here; the tables of the seeds have intervals and"
            " p-values."
        ),
        *_describe_left_out_examples(results),
    ]
    parts = []
    for model in dict.fromkeys(str(row["model"]) for row in rows):
        gains = {row["domain"]: row for row in rows if row["model"] == model and row["task"] == _MEAN}
        said = [f"{format_points(gains[name]['difference'])} {name}" for name in (INSIDE, OUTSIDE) if name in gains]
        if said:
            seeds = format_number_of(max(row["seeds"] for row in gains.values()), "seed")
            parts.append(f"{model}: {', '.join(said)} (points, mean over tasks and {seeds})")
    headline = f"{'; '.join(parts)}." if parts else "No task of the pool can be averaged over."
    details = {"routes": [{"unit": one.unit.name, "route": one.data["details"].get("route")} for one in results]}
    return StudyResult(item.study, headline, Table(item.shows, columns, rows, notes), (), details)


def _summarize_over_seeds(rows: Sequence[Row]) -> dict[str, Any]:
    accuracies = [row["accuracy"] for row in rows]
    return {
        "accuracy": statistics.mean(accuracies),
        "deviation": statistics.stdev(accuracies) if len(rows) > 1 else None,
        "difference": statistics.mean(row["accuracy"] - row["standard"] for row in rows),
        "seeds": len(rows),
    }


def _describe_left_out_examples(results: Sequence[UnitResult]) -> Iterator[str]:
    """How many examples each pool lost because another task tests on them."""
    counts = [
        sum(sum(of_task.values()) for of_task in result.data["details"].get("left_out_of_pool", {}).values())
        for result in results
    ]
    if any(counts):
        low, high = min(counts), max(counts)
        number = str(low) if low == high else f"{low} to {high}"
        yield (
            f"{number} training and validation examples were left out of each pool, because they are test questions of"
            " another task."
        )


# --- cost ---------------------------------------------------------------------------------------------------------


def _gather_cost(item: PaperItem, results: Sequence[UnitResult]) -> StudyResult:
    """By model and benchmark what the route costs, and the mean over benchmarks."""
    rows: list[dict[str, Any]] = [
        {"model": result.model, "base_layers": standard["layers"], **routed, **result.data["details"]}
        for result in results
        for standard, routed in [result.rows]
    ]
    means = []
    for model in dict.fromkeys(row["model"] for row in rows):
        of_model = [row for row in rows if row["model"] == model]
        costs = {key: [row[key] for row in of_model if row.get(key) is not None] for key in _COSTS}
        changed = sum(row["route"] != _STANDARD for row in of_model)
        means.append(
            {
                "model": model,
                "task": _MEAN,
                "benchmarks": len(of_model),
                "changed": changed,
                **{key: statistics.mean(values) for key, values in costs.items() if values},
            }
        )
    columns = [
        make_text_column("model", "model"),
        make_text_column("task", "task"),
        Column("layers", lambda row: f"{row['base_layers']} → {row['layers']}" if "layers" in row else ""),
        *(
            number_column(heading, key, lambda value: use_minus_sign(f"{100 * value:+.1f}"))
            for heading, key in zip(
                ("more time per item, %", "more per step, %", "more memory, %"), _COSTS, strict=True
            )
        ),
        make_text_column("route", "route", is_code=True),
    ]
    notes = (
        (
            "Each benchmark has the route that the main table found for it; *mean* is unweighted over benchmarks, those"
            " whose route is the standard pass included."
        ),
    )
    return StudyResult(
        item.study, " ".join(map(_describe_mean_cost, means)), Table(item.shows, columns, [*rows, *means], notes)
    )


def _describe_mean_cost(mean: Row) -> str:
    memory = f"{format_points(mean['memory_overhead'])} %" if "memory_overhead" in mean else "not measured"
    benchmarks = format_number_of(mean["benchmarks"], "benchmark")
    where = f"{mean['model']}, mean over {benchmarks} (on {mean['changed']} the route is not the standard pass)"
    return f"{where}: {format_points(mean['overhead'])} % time per item, memory {memory}."
