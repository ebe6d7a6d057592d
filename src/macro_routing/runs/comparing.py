"""Methods against each other: the same model, data and budget for each, over several seeds.

Every method and seed is an ordinary run in a folder of its own, so a comparison that was stopped goes on where it was,
and scores that one method has asked for are known to the next. Nothing is chosen on test data: each run tests its own
choice, and the curve shows what validation would have chosen earlier.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from macro_routing.errors import RunError, SettingsError, suggestion
from macro_routing.evaluation.statistics import paired_bootstrap
from macro_routing.models.frozen import FrozenModel, load_model
from macro_routing.runs import folder as files
from macro_routing.runs import methods
from macro_routing.runs.config import RunConfig
from macro_routing.runs.folder import RunFolder
from macro_routing.runs.methods import METHODS, known_settings
from macro_routing.runs.progress import Listener
from macro_routing.runs.result import ORACLE, ROUTE, STANDARD, RunResult, Variant
from macro_routing.runs.run import prepare, read_result, resume
from macro_routing.runs.run import search as run_search
from macro_routing.search.searcher import Searcher
from macro_routing.tasks.task import Task

POINTS = 8
"""Places on the curve of a search, at most."""


@dataclass(frozen=True)
class CurvePoint:
    """What a search would have come to, had it ended here."""

    asked: int
    """Outcomes asked for so far."""
    route: str
    accuracy: float
    """On the test set, of the route that validation chooses here."""


@dataclass(frozen=True)
class Arm:
    """One method with one seed."""

    method: str
    seed: int
    result: RunResult
    asked: int
    """Outcomes the search asked for."""
    work: float
    """Layer applications × tokens of the answers it looked at."""
    seconds: float
    curve: tuple[CurvePoint, ...]
    right: dict[str, dict[str, bool]]
    """By variant and test example: whether the answer was right."""


@dataclass(frozen=True)
class MethodRow:
    """A line of the table: one way to choose a route, over all seeds."""

    name: str
    seeds: int
    accuracy: float
    spread: float | None
    """Sample standard deviation over seeds; None for one."""
    difference: float
    """Mean paired difference to the standard pass."""
    low: float
    high: float
    asked: float
    work: float
    seconds: float
    layers: float
    """Mean layer applications of the chosen routes: what running them costs."""
    kind: str = ROUTE
    """A route, a router, or an oracle, which is a bound and no method."""


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
) -> list[Arm]:
    """Run what is missing of every method with every seed; ``search`` are settings for those that know them."""
    check_methods(names, seeds)
    given = {**base.search, **(search or {})}
    configs = [(method, seed, config_for(base, method, seed, given)) for seed in seeds for method in names]
    listener = listener or Listener()
    frozen = frozen or load_model(base.model, base.load_options, listener.on_message)
    if base.budget is None:  # one budget for all: what MACRO asks for
        literal = prepare(config_for(base, methods.MACRO, seeds[0], given), frozen=frozen, task=task, store=store)
        budget = literal.searcher.most_outcomes()
        configs = [(method, seed, dataclasses.replace(config, budget=budget)) for method, seed, config in configs]
    folder.mkdir(parents=True, exist_ok=True)
    arms = []
    for method, seed, config in configs:
        place = folder / f"{method}-{seed}"
        known: dict[str, Any] = {"frozen": frozen, "task": task, "listener": listener, "store": store}
        if (place / files.RUN).is_file():
            _check_asked_alike(place, config)
            resume(place, **known)
        else:
            run_search(config, place, **known)
        arms.append(_arm(method, seed, place, _with_curve(config, place, known)))
    return arms


def check_methods(names: Sequence[str], seeds: Sequence[int]) -> None:
    """Refuse what cannot be compared before anything is loaded."""
    for method in names:
        if method not in METHODS:
            raise SettingsError(f"{method} is no method; known: {', '.join(METHODS)}{suggestion(method, METHODS)}")
    for name, values in (("method", names), ("seed", seeds)):
        if not values or len(set(values)) < len(values):
            raise SettingsError(f"a comparison needs every {name} once, and at least one")


def config_for(base: RunConfig, method: str, seed: int, given: Mapping[str, Any]) -> RunConfig:
    """The run of one method; it takes those of the settings given that it knows."""
    return dataclasses.replace(base, method=method, seed=seed, search=known_settings(method, given))


def _check_asked_alike(place: Path, config: RunConfig) -> None:
    before = RunFolder.existing(place).read(files.RUN)["config"]["given"]
    now = config.given()
    changed = [name for name in now if before.get(name) != _plain(now[name])]
    if changed:
        raise RunError(
            f"{place} was run with other settings ({', '.join(changed)});"
            " compare into another folder, or with the settings it was begun with"
        )


def _plain(value: Any) -> Any:
    """As JSON gives it back."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def read_arms(folder: Path) -> list[Arm]:
    """What a comparison's folder holds already, by seed and method; nothing is run and no model is needed."""
    found = []
    for place in sorted(folder.glob("*-*/")):
        method, _, seed = place.name.rpartition("-")
        if method in METHODS and seed.isdigit() and _curve_file(place).is_file():
            points = json.loads(_curve_file(place).read_text(encoding="utf-8"))
            found.append(_arm(method, int(seed), place, [CurvePoint(**point) for point in points]))
    return sorted(found, key=lambda arm: (arm.seed, list(METHODS).index(arm.method)))


