"""What every study works with: the model loaded once, tasks with their splits, searches and scores kept on disk."""

import dataclasses
import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from macro_routing.errors import PAUSED, ModelError, RunError, SettingsError
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.outcomes import RouteEvaluation
from macro_routing.models.frozen import FrozenModel, read_model_metadata
from macro_routing.report.formatting import shorten_model_name
from macro_routing.routes.mixture import RouteOrMixture, require_single_route
from macro_routing.routes.route import Route
from macro_routing.runs import folder as run_files
from macro_routing.runs.comparison_results import MethodRun, read_method_run
from macro_routing.runs.config import RunConfig
from macro_routing.runs.folder import RunFolder
from macro_routing.runs.methods import METHODS, STANDARD
from macro_routing.runs.prepare import (
    check_examples_unchanged,
    check_run_inputs_unchanged,
    check_same_settings,
    load_configured_model,
    load_configured_task,
    prepare_run,
    resume_run,
    run_search,
)
from macro_routing.runs.prepared_run import PreparedRun
from macro_routing.runs.progress import Listener
from macro_routing.studies.folder import RUNS, StudyFolder
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode
from macro_routing.tasks.task import Example, Task, fingerprint_examples

_MAX_TITLE = 36
"""Characters of the tasks' names in a title."""


class StudyTimeOverError(RunError):
    """The minutes given to a study are over; what is done is kept."""

    status = PAUSED


@dataclass(frozen=True)
class RouteWithSearchedTask:
    """The route a study is about, and the task and seed it was searched with, whose splits are clean for it."""

    route: RouteOrMixture
    task: TaskWithAnswerMode
    seed: int
    has_source: bool = True
    """Whether task and seed come from the route's run or file; a plain route says nothing about where it is from."""

    def get_single_route(self, study: str) -> Route:
        """The route, for a study that takes no mixtures."""
        return require_single_route(self.route, study)

    def was_searched_on_task(self, task: TaskWithAnswerMode) -> bool:
        """Whether the route is known to have been searched on a task."""
        modes = {task.mode, self.task.mode} - {None}
        return self.has_source and task.task == self.task.task and len(modes) <= 1


