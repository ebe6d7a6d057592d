"""The whole paper: every table and figure from one configuration, in parts that several machines can fill.

A unit is what is done at once: one run of a main table, or another study of one model. A unit that is finished is left
alone, one that was stopped goes on. Every unit has files of its own, so folders that machines filled with different
parts can be copied into one.
"""

import dataclasses
import gc
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from macro_routing.errors import MacroError, RunError
from macro_routing.files import acquire_lock, write_atomically
from macro_routing.models.frozen import FrozenModel
from macro_routing.report.formatting import shorten_model_name
from macro_routing.runs import folder as run_files
from macro_routing.runs.comparison_results import read_budget_curve, read_method_runs
from macro_routing.runs.folder import RunFolder
from macro_routing.runs.methods import MACRO
from macro_routing.runs.prepare import load_configured_model
from macro_routing.runs.progress import Listener
from macro_routing.runs.result import SELECTED, read_result
from macro_routing.studies.ablation import run_state_factor_ablation
from macro_routing.studies.composition import find_finished_runs, run_route_composition_study
from macro_routing.studies.context import RouteWithSearchedTask, StudyContext, StudyTimeOverError
from macro_routing.studies.cost import run_route_cost_study
from macro_routing.studies.folder import StudyFolder
from macro_routing.studies.logit_lens import run_logit_lens
from macro_routing.studies.main_table import (
    compare_methods_on_task,
    find_first_searching_method,
    get_model_task_folder,
    make_main_tables,
)
from macro_routing.studies.one_route_for_all_tasks import run_one_route_for_all_tasks_study
from macro_routing.studies.paper_config import (
    COMPOSITION,
    COST,
    LOGIT_LENS,
    MAIN_TABLE,
    ONE_ROUTE,
    PaperConfig,
    PaperItem,
    PaperUnit,
    list_units_of_item,
)
from macro_routing.studies.paper_estimate import count_unit_evaluations, estimate_hours
from macro_routing.studies.paper_gathering import UnitResult, gather_item
from macro_routing.studies.study_result import DATA, StudyResult, write_study_result
from macro_routing.studies.sweep import run_hyperparameter_sweep
from macro_routing.studies.tables import Table, make_text_column, number_column
from macro_routing.studies.transfer import run_transfer

STUDY = "paper"
_TIMES, _LOCK = "times", "lock"
_SEARCHING_STUDIES: dict[str, Callable[[StudyContext, Any], StudyResult]] = {
    "ablation": run_state_factor_ablation,
    "sweep": run_hyperparameter_sweep,
    ONE_ROUTE: run_one_route_for_all_tasks_study,
    "transfer": run_transfer,
}


class RoutesMissingError(RunError):
    """The routes that a study is about were not found yet."""


