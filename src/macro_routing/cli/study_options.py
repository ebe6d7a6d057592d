"""What the studies' commands share: their options, and how a study is opened, run, written and printed."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from macro_routing.cli import options
from macro_routing.cli.console import print_fields, print_json, read_text_argument
from macro_routing.cli.search import Preset, SearchMode, make_config
from macro_routing.errors import MacroError, SettingsError
from macro_routing.routes.route_file import is_route_file, parse_route_file
from macro_routing.settings import check_number

if TYPE_CHECKING:
    from macro_routing.runs.config import RunConfig
    from macro_routing.studies.context import StudyContext
    from macro_routing.studies.folder import StudyFolder
    from macro_routing.studies.study_result import StudyResult
    from macro_routing.studies.task_names import TaskName

DEFAULT_TASK, TWO_TASKS = "category", "category,sequence"
TASKS_HELP = "Tasks, with commas; TASK:MODE sets how one is answered, such as gsm8k:reasoning."

TasksOption = Annotated[str, typer.Option("--tasks", help=TASKS_HELP)]
SeedsOption = Annotated[str, typer.Option("--seeds", help="Seeds, with commas.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of splits and draws.")]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", help="A built-in name, a folder, a .gguf file or a hub id.", show_default="smollm2-135m"),
]
PresetOption = Annotated[Preset, typer.Option("--preset", help="Settings of the searches by name.")]
ModeOption = Annotated[
    SearchMode | None, typer.Option("--mode", help="How the model answers.", show_default="auto, or the preset's")
]
RouteModeOption = Annotated[
    SearchMode | None,
    typer.Option("--mode", help="How the model answers.", show_default="the route's own for its task, else auto"),
]
ReasoningOption = Annotated[
    int | None, typer.Option("--reasoning-budget", help="Most tokens of reasoning.", show_default="400")
]
AnswerOption = Annotated[
    int | None, typer.Option("--answer-budget", help="Most tokens of the answer.", show_default="128")
]
TrainingOption = Annotated[
    int | None, typer.Option("--training", help="Training examples.", show_default="the preset's")
]
ValidationOption = Annotated[
    int | None, typer.Option("--validation", help="Validation examples.", show_default="the preset's")
]
TestOption = Annotated[
    int | None,
    typer.Option("--test", help="Use only the first so many test examples.", show_default="the preset's, or all"),
]
IterationsOption = Annotated[
    int | None, typer.Option("--iterations", help="Rounds of a search.", show_default="the preset's")
]
DrawsOption = Annotated[int | None, typer.Option("--draws", help="Draws per round.", show_default="the preset's")]
EliteOption = Annotated[
    int | None, typer.Option("--elite", help="How many move the policy.", show_default="the preset's")
]
DataOption = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Folder with the benchmarks' files; else MACRO_DATA_DIR, else the hub."),
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="A TOML file with settings of the runs; flags go before it.")
]
StoreOption = Annotated[
    Path | None, typer.Option("--store", help="Where scores are kept.", show_default="the cache folder")
]
OwnStoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store", help="Where scores are kept.", show_default="one for each method and seed, so times are fair"
    ),
]


def checked_minutes(minutes: float | None) -> float | None:
    """Refuse a limit that is none, before anything is loaded: NaN would never be over."""
    if minutes is not None:
        check_number("--minutes", minutes, minimum=0, exclusive=True)
    return minutes


MinutesOption = Annotated[
    float | None,
    typer.Option(
        "--minutes", help="Begin no further part after so many; the same command goes on.", callback=checked_minutes
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RouteArgument = Annotated[
    str,
    typer.Argument(
        metavar="ROUTE",
        help="A finished run's folder, a route file, or a route in any notation. The first two know their model, task,"
        " seed and way to answer.",
    ),
]


def out_option(study: str) -> Any:
    """The folder of a study."""
    return typer.Option("--out", help="The study's folder.", show_default=f"studies/{study}, or {study}.2, …")


def folder_of(out: Path | None, study: str, settings: Mapping[str, Any], name: str | None = None) -> StudyFolder:
    """The folder that was named, or one for these settings under the study's own name."""
    from macro_routing.studies.folder import StudyFolder

    if out is not None:
        return StudyFolder.opened(out, study, settings)
    return StudyFolder.among(Path("studies") / (name or study), study, settings)


def names_of(text: str) -> list[str]:
    """Names with commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def seeds_of(text: str) -> list[int]:
    """Whole numbers with commas, each once."""
    try:
        found = [int(seed) for seed in names_of(text)]
    except ValueError:
        found = []
    if not found or len(set(found)) < len(found):
        raise SettingsError(f"--seeds {text} is not allowed: whole numbers with commas, each once, such as 1,2,42")
    return found


def depths_of(text: str) -> list[float]:
    """Limits on the length as shares of the model's depth, with commas."""
    try:
        found = [float(depth) for depth in names_of(text)]
    except ValueError:
        found = []
    if not found or not all(0 < depth <= 10 for depth in found):
        raise SettingsError(f"--depths {text} is not allowed: numbers up to 10 with commas, such as 0.9,1,1.25")
    return sorted(set(found))


