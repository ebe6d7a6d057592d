"""``macro study``: the studies that search: main-table, ablation, sweep, transfer, one-route."""

from macro_routing.cli.run_options import Shown
from macro_routing.cli.study_command import StudyCall, study_command
from macro_routing.studies.settings import (
    AblationSettings,
    MainTableSettings,
    OneRouteSettings,
    SweepSettings,
    TransferSettings,
)

_RUN_OPTIONS = (
    *("model", "preset", "mode", "reasoning_budget", "answer_budget", "training", "validation", "test"),
    *("iterations", "draws", "elite", "data_dir", "dtype", "device", "quantization"),
)
_SHOWN = {"preset": Shown(value="quick"), "mode": Shown(default="auto, or the preset's")}
_FIND_METHOD = Shown(value="macro", help="Search method; one that finds routes.")


@study_command(
    "main-table",
    MainTableSettings,
    *_RUN_OPTIONS[1:],
    "budget",
    store=Shown(default="one for each method and seed, so times are fair"),
    **_SHOWN,
    budget=Shown(help="Maximum evaluations (route × example) of each search."),
)
def main_table(call: StudyCall) -> None:
    """Run every method on every model, task and seed, and gather the paper's main table with ranks and deviations.

    Beside it stand three more tables: whether the first method beats the standard pass over tasks (significance),
    search time against accuracy, and the best routes.

    Example: `macro study main-table --tasks category,sequence --methods macro,random,rys --seeds 1,2`
    """
    from macro_routing.runs.methods import check_methods
    from macro_routing.studies.main_table import check_model_names, find_leading_method, run_main_table

    check_methods(call.settings.methods, call.settings.seeds)
    find_leading_method(call.settings.methods)
    check_model_names(call.settings.models)
    # Settings of searches are MACRO's here; every method takes those it knows.
    call.run_searches(run_main_table, model=call.settings.models[0], method="macro")


@study_command("ablation", AblationSettings, *_RUN_OPTIONS, **_SHOWN)
def ablation(call: StudyCall) -> None:
    """Remove the state's factors (phase, displacement, operator context) one at a time, and validation and decoding.

    Each variant is a search of its own over all tasks and seeds; the difference to the whole state is measured on the
    same test examples, with an interval.

    Example: `macro study ablation --tasks category --seeds 1,2`
    """
    from macro_routing.studies.ablation import run_ablation

    call.run_searches(run_ablation, method="macro")


@study_command(
    "sweep", SweepSettings, *_RUN_OPTIONS, "method", **_SHOWN, method=Shown(value="macro", help="Whose setting.")
)
def sweep(call: StudyCall) -> None:
    """Search with several values of one setting, all others left alone, and compare each with the default.

    The paper sweeps the selection sharpness (beta) and the elite's size (elite); any setting of the method, the route
    space or the data can be swept.

    Example: `macro study sweep --setting elite --values 1,4,12`
    """
    from macro_routing.studies.sweep import find_settings_table, run_sweep

    task = call.settings.task_names[0].task
    find_settings_table(call.settings.setting, call.make_base_config(task=task))
    call.run_searches(run_sweep, f"sweep-{call.settings.setting}")


@study_command("transfer", TransferSettings, *_RUN_OPTIONS, "method", **_SHOWN, method=_FIND_METHOD)
def transfer(call: StudyCall) -> None:
    """Search a route for every task and test each on every other task, as a heatmap of gains and losses.

    Entry (A, B) is A's route with B's prompts, scoring, data and baseline.

    Example: `macro study transfer --tasks category,sequence`
    """
    from macro_routing.studies.transfer import run_transfer

    call.run_searches(run_transfer)


@study_command("one-route", OneRouteSettings, *_RUN_OPTIONS, "method", **_SHOWN, method=_FIND_METHOD)
def one_route(call: StudyCall) -> None:
    """Search one route on the pooled training examples of several tasks, and test it in and out of domain.

    Every example is asked and graded by its own task's rules; means over tasks are unweighted.

    Example: `macro study one-route --tasks category,sequence --out-of-domain arithmetic --test 100`
    """
    from macro_routing.studies.one_route import run_one_route

    call.run_searches(run_one_route)
