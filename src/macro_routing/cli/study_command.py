"""What the commands of ``macro study`` share: their options, and how a study is run, written and printed."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from macro_routing.cli import options
from macro_routing.cli.console import print_fields, print_json, read_text_argument, read_toml
from macro_routing.cli.run_options import (
    EXECUTION_PANEL,
    OUTPUT_PANEL,
    ConfigOption,
    JsonOption,
    Shown,
    Tables,
    make_run_config,
    settings_parameters,
    take_settings,
    with_run_options,
)
from macro_routing.errors import MacroError, SettingsError
from macro_routing.routes.route_file import is_route_file, parse_route_file
from macro_routing.settings import check_number

if TYPE_CHECKING:
    from macro_routing.runs.config import RunConfig
    from macro_routing.studies.context import StudyContext
    from macro_routing.studies.folder import StudyFolder
    from macro_routing.studies.study_result import StudyResult
    from macro_routing.studies.task_names import TaskName


def check_minutes(minutes: float | None) -> float | None:
    """Reject a limit that is not a positive number before anything is loaded: NaN would never be over."""
    if minutes is not None:
        check_number("--minutes", minutes, minimum=0, exclusive=True)
    return minutes


@dataclass(frozen=True)
class StudyCall:
    """One call of a study's command: the settings of the study, and what its runs are given."""

    study: str
    settings: Any
    flags: Tables
    """Values of the runs' configuration that were given as flags."""
    config: Path | None
    store: Path | None
    minutes: float | None
    out: Path | None
    as_json: bool

    def make_base_config(self, known: Mapping[str, Any] | None = None, **top_level: Any) -> RunConfig:
        """The configuration of all runs of the study; ``known`` is what a route brings with it."""
        flags = {**self.flags, "": {**self.flags.get("", {}), **top_level}}
        # "auto" must not override what a route's own run was given.
        flags["loading"] = {name: value for name, value in flags.get("loading", {}).items() if value != "auto"}
        file = read_toml(self.config) if self.config else {}
        return make_run_config(flags, self.config, _merge_tables(known or {}, file))

    def run_searches(
        self, make: Callable[[StudyContext, Any], StudyResult], name: str | None = None, **top: Any
    ) -> None:
        """Run a study that searches; ``top`` are top-level values of its runs."""
        base = self.make_base_config(task=self.settings.task_names[0].task, **top)
        tasks = self.settings.all_task_names
        self.run(base, self.settings.to_json(), lambda context: make(context, self.settings), tasks, name)

    def run(
        self,
        base: RunConfig,
        settings: Mapping[str, Any],
        make: Callable[[StudyContext], StudyResult],
        tasks: Sequence[TaskName],
        name: str | None = None,
    ) -> None:
        """Open the study's folder, run what is missing, write and print the result."""
        from macro_routing.cli.progress import make_listener
        from macro_routing.cli.stopping import stop_with_hint
        from macro_routing.studies.context import StudyContext

        check_tasks(base, tasks)
        runs = {name: value for name, value in base.to_tables().items() if name not in {"task", "seed"}}
        settings = {**settings, "runs": runs}
        folder = open_study_folder(self.out, self.study, settings, name)
        with (
            folder.lock(),
            make_listener(folder.path, []) as listener,
            stop_with_hint("the same command goes on where it was"),
        ):
            result = make(StudyContext(base, folder, listener, self.store, self.minutes))
        write_and_print_study(folder, result, settings, as_json=self.as_json)


def study_command(
    study: str, settings: type | None, *names: str, **shown: Shown
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make the command of a study: options of its runs by name, those of its settings, and the common ones."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [one for one in inspect.signature(command, eval_str=True).parameters.values() if one.name != "call"]

        def run(flags: Tables, **values: Any) -> None:
            options.require_models_extra()
            options.quiet_libraries()
            common = {name: values.pop(name) for name in ("config", "store", "minutes", "out", "as_json")}
            command(StudyCall(study, take_settings(settings, values) if settings else None, flags, **common), **values)

        flags = inspect.Parameter("flags", inspect.Parameter.KEYWORD_ONLY, annotation=Any)
        generated = settings_parameters(settings) if settings else []
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                flags,
                *(one.replace(kind=one.KEYWORD_ONLY) for one in own),
                *generated,
                *_common_parameters(study, shown.get("store", Shown()).default),
            ]
        )
        with_options = with_run_options(*names, **shown)(functools.update_wrapper(run, command, updated=()))
        with_options.__doc__ = command.__doc__
        return with_options

    return decorate


