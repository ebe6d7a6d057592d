"""The studies of one route: ``macro explain``; ``macro study`` logit-lens, cost, side-effects, depth-tradeoff."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from macro_routing import studies
from macro_routing.cli.route_argument import check_route_without_model, read_route_or_mixture, read_route_text
from macro_routing.cli.run_options import FlagCustomization
from macro_routing.cli.study_command import StudyCommandInputs, study_command
from macro_routing.errors import MacroError
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.models.built_in import DEFAULT_MODEL
from macro_routing.routes.route_file import is_route_file_text, parse_route_file
from macro_routing.runs.folder import RUN, RunFolder
from macro_routing.studies.settings import CostStudySettings, DepthTradeoffSettings, SideEffectsSettings
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode, check_distinct_tasks
from macro_routing.tasks.prompts import MODES

RunRouteStudy = Callable[["studies.StudyContext", "studies.RouteWithSearchedTask", Any], "studies.StudyResult"]
_KEPT_FROM_RUN = ("preset", "seed", "decoder", "loading", "data", "decoding", "units")
"""Settings of a run that its route is studied with."""
_DEFAULT_TASK, _FIRST_SEED = "category", 1
_RUN_OPTIONS = (
    *("model", "seed", "mode", "reasoning_budget", "answer_budget", "data_dir"),
    *("dtype", "device", "quantization"),
)
_OVERRIDES = {
    "task": FlagCustomization(help="A task, or TASK:MODE.", default="the route's own, else category"),
    "model": FlagCustomization(default=f"the route's own, else {DEFAULT_MODEL}"),
    "seed": FlagCustomization(help="Seed of the splits.", default="the route's own, else 1"),
    "mode": FlagCustomization(default="the route's own for its task, else auto"),
}


def _check_route_readable(argument: str) -> str:
    """Reject a mistyped name before the study, and with it torch, is imported."""
    read_route_text(argument)
    return argument


RouteArgument = Annotated[
    str,
    typer.Argument(
        metavar="ROUTE",
        callback=_check_route_readable,
        help="A finished run's folder, a route file, or a route in any notation. The first two know their model, task,"
        " seed and mode.",
    ),
]


@study_command(
    "logit-lens",
    None,
    *("task", *_RUN_OPTIONS, "test"),
    **_OVERRIDES,
    test=FlagCustomization(help="Number of test examples.", value=64, default="64", minimum=2),
)
def logit_lens(call: StudyCommandInputs, route: RouteArgument) -> None:
    """Read the correct answer's first token after every executed step, in the standard pass and on the route.

    The state after a step is read through the model's own norm and head; the standard pass's reasoning is held fixed in
    the context of both.

    Example: `macro study logit-lens 'L0-L17 L17 RJ' --task category --test 64`
    """
    from macro_routing.studies.logit_lens import run_logit_lens

    _run_route_study(call, route, lambda context, subject, _: run_logit_lens(context, subject))


@study_command("cost", CostStudySettings, *_RUN_OPTIONS, **_OVERRIDES)
def cost(call: StudyCommandInputs, route: RouteArgument) -> None:
    """Measure time per item and peak memory of a route and of the standard pass, on this engine.

    Both answer the same items in turns; time per token is shown next to time per item, since a route that generates
    less looks faster than it is.

    Example: `macro study cost 'L0-L17 L17 RJ' --tasks category,sequence`
    """
    from macro_routing.studies.cost import run_route_cost_study

    _run_route_study(call, route, run_route_cost_study)


@study_command("explain", None, *("task", *_RUN_OPTIONS, "test"), **_OVERRIDES)
def explain(call: StudyCommandInputs, route: RouteArgument) -> None:
    """Drop each of a route's deviations in turn and measure what it was worth.

    Says also which examples the route fixes and breaks, and how much of a gain is fewer answers truncated by a budget.

    Example: `macro explain 'L0-L4 L7 L8-L21 L20 RJ' --task category --test 200`
    """
    from macro_routing.studies.explain import ablate_route_deviations

    _run_route_study(call, route, lambda context, subject, _: ablate_route_deviations(context, subject))


@study_command("side-effects", SideEffectsSettings, *_RUN_OPTIONS, "test", **_OVERRIDES)
def side_effects(call: StudyCommandInputs, route: RouteArgument) -> None:
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
    "depth-tradeoff", DepthTradeoffSettings, *("test", "data_dir", "dtype", "device", "quantization"), **_OVERRIDES
)
def depth_tradeoff(
    call: StudyCommandInputs,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run of --method guided or macro.")],
) -> None:
    """Decode a finished search's policy within several limits on the depth: accuracy against cost, from one fit.

    Decoding is exact; the best within each limit is chosen on validation examples and compared with the standard pass
    on the test set. Nothing is searched again.

    Example: `macro study depth-tradeoff runs/category --depths 0.9,1,1.1,1.25`
    """
    from macro_routing.studies.depth_tradeoff import load_policy, run_depth_tradeoff

    policy = load_policy(RunFolder.open(run))

    _run_route_study(
        call, str(run), lambda context, subject, settings: run_depth_tradeoff(context, subject, policy, settings)
    )


def _run_route_study(call: StudyCommandInputs, argument: str, run_study: RunRouteStudy) -> None:
    """Find out what the route brings with it, load its model, and run the study of it."""
    from_route = read_search_settings_of_route(argument)
    known = {"task": _DEFAULT_TASK, "seed": _FIRST_SEED, "preset": "quick", **from_route}
    # How the route's own task was answered is that task's: others are answered as the preset or the user says.
    known["decoding"] = dict(known.get("decoding", {}))
    mode = known["decoding"].pop("mode", None)
    task_flag, mode_flag = call.flags.get("", {}).get("task"), call.flags.get("decoding", {}).get("mode")
    is_own = task_flag is None and mode_flag is None and mode in MODES
    task = TaskWithAnswerMode(known["task"], mode) if is_own else TaskWithAnswerMode.parse(task_flag or known["task"])
    if from_route and task_flag is None:
        _check_task_known(argument, task.task)
        _check_no_own_grader(argument, task.task)
    settings, tasks = call.settings, tuple(getattr(call.settings, "task_names", ()))
    if is_own and tasks:
        tasks = use_searched_answer_mode(tasks, task)
        settings = dataclasses.replace(settings, tasks=tuple(name.name_as_given for name in tasks))
    # What a run searched all its examples with must not be cut short for a study, but by the user.
    base = call.make_shared_run_config(known, task=task.task)
    check_route_without_model(argument, base.model)

    def run_study_on_route(context: "studies.StudyContext") -> "studies.StudyResult":
        route = read_route_or_mixture(argument, context.frozen_model)
        return run_study(
            context, studies.RouteWithSearchedTask(route, task, base.seed, has_source=bool(from_route)), settings
        )

    about_route = {"route": _make_absolute(argument), "task": task.name_with_absolute_path, "seed": base.seed}
    call.run(base, about_route | (settings.to_json() if settings else {}), run_study_on_route, tasks or [task])


def read_search_settings_of_route(argument: str) -> dict[str, Any]:
    """What a run's folder or a route file says about how its route was searched; nothing for a plain route."""
    header = Path(argument) / RUN
    try:
        header_contents = json.loads(header.read_text(encoding="utf-8"))
        given = header_contents["config"]["given"]
        # Runs of other versions have fewer.
        known = {name: given[name] for name in ("task", "model", *(name for name in _KEPT_FROM_RUN if name in given))}
        # A folder may come from somebody else; code that comes with a model is for this call to allow.
        loading = {name: value for name, value in known.get("loading", {}).items() if name != "trust_remote_code"}
        if known.get("preset") == "paper":  # runs of other versions did not share test sets
            test_seed = header_contents["config"]["resolved"]["data"].get("test_seed")
            known["data"] = {**known.get("data", {}), "test_seed": test_seed}
        return known | {"loading": loading}
    except OSError:
        pass  # no run's folder
    except (ValueError, KeyError, TypeError):
        raise MacroError(f"{header} is damaged; name the route file in that folder, or the route, instead") from None
    text = read_route_text(argument)
    if not is_route_file_text(text):
        return {}
    file = parse_route_file(text.lstrip("\ufeff"))
    fields = {field.name for field in dataclasses.fields(DecodingSettings)}
    decoding = {name: value for name, value in file.decoding.items() if name in fields}
    seed, test_seed = (file.found_by.get(name) for name in ("seed", "test_seed"))
    return {
        "task": file.task,
        "model": file.model,
        **({"seed": seed} if isinstance(seed, int) else {}),
        **({"data": {"test_seed": test_seed}} if isinstance(test_seed, int) else {}),
        **({"decoding": decoding} if decoding else {}),
    }


def use_searched_answer_mode(
    tasks: Sequence[TaskWithAnswerMode], own: TaskWithAnswerMode
) -> tuple[TaskWithAnswerMode, ...]:
    """Where the route's own task is named without a way to answer, the way it was searched with."""
    plain = dataclasses.replace(own, mode=None).name_with_absolute_path
    named = tuple(own if task.name_with_absolute_path == plain else task for task in tasks)
    check_distinct_tasks(named)
    return named


def _check_no_own_grader(argument: str, task: str) -> None:
    """A folder may come from somebody else; code that comes with its task is for this call to allow."""
    from macro_routing.tasks.task_files import find_own_grader

    if grader := find_own_grader(task):
        raise MacroError(f"{argument} needs the grader in {grader}; if you trust that code, add --task {task}")


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
