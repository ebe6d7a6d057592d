"""What a run is asked to do: model, task, search, budgets, seed; from flags, a TOML file or Python.

A configuration is a few top-level values and tables, each table one settings dataclass of the project. A preset fills
in what was not given; some values depend on the model or the task and are resolved when these are known. The fields are
the only list of options: flags, the TOML reader, the reproduce command and the documentation are derived from them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from macro_routing.engine.decoders import AUTO, DECODERS
from macro_routing.errors import SettingsError
from macro_routing.evaluation.decoding_settings import DecodingSettings, default_answer_mode
from macro_routing.evaluation.scoring_settings import EXACT, RACING_MODES, UnitSizes
from macro_routing.models.built_in import BUILT_IN_MODELS, DEFAULT_MODEL
from macro_routing.models.load_options import LoadOptions
from macro_routing.runs.config_tables import (
    ANSWERING,
    BUDGET,
    DATA,
    MODEL,
    PRESET_DECIDES,
    SEARCH,
    AnswerSettings,
    DataSettings,
    GuardTaskSettings,
    SpaceSettings,
)
from macro_routing.runs.methods import (
    CONTROL,
    GUIDED,
    MACRO,
    MAX_EVALUATIONS,
    METHODS,
    ROUTE_SEARCH,
    SearchSettings,
    list_used_decision_settings,
    make_search_settings,
)
from macro_routing.runs.presets import PRESET_METHODS, PRESETS, get_paper_settings_for_model
from macro_routing.search.decision_settings import SPEED, DecisionSettings
from macro_routing.settings import (
    build_settings,
    check_choice,
    check_integer,
    check_known_keys,
    check_number,
    check_seed,
    get_field_options,
    option,
)
from macro_routing.tasks.prompts import LIKELIHOOD
from macro_routing.tasks.task import CHOICE
from macro_routing.workers.worker_settings import WorkerSettings

if TYPE_CHECKING:  # numpy is needed to search, not to say what is searched
    from macro_routing.models.frozen import FrozenModel
    from macro_routing.runs.search_building import SearchPlan
    from macro_routing.tasks.task import Task


@dataclass(frozen=True)
class RunConfig:
    """A run as it was asked for, the preset's values filled in; made by ``from_toml_tables`` or ``make_run_config``."""

    task: str = option("", "A task's name (see `macro tasks`), a .toml, or a .jsonl, .csv or .tsv file.", DATA)
    model: str = option(DEFAULT_MODEL, "A built-in name, a folder, a .gguf file or a hub id.", MODEL)
    preset: str = option("default", "Settings by name.", SEARCH, choices=tuple(PRESETS))
    method: str = option("", f"Search method: {', '.join(METHODS)}.", SEARCH, shown_default=PRESET_DECIDES)
    seed: int = option(0, "Seed of splits and draws.", SEARCH)
    budget: int | None = option(
        None,
        "Maximum evaluations (route × example) of the search.",
        BUDGET,
        shown_default="what --method macro would use",
    )
    racing: str = option(
        EXACT, "Which routes are stopped early; never scores every route to the end, with the same elite.", BUDGET,
        choices=RACING_MODES,
    )  # fmt: skip
    decoder: str = option(
        AUTO, "How text is generated: fused (many routes at once, on a GPU), eager, or what the model supports.",
        ANSWERING, choices=DECODERS,
    )  # fmt: skip
    max_minutes: float | None = option(None, "Maximum minutes; the search ends in time to select and test.", BUDGET)
    init_from: str | None = option(None, "A run's folder or a route to start from.", SEARCH)
    loading: LoadOptions = field(default_factory=LoadOptions)
    data: DataSettings = field(default_factory=DataSettings)
    decoding: AnswerSettings = field(default_factory=AnswerSettings)
    space: SpaceSettings = field(default_factory=SpaceSettings)
    search: SearchSettings = field(default_factory=METHODS[GUIDED].settings)
    units: UnitSizes = field(default_factory=UnitSizes)
    decision: DecisionSettings = field(default_factory=DecisionSettings)
    guard: GuardTaskSettings = field(default_factory=GuardTaskSettings)
    given: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Which values of the tables were given; a preset that depends on the model sets only others."""

    TABLES: ClassVar[dict[str, type]] = {
        "loading": LoadOptions,
        "data": DataSettings,
        "decoding": AnswerSettings,
        "space": SpaceSettings,
        "units": UnitSizes,
        "decision": DecisionSettings,
        "guard": GuardTaskSettings,
    }
    """The settings of each table but ``search``, whose settings are the method's."""

    @classmethod
    def from_toml_tables(cls, values: Mapping[str, Any], source: str) -> RunConfig:
        """A configuration from a TOML file's contents; unknown keys are rejected."""
        names = [item.name for item in dataclasses.fields(cls) if item.name != "given"]
        for name in values:
            if name in get_field_options(WorkerSettings):
                raise SettingsError(
                    f"{source}: {name} is not part of a configuration, since it changes no result; give it as a flag"
                )
        check_known_keys(values, names, source)
        tables = {name: values.get(name, {}) for name in (*cls.TABLES, "search")}
        top_level = _check_top_level(cls(**{name: value for name, value in values.items() if name not in tables}))
        for name, table in tables.items():
            if not isinstance(table, Mapping):
                raise SettingsError(f"{name} must be a table of settings")
        if "layers" in tables["space"]:
            raise SettingsError("[space]: layers is the model's, leave it out")
        given = _make_tables_absolute({name: dict(table) for name, table in tables.items() if table})
        config = dataclasses.replace(top_level, given=given)
        built = {name: config.resolve_settings_table(name) for name in cls.TABLES}
        config = _check_objective_fits_method(dataclasses.replace(config, **built))
        return dataclasses.replace(config, search=config.build_search_settings({}))

    def with_changes(self, **changes: Any) -> RunConfig:
        """The configuration with other top-level values or whole tables."""
        return RunConfig.from_toml_tables({**self.to_toml_tables(), **changes}, "the changed settings")

    def to_toml_tables(self) -> dict[str, Any]:
        """Plain values for ``from_toml_tables``: what was given, without the preset's values."""
        plain = {name: getattr(self, name) for name in get_field_options(RunConfig)}
        return {**plain, **{name: dict(self.given.get(name, {})) for name in (*self.TABLES, "search")}}

    def resolve_settings_table(self, name: str, **automatic: Any) -> Any:
        """A table's settings: what was given, then what the model or the device settles, then the preset's."""
        values = {**PRESETS[self.preset].get(name, {}), **automatic, **self.given.get(name, {})}
        return build_settings(self.TABLES[name], values, f"[{name}]")

    def build_search_settings(self, automatic: Mapping[str, Any], method: str | None = None) -> Any:
        """A method's settings; those of another than this run's come from the preset alone."""
        given = self.given.get("search", {}) if method is None else {}
        method = method or self.method
        tables = PRESETS[self.preset]
        preset: dict[str, Any] = {**tables.get("search", {}), **tables.get(method, {}), **automatic}
        # The standard pass is among the candidates wherever MACRO's final set holds it, too.
        preset["anchored"] = self.preset != "paper"
        return make_search_settings(method, preset, given)

    @property
    def task_seed(self) -> int:
        """Seed that synthetic tasks are made from: that of the test set."""
        return self.seed if self.data.test_seed is None else self.data.test_seed

    # --- what the model and the task settle -------------------------------------------------------------------------

    def resolve_decoding(self, task: Task) -> DecodingSettings:
        """How answers are obtained; without a mode, choices are compared by likelihood and the rest is generated."""
        decoding = self.decoding.resolve_answer_mode(default_answer_mode(task))
        if decoding.mode == LIKELIHOOD and task.kind != CHOICE:
            raise SettingsError(
                f"{task.name} has no choices, so mode = likelihood cannot be used; use direct or reasoning"
            )
        return decoding

    def resolve_decision(self, decoding: DecodingSettings) -> DecisionSettings:
        """The settings of the decision; mixtures are searched where choices are compared by likelihood."""
        if decoding.mode == LIKELIHOOD or self.decision.members == 1:
            return self.decision
        if "members" in self.given.get("decision", {}):
            raise SettingsError(
                f"members = {self.decision.members} is not allowed with mode = {decoding.mode}: mixtures are searched"
                " where choices are compared by likelihood; use members = 1, or mode = likelihood"
            )
        return dataclasses.replace(self.decision, members=1)

    def resolve_examples_per_unit(self, frozen: FrozenModel) -> UnitSizes:
        """Examples per work unit."""
        automatic = dataclasses.asdict(UnitSizes.for_device(frozen.model.device.type))
        units: UnitSizes = self.resolve_settings_table("units", **automatic)
        return units

    def resolve_data_sizes(self, frozen: FrozenModel) -> DataSettings:
        """Sizes, where the paper makes them depend on the model."""
        data: DataSettings = self.resolve_settings_table("data", **self._get_preset_values_for_model(frozen)["data"])
        return data

    def make_searcher(  # noqa: PLR0913
        self,
        frozen: FrozenModel | int,
        decoding: DecodingSettings,
        examples: int,
        influence: Callable[[], Sequence[float]],
        test: int = 0,
        groups: tuple[int, ...] | None = None,
    ) -> SearchPlan:
        """The search over a model's routes; ``influence`` measures how much each layer does.

        Except for the preset ``paper``, the number of layers is enough.
        """
        from macro_routing.runs.search_building import MethodInputs, build_search

        if METHODS[self.method].needs_likelihood and decoding.mode != LIKELIHOOD:
            raise SettingsError(
                f"method = {self.method} is not allowed with mode = {decoding.mode}: it compares choices by likelihood;"
                " leave it out, or use mode = likelihood on a task with choices"
            )
        layers = frozen if isinstance(frozen, int) else frozen.layers
        automatic = self._get_preset_values_for_model(frozen)
        space = self.resolve_settings_table("space", **automatic["space"]).make_space(layers)
        settings = self.build_search_settings(automatic["search"])
        paper = self.build_search_settings(automatic["search"], MACRO)
        decision = self.resolve_decision(decoding)
        given = frozenset(self.given.get("search", {}))
        return build_search(
            self.method,
            MethodInputs(
                space, examples, test, self.budget, self.seed, settings, paper, influence, decision, given, groups
            ),
        )

    def _get_preset_values_for_model(self, frozen: FrozenModel | int) -> dict[str, dict[str, Any]]:
        if self.preset == "paper":
            assert not isinstance(frozen, int)
            return get_paper_settings_for_model(frozen)
        return {"space": {}, "search": {}, "data": {}}


