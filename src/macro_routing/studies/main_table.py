"""Models × tasks × seeds × methods: accuracy with ranks, significance, search time, best routes (paper, main table)."""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from macro_routing.errors import RunError, SettingsError
from macro_routing.models.frozen import FrozenModel
from macro_routing.report.figure import Figure
from macro_routing.report.formatting import (
    format_mean_and_deviation,
    format_p_relation,
    format_percentage,
    format_points,
    format_points_interval,
    shorten_model_name,
)
from macro_routing.report.heatmap import Heatmap
from macro_routing.runs import folder as run_files
from macro_routing.runs.compare_methods import compare_methods, make_method_configs
from macro_routing.runs.comparison_results import MethodRun, read_method_runs
from macro_routing.runs.folder import RunFolder
from macro_routing.runs.methods import METHODS
from macro_routing.runs.methods import STANDARD as STANDARD_METHOD
from macro_routing.runs.result import ORACLE, SELECTED, STANDARD
from macro_routing.studies.best_routes import list_best_routes, make_best_routes_table
from macro_routing.studies.context import StudyContext
from macro_routing.studies.paired_comparisons import (
    add_holm_correction,
    compare_over_seeds,
    comparison_table,
    is_significant,
)
from macro_routing.studies.search_time import draw_search_times, make_search_time_table, summarize_search_times
from macro_routing.studies.settings import MainTableSettings
from macro_routing.studies.significance import make_significance_table, test_significance_by_model
from macro_routing.studies.study_result import StudyResult
from macro_routing.studies.tables import RANKS_NOTE, Column, Row, difference_columns, text_column
from macro_routing.studies.task_names import TaskName

STUDY = "main-table"
STANDARD_NAME = "standard pass"
RunsByTask = dict[tuple[str, TaskName], list[MethodRun]]
"""By model and task: all methods with all seeds."""


def run_main_table(context: StudyContext, settings: MainTableSettings) -> StudyResult:
    """Run what is missing of every cell, and gather the table."""
    tasks, seeds, methods = settings.task_names, settings.seeds, settings.methods
    models = list(dict.fromkeys(settings.models))
    check_model_names(models)
    leading = find_leading_method(methods)
    arms: RunsByTask = {}
    for model in models:
        mine = dataclasses.replace(context, base=dataclasses.replace(context.base, model=model))
        for task in tasks:
            _check_methods(mine, task, seeds[0], methods)
        for task in tasks:
            arms[shorten_model_name(model), task] = _run_task(mine, task, seeds, methods)
    return make_main_table(arms, SELECTED[leading])


def check_model_names(models: Sequence[str]) -> None:
    """Refuse two models that the table would call the same: one's numbers would stand under the other's name."""
    known: dict[str, str] = {}
    if not models:
        raise SettingsError("--models names none; give one or more, with commas")
    for model in models:
        other = known.setdefault(shorten_model_name(model), model)
        if other != model:
            raise SettingsError(
                f"{other} and {model} are both called {shorten_model_name(model)} in the table; rename one's"
                " folder, or make a study of each"
            )


def find_leading_method(methods: Sequence[str]) -> str:
    """The method whose significance and routes are shown: the first that is a method and no reference or bound."""
    judged = [one for one in methods if one != STANDARD_METHOD and METHODS[one].kind != ORACLE]
    if not judged:
        raise SettingsError(
            f"--methods {','.join(methods)} leaves nothing to compare: the standard pass is always in the table and an"
            " oracle is only a bound; name a method as well, such as macro"
        )
    return judged[0]


def _check_methods(context: StudyContext, task: TaskName, seed: int, methods: Sequence[str]) -> None:
    """Refuse what a method would refuse, before any of them has searched."""
    place = _task_folder(context, task)
    missing = [method for method in methods if not (place / f"{method}-{seed}" / run_files.RUN).is_file()]
    if not missing:
        return
    known = {"frozen": context.frozen, "task": context.loaded_tasks.get(task.task), "store": context.store}
    for _, _, config in make_method_configs(context.make_config(task, seed), missing, [seed], known):
        context.check_search(config)


def _task_folder(context: StudyContext, task: TaskName) -> Path:
    # Two signs between the names: one may be part of either, and another model's cell would be taken for this one.
    return context.folder.run_folder(f"{shorten_model_name(context.base.model)}--{task}")