def base_config(
    values: dict[str, Any], config: Path | None, *, known: Mapping[str, Any] | None = None, method: str | None = None
) -> RunConfig:
    """The settings of all runs of a study from a command's flags; ``known`` are those a route brings with it."""
    tables = {
        "decoding": ("mode", "reasoning_budget", "answer_budget"),
        "data": ("training", "validation", "test", "data_dir"),
        "search": ("iterations", "draws", "elite", "k"),
        "loading": ("dtype", "device", "quantization"),
    }
    flags: dict[str, dict[str, Any]] = {
        "": {name: values.get(name) for name in ("task", "model", "preset", "seed", "budget")} | {"method": method},
        **{table: {name: values.get(name) for name in names} for table, names in tables.items()},
    }
    for table in flags.values():
        for name, value in table.items():
            table[name] = getattr(value, "value", str(value) if isinstance(value, Path) else value)
    # What was left to choose itself must not go before what a route's own run was told.
    flags["loading"] = {name: None if value == "auto" else value for name, value in flags["loading"].items()}
    if config is None:
        return make_config(flags, None, dict(known or {}))
    from macro_routing.cli.console import read_toml

    return make_config(flags, config, _laid_over(known or {}, read_toml(config)))


def _laid_over(known: Mapping[str, Any], file: Mapping[str, Any]) -> dict[str, Any]:
    """A file's settings over known ones, key by key: a table that sets one thing leaves the others as they were."""
    return {
        **known,
        **{
            name: {**known[name], **value} if isinstance(value, dict) and isinstance(known.get(name), dict) else value
            for name, value in file.items()
        },
    }


_WIDEST = 10_000
"""Signs of a table's line at most."""
_OF_A_RUN = ("preset", "seed", "decoder", "loading", "data", "decoding", "units")
"""Settings of a run that its route is studied with."""


def known_of_route(argument: str) -> dict[str, Any]:
    """What a run's folder or a route file says about how its route was searched; nothing for a plain route."""
    header = Path(argument) / "run.json"
    try:
        given = dict(json.loads(header.read_text(encoding="utf-8"))["config"]["given"])
        needed = {name: given[name] for name in ("task", "model")}
        return needed | {name: given[name] for name in _OF_A_RUN if name in given}  # runs of other versions have fewer
    except OSError:
        pass  # no run's folder
    except (ValueError, KeyError, TypeError):
        raise MacroError(f"{header} is damaged; name the route file in that folder, or the route, instead") from None
    text = read_text_argument(argument)
    if not is_route_file(text):
        return {}
    found = parse_route_file(text.lstrip("\ufeff"))
    from macro_routing.evaluation.decoding_settings import DecodingSettings

    ways = {field.name for field in dataclasses.fields(DecodingSettings)}
    decoding = {name: value for name, value in found.decoding.items() if name in ways}
    seed = found.found_by.get("seed")
    return {
        "task": found.task,
        "model": found.model,
        **({"seed": seed} if isinstance(seed, int) else {}),
        **({"decoding": decoding} if decoding else {}),
    }


def run_study(
    study: str,
    out: Path | None,
    base: RunConfig,
    own: Mapping[str, Any],
    make: Callable[[StudyContext], StudyResult],
    *,
    tasks: Sequence[TaskName],
    store: Path | None,
    minutes: float | None,
    as_json: bool,
    name: str | None = None,
) -> None:
    """Open the study's folder, run what is missing, write and print what came out; ``own`` are its own settings."""
    from macro_routing.cli.progress import listener_for
    from macro_routing.cli.stopping import stopping_with
    from macro_routing.studies.context import StudyContext

    check_tasks(base, tasks)
    settings = {**own, "runs": {name: value for name, value in base.given().items() if name not in {"task", "seed"}}}
    folder = folder_of(out, study, settings, name)
    with (
        folder.held(),
        listener_for(folder.path, []) as listener,
        stopping_with("the same command goes on where it was"),
    ):
        found = make(StudyContext(base, folder, listener, store, minutes))
    finish(folder, found, settings, as_json=as_json)


def check_tasks(base: RunConfig, tasks: Sequence[TaskName]) -> None:
    """Refuse a task that there is not, or that cannot be answered as asked, before anything is loaded or searched."""
    from macro_routing.runs.prepare import load_configured_task

    answered: dict[tuple[str, str], TaskName] = {}
    for one in tasks:
        mode = {} if one.mode is None else {"mode": one.mode}
        config = dataclasses.replace(base, task=one.task, decoding={**base.decoding, **mode})
        decoding = config.decoding_for(load_configured_task(config))
        same = answered.setdefault((config.task, decoding.mode), one)
        if same is not one:
            raise SettingsError(f"{same} and {one} are the same task, answered the same way; name it once")


def finish(folder: StudyFolder, found: StudyResult, settings: Mapping[str, Any], *, as_json: bool) -> None:
    """Write a study's files and print its result."""
    from macro_routing.studies.study_result import write_study_result

    command = shlex.join(["macro", *sys.argv[1:]])
    data = write_study_result(folder, found, settings, command, options.report_progress)
    if as_json:
        print_json(data)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.measure import Measurement
    from rich.table import Table

    print(found.headline)
    table = found.table
    shown = Table(box=None, padding=(0, 1, 0, 0))
    for column in table.columns:
        justify: Any = "right" if column.is_number else "left"
        shown.add_column(escape(column.heading), justify=justify, no_wrap=True)
    for row in table.rows:
        shown.add_row(*(escape(column.show(row)) for column in table.columns))
    # Tables are wider than a terminal of eighty signs: lines that wrap are read more easily than words cut to pieces.
    console = Console(width=_WIDEST)
    print_width = Measurement.get(console, console.options, shown).maximum
    Console(width=max(Console().width, print_width)).print(shown)
    for note in table.notes:
        print(note)
    files = [f"{name}.md, .tex, .csv" for name in found.tables]
    drawn = (
        [("pictures", "; ".join(name for name in data["pictures"] if name.endswith(".svg")))] if found.figures else []
    )
    print_fields([("folder", str(folder.path)), ("tables", "; ".join(files)), *drawn])


def begin() -> None:
    """What every study that runs a model does first."""
    options.need_models_extra()
    options.quiet_libraries()
