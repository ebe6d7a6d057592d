"""``macro study``: the studies of one route: logit-lens, cost, explain, side-effects."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from macro_routing.cli import options
from macro_routing.cli import study_options as shared
from macro_routing.errors import MacroError

if TYPE_CHECKING:
    from macro_routing.studies.context import StudyContext, Subject
    from macro_routing.studies.settings import DepthTradeoffSettings
    from macro_routing.studies.study_result import StudyResult
    from macro_routing.studies.task_names import TaskName

TaskOption = Annotated[
    str | None,
    typer.Option("--task", help="A task, or TASK:MODE.", show_default="the route's own, else category"),
]
SeedOption = Annotated[
    int | None, typer.Option("--seed", help="Seed of the splits.", show_default="the route's own, else 1")
]
_FIRST_SEED = 1


def logit_lens(
    route: shared.RouteArgument,
    task: TaskOption = None,
    model: shared.ModelOption = None,
    seed: SeedOption = None,
    mode: shared.RouteModeOption = None,
    reasoning_budget: shared.ReasoningOption = None,
    answer_budget: shared.AnswerOption = None,
    test: Annotated[int, typer.Option("--test", min=2, help="Test examples that are read.")] = 64,
    data_dir: shared.DataOption = None,
    config: shared.ConfigOption = None,
    dtype: options.DtypeOption = "auto",
    device: options.DeviceOption = "auto",
    quantization: options.QuantizationOption = None,
    store: shared.StoreOption = None,
    minutes: shared.MinutesOption = None,
    out: Annotated[Path | None, shared.out_option("logit-lens")] = None,
    as_json: shared.JsonOption = False,
) -> None:
    """Read the right answer's first token after every executed step, in the standard pass and on the route.

    The state after a step is read through the model's own norm and head; the standard pass's reasoning is held fixed in
    the context of both.

    Example: `macro study logit-lens 'L0-L17 L17 RJ' --task category --test 64`
    """
    given = locals()
    shared.begin()
    from macro_routing.studies.logit_lens import STUDY
    from macro_routing.studies.logit_lens import run_logit_lens as study

    _run(STUDY, given, None, lambda context, subject, _: study(context, subject))


def cost(
    route: shared.RouteArgument,
    tasks: Annotated[
        str | None, typer.Option("--tasks", help=shared.TASKS_HELP, show_default="the route's own, else category")
    ] = None,
    model: shared.ModelOption = None,
    seed: SeedOption = None,
    mode: shared.RouteModeOption = None,
    reasoning_budget: shared.ReasoningOption = None,
    answer_budget: shared.AnswerOption = None,
    items: Annotated[int, typer.Option(min=1, help="Test items per task.")] = 64,
    repeats: Annotated[int, typer.Option(min=1, help="Timed repeats of each arm, after one that is not timed.")] = 3,
    data_dir: shared.DataOption = None,
    config: shared.ConfigOption = None,
    dtype: options.DtypeOption = "auto",
    device: options.DeviceOption = "auto",
    quantization: options.QuantizationOption = None,
    store: shared.StoreOption = None,
    minutes: shared.MinutesOption = None,
    out: Annotated[Path | None, shared.out_option("cost")] = None,
    as_json: shared.JsonOption = False,
) -> None:
    """Measure time per item and peak memory of a route beside the standard pass, on this engine.

    Both answer the same items in turns; time per token stands beside time per item, since a route that writes less
    looks faster than it is.

    Example: `macro study cost 'L0-L17 L17 RJ' --tasks category,sequence`
    """
    given = locals()
    shared.begin()
    from macro_routing.studies.cost import STUDY
    from macro_routing.studies.cost import run_cost as study
    from macro_routing.studies.settings import CostSettings

    settings = CostSettings(tuple(shared.names_of(tasks or "")), items, repeats)
    _run(STUDY, {**given, "task": None}, settings, study)


def explain(
    route: shared.RouteArgument,
    task: TaskOption = None,
    model: shared.ModelOption = None,
    seed: SeedOption = None,
    mode: shared.RouteModeOption = None,
    reasoning_budget: shared.ReasoningOption = None,
    answer_budget: shared.AnswerOption = None,
    test: shared.TestOption = None,
    data_dir: shared.DataOption = None,
    config: shared.ConfigOption = None,
    dtype: options.DtypeOption = "auto",
    device: options.DeviceOption = "auto",
    quantization: options.QuantizationOption = None,
    store: shared.StoreOption = None,
    minutes: shared.MinutesOption = None,
    out: Annotated[Path | None, shared.out_option("explain")] = None,
    as_json: shared.JsonOption = False,
) -> None:
    """Drop each of a route's deviations in turn and measure what it was worth.

    Says also which examples the route fixes and breaks, and how much of a gain is fewer answers cut off by a budget.

    Example: `macro explain 'L0-L4 L7 L8-L21 L20 RJ' --task category --test 200`
    """
    given = locals()
    shared.begin()
    from macro_routing.studies.explain import STUDY
    from macro_routing.studies.explain import run_explain as study

    _run(STUDY, given, None, lambda context, subject, _: study(context, subject))


def side_effects(
    route: shared.RouteArgument,
    tasks: shared.TasksOption = shared.TWO_TASKS,
    text: Annotated[
        Path | None, typer.Option(help="A text file for perplexity.", show_default="the tasks' own questions")
    ] = None,
    windows: Annotated[int, typer.Option(min=2, help="Most rows of 256 tokens that are read of it.")] = 200,
    model: shared.ModelOption = None,
    seed: SeedOption = None,
    mode: shared.RouteModeOption = None,
    reasoning_budget: shared.ReasoningOption = None,
    answer_budget: shared.AnswerOption = None,
    test: shared.TestOption = None,
    data_dir: shared.DataOption = None,
    config: shared.ConfigOption = None,
    dtype: options.DtypeOption = "auto",
    device: options.DeviceOption = "auto",
    quantization: options.QuantizationOption = None,
    store: shared.StoreOption = None,
    minutes: shared.MinutesOption = None,
    out: Annotated[Path | None, shared.out_option("side-effects")] = None,
    as_json: shared.JsonOption = False,
) -> None:
    """Score a route on tasks it was not searched for, and on plain text, to see what got worse.

    Every difference to the standard pass has an interval; perplexity is of a text file, or of the tasks' own questions.

    Example: `macro study side-effects 'L0-L17 L17 RJ' --tasks category,sequence --test 200`
    """
    given = locals()
    shared.begin()
    from macro_routing.studies.perplexity import text_of
    from macro_routing.studies.settings import SideEffectsSettings
    from macro_routing.studies.side_effects import STUDY
    from macro_routing.studies.side_effects import run_side_effects as study

    if text is not None:
        text_of(text)  # before anything is measured: a folder belongs to the text it was begun with
    settings = SideEffectsSettings(tuple(shared.names_of(tasks)), text, windows)
    _run(STUDY, {**given, "task": None}, settings, study)


def depth_tradeoff(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run of --method guided or macro.")],
    depths: Annotated[
        str, typer.Option(help="Limits on the length, in depths of the model, with commas.")
    ] = "0.9,1,1.1,1.25",
    k: Annotated[int, typer.Option("--k", min=1, max=1000, help="Routes decoded within each limit.")] = 5,
    test: shared.TestOption = None,
    data_dir: shared.DataOption = None,
    dtype: options.DtypeOption = "auto",
    device: options.DeviceOption = "auto",
    quantization: options.QuantizationOption = None,
    store: shared.StoreOption = None,
    minutes: shared.MinutesOption = None,
    out: Annotated[Path | None, shared.out_option("depth-tradeoff")] = None,
    as_json: shared.JsonOption = False,
) -> None:
    """Decode a finished search's policy within several limits on the depth: accuracy against cost, from one fit.

    Decoding is exact; the best within each limit is chosen on validation examples and compared with the standard pass
    on the test set. Nothing is searched again.

    Example: `macro study depth-tradeoff runs/category --depths 0.9,1,1.1,1.25`
    """
    given = locals()
    shared.begin()
    from macro_routing.runs.folder import RunFolder
    from macro_routing.studies.depth_tradeoff import STUDY, policy_of
    from macro_routing.studies.depth_tradeoff import run_depth_tradeoff as study
    from macro_routing.studies.settings import DepthTradeoffSettings

    settings = DepthTradeoffSettings(tuple(shared.depths_of(depths)), k)
    policy = policy_of(RunFolder.open(run))

    def make(context: StudyContext, subject: Subject, settings: DepthTradeoffSettings) -> StudyResult:
        return study(context, subject, policy, settings)

    # All of that is the run's own; ``k`` is not the searches' setting of that name.
    absent = dict.fromkeys(("task", "seed", "mode", "model", "reasoning_budget", "answer_budget", "config", "k"))
    _run(STUDY, {**given, **absent, "route": str(run)}, settings, make)


def _run(
    study: str, given: dict[str, Any], settings: Any, make: Callable[[StudyContext, Subject, Any], StudyResult]
) -> None:
    """Find out what the route brings with it, load its model, and run the study of it."""
    from macro_routing.studies.context import Subject
    from macro_routing.studies.task_names import TaskName
    from macro_routing.tasks.prompts import MODES

    argument = given["route"]
    _check_there(argument)
    brought = shared.known_of_route(argument)
    known = {"task": shared.DEFAULT_TASK, "seed": _FIRST_SEED, "preset": "quick", **brought}
    # How the route's own task was answered is that task's: others are answered as the preset or the user says.
    mode = known.get("decoding", {}).get("mode")
    known["decoding"] = {name: value for name, value in known.get("decoding", {}).items() if name != "mode"}
    is_own = given["task"] is None and given["mode"] is None and mode in MODES
    task = TaskName(known["task"], mode) if is_own else TaskName.parse(given["task"] or known["task"])
    if brought and given["task"] is None:
        _check_known(argument, task.task)
    tasks: Sequence[TaskName] = getattr(settings, "task_names", ())
    if is_own and tasks:
        tasks = own_way(tasks, task)
        settings = dataclasses.replace(settings, tasks=tuple(one.text for one in tasks))
    # What a run searched all its examples with must not be cut short for a study, but by the user.
    base = shared.base_config({**given, "task": task.task, "preset": None}, given["config"], known=known)
    own = {"route": _named(argument), "task": task.absolute, "seed": base.seed}

    def subject_of(context: StudyContext) -> StudyResult:
        route = options.read_route(argument, context.frozen)
        return make(context, Subject(route, task, base.seed, is_known=bool(brought)), settings)

    shared.run_study(
        study,
        given["out"],
        base,
        own | (settings.to_json() if settings else {}),
        subject_of,
        tasks=tasks or [task],
        store=given["store"],
        minutes=given["minutes"],
        as_json=given["as_json"],
    )


def own_way(tasks: Sequence[TaskName], own: TaskName) -> Sequence[TaskName]:
    """Where the route's own task is named without a way to answer, the way it was searched with."""
    from macro_routing.studies.task_names import check_distinct

    plain = dataclasses.replace(own, mode=None).absolute
    found = tuple(own if one.absolute == plain else one for one in tasks)
    check_distinct(found)
    return found


def _check_there(argument: str) -> None:
    """A mistyped folder is no route with a mistake in it."""
    if "/" in argument and " " not in argument and _named(argument) == argument and not Path(argument).is_absolute():
        raise MacroError(f"there is no run and no route file {argument}")


def _check_known(argument: str, task: str) -> None:
    """A route file keeps the name of a task, which says nothing about where a user's own file is."""
    from macro_routing.tasks.catalog import list_task_names

    if task not in list_task_names() and not Path(task).exists():
        raise MacroError(
            f"{argument} was searched on {task}, which is no built-in task: name its file with --task, or give the"
            " run's folder instead"
        )


def _named(argument: str) -> str:
    """A run or a file from the root, so that it may be named from anywhere; a route as it is."""
    try:
        return str(Path(argument).resolve()) if Path(argument).exists() else argument
    except OSError:  # too long for a file's name
        return argument