def _run_task(context: StudyContext, task: TaskName, seeds: Sequence[int], methods: Sequence[str]) -> list[MethodRun]:
    """A comparison's folder; each method and seed has a score store of its own: none is faster for another's work."""
    place = _task_folder(context, task)
    wanted = [(method, seed) for seed in seeds for method in methods]
    finished = {(arm.method, arm.seed) for arm in read_method_runs(place)}
    for method, seed in wanted:
        if (method, seed) in finished:
            _check_cell(context, task, seed, place / f"{method}-{seed}")
            continue
        context.check_time_limit()
        context.listener.on_message(f"{context.base.model}, {task}, {method}, seed {seed}")
        frozen: FrozenModel = context.frozen
        compare_methods(
            context.make_config(task, seed),
            [method],
            [seed],
            place,
            frozen=frozen,
            task=context.loaded_tasks.get(task.task),
            listener=context.listener,
            store=context.store or place.with_name(f"{place.name}-scores") / f"{method}-{seed}.sqlite",
        )
    return [arm for arm in read_method_runs(place) if (arm.method, arm.seed) in set(wanted)]


def _check_cell(context: StudyContext, task: TaskName, seed: int, place: Path) -> None:
    """Refuse a finished run of another model or task that has come to the same place, or whose data have changed."""
    config, run = context.make_config(task, seed), RunFolder.open(place)
    with run.explain_damage(run_files.RUN):
        header = run.read_json(run_files.RUN)
        before = header["config"]["given"]
        if (before["model"], before["task"], before["seed"]) != (config.model, config.task, seed):
            raise RunError(
                f"{place} is of {before['model']} on {before['task']}, not of {config.model} on {config.task}: their"
                " folders would have one name; rename one of the files, or make a study of each"
            )
        context.check_same_data(header, config, place)


# --- what is shown ------------------------------------------------------------------------------------------------


def make_main_table(runs: RunsByTask, leading: str) -> StudyResult:
    """All tables of finished runs; ``leading`` is the method whose significance and routes are shown."""
    rows = summarize_methods_by_model(runs)
    tasks = list(dict.fromkeys(str(task) for _, task in runs))
    sizes = describe_test_sizes(runs)
    table = comparison_table(
        "Accuracy by model, method and task",
        _make_columns(tasks),
        rows,
        sizes,
        "Mean ± sample standard deviation over seeds, in percent of the test examples; every seed's standard pass is"
        " scored on that seed's own test examples. The average is unweighted over tasks, and so is its difference to"
        " the standard pass.",
        RANKS_NOTE + " An oracle knows the answers and is not ranked.",
    )
    differences = {
        row["model"]: [100 * gain for gain in row["gains"].values() if gain is not None]
        for row in rows
        if row["method"] == leading
    }
    times = summarize_search_times(runs)
    other_tables = {
        "significance": make_significance_table(test_significance_by_model(differences), leading, STANDARD_NAME),
        "search_time": make_search_time_table(times, sizes),
        "best_routes": make_best_routes_table(list_best_routes(runs, leading)),
    }
    methods = [row for row in rows if row["method"] != STANDARD_NAME]
    figures = [_draw_gains(methods, tasks), draw_search_times(times)]
    return StudyResult(STUDY, _summarize_best(methods), table, figures, {"results": _list_results(rows)}, other_tables)


def _draw_gains(rows: Sequence[Row], tasks: Sequence[str]) -> Figure:
    models = list(dict.fromkeys(row["model"] for row in rows))
    gains = [[*(row["gains"][task] for task in tasks), row["difference"]] for row in rows]
    heatmap = Heatmap(
        [f"{row['model']} · {row['method']}" if len(models) > 1 else row["method"] for row in rows],
        [*tasks, "average"],
        [[None if gain is None else 100 * gain for gain in row] for row in gains],
        row_meaning="method",
        column_meaning="task",
        unit="points",
        outlined={(index, len(tasks)) for index, row in enumerate(rows) if is_significant(row)},
        outline_meaning="average with p < 0.05 after correction",
    )
    where = models[0] if len(models) == 1 else f"{len(models)} models"
    return heatmap.draw_figure(STUDY, f"Points against the standard pass ({where})")


def describe_test_sizes(arms: RunsByTask) -> str:
    """The seeds, and how many test examples each task has."""
    seeds = dict.fromkeys(arm.seed for found in arms.values() for arm in found)
    sizes: dict[str, dict[int, None]] = {}
    for (_, task), found in arms.items():
        sizes.setdefault(str(task), {}).update(dict.fromkeys(len(arm.right[STANDARD]) for arm in found))
    told = "; ".join(f"{task} n = {', '.join(map(str, some))}" for task, some in sizes.items())
    return f"Seeds {', '.join(map(str, seeds))}; test examples: {told}."


