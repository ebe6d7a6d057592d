"""The studies of one route: ``macro explain``; ``macro study`` logit-lens, cost, side-effects, depth-tradeoff."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from macro_routing.cli import options
from macro_routing.cli.run_options import Shown
from macro_routing.cli.study_command import StudyCall, read_route_settings, study_command
from macro_routing.errors import MacroError
from macro_routing.studies.settings import CostSettings, DepthTradeoffSettings, SideEffectsSettings

if TYPE_CHECKING:
    from macro_routing.studies.context import RouteWithSource, StudyContext
    from macro_routing.studies.study_result import StudyResult
    from macro_routing.studies.task_names import TaskName

_DEFAULT_TASK, _FIRST_SEED = "category", 1
_RUN_OPTIONS = (
    *("model", "seed", "mode", "reasoning_budget", "answer_budget", "data_dir"),
    *("dtype", "device", "quantization"),
)
_SHOWN = {
    "task": Shown(help="A task, or TASK:MODE.", default="the route's own, else category"),
    "seed": Shown(help="Seed of the splits.", default="the route's own, else 1"),
    "mode": Shown(default="the route's own for its task, else auto"),
}
RouteArgument = Annotated[
    str,
    typer.Argument(
        metavar="ROUTE",
        help="A finished run's folder, a route file, or a route in any notation. The first two know their model, task,"
        " seed and way to answer.",
    ),
]


@study_command(
    "logit-lens",
    None,
    *("task", *_RUN_OPTIONS, "test"),
    **_SHOWN,
    test=Shown(help="Number of test examples.", value=64, default="64", minimum=2),
)
def logit_lens(call: StudyCall, route: RouteArgument) -> None:
    """Read the correct answer's first token after every executed step, in the standard pass and on the route.

    The state after a step is read through the model's own norm and head; the standard pass's reasoning is held fixed in
    the context of both.

    Example: `macro study logit-lens 'L0-L17 L17 RJ' --task category --test 64`
    """
    from macro_routing.studies.logit_lens import run_logit_lens

    _run_route_study(call, route, lambda context, subject, _: run_logit_lens(context, subject))


@study_command("cost", CostSettings, *_RUN_OPTIONS, **_SHOWN)
def cost(call: StudyCall, route: RouteArgument) -> None:
    """Measure time per item and peak memory of a route beside the standard pass, on this engine.

    Both answer the same items in turns; time per token stands beside time per item, since a route that generates less
    looks faster than it is.

    Example: `macro study cost 'L0-L17 L17 RJ' --tasks category,sequence`
    """
    from macro_routing.studies.cost import run_cost

    _run_route_study(call, route, run_cost)


@study_command("explain", None, *("task", *_RUN_OPTIONS, "test"), **_SHOWN)
def explain(call: StudyCall, route: RouteArgument) -> None:
    """Drop each of a route's deviations in turn and measure what it was worth.

    Says also which examples the route fixes and breaks, and how much of a gain is fewer answers truncated by a budget.

    Example: `macro explain 'L0-L4 L7 L8-L21 L20 RJ' --task category --test 200`
    """
    from macro_routing.studies.explain import run_explain

    _run_route_study(call, route, lambda context, subject, _: run_explain(context, subject))


@study_command("side-effects", SideEffectsSettings, *_RUN_OPTIONS, "test", **_SHOWN)
def side_effects(call: StudyCall, route: RouteArgument) -> None:
    """Score a route on tasks it was not searched for, and on plain text, to see what got worse.

    Every difference to the standard pass has an interval; perplexity is of a text file, or of the tasks' own questions.

    Example: `macro study side-effects 'L0-L17 L17 RJ' --tasks category,sequence --test 200`
    """
    from macro_routing.studies.perplexity import read_plain_text
    from macro_routing.studies.side_effects import run_side_effects

    if call.settings.text is not None:
        read_plain_text(
            call.settings.text
        )  # before anything is measured: a folder belongs to the text it was begun with
    _run_route_study(call, route, run_side_effects)


@study_command(
    "depth-tradeoff", DepthTradeoffSettings, *("test", "data_dir", "dtype", "device", "quantization"), **_SHOWN
)
def depth_tradeoff(
    call: StudyCall,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run of --method guided or macro.")],
) -> None:
    """Decode a finished search's policy within several limits on the depth: accuracy against cost, from one fit.

    Decoding is exact; the best within each limit is chosen on validation examples and compared with the standard pass
    on the test set. Nothing is searched again.

    Example: `macro study depth-tradeoff runs/category --depths 0.9,1,1.1,1.25`
    """
    from macro_routing.runs.folder import RunFolder
    from macro_routing.studies.depth_tradeoff import load_policy, run_depth_tradeoff

    policy = load_policy(RunFolder.open(run))

    def make(context: StudyContext, subject: RouteWithSource, settings: DepthTradeoffSettings) -> StudyResult:
        return run_depth_tradeoff(context, subject, policy, settings)

    _run_route_study(call, str(run), make)


def _run_route_study(
    call: StudyCall, argument: str, make: Callable[[StudyContext, RouteWithSource, Any], StudyResult]
) -> None:
    """Find out what the route brings with it, load its model, and run the study of it."""
    from macro_routing.studies.context import RouteWithSource
    from macro_routing.studies.task_names import TaskName
    from macro_routing.tasks.prompts import MODES

    _check_exists(argument)
    brought = read_route_settings(argument)
    known = {"task": _DEFAULT_TASK, "seed": _FIRST_SEED, "preset": "quick", **brought}
    # How the route's own task was answered is that task's: others are answered as the preset or the user says.
    mode = known.get("decoding", {}).get("mode")
    known["decoding"] = {name: value for name, value in known.get("decoding", {}).items() if name != "mode"}
    task_flag, mode_flag = call.flags.get("", {}).get("task"), call.flags.get("decoding", {}).get("mode")
    is_own = task_flag is None and mode_flag is None and mode in MODES
    task = TaskName(known["task"], mode) if is_own else TaskName.parse(task_flag or known["task"])
    if brought and task_flag is None:
        _check_task_known(argument, task.task)
    settings, tasks = call.settings, tuple(getattr(call.settings, "task_names", ()))
    if is_own and tasks:
        tasks = use_searched_mode(tasks, task)
        settings = dataclasses.replace(settings, tasks=tuple(one.full_name for one in tasks))
    # What a run searched all its examples with must not be cut short for a study, but by the user.
    base = call.make_base_config(known, task=task.task)

    def make_result(context: StudyContext) -> StudyResult:
        route = options.read_route(argument, context.frozen)
        return make(context, RouteWithSource(route, task, base.seed, has_source=bool(brought)), settings)

    about_route = {"route": _make_absolute(argument), "task": task.absolute_name, "seed": base.seed}
    call.run(base, about_route | (settings.to_json() if settings else {}), make_result, tasks or [task])


def use_searched_mode(tasks: Sequence[TaskName], own: TaskName) -> tuple[TaskName, ...]:
    """Where the route's own task is named without a way to answer, the way it was searched with."""
    from macro_routing.studies.task_names import check_distinct_tasks

    plain = dataclasses.replace(own, mode=None).absolute_name
    found = tuple(own if one.absolute_name == plain else one for one in tasks)
    check_distinct_tasks(found)
    return found


def _check_exists(argument: str) -> None:
    """Reject a mistyped folder before it is taken for a route."""
    if (
        "/" in argument
        and " " not in argument
        and _make_absolute(argument) == argument
        and not Path(argument).is_absolute()
    ):
        raise MacroError(f"there is no run and no route file {argument}")


def _check_task_known(argument: str, task: str) -> None:
    """A route file keeps the name of a task, which says nothing about where a user's own file is."""
    from macro_routing.tasks.catalog import list_task_names

    if task not in list_task_names() and not Path(task).exists():
        raise MacroError(
            f"{argument} was searched on {task}, which is not a built-in task: name its file with --task, or give the"
            " run's folder instead"
        )


def _make_absolute(argument: str) -> str:
    """A run or a file from the root, so that it may be named from anywhere; a route as it is."""
    try:
        return str(Path(argument).resolve()) if Path(argument).exists() else argument
    except OSError:  # too long for a file's name
        return argument