def _curve_file(place: Path) -> Path:
    """Beside the run's folder: a finished run is not added to."""
    return place.with_name(f"{place.name}.curve.json")


def _with_curve(config: RunConfig, place: Path, known: dict[str, Any]) -> list[CurvePoint]:
    """The curve as it was drawn, or drawn now."""
    file = _curve_file(place)
    if file.is_file():
        return [CurvePoint(**point) for point in json.loads(file.read_text(encoding="utf-8"))]
    curve = list(_curve(config, RunFolder.existing(place), known))
    file.write_text(json.dumps([dataclasses.asdict(point) for point in curve]) + "\n", encoding="utf-8")
    return curve


def _arm(method: str, seed: int, place: Path, curve: Sequence[CurvePoint]) -> Arm:
    run = RunFolder.existing(place)
    result, rounds, answers = read_result(run), run.rounds(), run.read(files.ANSWERS)
    names = [example["id"] for example in answers["examples"]]
    right = {
        one.name: dict(zip(names, (bool(row["correct"]) for row in answers["routes"][one.route]), strict=True))
        for one in result.variants
    }
    asked, work = (sum(one.get(name, 0) for one in rounds) for name in ("asked", "work"))
    return Arm(method, seed, result, asked, work, sum(one["seconds"] for one in rounds), tuple(curve), right)


def _curve(config: RunConfig, place: RunFolder, known: dict[str, Any]) -> Iterator[CurvePoint]:
    """Validation's choice after some of the rounds, on the test set; drawn, never chosen from.

    Before the end ties go to the earlier candidate: to settle them on training data as a run does would cost more than
    the search.
    """
    asked = np.cumsum([0, *(one.get("asked", 0) for one in place.rounds())])
    result = read_result(place)
    if result.kind != ROUTE:  # these have one round and choose nothing by validation; an oracle is on no curve
        if result.kind != ORACLE:
            yield CurvePoint(int(asked[-1]), result.route, result.variants[0].accuracy)
        return
    prepared = prepare(config, **known)
    assert isinstance(prepared.searcher, Searcher)
    for state in place.some_states(POINTS)[:-1]:
        if candidates := [one.route for one in prepared.searcher.candidates(state)]:
            validated = prepared.evaluator.evaluate(candidates, prepared.splits.validation)
            best = max(candidates, key=lambda route: validated[route].score.accuracy)
            tested = prepared.evaluator.evaluate([best], prepared.splits.test)[best]
            yield CurvePoint(int(asked[state.rounds]), str(best), tested.score.accuracy)
    yield CurvePoint(int(asked[-1]), result.route, result.variants[0].accuracy)


# --- the table ----------------------------------------------------------------------------------------------------


def table_of(arms: Sequence[Arm]) -> list[MethodRow]:
    """A line for every way to choose a route: the methods, MACRO's variants, the standard pass; oracles stand apart."""
    searched = [arm for arm in arms if arm.method != methods.STANDARD]
    names = list(dict.fromkeys(one.name for arm in searched for one in arm.result.variants if one.name != STANDARD))
    rows = [_row(name, [arm for arm in arms if name in arm.right]) for name in names]
    standard = _row(STANDARD, list({arm.seed: arm for arm in arms}.values()))
    oracles = [row for row in rows if row.kind == ORACLE]
    return [*(row for row in rows if row.kind != ORACLE), standard, *oracles]


def _row(name: str, arms: Sequence[Arm]) -> MethodRow:
    variants = [_variant(arm, name) for arm in arms]
    accuracies = [one.accuracy for one in variants]
    differences = _by_example(arms, name)
    low, high = paired_bootstrap(np.zeros(len(differences)), differences)
    found = [arm for arm in arms if name != STANDARD]
    return MethodRow(
        name,
        len(arms),
        statistics.mean(accuracies),
        statistics.stdev(accuracies) if len(arms) > 1 else None,
        float(np.mean(differences)),
        low,
        high,
        statistics.mean([arm.asked for arm in found] or [0]),
        statistics.mean([arm.work for arm in found] or [0]),
        statistics.mean([arm.seconds for arm in found] or [0]),
        statistics.mean([one.length for one in variants]),
        ROUTE if name == STANDARD else arms[0].result.kind,
    )


def _variant(arm: Arm, name: str) -> Variant:
    return next(one for one in arm.result.variants if one.name == name)


def _by_example(arms: Sequence[Arm], name: str) -> list[float]:
    """Difference to the standard pass, one per test example: seeds that share an example are no new evidence."""
    found: dict[str, list[int]] = {}
    for arm in arms:
        for example, right in arm.right[name].items():
            found.setdefault(example, []).append(int(right) - int(arm.right[STANDARD][example]))
    return [statistics.mean(values) for values in found.values()]
