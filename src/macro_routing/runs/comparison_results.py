"""What a comparison of methods came to, read from its runs' folders; nothing is run and no model is needed."""

import dataclasses
import hashlib
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from macro_routing.errors import RunError
from macro_routing.evaluation.statistics import Floats, bootstrap_means
from macro_routing.files import write_atomically
from macro_routing.runs.folder import ANSWERS, CANDIDATES, LOG, RESULT, RUN, RunFolder
from macro_routing.runs.methods import METHODS
from macro_routing.runs.methods import STANDARD as STANDARD_METHOD
from macro_routing.runs.result import ORACLE, ROUTE, STANDARD, RunResult, read_result

_RESAMPLES = 4000


@dataclass(frozen=True)
class SearchCurvePoint:
    """What a search would have come to, had it ended here."""

    asked: int
    """Outcomes asked for so far."""
    route: str
    accuracy: float
    """On the test set, of the route that validation chooses here."""


@dataclass(frozen=True)
class MethodRun:
    """One method with one seed."""

    method: str
    seed: int
    result: RunResult
    asked: float
    """Evaluations that the search asked for."""
    work: float
    """Layer applications × tokens of the answers it looked at."""
    seconds: float
    curve: tuple[SearchCurvePoint, ...]
    right: dict[str, dict[str, bool]]
    """By variant and test example: whether the answer was correct."""
    validation_accuracy: float = 0.0
    """Of the chosen route; 0 where it was not chosen among candidates."""
    selection_seconds: float = 0.0
    """From the last round to the test: validation, or training of routers."""


@dataclass(frozen=True)
class MethodRow:
    """A line of the table: one way to choose a route, over all seeds."""

    name: str
    """As it is shown."""
    method: str
    """As ``--methods`` names it; MACRO's variants are of one method."""
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


def read_method_runs(folder: Path) -> list[MethodRun]:
    """What a comparison's folder holds already, by seed and method; nothing is run and no model is needed."""
    runs = []
    for path in sorted(folder.glob("*-*/")):
        method, _, seed = path.name.rpartition("-")
        if method in METHODS and seed.isdigit() and (curve := read_budget_curve(path)) is not None:
            runs.append(read_method_run(method, int(seed), path, curve))
    return sorted(runs, key=lambda run: (run.seed, list(METHODS).index(run.method)))


def describe_shared_run_settings(folder: Path) -> str:
    """What the runs of a comparison have in common, in a line; read from the first of them."""
    for path in sorted(folder.glob("*-*/")):
        try:
            header = json.loads((path / RUN).read_text(encoding="utf-8"))
            given, scope = header["config"]["given"], header["scope"]
            sizes = "/".join(str(header["splits"][name][0]) for name in ("train", "validation", "test"))
            asked = "" if given["budget"] is None else f", at most {given['budget']:,} evaluations each"
            task = f"{scope['task']} ({scope['decoding']['mode']}) on {header['model']['name']}"
            return f"{task}, preset {given['preset']}{asked}; {sizes} examples for training, validation and test"
        except (OSError, ValueError, TypeError, KeyError, IndexError):
            continue  # no run, or one of another version; there may be others
    return ""


def read_budget_curve(path: Path) -> list[SearchCurvePoint] | None:
    """The curve that was drawn for a run; None where there is none, or one of another run of that name."""
    try:
        curve = json.loads(_get_curve_json_path(path).read_text(encoding="utf-8"))
        points = [
            SearchCurvePoint(int(point["asked"]), str(point["route"]), float(point["accuracy"]))
            for point in curve["points"]
        ]
        return points if curve["run"] == _digest_run(path) else None
    except (OSError, ValueError, TypeError, KeyError):
        return None  # it can be drawn again


def write_budget_curve(path: Path, curve: Sequence[SearchCurvePoint]) -> None:
    """Keep a curve beside the run's folder: a finished run is not added to."""
    curve_file = {"run": _digest_run(path), "points": [dataclasses.asdict(point) for point in curve]}
    try:
        write_atomically(_get_curve_json_path(path), json.dumps(curve_file) + "\n")
    except OSError as error:
        raise RunError(f"{_get_curve_json_path(path)} cannot be written: {error.strerror}") from None


def _get_curve_json_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.curve.json")


def _digest_run(path: Path) -> str:
    """What tells a run from another of the same name."""
    return hashlib.sha256((path / RUN).read_bytes() + (path / RESULT).read_bytes()).hexdigest()


