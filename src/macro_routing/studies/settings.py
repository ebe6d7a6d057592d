"""Options of the studies, one frozen dataclass each.

Flags of the commands, their help and the settings in ``study.json`` derive from the fields. Options of the runs
themselves (model, preset, budgets …) are in ``macro_routing.runs.config``.
"""

import dataclasses
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from macro_routing.errors import SettingsError
from macro_routing.settings import check_integer, check_number, option
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode, parse_task_names

PANEL = "Study"
_TASK_FIELDS = ("tasks", "out_of_domain")
_TASKS_HELP = "Tasks, separated by commas; TASK:MODE sets how one is answered, such as gsm8k:reasoning."
_SEEDS_HELP = "Seeds, separated by commas."
_SEED_HELP = "Seed of the splits and draws."
Value = float | int | str | bool
"""A value of a setting that is swept."""


@dataclass(frozen=True)
class StudySettings:
    """Base of the settings of studies that name tasks."""

    tasks: tuple[str, ...] = option(("category",), _TASKS_HELP, PANEL)

    def __post_init__(self) -> None:
        """Reject a list of tasks that is empty or names one twice."""
        parse_task_names(self.tasks)

    @property
    def task_names(self) -> tuple[TaskWithAnswerMode, ...]:
        """The tasks, parsed."""
        return parse_task_names(self.tasks)

    @property
    def study_task_names(self) -> tuple[TaskWithAnswerMode, ...]:
        """Every task that the study answers."""
        return self.task_names

    def to_json(self) -> dict[str, Any]:
        """The settings as study.json keeps them: tasks and files by absolute path, lists instead of tuples."""
        return {
            field.name: _setting_to_json(field.name, getattr(self, field.name)) for field in dataclasses.fields(self)
        }


def _setting_to_json(name: str, value: Any) -> Any:
    if name in _TASK_FIELDS:
        return [TaskWithAnswerMode.parse(text).name_with_absolute_path for text in value]
    if isinstance(value, Path):
        return str(value.resolve())
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True)
class AblationSettings(StudySettings):
    """Options of ``macro study ablation``."""

    seeds: tuple[int, ...] = option((1, 2), _SEEDS_HELP, PANEL)

    def __post_init__(self) -> None:
        """Reject impossible values."""
        super().__post_init__()
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            seeds = ",".join(map(str, self.seeds))
            raise SettingsError(f"--seeds {seeds} is not allowed: name one or more, each once")


@dataclass(frozen=True, kw_only=True)
class HyperparameterSweepSettings(AblationSettings):
    """Options of ``macro study sweep``."""

    setting: str = option(MISSING, "A setting of the search, its space or its data: beta, elite, radius …", PANEL)
    values: tuple[Value, ...] = option(MISSING, "Values, separated by commas; the default is always among them.", PANEL)

    def __post_init__(self) -> None:
        """Reject impossible values."""
        super().__post_init__()
        if not self.values:
            raise SettingsError("--values is empty; give one or more values, separated by commas")


@dataclass(frozen=True)
class MainTableSettings(AblationSettings):
    """Options of ``macro study main-table``."""

    tasks: tuple[str, ...] = option(("category", "sequence"), _TASKS_HELP, PANEL)
    models: tuple[str, ...] = option(("smollm2-135m",), "Models, separated by commas.", PANEL)
    methods: tuple[str, ...] = option(("macro", "random"), "Methods, separated by commas.", PANEL)


@dataclass(frozen=True)
class TransferSettings(StudySettings):
    """Options of ``macro study transfer``."""

    tasks: tuple[str, ...] = option(("category", "sequence"), _TASKS_HELP, PANEL)
    seed: int = option(1, _SEED_HELP, PANEL)


@dataclass(frozen=True)
class OneRouteForAllTasksSettings(TransferSettings):
    """Options of ``macro study one-route``."""

    out_of_domain: tuple[str, ...] = option(
        ("arithmetic",), "Tasks that the route is only tested on, separated by commas.", PANEL
    )

    def __post_init__(self) -> None:
        """Reject a task that is in both lists."""
        super().__post_init__()
        shared = {str(task) for task in self.task_names} & {str(task) for task in self.out_of_domain_names}
        if shared:
            raise SettingsError(f"{', '.join(sorted(shared))} cannot be in domain and out of domain at once")

    @property
    def out_of_domain_names(self) -> tuple[TaskWithAnswerMode, ...]:
        """The tasks that the route is only tested on, parsed."""
        return parse_task_names(self.out_of_domain) if self.out_of_domain else ()

    @property
    def study_task_names(self) -> tuple[TaskWithAnswerMode, ...]:
        """Every task that the study answers."""
        return (*self.task_names, *self.out_of_domain_names)


@dataclass(frozen=True)
class CostStudySettings(StudySettings):
    """Options of ``macro study cost``."""

    tasks: tuple[str, ...] = option((), _TASKS_HELP, PANEL, shown_default="the route's own, else category")
    items: int = option(64, "Test items per task.", PANEL)
    repeats: int = option(3, "Timed repeats of each arm, after one that is not timed.", PANEL)

    def __post_init__(self) -> None:
        """Reject impossible values."""
        if self.tasks:
            super().__post_init__()
        check_integer("--items", self.items, minimum=1)
        check_integer("--repeats", self.repeats, minimum=1)

    @property
    def task_names(self) -> tuple[TaskWithAnswerMode, ...]:
        """The tasks, parsed; empty for the route's own."""
        return parse_task_names(self.tasks) if self.tasks else ()


@dataclass(frozen=True)
class SideEffectsSettings(StudySettings):
    """Options of ``macro study side-effects``."""

    tasks: tuple[str, ...] = option(("category", "sequence"), _TASKS_HELP, PANEL)
    text: Path | None = option(  # noqa: RUF009 it makes a field
        None, "A text file for perplexity.", PANEL, shown_default="the tasks' own questions"
    )
    windows: int = option(200, "Maximum number of windows of 256 tokens that are read of it.", PANEL)

    def __post_init__(self) -> None:
        """Reject impossible values."""
        super().__post_init__()
        check_integer("--windows", self.windows, minimum=2)


@dataclass(frozen=True)
class DepthTradeoffSettings:
    """Options of ``macro study depth-tradeoff``."""

    depths: tuple[float, ...] = option(
        (0.9, 1.0, 1.1, 1.25), "Limits on the route's length, in depths of the model, separated by commas.", PANEL
    )
    k: int = option(5, "Routes decoded within each limit.", PANEL)

    def __post_init__(self) -> None:
        """Reject impossible values."""
        if not self.depths:
            raise SettingsError("--depths is empty; give numbers up to 10, separated by commas, such as 0.9,1,1.25")
        for depth in self.depths:
            check_number("--depths", depth, minimum=0, maximum=10, exclusive=True)
        check_integer("--k", self.k, minimum=1, maximum=1000)

    def to_json(self) -> dict[str, Any]:
        """The settings as study.json keeps them."""
        return {"depths": sorted(set(self.depths)), "k": self.k}
