"""Methods against each other: the same model, data and budget for each, over several seeds.

Every method and seed is an ordinary run in a folder of its own, so a comparison that was stopped goes on where it was,
and scores that one method has asked for are known to the next. Nothing is chosen on test data: each run tests its own
choice, and the curve shows what validation would have chosen earlier.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from macro_routing.errors import RunError
from macro_routing.models.frozen import FrozenModel
from macro_routing.runs.comparison_results import (
    MethodRun,
    SearchCurvePoint,
    read_budget_curve,
    read_method_run,
    write_budget_curve,
)
from macro_routing.runs.config import RunConfig
from macro_routing.runs.folder import RUN, RunFolder
from macro_routing.runs.methods import (
    MACRO,
    METHODS,
    check_requested_methods_comparable,
    keep_settings_of_method,
    list_used_decision_settings,
)
from macro_routing.runs.prepare import (
    check_run_inputs_unchanged,
    check_same_settings,
    get_or_create_worker_pool,
    load_configured_model,
    load_configured_task,
    prepare_run,
    resume_run,
    run_search,
)
from macro_routing.runs.prepared_run import PreparedRun
from macro_routing.runs.presets import PAPER
from macro_routing.runs.progress import Listener, RunPlan
from macro_routing.runs.result import ORACLE, ROUTE, ROUTER, read_result
from macro_routing.search.searcher import Searcher
from macro_routing.tasks.task import Task
from macro_routing.workers.worker_settings import WorkerSettings

POINTS = 8
"""Places on the curve of a search, at most."""


@dataclass(frozen=True)
class PlannedRun:
    """One method with one seed, before it is run."""

    config: RunConfig
    plan: RunPlan
    max_evaluations: int
    """What the run asks for at most, and its curve."""
    finished: bool
    """Whether the folder holds it already."""


def compare_methods(  # noqa: PLR0913
    base: RunConfig,
    names: Sequence[str],
    seeds: Sequence[int],
    folder: Path,
    *,
    search: Mapping[str, Any] | None = None,
    frozen: FrozenModel | None = None,
    task: Task | None = None,
    listener: Listener | None = None,
    store: Path | None = None,
    workers: WorkerSettings | None = None,
    points: int = POINTS,
) -> list[MethodRun]:
    """Run what is missing of every method with every seed; ``search`` are settings for those that know them.

    ``points`` are places on the curve of each search; with one there is its end alone, and nothing more is tested.
    """
    check_requested_methods_comparable(names, seeds)
    if task is None:
        load_configured_task(base)  # what cannot be read is rejected before the model is loaded
    listener = listener or Listener()
    # The same workers for all: what they know of a task, its prompts and its grader, depends on no seed.
    with get_or_create_worker_pool(base, workers, listener) as pool:
        frozen = frozen or load_configured_model(base, pool, listener)
        known: dict[str, Any] = {"frozen": frozen, "task": task, "store": store}
        # All of them before the first is run: what one would reject at the end is rejected now.
        planned = plan_methods(base, names, seeds, folder, known, search, points)
        _make_comparison_folder(folder)
        known["listener"] = listener
        method_runs = []
        for number, config in enumerate([run.config for run in planned], 1):
            listener.on_message(f"run {number} of {len(planned)}: {config.method}, seed {config.seed}")
            path = _get_method_run_folder(folder, config)
            _run_or_resume(config, path, {**known, "workers": pool})
            curve = _load_or_compute_curve(config, path, {**known, "executor": pool}, points)
            method_runs.append(read_method_run(config.method, config.seed, path, curve))
        return method_runs


def plan_methods(  # noqa: PLR0913
    base: RunConfig,
    names: Sequence[str],
    seeds: Sequence[int],
    folder: Path,
    known: Mapping[str, Any],
    search: Mapping[str, Any] | None = None,
    points: int = POINTS,
) -> list[PlannedRun]:
    """Every run of a comparison, checked against what is in its folder; nothing is run and no folder is made."""
    planned = []
    for config in make_method_configs(base, names, seeds, known, search):
        path, run = _get_method_run_folder(folder, config), prepare_run(config, **known)
        _check_same_run(path, config, run.make_run_json_contents())
        evaluations = run.plan.max_evaluations + _count_budget_curve_evaluations(run, points)
        planned.append(PlannedRun(config, run.plan, evaluations, read_budget_curve(path) is not None))
    _check_earlier_runs_comparable(folder, [run.config for run in planned], known["frozen"])
    return planned


def _get_method_run_folder(folder: Path, config: RunConfig) -> Path:
    return folder / f"{config.method}-{config.seed}"


def make_method_configs(
    base: RunConfig,
    names: Sequence[str],
    seeds: Sequence[int],
    known: Mapping[str, Any],
    search: Mapping[str, Any] | None = None,
) -> list[RunConfig]:
    """Settings of every run of a comparison; without a budget all have what MACRO asks for.

    Routers keep their published sizes under preset ``paper``, as in its tables.
    """
    given = {**base.given.get("search", {}), **(search or {})}

    def make_run_config_of_method(method: str, seed: int) -> RunConfig:
        used = list_used_decision_settings(method, base.decision.objective)
        decision = {name: value for name, value in base.given.get("decision", {}).items() if name in used}
        return base.with_changes(
            method=method, seed=seed, search=keep_settings_of_method(method, given), decision=decision
        )

    configs = [make_run_config_of_method(method, seed) for seed in seeds for method in names]
    if base.budget is not None:
        return configs
    macro = prepare_run(make_run_config_of_method(MACRO, seeds[0]), **known)
    budget = macro.searcher.max_evaluations()
    return [
        config if has_published_sizes(config.preset, config.method) else config.with_changes(budget=budget)
        for config in configs
    ]


def has_published_sizes(preset: str, method: str) -> bool:
    """Whether a method that is given no budget has its own of the paper, not MACRO's."""
    return preset == PAPER and METHODS[method].kind == ROUTER


