"""``macro study``: the studies that search: main-table, ablation, sweep, transfer, one-route."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from macro_routing.cli import options
from macro_routing.cli import study_options as shared
from macro_routing.cli.search import Preset
from macro_routing.search.method_names import METHOD_NAMES

QUICK = Preset.quick


def main_table(
    models: Annotated[str, typer.Option(help="Models, with commas.")] = "smollm2-135m",
    tasks: shared.TasksOption = shared.TWO_TASKS,
    methods: Annotated[
        str, typer.Option(help=f"Which, with commas; there are {', '.join(METHOD_NAMES)}.")
    ] = "macro,random",
    seeds: shared.SeedsOption = "1,2",
    preset: shared.PresetOption = QUICK,
    budget: Annotated[
        int | None, typer.Option(help="Outcomes each search may ask for.", show_default="what MACRO asks for")
    ] = None,
    mode: shared.ModeOption = None,
    reasoning_budget: shared.ReasoningOption = None,
    answer_budget: shared.AnswerOption = None,
    training: shared.TrainingOption = None,
    validation: shared.ValidationOption = None,
    test: shared.TestOption = None,
    iterations: shared.IterationsOption = None,
    draws: shared.DrawsOption = None,
    elite: shared.EliteOption = None,
    data_dir: shared.DataOption = None,
    config: shared.ConfigOption = None,
    dtype: options.DtypeOption = "auto",
    device: options.DeviceOption = "auto",
    quantization: options.QuantizationOption = None,
    store: shared.OwnStoreOption = None,
    minutes: shared.MinutesOption = None,
    out: Annotated[Path | None, shared.out_option("main-table")] = None,
    as_json: shared.JsonOption = False,
) -> None:
    """Run every method on every model, task and seed, and gather the paper's main table with ranks and deviations.

    Beside it stand three more tables: whether the first method beats the standard pass over tasks (significance),
    search time against accuracy, and the best routes.

    Example: `macro study main-table --tasks category,sequence --methods macro,random,rys --seeds 1,2`
    """
    given = locals()
    shared.begin()
    from macro_routing.runs.methods import check_methods
    from macro_routing.studies.main_table import STUDY, check_models, leading_method
    from macro_routing.studies.main_table import run_main_table as study
    from macro_routing.studies.settings import MainTableSettings

    settings = MainTableSettings(
        tuple(shared.names_of(tasks)),
        tuple(shared.seeds_of(seeds)),
        tuple(dict.fromkeys(shared.names_of(models))),
        tuple(shared.names_of(methods)),
    )
    check_methods(settings.methods, settings.seeds)
    leading_method(settings.methods)
    check_models(settings.models)
    # Settings of searches are MACRO's here; every method takes those it knows.
    base = shared.base_config(
        {**given, "task": settings.task_names[0].task, "model": settings.models[0]}, config, method="macro"
    )
    shared.run_study(
        STUDY,
        out,
        base,
        settings.to_json(),
        lambda context: study(context, settings),
        tasks=settings.all_task_names,
        store=store,
        minutes=minutes,
        as_json=as_json,
    )


def ablation(
    tasks: shared.TasksOption = shared.DEFAULT_TASK,
    model: shared.ModelOption = None,
    seeds: shared.SeedsOption = "1,2",
    preset: shared.PresetOption = QUICK,
    mode: shared.ModeOption = None,
    reasoning_budget: shared.ReasoningOption = None,
    answer_budget: shared.AnswerOption = None,
    training: shared.TrainingOption = None,
    validation: shared.ValidationOption = None,
    test: shared.TestOption = None,
    iterations: shared.IterationsOption = None,
    draws: shared.DrawsOption = None,
    elite: shared.EliteOption = None,
    data_dir: shared.DataOption = None,
    config: shared.ConfigOption = None,
    dtype: options.DtypeOption = "auto",
    device: options.DeviceOption = "auto",
    quantization: options.QuantizationOption = None,
    store: shared.StoreOption = None,
    minutes: shared.MinutesOption = None,
    out: Annotated[Path | None, shared.out_option("ablation")] = None,
    as_json: shared.JsonOption = False,
) -> None:
    """Remove the state's factors (phase, displacement, operator context) one at a time, and validation and decoding.

    Each variant is a search of its own over all tasks and seeds; the difference to the whole state is measured on the
    same test examples, with an interval.

    Example: `macro study ablation --tasks category --seeds 1,2`
    """
    given = locals()
    shared.begin()
    from macro_routing.studies.ablation import STUDY
    from macro_routing.studies.ablation import run_ablation as study
    from macro_routing.studies.settings import AblationSettings

    settings = AblationSettings(tuple(shared.names_of(tasks)), tuple(shared.seeds_of(seeds)))
    base = shared.base_config({**given, "task": settings.task_names[0].task}, config, method="macro")
    shared.run_study(
        STUDY,
        out,
        base,
        settings.to_json(),
        lambda context: study(context, settings),
        tasks=settings.all_task_names,
        store=store,
        minutes=minutes,
        as_json=as_json,
    )


def sweep(
    setting: Annotated[str, typer.Option(help="A setting of the search, its space or its data: beta, elite, radius …")],
    values: Annotated[str, typer.Option(help="Values, with commas; the default is always among them.")],
    tasks: shared.TasksOption = shared.DEFAULT_TASK,
    model: shared.ModelOption = None,
    method: Annotated[str, typer.Option(help=f"Whose setting: {', '.join(METHOD_NAMES)}.")] = "macro",
    seeds: shared.SeedsOption = "1,2",
    preset: shared.PresetOption = QUICK,
    mode: shared.ModeOption = None,
    reasoning_budget: shared.ReasoningOption = None,
    answer_budget: shared.AnswerOption = None,
    training: shared.TrainingOption = None,
    validation: shared.ValidationOption = None,
    test: shared.TestOption = None,
    iterations: shared.IterationsOption = None,
    draws: shared.DrawsOption = None,
    elite: shared.EliteOption = None,
    data_dir: shared.DataOption = None,
    config: shared.ConfigOption = None,
    dtype: options.DtypeOption = "auto",
    device: options.DeviceOption = "auto",
    quantization: options.QuantizationOption = None,
    store: shared.StoreOption = None,
    minutes: shared.MinutesOption = None,
    out: Annotated[Path | None, shared.out_option("sweep-SETTING")] = None,
    as_json: shared.JsonOption = False,
) -> None:
    """Search with several values of one setting, all others left alone, and compare each with the default.

    The paper sweeps the selection sharpness (beta) and the elite's size (elite); any setting of the method, the route
    space or the data can be swept.

    Example: `macro study sweep --setting elite --values 1,4,12`
    """
    given = locals()
    shared.begin()
    from macro_routing.studies.settings import SweepSettings
    from macro_routing.studies.sweep import STUDY, place_of, read_value
    from macro_routing.studies.sweep import run_sweep as study

    settings = SweepSettings(
        tasks=tuple(shared.names_of(tasks)),
        seeds=tuple(shared.seeds_of(seeds)),
        setting=setting,
        values=tuple(read_value(value) for value in shared.names_of(values)),
    )
    base = shared.base_config({**given, "task": settings.task_names[0].task}, config, method=method)
    place_of(setting, base)
    shared.run_study(
        STUDY,
        out,
        base,
        settings.to_json(),
        lambda context: study(context, settings),
        tasks=settings.all_task_names,
        store=store,
        minutes=minutes,
        as_json=as_json,
        name=f"sweep-{setting}",
    )


def transfer(
    tasks: shared.TasksOption = shared.TWO_TASKS,
    model: shared.ModelOption = None,
    method: Annotated[str, typer.Option(help="How routes are found; one that finds routes.")] = "macro",
    seed: shared.SeedOption = 1,
    preset: shared.PresetOption = QUICK,
    mode: shared.ModeOption = None,
    reasoning_budget: shared.ReasoningOption = None,
    answer_budget: shared.AnswerOption = None,
    training: shared.TrainingOption = None,
    validation: shared.ValidationOption = None,
    test: shared.TestOption = None,
    iterations: shared.IterationsOption = None,
    draws: shared.DrawsOption = None,
    elite: shared.EliteOption = None,
    data_dir: shared.DataOption = None,
    config: shared.ConfigOption = None,
    dtype: options.DtypeOption = "auto",
    device: options.DeviceOption = "auto",
    quantization: options.QuantizationOption = None,
    store: shared.StoreOption = None,
    minutes: shared.MinutesOption = None,
    out: Annotated[Path | None, shared.out_option("transfer")] = None,
    as_json: shared.JsonOption = False,
) -> None:
    """Search a route for every task and test each on every other task, as a heatmap of gains and losses.

    Entry (A, B) is A's route with B's prompts, scoring, data and baseline.

    Example: `macro study transfer --tasks category,sequence`
    """
    given = locals()
    shared.begin()
    from macro_routing.studies.settings import TransferSettings
    from macro_routing.studies.transfer import STUDY
    from macro_routing.studies.transfer import run_transfer as study

    settings = TransferSettings(tuple(shared.names_of(tasks)), seed)
    base = shared.base_config({**given, "task": settings.task_names[0].task}, config, method=method)
    shared.run_study(
        STUDY,
        out,
        base,
        settings.to_json(),
        lambda context: study(context, settings),
        tasks=settings.all_task_names,
        store=store,
        minutes=minutes,
        as_json=as_json,
    )


def one_route(
    tasks: shared.TasksOption = shared.TWO_TASKS,
    out_of_domain: Annotated[str, typer.Option(help="Tasks it is only tested on, with commas.")] = "arithmetic",
    model: shared.ModelOption = None,
    method: Annotated[str, typer.Option(help="How the route is found; one that finds routes.")] = "macro",
    seed: shared.SeedOption = 1,
    preset: shared.PresetOption = QUICK,
    mode: shared.ModeOption = None,
    reasoning_budget: shared.ReasoningOption = None,
    answer_budget: shared.AnswerOption = None,
    training: shared.TrainingOption = None,
    validation: shared.ValidationOption = None,
    test: shared.TestOption = None,
    iterations: shared.IterationsOption = None,
    draws: shared.DrawsOption = None,
    elite: shared.EliteOption = None,
    data_dir: shared.DataOption = None,
    config: shared.ConfigOption = None,
    dtype: options.DtypeOption = "auto",
    device: options.DeviceOption = "auto",
    quantization: options.QuantizationOption = None,
    store: shared.StoreOption = None,
    minutes: shared.MinutesOption = None,
    out: Annotated[Path | None, shared.out_option("one-route")] = None,
    as_json: shared.JsonOption = False,
) -> None:
    """Search one route on the pooled training examples of several tasks, and test it in and out of domain.

    Every example is asked and graded by its own task's rules; means over tasks are unweighted.

    Example: `macro study one-route --tasks category,sequence --out-of-domain arithmetic --test 100`
    """
    given = locals()
    shared.begin()
    from macro_routing.studies.one_route import STUDY
    from macro_routing.studies.one_route import run_one_route as study
    from macro_routing.studies.settings import OneRouteSettings

    settings = OneRouteSettings(tuple(shared.names_of(tasks)), seed, tuple(shared.names_of(out_of_domain)))
    base = shared.base_config({**given, "task": settings.task_names[0].task}, config, method=method)
    shared.run_study(
        STUDY,
        out,
        base,
        settings.to_json(),
        lambda context: study(context, settings),
        tasks=settings.all_task_names,
        store=store,
        minutes=minutes,
        as_json=as_json,
    )