@dataclass(frozen=True, eq=False)
class StudyContext:
    """The model and the settings of a study, and the folder that keeps its parts."""

    base: RunConfig
    """Every run's settings but task, seed and what the study varies."""
    folder: StudyFolder
    listener: Listener = field(default_factory=Listener)
    store: Path | None = None
    minutes: float | None = None
    """No further part starts after these minutes; None for no limit."""
    loaded_model: FrozenModel | None = None
    """Stands in for the model that the settings name."""
    loaded_tasks: Mapping[str, Task] = field(default_factory=dict)
    """Stand in for tasks of these names."""
    _tasks: dict[str, Task] = field(default_factory=dict, init=False, repr=False)
    _started: float = field(default_factory=time.monotonic, repr=False)

    @cached_property
    def frozen_model(self) -> FrozenModel:
        """The model, loaded when it is first needed."""
        return self.loaded_model or load_configured_model(self.base, None, self.listener)

    @property
    def standard_route(self) -> Route:
        """The standard pass of the model."""
        return Route.standard(self.frozen_model.layers)

    def require_route_method(self) -> None:
        """Reject a method that finds no route, before it searches."""
        method = self.base.method
        if METHODS[method].kind != "search":
            raise SettingsError(f"--method {method} finds no route that could be tested elsewhere; name one that does")

    def describe_model_and_tasks(self, tasks: Sequence[TaskWithAnswerMode]) -> str:
        """Model and tasks for a title."""
        names = ", ".join(map(str, tasks))
        return f"{shorten_model_name(self.base.model)}, {names if len(names) <= _MAX_TITLE else f'{len(tasks)} tasks'}"

    def make_run_config(self, task: TaskWithAnswerMode, seed: int, **changes: Mapping[str, Any] | str) -> RunConfig:
        """A run's configuration; tables among ``changes`` override the study's."""
        tables = {name: value for name, value in changes.items() if isinstance(value, Mapping)}
        if task.mode is not None:
            tables["decoding"] = {"mode": task.mode, **tables.get("decoding", {})}
        merged: dict[str, Any] = {name: {**self.base.given.get(name, {}), **table} for name, table in tables.items()}
        plain: dict[str, Any] = {name: value for name, value in changes.items() if name not in tables}
        return self.base.with_changes(task=task.task, seed=seed, **merged, **plain)

    def prepare_task(self, task: TaskWithAnswerMode, seed: int) -> PreparedRun:
        """A task's evaluator and splits; nothing is searched, so settings of the search are left out."""
        config = self.make_run_config(task, seed).with_changes(method=STANDARD, search={}, space={}, budget=None)
        return prepare_run(config, **self._get_shared_run_inputs(task.task))

    def _get_shared_run_inputs(self, task: str) -> dict[str, Any]:
        return {
            "frozen": self.frozen_model,
            "task": self.loaded_tasks.get(task),
            "listener": self.listener,
            "store": self.store,
        }

    def check_planned_searches_can_run(self, searches: Iterable[tuple[str, RunConfig]]) -> None:
        """Reject an impossible search before the first of these runs, not hours later."""
        for name, config in searches:
            if not (self.folder.run_folder(name) / run_files.RUN).is_file():
                self.check_search_possible(config)

    def check_search_possible(self, config: RunConfig) -> None:
        """Reject an impossible search; nothing is searched."""
        prepare_run(config, **self._get_shared_run_inputs(config.task))

    # --- parts ----------------------------------------------------------------------------------------------------

    def load_or_search(self, name: str, config: RunConfig) -> MethodRun:
        """A search of the study: loaded if it is finished, resumed if it was begun, else run."""
        path = self.folder.run_folder(name)
        if not (path / run_files.RUN).is_file():
            self.raise_if_time_limit_passed()
            self._check_searches_share_weights()
            self.listener.on_message(f"search {name}")
            run_search(config, path, **self._get_shared_run_inputs(config.task))
        elif not self._open_existing_run(path, config).is_finished:
            self.raise_if_time_limit_passed()
            self.listener.on_message(f"search {name}, resumed")
            # Its settings are those of this call, as was checked.
            inputs = self._get_shared_run_inputs(config.task)
            resume_run(path, **inputs, trust_remote_code=True, trust_grader=True)
        return read_method_run(config.method, config.seed, path, ())

    def _open_existing_run(self, path: Path, config: RunConfig) -> RunFolder:
        """A run of the study; one with other settings, another model or other data is rejected."""
        run = RunFolder.open(path)
        with run.explain_damaged_files(run_files.RUN):
            header = run.read_json(run_files.RUN)
            check_same_settings(header, config, path)
            self.check_same_data(header, config, path)
        if self.loaded_model is not None or "frozen" in vars(self):
            now = prepare_run(config, **self._get_shared_run_inputs(config.task)).make_run_json_contents()
            check_run_inputs_unchanged(header, json.loads(json.dumps(now)), path)
        return run

    def check_same_data(self, header: Mapping[str, Any], config: RunConfig, path: Path) -> None:
        """Reject a run on other examples or with other weights; no model is loaded for this check."""
        check_examples_unchanged(header, config, self._load_task(config), path)
        if self._current_weights_id not in {None, header["model"]["weights_id"]}:
            raise RunError(f"{path} was run with other weights; name another folder for the study with --out")

    def _load_task(self, config: RunConfig) -> Task:
        """The task of a run, read once."""
        key = repr((config.task, config.seed, config.data))
        if key not in self._tasks:
            self._tasks[key] = self.loaded_tasks.get(config.task) or load_configured_task(config)
        return self._tasks[key]

    @cached_property
    def _current_weights_id(self) -> str | None:
        """Of the model as it is now; None where it cannot be found any more, and what is finished is taken as it is."""
        if self.loaded_model is not None or "frozen" in vars(self):
            return self.frozen_model.weights_id
        try:
            return read_model_metadata(self.base.model, self.base.loading).weights_id
        except ModelError as error:
            self.listener.on_message(f"finished parts are not compared with the model: {error}")
            return None

    def _check_searches_share_weights(self) -> None:
        """Reject a search beside others of another model with the same name."""
        for path in sorted((self.folder.path / RUNS).glob(f"*/{run_files.RUN}")):
            run = RunFolder.open(path.parent)
            with run.explain_damaged_files(run_files.RUN):
                weights = run.read_json(run_files.RUN)["model"]["weights_id"]
            if weights != self.frozen_model.weights_id:
                raise RunError(
                    f"{path.parent} was run with other weights; name another folder for the study with --out"
                )

    def load_or_measure(self, name: str, title: str, mark: Mapping[str, Any], make: Any) -> dict[str, Any]:
        """A measurement of the study, loaded or made now; ``title`` tells a person what is being measured."""
        if not self.folder.has_measurement(name):
            self.raise_if_time_limit_passed()
            self.listener.on_message(title)
        text = json.dumps({"weights": self.frozen_model.weights_id, **mark}, sort_keys=True)
        return self.folder.load_or_measure(name, hashlib.sha256(text.encode()).hexdigest()[:16], make)

    def raise_if_time_limit_passed(self) -> None:
        """Stop before another part if the time limit has passed."""
        if self.minutes is not None and time.monotonic() - self._started > 60 * self.minutes:
            raise StudyTimeOverError(f"the {self.minutes:g} minutes are over; the same command continues where it was")

    def score_routes(
        self, name: str, task: TaskWithAnswerMode, seed: int, routes: Mapping[str, RouteOrMixture], split: str = "test"
    ) -> dict[str, Any]:
        """Named routes on a task's test, or other, examples; the standard pass is always among them."""
        run = self.prepare_task(task, seed)
        examples: Sequence[Example] = getattr(run.splits, split)
        wanted = {"standard": self.standard_route, **routes}
        marks = {
            **fingerprint_measurement_inputs(run.evaluator, examples),
            "routes": {key: str(route) for key, route in wanted.items()},
        }
        count = len(set(wanted.values()))
        title = f"scoring {count} route{'s' if count > 1 else ''} on {len(examples)} {split} examples of {task}"
        return self.load_or_measure(name, title, marks, lambda: _evaluate_routes(run, examples, wanted))


def fingerprint_measurement_inputs(evaluator: Evaluator, examples: Sequence[Example]) -> dict[str, Any]:
    """What a measurement depends on besides the routes."""
    return {"scope": evaluator.scope, "examples": fingerprint_examples(examples)}


def _evaluate_routes(
    run: PreparedRun, examples: Sequence[Example], routes: Mapping[str, RouteOrMixture]
) -> dict[str, Any]:
    evaluator = dataclasses.replace(run.evaluator, on_outcomes=run.listener.on_outcomes)
    evaluations = evaluator.evaluate(routes.values(), examples)
    return {
        "examples": [example.id for example in examples],
        "routes": {name: list_example_outcomes_of_route(evaluations[route]) for name, route in routes.items()},
    }


def list_example_outcomes_of_route(evaluation: RouteEvaluation) -> dict[str, Any]:
    """A route's answers, example by example: correct or not, truncated or not."""
    return {
        "route": str(evaluation.route),
        "length": evaluation.route.length,
        "correct": [int(value) for value in evaluation.correct],
        "truncated": [int(outcome.truncated) for outcome in evaluation.outcomes],
        "tokens": evaluation.mean_tokens,
    }