def _common_parameters(study: str, store_default: str) -> list[inspect.Parameter]:
    """The options of every study that runs a model."""
    minutes = typer.Option(
        "--minutes",
        help="Begin no further part after N minutes; the same command goes on.",
        callback=check_minutes,
        rich_help_panel=EXECUTION_PANEL,
    )
    kept = typer.Option(
        "--store",
        help="Where scores are kept.",
        show_default=store_default or "the cache folder",
        rich_help_panel=EXECUTION_PANEL,
    )
    hints: dict[str, tuple[Any, Any]] = {
        "config": (ConfigOption, None),
        "store": (Annotated[Path | None, kept], None),
        "minutes": (Annotated[float | None, minutes], None),
        "out": (Annotated[Path | None, out_option(study)], None),
        "as_json": (JsonOption, False),
    }
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(name, keyword, annotation=hint, default=value) for name, (hint, value) in hints.items()]


def out_option(study: str) -> Any:
    """The folder of a study."""
    return typer.Option(
        "--out",
        help="The study's folder.",
        show_default=f"studies/{study}, or {study}.2, …",
        rich_help_panel=OUTPUT_PANEL,
    )


def open_study_folder(
    out: Path | None, study: str, settings: Mapping[str, Any], name: str | None = None
) -> StudyFolder:
    """The folder that was named, or one for these settings under the study's own name."""
    from macro_routing.studies.folder import StudyFolder

    if out is not None:
        return StudyFolder.open(out, study, settings)
    return StudyFolder.open_first_free(Path("studies") / (name or study), study, settings)


def _merge_tables(known: Mapping[str, Any], file: Mapping[str, Any]) -> dict[str, Any]:
    """A file's settings over known ones, key by key: a table that sets one thing leaves the others as they were."""
    return {
        **known,
        **{
            name: {**known[name], **value} if isinstance(value, dict) and isinstance(known.get(name), dict) else value
            for name, value in file.items()
        },
    }


_MAX_WIDTH = 10_000
"""Maximum characters of a table's line."""
_KEPT_FROM_RUN = ("preset", "seed", "decoder", "loading", "data", "decoding", "units")
"""Settings of a run that its route is studied with."""


def read_route_settings(argument: str) -> dict[str, Any]:
    """What a run's folder or a route file says about how its route was searched; nothing for a plain route."""
    header = Path(argument) / "run.json"
    try:
        given = dict(json.loads(header.read_text(encoding="utf-8"))["config"]["given"])
        needed = {name: given[name] for name in ("task", "model")}
        return needed | {
            name: given[name] for name in _KEPT_FROM_RUN if name in given
        }  # runs of other versions have fewer
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


def check_tasks(base: RunConfig, tasks: Sequence[TaskName]) -> None:
    """Reject a task that there is not, or that cannot be answered as asked, before anything is loaded or searched."""
    from macro_routing.runs.prepare import load_configured_task

    answered: dict[tuple[str, str], TaskName] = {}
    for one in tasks:
        mode = {} if one.mode is None else {"mode": one.mode}
        config = base.with_changes(task=one.task, decoding={**base.given.get("decoding", {}), **mode})
        decoding = config.resolve_decoding(load_configured_task(config))
        same = answered.setdefault((config.task, decoding.mode), one)
        if same is not one:
            raise SettingsError(f"{same} and {one} are the same task, answered the same way; name it once")


def write_and_print_study(
    folder: StudyFolder, found: StudyResult, settings: Mapping[str, Any], *, as_json: bool
) -> None:
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
        shown.add_row(*(escape(column.format_cell(row)) for column in table.columns))
    # Tables are wider than a terminal of eighty signs: lines that wrap are read more easily than words cut to pieces.
    console = Console(width=_MAX_WIDTH)
    print_width = Measurement.get(console, console.options, shown).maximum
    Console(width=max(Console().width, print_width)).print(shown)
    for note in table.notes:
        print(note)
    files = [f"{name}.md, .tex, .csv" for name in found.tables]
    drawn = (
        [("pictures", "; ".join(name for name in data["pictures"] if name.endswith(".svg")))] if found.figures else []
    )
    print_fields([("folder", str(folder.path)), ("tables", "; ".join(files)), *drawn])