def _run_or_resume(config: RunConfig, path: Path, known: dict[str, Any]) -> None:
    """Run, or go on with, what belongs in a folder."""
    if (path / RUN).is_file():
        # Its settings are those of this call, which has loaded model and task.
        resume_run(path, **known, trust_remote_code=True, trust_grader=True)
    else:
        run_search(config, path, **known)


_SHARED_SETTINGS = (
    *("task", "model", "preset", "racing", "decoder"),
    *("loading", "data", "decoding", "space", "units"),
)
_METHOD_SETTINGS = ("search", "decision", "guard", "init_from")


def _check_earlier_runs_comparable(folder: Path, configs: Sequence[RunConfig], frozen: FrozenModel) -> None:
    """Reject earlier runs of the folder that had another model, task, budget or data: one table is made of all.

    Runs of one method are one line of it, so they had the same settings of their search, too.
    """
    tables = {config.method: json.loads(json.dumps(config.to_toml_tables())) for config in configs}
    now = tables[configs[0].method]
    budgets = {config.budget for config in configs if not has_published_sizes(config.preset, config.method)}
    for path in sorted(folder.glob(f"*-*/{RUN}")):
        run = RunFolder.open(path.parent)
        with run.explain_damaged_files(RUN):
            header = run.read_json(RUN)
            before, weights = header["config"]["given"], header["model"]["weights_id"]
        if weights != frozen.weights_id:
            raise RunError(f"{path.parent} was run with other weights; compare into another folder")
        changed = [name for name in _SHARED_SETTINGS if before.get(name) != now[name]]
        if budgets and before["budget"] not in budgets and not has_published_sizes(now["preset"], before["method"]):
            changed.append("budget")
        if same_method := tables.get(before["method"]):
            changed += [name for name in _METHOD_SETTINGS if before.get(name) != same_method[name]]
        if changed:
            raise RunError(f"{path.parent} was run with another {', '.join(changed)}; compare into another folder")


def _make_comparison_folder(folder: Path) -> None:
    if (folder / RUN).is_file():
        raise RunError(f"{folder} is a run's own folder; name another one for the comparison")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder} cannot be made: {error.strerror}; name another folder") from None


def _check_same_run(path: Path, config: RunConfig, header: dict[str, Any]) -> None:
    """Reject a run in the comparison's folder that had other settings, another model or other data."""
    if not (path / RUN).is_file():
        return
    run = RunFolder.open(path)
    with run.explain_damaged_files(RUN):
        earlier = run.read_json(RUN)
        check_same_settings(earlier, config, path)
        check_run_inputs_unchanged(earlier, json.loads(json.dumps(header)), path)


def _load_or_compute_curve(config: RunConfig, path: Path, known: dict[str, Any], points: int) -> list[SearchCurvePoint]:
    curve = read_budget_curve(path)
    if curve is None:
        curve = list(_compute_test_accuracy_curve(config, RunFolder.open(path), known, points))
        write_budget_curve(path, curve)
    return curve


def _count_budget_curve_evaluations(run: PreparedRun, points: int) -> int:
    """Outcomes that the places before the end ask for: candidates on validation data, the best one on the test set."""
    if not isinstance(run.searcher, Searcher):
        return 0
    earlier = min(points - 1, run.searcher.max_rounds)
    return earlier * (run.searcher.max_candidates * len(run.splits.validation) + len(run.splits.test))


def _compute_test_accuracy_curve(
    config: RunConfig, folder: RunFolder, known: dict[str, Any], points: int
) -> Iterator[SearchCurvePoint]:
    """Validation's choice after some of the rounds, on the test set; drawn, never chosen from.

    Before the end ties go to the earlier candidate: to settle them on training data as a run does would cost more than
    the search. A route that workers had to give up is no candidate, and no point where it cannot be tested.
    """
    asked = np.cumsum([0, *(report.get("asked", 0) for report in folder.read_round_reports())])
    result = read_result(folder)
    # Routers have one round and choose nothing by validation; an oracle is on no curve.
    earlier = folder.load_evenly_spaced_states(points)[:-1] if result.kind == ROUTE else []
    run: Any = prepare_run(config, **known) if earlier else None
    for state in earlier:
        candidates = [candidate.route for candidate in run.searcher.candidates(state)]
        validated = run.evaluator.evaluate(candidates, run.splits.validation) if candidates else {}
        if ran := [route for route in candidates if not validated[route].failure]:
            best = max(ran, key=lambda route: validated[route].score.accuracy)
            tested = run.evaluator.evaluate([best], run.splits.test)[best]
            if not tested.failure:
                yield SearchCurvePoint(int(asked[state.rounds]), str(best), tested.score.accuracy)
    if result.kind != ORACLE:
        yield SearchCurvePoint(int(asked[-1]), result.route, result.variants[0].accuracy)