def make_run_config(task: str, model: str = DEFAULT_MODEL, preset: str = "default", **values: Any) -> RunConfig:
    """A configuration from Python: top-level values and tables by name, a table as a mapping."""
    return RunConfig.from_toml_tables({"task": task, "model": model, "preset": preset, **values}, "the settings")


def _check_top_level(config: RunConfig) -> RunConfig:
    """Reject top-level values that are not allowed; the configuration with its method and absolute paths."""
    if not isinstance(config.task, str) or not config.task:
        raise SettingsError("a run needs a task: a name (see `macro tasks`), a .toml, .jsonl, .csv or .tsv file")
    for name in ("model", "init_from"):
        value = getattr(config, name)
        if value is not None and (not isinstance(value, str) or not value):
            raise SettingsError(f"{name} = {value!r} is not allowed: it must be a string")
    check_choice("preset", config.preset, tuple(PRESETS))
    method = config.method or PRESET_METHODS[config.preset]
    check_choice("method", method, tuple(METHODS))
    check_seed(config.seed)
    if config.budget is not None:
        check_integer("budget", config.budget, minimum=1, maximum=MAX_EVALUATIONS)
    check_choice("racing", config.racing, RACING_MODES)
    check_choice("decoder", config.decoder, DECODERS)
    if config.max_minutes is not None:
        check_number("max_minutes", config.max_minutes, minimum=0, exclusive=True)
    paths = {name: _make_absolute(getattr(config, name)) for name in ("task", "model", "init_from")}
    return dataclasses.replace(config, method=method, **paths)


