"""What the commands of ``macro study`` share: their options, and how a study is run, written and printed."""

import functools
import inspect
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from macro_routing import studies
from macro_routing.cli.console import (
    check_and_quiet_model_libraries,
    print_fields,
    print_json,
    print_paragraph,
    print_progress_message,
    print_table,
    read_toml,
)
from macro_routing.cli.progress import make_progress_listener
from macro_routing.cli.run_options import (
    EXECUTION_PANEL,
    OUTPUT_PANEL,
    ConfigOption,
    FlagCustomization,
    FlagTables,
    JsonOption,
    list_declared_parameters,
    make_run_cli_parameters,
    make_run_config,
    make_settings_parameters,
    pop_run_flags,
    pop_settings,
    set_typer_command_parameters,
)
from macro_routing.cli.stopping import show_hint_on_interrupt
from macro_routing.errors import SettingsError
from macro_routing.runs.config import RunConfig
from macro_routing.settings import check_number
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode

if TYPE_CHECKING:
    from macro_routing.studies.tables import Column

RunStudy = Callable[["studies.StudyContext"], "studies.StudyResult"]


def check_minutes_option(minutes: float | None) -> float | None:
    """Reject a limit that is not a positive number before anything is loaded: NaN would never be over."""
    if minutes is not None:
        check_number("--minutes", minutes, minimum=0, exclusive=True)
    return minutes


@dataclass(frozen=True)
class StudyCommandInputs:
    """One call of a study's command: the settings of the study, and what its runs are given."""

    study: str
    settings: Any
    flags: FlagTables
    """Values of the runs' configuration that were given as flags."""
    config: Path | None
    store: Path | None
    minutes: float | None
    out: Path | None
    as_json: bool

    def make_shared_run_config(self, known: Mapping[str, Any] | None = None, **top_level: Any) -> RunConfig:
        """The configuration of all runs of the study; ``known`` is what a route brings with it."""
        flags = {**self.flags, "": {**self.flags.get("", {}), **top_level}}
        # "auto" must not override what a route's own run was given.
        flags["loading"] = {name: value for name, value in flags.get("loading", {}).items() if value != "auto"}
        values = {**(known or {})}
        for name, value in read_toml(self.config).items():
            # A table that sets one thing leaves the others as they were.
            is_table = isinstance(value, dict) and isinstance(values.get(name), dict)
            values[name] = {**values[name], **value} if is_table else value
        return make_run_config(flags, self.config, values)

    def run_searches(
        self,
        run_study: Callable[["studies.StudyContext", Any], "studies.StudyResult"],
        name: str | None = None,
        **top_level: Any,
    ) -> None:
        """Run a study that searches; ``top_level`` are values of its runs."""
        base = self.make_shared_run_config(task=self.settings.task_names[0].task, **top_level)
        tasks = self.settings.study_task_names
        self.run(base, self.settings.to_json(), lambda context: run_study(context, self.settings), tasks, name)

    def run(
        self,
        base: RunConfig,
        settings: Mapping[str, Any],
        run_study: RunStudy,
        tasks: Sequence[TaskWithAnswerMode],
        name: str | None = None,
    ) -> None:
        """Open the study's folder, run what is missing, write and print the result."""
        _check_study_tasks(base, tasks)
        runs = {name: value for name, value in base.to_toml_tables().items() if name not in {"task", "seed"}}
        settings = {**settings, "runs": runs}
        folder = open_study_folder(self.out, self.study, settings, name)
        with (
            folder.lock(),
            make_progress_listener(folder.path, []) as listener,
            show_hint_on_interrupt("the same command continues where it was"),
        ):
            result = run_study(studies.StudyContext(base, folder, listener, self.store, self.minutes))
        write_and_print_study(folder, result, settings, as_json=self.as_json)


