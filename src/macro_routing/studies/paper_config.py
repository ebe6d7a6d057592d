"""The whole paper as one configuration: its models, and what every table and figure needs."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from macro_routing.errors import SettingsError, shorten_value
from macro_routing.models.load_options import LoadOptions
from macro_routing.report.formatting import shorten_model_name
from macro_routing.runs.config import RunConfig, make_run_config
from macro_routing.runs.methods import MACRO, METHODS, check_requested_methods_comparable
from macro_routing.runs.presets import PAPER
from macro_routing.search.method_names import CONTRASTIVE
from macro_routing.settings import build_settings, check_choice, check_integer, check_known_keys, check_number
from macro_routing.studies.folder import make_file_name
from macro_routing.studies.settings import (
    AblationSettings,
    CostStudySettings,
    HyperparameterSweepSettings,
    MainTableSettings,
    OneRouteForAllTasksSettings,
    StudySettings,
    TransferSettings,
)
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode, parse_task_names
from macro_routing.tasks.catalog import list_task_names

MAIN_TABLE, COMPOSITION, COST, LOGIT_LENS = "main-table", "composition", "cost", "logit-lens"
ONE_ROUTE = "one-route"


@dataclass(frozen=True)
class LogitLensSettings(StudySettings):
    """Of a logit lens on found routes."""

    items: int = 64
    """Test examples per task."""


SETTINGS: dict[str, type] = {
    MAIN_TABLE: MainTableSettings,
    "ablation": AblationSettings,
    "sweep": HyperparameterSweepSettings,
    ONE_ROUTE: OneRouteForAllTasksSettings,
    "transfer": TransferSettings,
    LOGIT_LENS: LogitLensSettings,
    COST: CostStudySettings,
    COMPOSITION: StudySettings,
}
"""Studies that the paper can be composed of."""
USES_ROUTES = (COST, LOGIT_LENS, COMPOSITION)
"""Studies of routes that a main table has found."""


@dataclass(frozen=True)
class PaperItem:
    """One table or figure."""

    name: str
    study: str
    shows: str
    """The table or figure, as the paper calls it."""
    models: tuple[str, ...]
    seeds: tuple[int, ...]
    settings: Any
    """Of the study."""
    routes_of: tuple[str, ...] = ()
    """The main tables whose routes are used."""


@dataclass(frozen=True)
class Throughput:
    """A recorded speed that times are estimated from."""

    seconds_per_evaluation: float
    parameters: float
    """Billions, of the model that was timed."""

    def __post_init__(self) -> None:
        """Reject what is not a speed."""
        for field in dataclasses.fields(self):
            check_number(field.name, getattr(self, field.name), minimum=0, exclusive=True)


@dataclass(frozen=True)
class PaperConfig:
    """Everything that the paper shows, and how its runs are made."""

    runs: Mapping[str, Any]
    """Settings of every run."""
    models: Mapping[str, Mapping[str, Any]]
    """By name: billions of parameters that a token meets, and how the model is loaded."""
    items: tuple[PaperItem, ...]
    throughput: Throughput | None = None
    model_dir: Path | None = None
    """A folder that holds models by the last part of their names."""
    left_out: tuple[PaperItem, ...] = ()
    """Items that are not run; others may use the routes of these main tables."""

    def make_run_config(self, model: str, task: str, **changes: Any) -> RunConfig:
        """The configuration of a run of one model; methods and seeds are the studies'."""
        loading = {name: value for name, value in self.models[model].items() if name != "parameters"}
        runs = {**self.runs, "loading": {**self.runs.get("loading", {}), **loading}}
        return make_run_config(task, self.find_model(model), **{"preset": PAPER, "method": MACRO, **runs, **changes})

    def find_model(self, model: str) -> str:
        """The model's folder where there is one, else its name."""
        local = self.model_dir / model.rsplit("/", 1)[-1] if self.model_dir else None
        return str(local.resolve()) if local and local.exists() else model

    def select_items(self, names: Sequence[str]) -> "PaperConfig":
        """The same configuration with these items alone, in the file's order; unknown names are rejected."""
        known = tuple(item.name for item in self.items)
        if not names:
            raise SettingsError(f"--items names no item: name one or more of {', '.join(known)}")
        for name in names:
            check_choice("--items", name, known)
        selected, left_out = ([item for item in self.items if (item.name in names) is kept] for kept in (True, False))
        return dataclasses.replace(self, items=tuple(selected), left_out=tuple(left_out))

    def find_tables(self, item: PaperItem) -> list[PaperItem]:
        """The main tables whose routes an item uses, also those that are not run."""
        return [table for table in (*self.items, *self.left_out) if table.name in item.routes_of]


