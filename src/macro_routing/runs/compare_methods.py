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
from macro_routing.runs import folder as files
from macro_routing.runs import methods
from macro_routing.runs.comparison_results import CurvePoint, MethodRun, read_curve, read_method_run, write_curve
from macro_routing.runs.config import RunConfig
from macro_routing.runs.folder import RunFolder
from macro_routing.runs.methods import check_methods, keep_known_settings
from macro_routing.runs.prepare import (
    check_same_inputs,
    check_same_settings,
    load_configured_model,
    load_configured_task,
    prepare_run,
    resume_run,
    run_search,
    start_workers,
)
from macro_routing.runs.prepared_run import PreparedRun
from macro_routing.runs.progress import Listener, RunPlan
from macro_routing.runs.result import ORACLE, ROUTE, read_result
from macro_routing.search.searcher import Searcher
from macro_routing.tasks.task import Task
from macro_routing.workers.worker_settings import WorkerSettings

POINTS = 8
"""Places on the curve of a search, at most."""


@dataclass(frozen=True)
class PlannedRun:
    """One method with one seed, before it is run."""

    method: str
    seed: int
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
    check_methods(names, seeds)
    if task is None:
        load_configured_task(base)  # what cannot be read is refused before the model is loaded
    listener = listener or Listener()
    # The same workers for all: what they know of a task, its prompts and its grader, depends on no seed.
    with start_workers(base, workers, listener) as pool:
        frozen = frozen or load_configured_model(base, pool, listener)
        known: dict[str, Any] = {"frozen": frozen, "task": task, "store": store}
        # All of them before the first is run: what one would refuse at the end is refused now.
        planned = plan_methods(base, names, seeds, folder, known, search, points)
        _make_comparison_folder(folder)
        known["listener"] = listener
        arms = []
        for number, one in enumerate(planned, 1):
            listener.on_message(f"run {number} of {len(planned)}: {one.method}, seed {one.seed}")
            place = _run_or_resume(one.config, _run_path(folder, one.method, one.seed), {**known, "workers": pool})
            curve = _load_or_compute_curve(one.config, place, {**known, "executor": pool}, points)
            arms.append(read_method_run(one.method, one.seed, place, curve))
        return arms


def plan_methods(  # noqa: PLR0913
    base: RunConfig,
    names: Sequence[str],
    seeds: Sequence[int],
    folder: Path,
    known: Mapping[str, Any],
    search: Mapping[str, Any] | None = None,
    points: int = POINTS,
) -> list[PlannedRun]:
    """Every run of a comparison, held against what is in its folder; nothing is run and no folder is made."""
    planned = []
    for method, seed, config in make_method_configs(base, names, seeds, known, search):
        place, run = _run_path(folder, method, seed), prepare_run(config, **known)
        _check_same_run(place, config, run.make_header())
        finished = read_curve(place) is not None
        most = run.plan.max_evaluations + _count_curve_evaluations(run, points)
        planned.append(PlannedRun(method, seed, config, run.plan, most, finished))
    _check_other_runs(folder, [one.config for one in planned], known["frozen"])
    return planned


def _run_path(folder: Path, method: str, seed: int) -> Path:
    return folder / f"{method}-{seed}"


def make_method_configs(
    base: RunConfig,
    names: Sequence[str],
    seeds: Sequence[int],
    known: Mapping[str, Any],
    search: Mapping[str, Any] | None = None,
) -> list[tuple[str, int, RunConfig]]:
    """Method, seed and settings of every run of a comparison; without a budget all have what MACRO asks for."""
    given = {**base.given.get("search", {}), **(search or {})}
    configs = [(method, seed, make_method_config(base, method, seed, given)) for seed in seeds for method in names]
    if base.budget is None:
        budget = prepare_run(
            make_method_config(base, methods.MACRO, seeds[0], given), **known
        ).searcher.max_evaluations()
        configs = [(method, seed, config.with_changes(budget=budget)) for method, seed, config in configs]
    return configs


def _run_or_resume(config: RunConfig, place: Path, known: dict[str, Any]) -> Path:
    """Run, or go on with, what belongs in a folder."""
    if (place / files.RUN).is_file():
        resume_run(place, **known)
    else:
        run_search(config, place, **known)
    return place


_SHARED_SETTINGS = (
    "task",
    "model",
    "preset",
    "budget",
    "racing",
    "decoder",
    "loading",
    "data",
    "decoding",
    "space",
    "units",
)
_METHOD_SETTINGS = ("search", "guard", "init_from")