def _summarize_best(shown: Sequence[Row]) -> str:
    """The highest average; looked for among the results themselves, so it is likely to be lower the next time."""
    judged = [row for row in shown if row["kind"] != ORACLE and row["difference"] is not None]
    best = max(judged, key=lambda row: row["difference"])
    picked = f"The highest of {len(judged)} averages, picked on these results"
    told = picked if len(judged) > 1 else "The only average"
    return (
        f"{told}: {best['method']} on {best['model']}, {format_points(best['difference'])} points over the standard"
        f" pass ({format_points_interval(best['low'], best['high'])}; p {format_p_relation(best['p_holm'])},"
        " corrected)."
    )


def summarize_methods_by_model(arms: RunsByTask) -> list[dict[str, Any]]:
    """A line per model and way to choose a route, ranked within the model."""
    rows: list[dict[str, Any]] = []
    for model in dict.fromkeys(model for model, _ in arms):
        mine = {task: found for (one, task), found in arms.items() if one == model}
        everything = [arm for found in mine.values() for arm in found]
        names = list(dict.fromkeys(one.name for arm in everything for one in arm.result.variants))
        ordered = [STANDARD, *(name for name in names if name not in {STANDARD, SELECTED["standard"]})]
        rows += rank_rows([_summarize_method(model, name, mine) for name in ordered])
    return add_holm_correction(rows)


def _summarize_method(model: str, name: str, tasks: Mapping[TaskName, Sequence[MethodRun]]) -> dict[str, Any]:
    accuracy: dict[str, float | None] = {}
    deviation: dict[str, float | None] = {}
    gains: dict[str, float | None] = {}
    pairs, kinds = [], set()
    for task, arms in tasks.items():
        mine = list({arm.seed: arm for arm in arms if name in arm.right}.values())
        if not mine:  # a search that had nothing of this kind to choose
            accuracy[str(task)] = deviation[str(task)] = gains[str(task)] = None
            continue
        values = [statistics.mean(map(float, arm.right[name].values())) for arm in mine]
        standard = [statistics.mean(map(float, arm.right[STANDARD].values())) for arm in mine]
        accuracy[str(task)] = statistics.mean(values)
        deviation[str(task)] = statistics.stdev(values) if len(values) > 1 else None
        gains[str(task)] = statistics.mean(values) - statistics.mean(standard)
        pairs.append([(arm.right[STANDARD], arm.right[name]) for arm in mine])
        kinds |= {arm.result.kind for arm in mine if name != STANDARD}
    is_complete = len(pairs) == len(tasks)
    row = {
        "model": model,
        "method": STANDARD_NAME if name == STANDARD else name,
        "kind": next(iter(kinds), "route"),
        "accuracy": accuracy,
        "deviation": deviation,
        "gains": gains,
        # An average over fewer tasks is none to compare with the others'.
        "average": statistics.mean(value for value in accuracy.values() if value is not None) if is_complete else None,
    }
    if name == STANDARD:
        return row
    return {
        **row,
        **(compare_over_seeds(pairs) if is_complete else dict.fromkeys(("difference", "low", "high", "p", "n"))),
    }


def rank_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Places 1 to 3 by task and on average; equal values share a place, as they are shown."""
    judged = [row for row in rows if row["kind"] != ORACLE]

    def rank_of(value: float | None, values: Sequence[float | None]) -> int:
        if value is None:
            return 0
        shown = sorted({format_percentage(one) for one in values if one is not None}, key=float, reverse=True)
        rank = shown.index(format_percentage(value)) + 1
        return rank if rank <= 3 else 0

    ranked = []
    for row in rows:
        ranks = dict.fromkeys([*row["accuracy"], "average"], 0)
        if row["kind"] != ORACLE:
            for task, value in row["accuracy"].items():
                ranks[task] = rank_of(value, [one["accuracy"][task] for one in judged])
            ranks["average"] = rank_of(row["average"], [one["average"] for one in judged])
        ranked.append({**row, "ranks": ranks})
    return ranked


def _make_columns(tasks: Sequence[str]) -> list[Column]:
    def task_column(task: str) -> Column:
        return Column(
            task,
            lambda row: format_mean_and_deviation(row["accuracy"][task], row["deviation"][task]),
            rank=lambda row: row["ranks"][task],
        )

    average = Column("average", lambda row: format_percentage(row["average"]), rank=lambda row: row["ranks"]["average"])
    return [
        text_column("model", "model"),
        text_column("method", "method"),
        *map(task_column, tasks),
        average,
        *difference_columns(),
    ]


def _list_results(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The lines as ``macro study significance`` reads them, in percent."""
    return [
        {
            "model": row["model"],
            "method": row["method"],
            "accuracy": {
                task: [100 * value, None if row["deviation"][task] is None else 100 * row["deviation"][task]]
                for task, value in row["accuracy"].items()
                if value is not None
            },
        }
        for row in rows
    ]