def read_paper_config(values: Mapping[str, Any], model_dir: Path | None = None) -> PaperConfig:
    """Check a configuration and build it; unknown keys and names are rejected."""
    if model_dir is not None and not model_dir.is_dir():
        raise SettingsError(f"--model-dir {model_dir} is not a folder")
    check_known_keys(values, ["tasks", "seeds", "runs", "models", "items", "throughput"], "the configuration")
    models, items = values.get("models"), values.get("items")
    if not isinstance(models, Mapping) or not models or not isinstance(items, Mapping) or not items:
        raise SettingsError("the configuration needs [models] with one or more models and [items] with tables of items")
    for name, model in models.items():
        known = ["parameters", *(field.name for field in dataclasses.fields(LoadOptions))]
        check_known_keys(model, known, f"[models.{name}]")
        check_number(f"parameters of {name}", model.get("parameters"), minimum=0, exclusive=True)
    shared = {name: values[name] for name in ("tasks", "seeds") if name in values}
    built = tuple(_read_item(name, {**shared, **item}, tuple(models)) for name, item in items.items())
    tables = [item.name for item in built if item.study == MAIN_TABLE]
    for item in built:
        if item.study in USES_ROUTES:
            for name in item.routes_of or ("",):
                check_choice(f"routes_of of {item.name}", name, tuple(tables))
    throughput = values.get("throughput")
    speed = build_settings(Throughput, throughput, "[throughput]") if throughput else None
    config = PaperConfig(dict(values.get("runs", {})), models, built, speed, model_dir)
    for item in built:  # what a run would reject is said before anything is loaded
        for model in item.models:
            config.make_run_config(model, item.settings.task_names[0].task)
    return config


def _read_item(name: str, values: Mapping[str, Any], known_models: Sequence[str]) -> PaperItem:
    """One item; lists become tuples, and what is not said is the study's default."""
    if name != make_file_name(name):
        raise SettingsError(f"[items.{name}]: the name is a folder's, so it may have letters, digits, '-' and '_' only")
    settings: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
    }
    study, shows = settings.pop("study", name), settings.pop("shows", "")
    check_choice(f"study of {name}", study, tuple(SETTINGS))
    models, routes_of = settings.pop("models", tuple(known_models)), settings.pop("routes_of", ())
    for model in models:
        check_choice(f"models of {name}", model, tuple(known_models))
    kind = SETTINGS[study]
    known = [field.name for field in dataclasses.fields(kind)]
    check_known_keys(settings, [*known, "seeds"], f"[items.{name}]")
    seeds = _check_seeds(name, settings.get("seeds", (1,)))
    if "seeds" not in known:
        settings.pop("seeds", None)
    if study == MAIN_TABLE:
        settings["models"] = models
        _check_methods(name, settings.get("methods", ()), seeds)
    built: Any = build_settings(kind, settings, f"[items.{name}]")
    for task in parse_task_names(built.tasks):
        if not Path(task.task).suffix:  # a file may be on another machine
            check_choice(f"tasks of {name}", task.task, tuple(list_task_names()))
    return PaperItem(name, study, str(shows), tuple(models), tuple(seeds), built, _make_names(routes_of))


def _make_names(value: Any) -> tuple[Any, ...]:
    """One name or several."""
    return value if isinstance(value, tuple) else (value,)


def _check_seeds(name: str, seeds: Any) -> tuple[int, ...]:
    if not isinstance(seeds, tuple):
        raise SettingsError(f"seeds of {name} = {shorten_value(seeds)} is not allowed: write a list, such as [1, 2]")
    for seed in seeds:
        check_integer(f"seeds of {name}", seed, minimum=0)
    return seeds


def _check_methods(name: str, methods: Any, seeds: Sequence[int]) -> None:
    check_requested_methods_comparable(methods, seeds)
    if CONTRASTIVE in methods:
        raise SettingsError(f"methods of {name}: {CONTRASTIVE} needs a smaller model; compare it with macro compare")


@dataclass(frozen=True)
class PaperUnit:
    """What one machine does at once; what it does not depend on is empty."""

    item: PaperItem
    model: str
    task: str = ""
    seed: int | None = None
    method: str = ""

    @property
    def name(self) -> str:
        """A name of its own, for files and messages."""
        task = str(self.parsed_task) if self.task else ""  # of a file its name: its place is another machine's
        parts = (self.item.name, shorten_model_name(self.model), task, self.method, self.seed)
        return make_file_name("--".join(str(part) for part in parts if part not in ("", None)))

    @property
    def parsed_task(self) -> TaskWithAnswerMode:
        """The task of a unit that has one."""
        return TaskWithAnswerMode.parse(self.task)


def list_units(config: PaperConfig) -> list[PaperUnit]:
    """All units in the configuration's order; within an item those of one model follow each other."""
    return [unit for item in config.items for unit in list_units_of_item(item)]


def list_units_of_item(item: PaperItem) -> Iterator[PaperUnit]:
    """An item's units."""
    if item.study == COMPOSITION:  # it runs nothing
        return
    for model in item.models:
        if item.study == MAIN_TABLE:
            for seed in item.seeds:
                for task in item.settings.tasks:
                    yield from (PaperUnit(item, model, task, seed, method) for method in item.settings.methods)
        elif item.study in (COST, LOGIT_LENS):
            yield from (PaperUnit(item, model, task, item.seeds[0]) for task in item.settings.tasks)
        elif hasattr(item.settings, "seed"):
            yield from (PaperUnit(item, model, seed=seed) for seed in item.seeds)
        else:
            yield PaperUnit(item, model)


def is_router(method: str) -> bool:
    """Whether a method gives every prompt its own route."""
    return METHODS[method].kind == "router"