def _check_other_runs(folder: Path, configs: Sequence[RunConfig], frozen: FrozenModel) -> None:
    """Reject to put runs beside others that had another model, task, budget or data: one table is made of all.

    Runs of one method are one line of it, so they had the same settings of their search, too.
    """
    now = configs[0].to_tables()
    methods_now = {config.method: config.to_tables() for config in configs}
    for path in sorted(folder.glob(f"*-*/{files.RUN}")):
        run = RunFolder.open(path.parent)
        with run.explain_damage(files.RUN):
            header = run.read_json(files.RUN)
            before, weights = header["config"]["given"], header["model"]["weights_id"]
        if weights != frozen.weights_id:
            raise RunError(f"{path.parent} was run with other weights; compare into another folder")
        changed = [name for name in _SHARED_SETTINGS if before.get(name) != _to_json_values(now[name])]
        if mine := methods_now.get(before["method"]):
            changed += [name for name in _METHOD_SETTINGS if before.get(name) != _to_json_values(mine[name])]
        if changed:
            raise RunError(f"{path.parent} was run with another {', '.join(changed)}; compare into another folder")


def _make_comparison_folder(folder: Path) -> None:
    if (folder / files.RUN).is_file():
        raise RunError(f"{folder} is a run's own folder; name another one for the comparison")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder} cannot be made: {error.strerror}; name another folder") from None


def make_method_config(base: RunConfig, method: str, seed: int, given: Mapping[str, Any]) -> RunConfig:
    """The run of one method; it takes those of the settings given that it knows."""
    return base.with_changes(method=method, seed=seed, search=keep_known_settings(method, given))


def _check_same_run(place: Path, config: RunConfig, header: dict[str, Any]) -> None:
    """Reject to put a run beside others that was asked something else, or of another model or other data."""
    if not (place / files.RUN).is_file():
        return
    run = RunFolder.open(place)
    with run.explain_damage(files.RUN):
        earlier = run.read_json(files.RUN)
        check_same_settings(earlier, config, place)
        check_same_inputs(earlier, json.loads(json.dumps(header)), place)


def _to_json_values(value: Any) -> Any:
    """As JSON gives it back."""
    if isinstance(value, dict):
        return {key: _to_json_values(item) for key, item in value.items()}
    return [_to_json_values(item) for item in value] if isinstance(value, list | tuple) else value


def _load_or_compute_curve(config: RunConfig, place: Path, known: dict[str, Any], points: int) -> list[CurvePoint]:
    """The curve as it was drawn, or drawn now."""
    if (known_already := read_curve(place)) is not None:
        return known_already
    curve = list(_compute_curve(config, RunFolder.open(place), known, points))
    write_curve(place, curve)
    return curve


def _count_curve_evaluations(run: PreparedRun, points: int) -> int:
    """Outcomes that the places before the end ask for: candidates on validation data, the best one on the test set."""
    if not isinstance(run.searcher, Searcher):
        return 0
    earlier = min(points - 1, run.searcher.max_rounds)
    return earlier * (run.searcher.max_candidates * len(run.splits.validation) + len(run.splits.test))


def _compute_curve(config: RunConfig, place: RunFolder, known: dict[str, Any], points: int) -> Iterator[CurvePoint]:
    """Validation's choice after some of the rounds, on the test set; drawn, never chosen from.

    Before the end ties go to the earlier candidate: to settle them on training data as a run does would cost more than
    the search. A route that workers had to give up is no candidate, and no point where it cannot be tested.
    """
    asked = np.cumsum([0, *(one.get("asked", 0) for one in place.read_rounds())])
    result = read_result(place)
    if result.kind != ROUTE:  # these have one round and choose nothing by validation; an oracle is on no curve
        if result.kind != ORACLE:
            yield CurvePoint(int(asked[-1]), result.route, result.variants[0].accuracy)
        return
    earlier = place.sample_states(points)[:-1]
    prepared = prepare_run(config, **known) if earlier else None
    for state in earlier:
        assert prepared is not None
        assert isinstance(prepared.searcher, Searcher)
        if candidates := [one.route for one in prepared.searcher.candidates(state)]:
            validated = prepared.evaluator.evaluate(candidates, prepared.splits.validation)
            ran = [route for route in candidates if not validated[route].failure]
            if not ran:
                continue
            best = max(ran, key=lambda route: validated[route].score.accuracy)
            tested = prepared.evaluator.evaluate([best], prepared.splits.test)[best]
            if not tested.failure:
                yield CurvePoint(int(asked[state.rounds]), str(best), tested.score.accuracy)
    yield CurvePoint(int(asked[-1]), result.route, result.variants[0].accuracy)