def study_command(
    study: str, settings: type | None, *names: str, **overrides: FlagCustomization
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make the command of a study: options of its runs by name, those of its settings, and the common ones."""

    def add_options_to_command(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def call_with_run_flags(**values: Any) -> None:
            check_and_quiet_model_libraries()
            flags = pop_run_flags(names, values)
            common = {name: values.pop(name) for name in ("config", "store", "minutes", "out", "as_json")}
            study_settings = pop_settings(settings, values) if settings else None
            command(StudyCommandInputs(study, study_settings, flags, **common), **values)

        parameters = [
            *make_run_cli_parameters(names, overrides),
            *list_declared_parameters(command, "call"),
            *(make_settings_parameters(settings) if settings else []),
            *_make_common_parameters(study, overrides.get("store", FlagCustomization()).default),
        ]
        set_typer_command_parameters(call_with_run_flags, parameters)
        return call_with_run_flags

    return add_options_to_command


def _make_common_parameters(study: str, store_default: str) -> list[inspect.Parameter]:
    """The options of every study that runs a model."""
    minutes = typer.Option(
        "--minutes",
        help="Begin no further part after N minutes; the same command continues.",
        callback=check_minutes_option,
        rich_help_panel=EXECUTION_PANEL,
    )
    store = typer.Option(
        "--store",
        help="Where scores are kept.",
        show_default=store_default or "the cache folder",
        rich_help_panel=EXECUTION_PANEL,
    )
    hints: dict[str, tuple[Any, Any]] = {
        "config": (ConfigOption, None),
        "store": (Annotated[Path | None, store], None),
        "minutes": (Annotated[float | None, minutes], None),
        "out": (Annotated[Path | None, make_out_option(study)], None),
        "as_json": (JsonOption, False),
    }
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(name, keyword, annotation=hint, default=value) for name, (hint, value) in hints.items()]


def make_out_option(study: str) -> Any:
    """The folder of a study."""
    return typer.Option(
        "--out",
        help="The study's folder.",
        show_default=f"studies/{study}, or {study}.2, …",
        rich_help_panel=OUTPUT_PANEL,
    )


def open_study_folder(
    out: Path | None, study: str, settings: Mapping[str, Any], name: str | None = None
) -> "studies.StudyFolder":
    """The folder that was named, or one for these settings under the study's own name."""
    if out is not None:
        return studies.StudyFolder.open(out, study, settings)
    return studies.StudyFolder.open_free_or_matching(Path("studies") / (name or study), study, settings)


def _check_study_tasks(base: RunConfig, tasks: Sequence[TaskWithAnswerMode]) -> None:
    """Reject a task that there is not, or that cannot be answered as asked, before anything is loaded or searched."""
    from macro_routing.runs.prepare import load_configured_task

    answered: dict[tuple[str, str], TaskWithAnswerMode] = {}
    for task in tasks:
        mode = {} if task.mode is None else {"mode": task.mode}
        config = base.with_changes(task=task.task, decoding={**base.given.get("decoding", {}), **mode})
        decoding = config.resolve_decoding(load_configured_task(config))
        same = answered.setdefault((config.task, decoding.mode), task)
        if same is not task:
            raise SettingsError(f"{same} and {task} are the same task, answered the same way; name it once")


def print_study_table(columns: Sequence["Column"], rows: Sequence[Mapping[str, Any]]) -> None:
    """Print these columns of a study's table."""
    print_table(
        [column.heading for column in columns],
        [[column.format_cell(row) for column in columns] for row in rows],
        left=[column.heading for column in columns if not column.is_number],
        box=None,
        padding=(0, 1, 0, 0),
    )


def write_and_print_study(
    folder: "studies.StudyFolder", result: "studies.StudyResult", settings: Mapping[str, Any], *, as_json: bool
) -> None:
    """Write a study's files and print its result."""
    command = shlex.join(["macro", *sys.argv[1:]])
    data = studies.write_study_result(folder, result, settings, command, print_progress_message)
    if as_json:
        print_json(data)
        return
    print_paragraph(result.headline)
    print_study_table(result.table.columns, result.table.rows)
    for note in result.table.notes:
        print_paragraph(note)
    fields = [("folder", str(folder.path)), ("tables", "; ".join(f"{name}.md, .tex, .csv" for name in result.tables))]
    if result.figures:
        fields.append(("pictures", "; ".join(name for name in data["pictures"] if name.endswith(".svg"))))
    print_fields(fields)