def read_method_run(method: str, seed: int, path: Path, curve: Sequence[SearchCurvePoint]) -> MethodRun:
    """One finished run as a part of a comparison."""
    run = RunFolder.open(path)
    result, rounds = read_result(run), run.read_round_reports()
    with run.explain_damaged_files(ANSWERS):
        answers = run.read_json(ANSWERS)
        names = [example["id"] for example in answers["examples"]]
        right = {
            variant.name: dict(
                zip(names, (bool(row["correct"]) for row in answers["routes"][variant.route]), strict=True)
            )
            for variant in result.variants
        }
    asked, work, seconds = (sum(report.get(name, 0) for report in rounds) for name in ("asked", "work", "seconds"))
    return MethodRun(
        method,
        seed,
        result,
        asked,
        work,
        seconds,
        tuple(curve),
        right,
        _read_validation_accuracy(run),
        measure_selection_seconds(path),
    )


def _read_validation_accuracy(run: RunFolder) -> float:
    if not (run.path / CANDIDATES).is_file():
        return 0.0
    with run.explain_damaged_files(CANDIDATES):
        choice = run.read_json(CANDIDATES)
        chosen = [candidate for candidate in choice["candidates"] if candidate["route"] == choice["chosen"]]
        return float(chosen[0]["correct"] / chosen[0]["n"]) if chosen else 0.0


def measure_selection_seconds(run: Path) -> float:
    """Time from the last round to the test, without pauses between two processes; read from the run's log."""
    since, last, spent, selection = None, None, 0.0, None
    try:
        lines = (run / LOG).read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    for line in lines:
        if not line[:4].isdigit():
            continue
        when, event = datetime.fromisoformat(line[:19]), line[21:]
        if event.startswith("round "):
            since, spent = when, 0.0
        elif event.startswith("begins or goes on"):
            if since is not None and last is not None:
                spent += (last - since).total_seconds()
            since = when
        elif event.startswith("test:") and since is not None and selection is None:
            selection = spent + (when - since).total_seconds()  # a run stopped in its test has selected already
        last = when
    return selection or 0.0


# --- the table ----------------------------------------------------------------------------------------------------


def summarize_methods(runs: Sequence[MethodRun]) -> list[MethodRow]:
    """A line for every way to choose a route: the methods, MACRO's variants, the standard pass; oracles stand apart."""
    searched = [run for run in runs if run.method != STANDARD_METHOD]
    names = list(
        dict.fromkeys(variant.name for run in searched for variant in run.result.variants if variant.name != STANDARD)
    )
    rows = [_average_variant_over_runs(name, [run for run in runs if name in run.right]) for name in names]
    standard = _average_variant_over_runs(STANDARD, list({run.seed: run for run in runs}.values()))
    oracles = [row for row in rows if row.kind == ORACLE]
    return [*(row for row in rows if row.kind != ORACLE), standard, *oracles]


def _average_variant_over_runs(name: str, runs: Sequence[MethodRun]) -> MethodRow:
    variants = [next(variant for variant in run.result.variants if variant.name == name) for run in runs]
    accuracies = [variant.accuracy for variant in variants]
    sums, counts = _sum_differences_by_example(runs, name)
    # Examples are resampled: seeds that share one are no new evidence.
    low, high = np.percentile(bootstrap_means(sums, counts, np.random.default_rng(0), _RESAMPLES), [2.5, 97.5])
    is_standard = name == STANDARD
    asked, work, seconds = (
        0 if is_standard else statistics.mean(getattr(run, cost) for run in runs)
        for cost in ("asked", "work", "seconds")
    )
    return MethodRow(
        name,
        STANDARD_METHOD if is_standard else runs[0].method,
        len(runs),
        statistics.mean(accuracies),
        statistics.stdev(accuracies) if len(runs) > 1 else None,
        float(sums.sum() / counts.sum()),
        float(low),
        float(high),
        asked,
        work,
        seconds,
        statistics.mean(variant.length for variant in variants),
        ROUTE if is_standard else runs[0].result.kind,
    )


def _sum_differences_by_example(runs: Sequence[MethodRun], name: str) -> tuple[Floats, Floats]:
    """By test example: the sum of its differences to the standard pass over seeds, and how many seeds met it."""
    differences: dict[str, list[int]] = {}
    for run in runs:
        for example, correct in run.right[name].items():
            differences.setdefault(example, []).append(int(correct) - int(run.right[STANDARD][example]))
    by_example = differences.values()
    return np.array([sum(seeds) for seeds in by_example], float), np.array([len(seeds) for seeds in by_example], float)
