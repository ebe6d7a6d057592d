"""What a run is asked to do: model, task, search, budgets, seed; from flags, a TOML file or Python.

A configuration is a few top-level values and tables, each table one settings class of the project. A preset fills in
what was not given; some of its values depend on the model and are resolved when it is known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from macro_routing.engine.decoders import AUTO, DECODERS
from macro_routing.errors import SettingsError, suggestion
from macro_routing.evaluation.decoding_settings import DecodingSettings, default_answer_mode
from macro_routing.evaluation.racing import EXACT, RACING_MODES
from macro_routing.evaluation.work_units import UnitSizes
from macro_routing.models.catalog import BUILT_IN_MODELS, DEFAULT_MODEL
from macro_routing.models.frozen import FrozenModel, LoadOptions
from macro_routing.models.support import get_text_config
from macro_routing.routes.space import RouteSpace
from macro_routing.runs.methods import GUIDED, MACRO, MAX_EVALUATIONS, METHODS, Search, make_search_settings
from macro_routing.search.random_streams import check_seed
from macro_routing.search.searcher import SearchPlan
from macro_routing.settings import build_settings, check_choice, check_integer, check_number
from macro_routing.tasks.catalog import list_task_names
from macro_routing.tasks.prompts import DIRECT, LIKELIHOOD
from macro_routing.tasks.task import CHOICE, Task


@dataclass(frozen=True)
class DataSettings:
    """Where examples come from and how many are used."""

    data_dir: str | None = None
    """Folder with the benchmarks' files; else MACRO_DATA_DIR, else the hub."""
    question: str = "question"
    """Column of the question, for a data file of the user's own; so are the next three."""
    answer: str = "answer"
    choices: str = ""
    kind: str | None = None
    training: int = 1000
    validation: int = 200
    test: int | None = None
    """Use only the first so many test items."""

    def __post_init__(self) -> None:
        """Refuse impossible sizes and names."""
        for name in ("data_dir", "question", "answer", "choices", "kind"):
            if not isinstance(getattr(self, name), str | None):
                raise SettingsError(f"{name} = {getattr(self, name)!r} is not allowed: it must be a text")
        check_integer("training", self.training, minimum=1)
        check_integer("validation", self.validation, minimum=1)
        if self.test is not None:
            check_integer("test", self.test, minimum=1)


@dataclass(frozen=True)
class GuardSettings:
    """Other tasks that a winner must not cost too much."""

    tasks: tuple[str, ...] = ()
    max_drop: float = 2.0
    """Most points of accuracy that may be lost on each, on its validation items."""
    examples: int = 200
    """Validation items per task."""

    def __post_init__(self) -> None:
        """Refuse impossible guards."""
        if isinstance(self.tasks, str) or not all(isinstance(task, str) and task for task in self.tasks):
            raise SettingsError(f"tasks = {self.tasks!r} is not allowed: it must be a list of tasks")
        object.__setattr__(self, "tasks", tuple(self.tasks))
        check_number("max_drop", self.max_drop, minimum=0, maximum=100)
        check_integer("examples", self.examples, minimum=1)


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    # The paper's settings to the letter; what depends on the model is in `_paper_for`. Never changed.
    "paper": {
        "search": {"final_set": "raw"},
        "data": {"training": 1000, "validation": 100},
        "decoding": {"mode": "reasoning", "reasoning_budget": 400, "answer_budget": 128},
    },
    "default": {"search": {"final_set": "anchored"}},
    # A first look: few draws, each with few deviations, so that the first rounds already hold usable routes.
    "quick": {
        "search": {
            "final_set": "anchored",
            "iterations": 4,
            "draws": 16,
            "elite": 4,
            "k": 4,
            "epsilon_local": 0.06,
            "epsilon_operator": 0.02,
        },
        "data": {"training": 160, "validation": 100, "test": 400},
    },
}
PRESET_METHODS = {"paper": MACRO, "default": GUIDED, "quick": MACRO}
"""How a preset searches unless a method is named."""


_FLAGS_ONLY = ("backend", "workers", "address", "gpus_per_worker", "worker_timeout")
"""Who does the work is no part of what is asked."""