@dataclass
class PaperSession:
    """One call: where results go, when it ends, and the model that is loaded."""

    config: PaperConfig
    out: Path
    listener: Listener = field(default_factory=Listener)
    minutes: float | None = None
    """No unit begins after these."""
    load: Callable[..., FrozenModel] = load_configured_model
    loaded_tasks: Mapping[str, Any] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    """By unit: why it could not be run."""
    _started: float = field(default_factory=time.monotonic)
    _loaded: tuple[str, FrozenModel] | None = None
    _unavailable: dict[str, str] = field(default_factory=dict)

    def run_units(self, units: Sequence[PaperUnit]) -> bool:
        """Run what is missing; False where the minutes were over before the end."""
        self.out.mkdir(parents=True, exist_ok=True)
        for number, unit in enumerate(units, 1):
            if self.is_finished(unit):
                continue
            self.listener.on_message(f"unit {number} of {len(units)}: {unit.name}")
            begun = time.monotonic()
            try:
                self._run_unit(unit)
            except StudyTimeOverError:
                return False
            except MacroError as error:  # the other models and tasks are not to wait for it
                self.failures[unit.name] = str(error)
                self.listener.on_message(f"{unit.name} was not run: {error}")
            finally:
                self._add_seconds(unit, time.monotonic() - begun)
        return True

    def is_finished(self, unit: PaperUnit) -> bool:
        """Whether a unit's result is there."""
        if unit.item.study == MAIN_TABLE:
            return read_budget_curve(self._find_run(unit.item, unit)) is not None
        return (self._get_folder(unit) / DATA).is_file()

    def _find_run(self, table: PaperItem, unit: PaperUnit) -> Path:
        """A run of a main table."""
        folder = StudyFolder(self.out / table.name)
        model = self.config.find_model(unit.model)
        return get_model_task_folder(folder, model, unit.parsed_task) / f"{unit.method or MACRO}-{unit.seed}"

    def _get_folder(self, unit: PaperUnit) -> Path:
        return self.out / unit.item.name if unit.item.study == MAIN_TABLE else self.out / unit.item.name / unit.name

    def _run_unit(self, unit: PaperUnit) -> None:
        if self.minutes is not None and time.monotonic() - self._started > 60 * self.minutes:
            raise StudyTimeOverError(f"the {self.minutes:g} minutes are over; the same command continues where it was")
        subject = self._read_subject(unit) if unit.item.study in (COST, LOGIT_LENS) else None
        context = self._make_context(unit)
        study = unit.item.study
        if study == MAIN_TABLE:
            assert unit.seed is not None
            compare_methods_on_task(context, unit.parsed_task, [unit.seed], [unit.method])
            return
        with context.folder.lock():
            if subject is None:
                settings = unit.item.settings
                if unit.seed is not None:
                    settings = dataclasses.replace(settings, seed=unit.seed)
                result = _SEARCHING_STUDIES[study](context, settings)
            elif study == COST:
                result = run_route_cost_study(context, subject, unit.item.settings)
            else:
                result = run_logit_lens(context, subject)
        runs = {"runs": context.base.to_toml_tables()}
        write_study_result(context.folder, result, runs, "macro study paper", self.listener.on_message)

    def _make_context(self, unit: PaperUnit) -> StudyContext:
        """The context of a study of its own; a main table's runs keep their scores apart, so that times are fair."""
        item = unit.item
        changes: dict[str, Any] = {"seed": unit.seed or 0}
        if item.study == LOGIT_LENS:
            changes["data"] = {**self.config.runs.get("data", {}), "test": item.settings.items}
        base = self.config.make_run_config(unit.model, unit.task or item.settings.task_names[0].task, **changes)
        is_table = item.study == MAIN_TABLE
        # A main table may grow by models and tasks.
        left_out = {"task", "seed", "model", "loading"} if is_table else {"task", "seed"}
        runs = {name: value for name, value in base.to_toml_tables().items() if name not in left_out}
        own = {} if is_table else {**item.settings.to_json(), "unit": [unit.task, unit.seed]}
        with acquire_lock(self.out / _LOCK, wait=True):  # another part may make the folder at the same moment
            folder = StudyFolder.open(self._get_folder(unit), item.study, {**own, "runs": runs})
        store = None if is_table else folder.path / "scores.sqlite"
        return StudyContext(
            base,
            folder,
            self.listener,
            store,
            self._get_minutes_left(),
            self._load_model(unit, base),
            self.loaded_tasks,
        )

    def _get_minutes_left(self) -> float | None:
        return None if self.minutes is None else self.minutes - (time.monotonic() - self._started) / 60

    def _load_model(self, unit: PaperUnit, base: Any) -> FrozenModel:
        """The unit's model, loaded once for all units of it that follow each other."""
        if unit.model in self._unavailable:
            raise RunError(self._unavailable[unit.model])
        if self._loaded is None or self._loaded[0] != unit.model:
            self._loaded = None
            gc.collect()  # the one before goes first: both may not fit
            try:
                self._loaded = (unit.model, self.load(base, None, self.listener))
            except MacroError as error:
                self._unavailable[unit.model] = str(error)
                raise
        return self._loaded[1]

    def _read_subject(self, unit: PaperUnit) -> RouteWithSearchedTask:
        """The route that the main table has found for a unit's task."""
        tables = self.config.find_tables(unit.item)
        paths = [self._find_run(table, unit) for table in tables]
        path = next((path for path in paths if (path / run_files.RESULT).is_file()), None)
        if path is None:
            names, missing = ", ".join(table.name for table in tables), paths[0]
            raise RoutesMissingError(f"{names} has no route for it yet: {missing.parent.name}, {missing.name}")
        assert unit.seed is not None
        return RouteWithSearchedTask(read_result(RunFolder.open(path)).best_route, unit.parsed_task, unit.seed)

    def _add_seconds(self, unit: PaperUnit, seconds: float) -> None:
        path = self.out / _TIMES / f"{unit.name}.json"
        text = json.dumps({"seconds": self.read_seconds(unit) + seconds})
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)

    def read_seconds(self, unit: PaperUnit) -> float:
        """Time that was spent on a unit so far."""
        try:
            return float(json.loads((self.out / _TIMES / f"{unit.name}.json").read_text(encoding="utf-8"))["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0.0

    # --- results --------------------------------------------------------------------------------------------------

    def gather(self) -> StudyResult:
        """Write the tables of what is there, and list the items with what is missing."""
        with acquire_lock(self.out / _LOCK, wait=True):
            for item in self.config.items:
                if item.study == MAIN_TABLE:
                    self._gather_main_table(item)
                elif item.study == COMPOSITION:
                    results_of_runs = f"{MACRO}-*/{run_files.RESULT}"
                    folders = [
                        self.out / name for name in item.routes_of if any((self.out / name).rglob(results_of_runs))
                    ]
                    if folders:
                        routes = find_finished_runs(folders, MACRO)
                        self._write(self.out / item.name, run_route_composition_study(routes))
                elif results := [
                    self._read_unit_result(unit) for unit in list_units_of_item(item) if self.is_finished(unit)
                ]:
                    self._write(self.out / item.name, gather_item(item, results))
            result = self.list_items()
            self._write(self.out, result)
        return result

    def _read_unit_result(self, unit: PaperUnit) -> UnitResult:
        path = self._get_folder(unit) / DATA
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"{path} is damaged ({error}); remove it and the same command makes it again") from None
        return UnitResult(unit, data)

    def _gather_main_table(self, item: PaperItem) -> None:
        """The tables of all tasks that the method in question was run on."""
        folder = StudyFolder(self.out / item.name)
        leading = find_first_searching_method(item.settings.methods)
        runs = {
            (shorten_model_name(model), task): read_method_runs(
                get_model_task_folder(folder, self.config.find_model(model), task)
            )
            for model in item.models
            for task in item.settings.task_names
        }
        kept = {cell: found for cell, found in runs.items() if any(run.method == leading for run in found)}
        if kept:
            self._write(folder.path, make_main_tables(kept, SELECTED[leading]))

    def _write(self, path: Path, result: StudyResult) -> None:
        path.mkdir(parents=True, exist_ok=True)
        write_study_result(StudyFolder(path), result, {}, "macro study paper", self.listener.on_message)

    def list_items(self) -> StudyResult:
        """A line per item: what is done, the hours it took, those it is expected to take, and what is in the way."""
        rows = [self._summarize_item(item) for item in self.config.items]
        done, units = (sum(row[name] for row in rows) for name in ("done", "units"))
        note = (
            "A unit is one run of a main table, or another study of one model. Hours are those of one machine with its"
            " GPU. Evaluations (route × example) are at most, since searches stop early and repeat routes."
        )
        notes = [note]
        if self.config.throughput is not None:
            milliseconds = 1000 * self.config.throughput.seconds_per_evaluation
            notes.append(
                f"Expected hours are estimated for so many evaluations: {milliseconds:.2g} ms per evaluation of a model"
                f" of {self.config.throughput.parameters:g} billion parameters, scaled by the parameters that a token"
                " meets. 4-bit models whose de-quantized weights do not fit are decoded eagerly and take longer than"
                " that; training routers is left out."
            )
        table = Table("The paper's tables and figures", _COLUMNS, rows, notes)
        return StudyResult(STUDY, f"{done} of {units} units are done.", table)

    def _summarize_item(self, item: PaperItem) -> dict[str, Any]:
        units = list(list_units_of_item(item))
        missing = [unit for unit in units if not self.is_finished(unit)]
        reasons = dict.fromkeys(self.failures[unit.name] for unit in missing if unit.name in self.failures)
        models = ", ".join(dict.fromkeys(shorten_model_name(model) for model in item.models))
        return {
            "item": item.name,
            "shows": item.shows,
            "models_of_item": models,
            "models": len(item.models),
            "benchmarks": len(item.settings.study_task_names),
            "benchmarks_of_item": ", ".join(map(str, item.settings.study_task_names)),
            "seeds_of_item": list(getattr(item.settings, "seeds", item.seeds)),
            "units": len(units),
            "done": len(units) - len(missing),
            "hours": sum(map(self.read_seconds, units)) / 3600,
            "evaluations": sum(map(partial(count_unit_evaluations, self.config), missing)),
            "expected_hours": estimate_hours(self.config, missing),
            "note": "; ".join(reasons),
        }


_COLUMNS = [
    make_text_column("item", "item"),
    make_text_column("shows", "shows"),
    make_text_column("models", "models_of_item"),
    number_column("benchmarks", "benchmarks"),
    number_column("units", "units"),
    number_column("done", "done"),
    number_column("hours", "hours", "{:.2f}".format),
    number_column("evaluations left", "evaluations", "{:,}".format),
    number_column("GPU-hours left, about", "expected_hours", "{:.1f}".format),
    make_text_column("", "note"),
]