def _check_objective_fits_method(config: RunConfig) -> RunConfig:
    """Reject an objective that the method cannot follow, and settings without effect."""
    kind = METHODS[config.method].kind
    if config.decision.objective == SPEED and kind != ROUTE_SEARCH:
        searches = ", ".join(name for name, method in METHODS.items() if method.kind == ROUTE_SEARCH)
        reason = "is a control of mixtures" if kind == CONTROL else "gives every example its own route"
        raise SettingsError(
            f"objective = speed is not allowed with method = {config.method}, which {reason}; use one of {searches}"
        )
    used = list_used_decision_settings(config.method, config.decision.objective)
    for name in config.given.get("decision", {}):
        if name not in used:
            raise SettingsError(
                f"[decision]: {name} has no effect with method = {config.method} and objective ="
                f" {config.decision.objective}; leave it out (with effect: {', '.join(used)})"
            )
    return config


def _make_tables_absolute(tables: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Files by absolute path, so that a run can be resumed from another folder."""
    data_dir, guards = tables.get("data", {}).get("data_dir"), tables.get("guard", {}).get("tasks")
    if isinstance(data_dir, str) and data_dir:
        tables["data"]["data_dir"] = str(Path(data_dir).resolve())
    if amateur := tables.get("search", {}).get("amateur"):
        tables["search"]["amateur"] = _make_absolute(amateur)
    if guards:
        tables["guard"]["tasks"] = [_make_absolute(task) for task in GuardTaskSettings(guards).tasks]
    return tables


def _make_absolute(value: Any) -> Any:
    """A file or folder by its absolute path; known names, and strings that are not a path, unchanged."""
    from macro_routing.tasks.catalog import list_task_names

    if value is None or value in {*list_task_names(), *BUILT_IN_MODELS}:
        return value
    try:
        return str(Path(value).resolve()) if Path(value).exists() else value
    except (OSError, ValueError):  # too long, or otherwise impossible as a name: a route
        return value