@dataclass(frozen=True)
class RunConfig:
    """A run as it was asked for."""

    task: str
    """A task's name, a .toml, or a .jsonl or .csv file."""
    model: str = DEFAULT_MODEL
    preset: str = "default"
    method: str = ""
    """How routes are searched; empty: the preset's way."""
    seed: int = 0
    budget: int | None = None
    """Route × example outcomes the search may ask for; None: what MACRO asks for under these settings."""
    racing: str = EXACT
    decoder: str = AUTO
    """How text is generated: fused (kernels and CUDA graphs on a GPU), eager, or auto: fused where possible."""
    max_minutes: float | None = None
    """Stop searching in time, and still select and test."""
    init_from: str | None = None
    """A run's folder or a route to start from."""
    loading: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    decoding: Mapping[str, Any] = field(default_factory=dict)
    space: Mapping[str, Any] = field(default_factory=dict)
    search: Mapping[str, Any] = field(default_factory=dict)
    units: Mapping[str, Any] = field(default_factory=dict)
    guard: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what can be refused before a model is loaded."""
        if not isinstance(self.task, str) or not self.task:
            raise SettingsError("a run needs a task: a name (see `macro tasks`), a .toml, .jsonl or .csv file")
        for name in ("model", "init_from"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise SettingsError(f"{name} = {value!r} is not allowed: it must be a text")
        check_choice("preset", self.preset, tuple(PRESETS))
        if not self.method:
            object.__setattr__(self, "method", PRESET_METHODS[self.preset])
        check_choice("method", self.method, tuple(METHODS))
        check_seed(self.seed)
        if self.budget is not None:
            check_integer("budget", self.budget, minimum=1, maximum=MAX_EVALUATIONS)
        check_choice("racing", self.racing, RACING_MODES)
        check_choice("decoder", self.decoder, DECODERS)
        if self.max_minutes is not None:
            check_number("max_minutes", self.max_minutes, minimum=0, exclusive=True)
        for table in ("loading", "data", "decoding", "space", "search", "units", "guard"):
            if not isinstance(getattr(self, table), Mapping):
                raise SettingsError(f"{table} must be a table of settings")
        _ = self.load_options, self.data_settings, self.guard_settings
        self._check_tables()
        self._make_absolute()

    def _make_absolute(self) -> None:
        """Files are named from the root, so that a run can be resumed from another folder."""
        known = {*list_task_names(), *BUILT_IN_MODELS}
        for name in ("task", "model", "init_from"):
            object.__setattr__(self, name, _absolute(getattr(self, name), known))
        if self.data.get("data_dir"):
            object.__setattr__(self, "data", {**self.data, "data_dir": str(Path(self.data["data_dir"]).resolve())})
        if self.guard_settings.tasks:
            tasks = [_absolute(task, known) for task in self.guard_settings.tasks]
            object.__setattr__(self, "guard", {**self.guard, "tasks": tasks})

    def _check_tables(self) -> None:
        _ = self._settings({})
        if "layers" in self.space:
            raise SettingsError("[space]: layers is the model's, leave it out")
        build_settings(RouteSpace, {**self.space, "layers": 2, "max_length": 0}, "[space]")
        build_settings(UnitSizes, self.units, "[units]")
        build_settings(DecodingSettings, self._decoding_table(DIRECT), "[decoding]")

    @property
    def load_options(self) -> LoadOptions:
        """How the model is loaded."""
        return build_settings(LoadOptions, self.loading, "[loading]")

    @property
    def data_settings(self) -> DataSettings:
        """Where examples come from."""
        return build_settings(DataSettings, {**PRESETS[self.preset].get("data", {}), **self.data}, "[data]")

    @property
    def guard_settings(self) -> GuardSettings:
        """What a winner must not cost."""
        return build_settings(GuardSettings, self.guard, "[guard]")

    def _decoding_table(self, automatic: str) -> dict[str, Any]:
        table = {**PRESETS[self.preset].get("decoding", {}), **self.decoding}
        return {**table, "mode": automatic} if table.get("mode", AUTO) == AUTO else table

    def decoding_for(self, task: Task) -> DecodingSettings:
        """How answers are obtained; without a mode, choices are compared by likelihood and the rest is written."""
        automatic = default_answer_mode(task)
        found = build_settings(DecodingSettings, self._decoding_table(automatic), "[decoding]")
        if found.mode == LIKELIHOOD and task.kind != CHOICE:
            raise SettingsError(
                f"{task.name} has no choices, so mode = likelihood cannot be used; use direct or reasoning"
            )
        return found

    def sizes_for(self, frozen: FrozenModel) -> UnitSizes:
        """Examples per work unit."""
        automatic = dataclasses.asdict(UnitSizes.for_device(frozen.model.device.type))
        return build_settings(UnitSizes, {**automatic, **self.units}, "[units]")

    def _settings(self, automatic: Mapping[str, Any], method: str | None = None) -> Any:
        """A method's settings; those of another than this run's come from the preset alone."""
        preset: dict[str, Any] = {**PRESETS[self.preset].get("search", {}), **automatic}
        # The standard pass is among the candidates wherever MACRO's final set holds it, too.
        preset["anchored"] = self.preset != "paper"
        return make_search_settings(method or self.method, preset, self.search if method is None else {})

    def searcher_for(
        self, frozen: FrozenModel, examples: int, influence: Callable[[], Sequence[float]], test: int = 0
    ) -> SearchPlan:
        """The search over this model's routes; ``influence`` measures how much each layer does."""
        space_of_paper, search_of_paper, _ = _paper_for(frozen) if self.preset == "paper" else ({}, {}, {})
        space = build_settings(RouteSpace, {"layers": frozen.layers, **space_of_paper, **self.space}, "[space]")
        own, paper = self._settings(search_of_paper), self._settings(search_of_paper, MACRO)
        return METHODS[self.method].build(Search(space, examples, test, self.budget, self.seed, own, paper, influence))

    def data_for(self, frozen: FrozenModel) -> DataSettings:
        """Sizes, where the paper makes them depend on the model."""
        if self.preset != "paper":
            return self.data_settings
        table = {**PRESETS["paper"]["data"], **_paper_for(frozen)[2], **self.data}
        return build_settings(DataSettings, table, "[data]")

    @classmethod
    def from_tables(cls, values: Mapping[str, Any], where: str) -> RunConfig:
        """A configuration from a TOML file's contents; unknown keys are refused by name."""
        names = [item.name for item in dataclasses.fields(cls)]
        for name in values:
            if name in _FLAGS_ONLY:
                raise SettingsError(
                    f"{where}: {name} is no part of a configuration, since it changes no result; give it as a flag"
                )
            if name not in names:
                raise SettingsError(
                    f"{where}: unknown key {name!r}; known keys: {', '.join(names)}{suggestion(name, names)}"
                )
        return build_settings(cls, {"task": "", **values}, where)

    def given(self) -> dict[str, Any]:
        """The configuration as it was given."""
        return {key: dict(value) if isinstance(value, Mapping) else value for key, value in vars(self).items()}


def _absolute(value: str | None, known: set[str]) -> str | None:
    """A file or folder from the root; names that are known, and texts that are none, as they are."""
    if value is None or value in known:
        return value
    try:
        return str(Path(value).resolve()) if Path(value).exists() else value
    except (OSError, ValueError):  # too long, or otherwise impossible as a name: a route
        return value


def _paper_for(frozen: FrozenModel) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """What the paper sets by model: route length, final set, validation size (specification §5)."""
    kind = get_text_config(frozen.model.config).model_type
    is_deepseek = "deepseek" in frozen.name.lower()
    # Qwen3-4B and -8B are the only ones whose longest route is not twelve above their depth.
    space = {"max_length": 40} if kind == "qwen3" and frozen.layers == 36 else {}
    if kind == "mixtral" or is_deepseek or (kind == "qwen3" and frozen.layers == 40):
        return space, {"final_set": "anchored"}, {"validation": 200}
    return space, {}, {}
