"""Models × tasks × seeds × methods: accuracy with ranks, significance, search time, best routes (paper, main table)."""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from macro_routing.errors import RunError, SettingsError
from macro_routing.report.figure import Figure
from macro_routing.report.formatting import (
    format_mean_and_deviation,
    format_p_in_sentence,
    format_percent_number,
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
from macro_routing.studies.best_routes import list_best_route_per_task, make_best_routes_table
from macro_routing.studies.context import StudyContext
from macro_routing.studies.folder import StudyFolder
from macro_routing.studies.paired_comparisons import (
    add_holm_correction,
    is_significant,
    make_corrected_comparison_table,
    make_mean_difference_cells,
)
from macro_routing.studies.search_time import draw_search_times, make_search_time_table, summarize_search_times
from macro_routing.studies.settings import MainTableSettings
from macro_routing.studies.significance import make_significance_table, test_significance_by_model
from macro_routing.studies.study_result import StudyResult
from macro_routing.studies.tables import (
    RANKS_NOTE,
    Column,
    Row,
    difference_columns,
    make_text_column,
)
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode
from macro_routing.studies.truncation import make_truncation_table, summarize_truncation

STUDY = "main-table"
STANDARD_NAME = "standard pass"
RunsByTask = dict[tuple[str, TaskWithAnswerMode], list[MethodRun]]
"""By model and task: all methods with all seeds."""


def run_main_table(context: StudyContext, settings: MainTableSettings) -> StudyResult:
    """Run what is missing of every cell, and gather the table."""
    tasks, seeds, methods = settings.task_names, settings.seeds, settings.methods
    models = list(dict.fromkeys(settings.models))
    check_model_names_unique(models)
    leading = find_first_searching_method(methods)
    runs: RunsByTask = {}
    for model in models:
        model_context = dataclasses.replace(context, base=dataclasses.replace(context.base, model=model))
        for task in tasks:
            _check_method_settings(model_context, task, seeds[0], methods)
        for task in tasks:
            runs[shorten_model_name(model), task] = compare_methods_on_task(model_context, task, seeds, methods)
    return make_main_tables(runs, SELECTED[leading])


def check_model_names_unique(models: Sequence[str]) -> None:
    """Reject two models with the same name in the table: one's numbers would stand under the other's name."""
    if not models:
        raise SettingsError("--models names none; give one or more, with commas")
    known: dict[str, str] = {}
    for model in models:
        other = known.setdefault(shorten_model_name(model), model)
        if other != model:
            raise SettingsError(
                f"{other} and {model} are both called {shorten_model_name(model)} in the table; rename one's"
                " folder, or make a study of each"
            )


def find_first_searching_method(methods: Sequence[str]) -> str:
    """The method whose significance and routes are shown: the first that is neither a reference nor a bound."""
    judged = [method for method in methods if method != STANDARD_METHOD and METHODS[method].kind != ORACLE]
    if not judged:
        raise SettingsError(
            f"--methods {','.join(methods)} leaves nothing to compare: the standard pass is always in the table and an"
            " oracle is only a bound; name a method as well, such as macro"
        )
    return judged[0]


def _check_method_settings(context: StudyContext, task: TaskWithAnswerMode, seed: int, methods: Sequence[str]) -> None:
    """Reject what a method would reject, before any of them has searched."""
    folder = get_model_task_folder(context.folder, context.base.model, task)
    missing = [method for method in methods if not (folder / f"{method}-{seed}" / run_files.RUN).is_file()]
    if missing:
        known = {"frozen": context.frozen_model, "task": context.loaded_tasks.get(task.task), "store": context.store}
        for config in make_method_configs(context.make_run_config(task, seed), missing, [seed], known):
            context.check_search_possible(config)


def get_model_task_folder(folder: StudyFolder, model: str, task: TaskWithAnswerMode) -> Path:
    """Where the runs of a model on a task are, one folder for each method and seed."""
    # Two signs between the names: one may be part of either, and another model's cell would be taken for this one.
    return folder.run_folder(f"{shorten_model_name(model)}--{task}")


def compare_methods_on_task(
    context: StudyContext, task: TaskWithAnswerMode, seeds: Sequence[int], methods: Sequence[str]
) -> list[MethodRun]:
    """A comparison's folder; each method and seed has a score store of its own: none is faster for another's work."""
    folder = get_model_task_folder(context.folder, context.base.model, task)
    wanted = [(method, seed) for seed in seeds for method in methods]
    finished = {(run.method, run.seed) for run in read_method_runs(folder)}
    for method, seed in wanted:
        if (method, seed) in finished:
            _check_finished_run_matches(context, task, seed, folder / f"{method}-{seed}")
            continue
        context.raise_if_time_limit_passed()
        context.listener.on_message(f"{context.base.model}, {task}, {method}, seed {seed}")
        compare_methods(
            context.make_run_config(task, seed),
            [method],
            [seed],
            folder,
            frozen=context.frozen_model,
            task=context.loaded_tasks.get(task.task),
            listener=context.listener,
            store=context.store or folder.with_name(f"{folder.name}-scores") / f"{method}-{seed}.sqlite",
            points=1,  # the table shows no curve
        )
    return [run for run in read_method_runs(folder) if (run.method, run.seed) in wanted]


def _check_finished_run_matches(context: StudyContext, task: TaskWithAnswerMode, seed: int, path: Path) -> None:
    """Reject a finished run of another model or task in the same folder, or one whose data have changed."""
    config, run = context.make_run_config(task, seed), RunFolder.open(path)
    with run.explain_damaged_files(run_files.RUN):
        header = run.read_json(run_files.RUN)
        before = header["config"]["given"]
        if (before["model"], before["task"], before["seed"]) != (config.model, config.task, seed):
            raise RunError(
                f"{path} is of {before['model']} on {before['task']}, not of {config.model} on {config.task}: their"
                " folders would have one name; rename one of the files, or make a study of each"
            )
        context.check_same_data(header, config, path)


# --- what is shown ------------------------------------------------------------------------------------------------


def make_main_tables(runs: RunsByTask, leading: str) -> StudyResult:
    """All tables of finished runs; ``leading`` is the method whose significance and routes are shown."""
    rows = summarize_methods_by_model(runs)
    tasks = list(dict.fromkeys(str(task) for _, task in runs))
    sizes = describe_test_sizes(runs)
    table = make_corrected_comparison_table(
        "Accuracy by model, method and task",
        _make_columns(tasks),
        rows,
        sizes,
        f"Mean ± sample standard deviation over seeds, in percent of the test examples. {describe_test_sets(runs)}The"
        " average is unweighted over tasks, and so is its difference to the standard pass. Routes that are all the"
        " standard pass are not compared with it.",
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
        "best_routes": make_best_routes_table(list_best_route_per_task(runs, leading)),
        "truncated": make_truncation_table(summarize_truncation(runs, STANDARD_NAME), tasks, sizes),
    }
    methods = [row for row in rows if row["method"] != STANDARD_NAME]
    figures = [_draw_method_task_gain_heatmap(methods, tasks), draw_search_times(times)]
    return StudyResult(
        STUDY,
        _summarize_best_method(methods),
        table,
        figures,
        {"results": _list_results_for_significance(rows)},
        other_tables,
    )


def _draw_method_task_gain_heatmap(rows: Sequence[Row], tasks: Sequence[str]) -> Figure:
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


def describe_test_sizes(runs: RunsByTask) -> str:
    """The seeds, and how many test examples each task has."""
    seeds = dict.fromkeys(run.seed for of_task in runs.values() for run in of_task)
    sizes: dict[str, dict[int, None]] = {}
    for (_, task), of_task in runs.items():
        sizes.setdefault(str(task), {}).update(dict.fromkeys(len(run.right[STANDARD]) for run in of_task))
    tasks = "; ".join(f"{task} n = {', '.join(map(str, counts))}" for task, counts in sizes.items())
    return f"Seeds {', '.join(map(str, seeds))}; test examples: {tasks}."


def describe_test_sets(runs: RunsByTask) -> str:
    """Which tasks' seeds share their test examples, and with them the standard pass's score; empty for one seed."""
    shared: dict[str, bool] = {}
    for (_, task), of_task in runs.items():
        by_seed = {run.seed: frozenset(run.right[STANDARD]) for run in of_task}
        if len(by_seed) > 1:
            shared[str(task)] = shared.get(str(task), True) and len(set(by_seed.values())) == 1
    if not shared:
        return ""
    if all(shared.values()):
        return "All seeds of a task have the same test examples. "
    if not any(shared.values()):
        return "Every seed has test examples of its own, on which its standard pass is scored, too. "
    names = ", ".join(task for task, is_shared in shared.items() if is_shared)
    return (
        f"Seeds have the same test examples on {names}; on the other tasks every seed has its own, on which its"
        " standard pass is scored, too. "
    )


def _summarize_best_method(rows: Sequence[Row]) -> str:
    """The highest average; looked for among the results themselves, so it is likely to be lower the next time."""
    judged = [row for row in rows if row["kind"] != ORACLE and row["difference"] is not None]
    if not judged:
        return "No method was run on all tasks, so there is no average."
    best = max(judged, key=lambda row: row["difference"])
    if best["p_holm"] is None:  # all others are worse or are the standard pass, too
        return f"No average is above the standard pass's: {best['method']} on {best['model']} is the standard pass."
    picked = f"The highest of {len(judged)} averages, picked on these results"
    return (
        f"{picked if len(judged) > 1 else 'The only average'}: {best['method']} on {best['model']},"
        f" {format_points(best['difference'])} points over the standard pass"
        f" ({format_points_interval(best['low'], best['high'])}; p {format_p_in_sentence(best['p_holm'])}, corrected)."
    )


def summarize_methods_by_model(runs: RunsByTask) -> list[dict[str, Any]]:
    """A line per model and way to choose a route, ranked within the model."""
    rows: list[dict[str, Any]] = []
    for model in dict.fromkeys(model for model, _ in runs):
        by_task = {str(task): of_task for (name, task), of_task in runs.items() if name == model}
        variants = [variant for of_task in by_task.values() for run in of_task for variant in run.result.variants]
        variant_names = dict.fromkeys(variant.name for variant in variants)
        names = [STANDARD, *(name for name in variant_names if name not in {STANDARD, SELECTED["standard"]})]
        rows += rank_rows([_summarize_method(model, name, by_task) for name in names])
    return add_holm_correction(rows)


def _summarize_method(model: str, name: str, runs_by_task: Mapping[str, Sequence[MethodRun]]) -> dict[str, Any]:
    # A search may have nothing of this kind to choose.
    by_task = {
        task: list({run.seed: run for run in runs if name in run.right}.values()) for task, runs in runs_by_task.items()
    }
    accuracies = {task: [_compute_accuracy_over_examples(run, name) for run in runs] for task, runs in by_task.items()}
    standard = {
        task: [_compute_accuracy_over_examples(run, STANDARD) for run in runs] for task, runs in by_task.items()
    }
    accuracy = {task: statistics.mean(values) if values else None for task, values in accuracies.items()}
    is_fully_scored = all(accuracies.values())
    row = {
        "model": model,
        "method": STANDARD_NAME if name == STANDARD else name,
        "kind": next((run.result.kind for runs in by_task.values() for run in runs if name != STANDARD), "route"),
        "accuracy": accuracy,
        "deviation": {
            task: statistics.stdev(values) if len(values) > 1 else None for task, values in accuracies.items()
        },
        "gains": {
            task: statistics.mean(values) - statistics.mean(standard[task]) if values else None
            for task, values in accuracies.items()
        },
        # An average over fewer tasks cannot be compared with the others.
        "average": statistics.mean(value for value in accuracy.values() if value is not None)
        if is_fully_scored
        else None,
    }
    if name == STANDARD:
        return row
    if not is_fully_scored:
        return {**row, **dict.fromkeys(("difference", "low", "high", "p", "n"))}
    pairs = [[(run.right[STANDARD], run.right[name]) for run in runs] for runs in by_task.values()]
    cells = make_mean_difference_cells(pairs)
    if all(_is_standard_pass(run, name) for runs in by_task.values() for run in runs):
        cells["p"] = None  # it cannot differ from itself
    return {**row, **cells}


def _is_standard_pass(run: MethodRun, name: str) -> bool:
    """Whether a way to choose a route has chosen the standard pass."""
    routes = {variant.name: variant.route for variant in run.result.variants}
    return routes[name] == routes[STANDARD]


def _compute_accuracy_over_examples(run: MethodRun, name: str) -> float:
    return statistics.mean(map(float, run.right[name].values()))


def rank_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ranks 1 to 3 by task and on average, 0 for the others; equal values share a rank, as they are shown."""
    values = [{**row["accuracy"], "average": row["average"]} for row in rows]
    judged = [line for line, row in zip(values, rows, strict=True) if row["kind"] != ORACLE]
    best: dict[str, list[str]] = {}
    for column in values[0]:
        shown = {format_percent_number(line[column]) for line in judged} - {""}
        best[column] = sorted(shown, key=float, reverse=True)[:3]

    def find_rank_in_column(row: Row, column: str, value: float | None) -> int:
        text = format_percent_number(value)
        return best[column].index(text) + 1 if row["kind"] != ORACLE and text in best[column] else 0

    return [
        {**row, "ranks": {column: find_rank_in_column(row, column, value) for column, value in line.items()}}
        for row, line in zip(rows, values, strict=True)
    ]


def _make_columns(tasks: Sequence[str]) -> list[Column]:
    def make_task_accuracy_column(task: str) -> Column:
        return Column(
            task,
            lambda row: format_mean_and_deviation(row["accuracy"][task], row["deviation"][task]),
            rank=lambda row: row["ranks"][task],
        )

    return [
        make_text_column("model", "model"),
        make_text_column("method", "method"),
        *map(make_task_accuracy_column, tasks),
        Column("average", lambda row: format_percent_number(row["average"]), rank=lambda row: row["ranks"]["average"]),
        *difference_columns(),
    ]


def _list_results_for_significance(rows: Sequence[Row]) -> list[dict[str, Any]]:
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
