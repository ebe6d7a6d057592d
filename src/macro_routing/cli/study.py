"""``macro study``: the paper's tables and figures as commands; those of one route are in ``single_route_studies``."""

from pathlib import Path
from typing import Annotated

import typer

from macro_routing.cli import paper_study, single_route_studies
from macro_routing.cli.help_groups import make_command_group
from macro_routing.cli.run_options import FlagCustomization, JsonOption, parse_names
from macro_routing.cli.study_command import (
    StudyCommandInputs,
    make_out_option,
    open_study_folder,
    study_command,
    write_and_print_study,
)
from macro_routing.runs.methods import check_requested_methods_comparable
from macro_routing.studies.settings import (
    AblationSettings,
    HyperparameterSweepSettings,
    MainTableSettings,
    OneRouteForAllTasksSettings,
    TransferSettings,
)

app = make_command_group(help="The paper's studies on any model: data, a table and a figure each, resumable.")
_RUN_OPTIONS = (
    *("model", "preset", "mode", "reasoning_budget", "answer_budget", "training", "validation", "test"),
    *("iterations", "draws", "elite", "data_dir", "dtype", "device", "quantization"),
)
_OVERRIDES = {"preset": FlagCustomization(value="quick"), "mode": FlagCustomization(default="auto, or the preset's")}
_METHOD_OVERRIDE = FlagCustomization(value="macro", help="Search method; one that finds routes.")


@app.command("main-table")
@study_command(
    "main-table",
    MainTableSettings,
    *_RUN_OPTIONS[1:],
    "budget",
    store=FlagCustomization(default="one for each method and seed, so times are fair"),
    **_OVERRIDES,
    budget=FlagCustomization(help="Maximum evaluations (route × example) of each search."),
)
def main_table(call: StudyCommandInputs) -> None:
    """Run every method on every model, task and seed, and gather the paper's main table with ranks and deviations.

    It also writes three more tables: whether the first method beats the standard pass over tasks (significance),
    search time against accuracy, and the best routes.

    Example: `macro study main-table --tasks category,sequence --methods macro,random,rys --seeds 1,2`
    """
    from macro_routing.studies.main_table import check_model_names_unique, find_first_searching_method, run_main_table

    check_requested_methods_comparable(call.settings.methods, call.settings.seeds)
    find_first_searching_method(call.settings.methods)
    check_model_names_unique(call.settings.models)
    # Settings of searches are MACRO's here; every method takes those it knows.
    call.run_searches(run_main_table, model=call.settings.models[0], method="macro")


@app.command("significance")
def significance(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="The folder of a main-table study, or a JSON file of its lines.")
    ],
    baseline: Annotated[str, typer.Option(help="The method that is compared with.")] = "standard pass",
    method: Annotated[str, typer.Option(help="The method that is judged.")] = "MACRO",
    models: Annotated[
        str, typer.Option(help="Only these, separated by commas: p-values are corrected over them.", show_default="all")
    ] = "",
    out: Annotated[Path | None, make_out_option("significance")] = None,
    as_json: JsonOption = False,
) -> None:
    """Judge a method against the baseline over the benchmarks of a main table, model by model, as the paper does.

    Benchmarks are resampled for the interval; p is an exact one-sided Wilcoxon test, corrected over models.

    Example: `macro study significance studies/main-table`
    """
    from macro_routing.studies.significance import STUDY, load_main_table_study_rows, run_significance_study

    names = parse_names(models)
    result = run_significance_study(load_main_table_study_rows(results), baseline, method, names)
    settings = {"results": str(results.resolve()), "baseline": baseline, "method": method, "models": names}
    write_and_print_study(open_study_folder(out, STUDY, settings), result, settings, as_json=as_json)


@app.command("ablation")
@study_command("ablation", AblationSettings, *_RUN_OPTIONS, **_OVERRIDES)
def ablation(call: StudyCommandInputs) -> None:
    """Remove the state's factors (phase, displacement, operator context) one at a time, and validation and decoding.

    Each variant is a search of its own over all tasks and seeds; the difference to the whole state is measured on the
    same test examples, with an interval.

    Example: `macro study ablation --tasks category --seeds 1,2`
    """
    from macro_routing.studies.ablation import run_state_factor_ablation

    call.run_searches(run_state_factor_ablation, method="macro")


@app.command("sweep")
@study_command(
    "sweep",
    HyperparameterSweepSettings,
    *_RUN_OPTIONS,
    "method",
    **_OVERRIDES,
    method=FlagCustomization(value="macro", help="Whose setting."),
)
def sweep(call: StudyCommandInputs) -> None:
    """Search with several values of one setting, all others left alone, and compare each with the default.

    The paper sweeps the selection sharpness (beta) and the elite's size (elite); any setting of the method, the route
    space or the data can be swept.

    Example: `macro study sweep --setting elite --values 1,4,12`
    """
    from macro_routing.studies.sweep import find_settings_table_of_hyperparameter, run_hyperparameter_sweep

    task = call.settings.task_names[0].task
    find_settings_table_of_hyperparameter(call.settings.setting, call.make_shared_run_config(task=task))
    call.run_searches(run_hyperparameter_sweep, f"sweep-{call.settings.setting}")


@app.command("transfer")
@study_command("transfer", TransferSettings, *_RUN_OPTIONS, "method", **_OVERRIDES, method=_METHOD_OVERRIDE)
def transfer(call: StudyCommandInputs) -> None:
    """Search a route for every task and test each on every other task, as a heatmap of gains and losses.

    Entry (A, B) is A's route with B's prompts, scoring, data and baseline.

    Example: `macro study transfer --tasks category,sequence`
    """
    from macro_routing.studies.transfer import run_transfer

    call.run_searches(run_transfer)


@app.command("one-route")
@study_command("one-route", OneRouteForAllTasksSettings, *_RUN_OPTIONS, "method", **_OVERRIDES, method=_METHOD_OVERRIDE)
def one_route(call: StudyCommandInputs) -> None:
    """Search one route on the pooled training examples of several tasks, and test it in and out of domain.

    Every example is asked and graded by its own task's rules; means over tasks are unweighted.

    Example: `macro study one-route --tasks category,sequence --out-of-domain arithmetic --test 100`
    """
    from macro_routing.studies.one_route_for_all_tasks import run_one_route_for_all_tasks_study

    call.run_searches(run_one_route_for_all_tasks_study)


@app.command("composition")
def composition(
    runs: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="Runs, or folders that hold some.")],
    method: Annotated[str, typer.Option(help="Only runs of this method.", show_default="all that find routes")] = "",
    out: Annotated[Path | None, make_out_option("composition")] = None,
    as_json: JsonOption = False,
) -> None:
    """Count what found routes are made of: how often they add and move, how long they are, which rank was chosen.

    The figure shows how often every layer is applied over all runs. Nothing is run and no model is needed.

    Example: `macro study composition studies/transfer`
    """
    from macro_routing.studies.composition import STUDY, find_finished_runs, run_route_composition_study

    result = run_route_composition_study(find_finished_runs(runs, method or None))
    settings = {"runs": sorted(str(run.resolve()) for run in runs), "method": method}
    write_and_print_study(open_study_folder(out, STUDY, settings), result, settings, as_json=as_json)


app.command("paper")(paper_study.paper)
app.command("logit-lens")(single_route_studies.logit_lens)
app.command("cost")(single_route_studies.cost)
app.command("side-effects")(single_route_studies.side_effects)
app.command("depth-tradeoff")(single_route_studies.depth_tradeoff)
