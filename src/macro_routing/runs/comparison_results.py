"""What a comparison of methods came to, read from its runs' folders; nothing is run and no model is needed."""

import dataclasses
import hashlib
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from macro_routing.errors import RunError
from macro_routing.evaluation.statistics import Floats, bootstrap_means
from macro_routing.files import write_atomically
from macro_routing.runs import folder as files
from macro_routing.runs import methods
from macro_routing.runs.folder import RunFolder
from macro_routing.runs.methods import METHODS
from macro_routing.runs.result import ORACLE, ROUTE, STANDARD, RunResult, Variant, read_result


@dataclass(frozen=True)
class CurvePoint:
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
    found = []
    for place in sorted(folder.glob("*-*/")):
        method, _, seed = place.name.rpartition("-")
        if method in METHODS and seed.isdigit() and (curve := read_curve(place)) is not None:
            found.append(read_method_run(method, int(seed), place, curve))
    return sorted(found, key=lambda arm: (arm.seed, list(METHODS).index(arm.method)))


def describe_comparison(folder: Path) -> str:
    """What the runs of a comparison have in common, in a line; read from the first of them."""
    for place in sorted(folder.glob("*-*/")):
        try:
            header = json.loads((place / files.RUN).read_text(encoding="utf-8"))
            given, scope = header["config"]["given"], header["scope"]
            sizes = "/".join(str(header["splits"][name][0]) for name in ("train", "validation", "test"))
            asked = "" if given["budget"] is None else f", at most {given['budget']:,} evaluations each"
            task = f"{scope['task']} ({scope['decoding']['mode']}) on {header['model']['name']}"
            return f"{task}, preset {given['preset']}{asked}; {sizes} examples for training, validation and test"
        except (OSError, ValueError, TypeError, KeyError, IndexError):
            continue  # no run, or one of another version; there may be others
    return ""


def read_curve(place: Path) -> list[CurvePoint] | None:
    """The curve that was drawn for a run; None where there is none, or one of another run of that name."""
    try:
        kept = json.loads(_curve_path(place).read_text(encoding="utf-8"))
        if kept["run"] != _digest_run(place):
            return None
        return [CurvePoint(int(one["asked"]), str(one["route"]), float(one["accuracy"])) for one in kept["points"]]
    except (OSError, ValueError, TypeError, KeyError):
        return None  # it can be drawn again


def write_curve(place: Path, curve: Sequence[CurvePoint]) -> None:
    """Keep a curve beside the run's folder: a finished run is not added to."""
    kept = {"run": _digest_run(place), "points": [dataclasses.asdict(point) for point in curve]}
    try:
        write_atomically(_curve_path(place), json.dumps(kept) + "\n")
    except OSError as error:
        raise RunError(f"{_curve_path(place)} cannot be written: {error.strerror}") from None


def _curve_path(place: Path) -> Path:
    return place.with_name(f"{place.name}.curve.json")


def _digest_run(place: Path) -> str:
    """What tells a run from another of the same name."""
    return hashlib.sha256((place / files.RUN).read_bytes() + (place / files.RESULT).read_bytes()).hexdigest()


def read_method_run(method: str, seed: int, place: Path, curve: Sequence[CurvePoint]) -> MethodRun:
    """One finished run as a part of a comparison."""
    run = RunFolder.open(place)
    result, rounds = read_result(run), run.read_rounds()
    with run.explain_damage(files.ANSWERS):
        answers = run.read_json(files.ANSWERS)
        names = [example["id"] for example in answers["examples"]]
        right = {
            one.name: dict(zip(names, (bool(row["correct"]) for row in answers["routes"][one.route]), strict=True))
            for one in result.variants
        }
    asked, work, seconds = (sum(one.get(name, 0) for one in rounds) for name in ("asked", "work", "seconds"))
    return MethodRun(method, seed, result, asked, work, seconds, tuple(curve), right)


# --- the table ----------------------------------------------------------------------------------------------------


def summarize_methods(arms: Sequence[MethodRun]) -> list[MethodRow]:
    """A line for every way to choose a route: the methods, MACRO's variants, the standard pass; oracles stand apart."""
    searched = [arm for arm in arms if arm.method != methods.STANDARD]
    names = list(dict.fromkeys(one.name for arm in searched for one in arm.result.variants if one.name != STANDARD))
    rows = [_summarize_variant(name, [arm for arm in arms if name in arm.right]) for name in names]
    standard = _summarize_variant(STANDARD, list({arm.seed: arm for arm in arms}.values()))
    oracles = [row for row in rows if row.kind == ORACLE]
    return [*(row for row in rows if row.kind != ORACLE), standard, *oracles]


def _summarize_variant(name: str, arms: Sequence[MethodRun]) -> MethodRow:
    variants = [_find_variant(arm, name) for arm in arms]
    accuracies = [one.accuracy for one in variants]
    sums, counts = _sum_differences_by_example(arms, name)
    low, high = _bootstrap_interval(sums, counts)
    found = [arm for arm in arms if name != STANDARD]
    return MethodRow(
        name,
        methods.STANDARD if name == STANDARD else arms[0].method,
        len(arms),
        statistics.mean(accuracies),
        statistics.stdev(accuracies) if len(arms) > 1 else None,
        float(sums.sum() / counts.sum()),
        low,
        high,
        statistics.mean([arm.asked for arm in found] or [0]),
        statistics.mean([arm.work for arm in found] or [0]),
        statistics.mean([arm.seconds for arm in found] or [0]),
        statistics.mean([one.length for one in variants]),
        ROUTE if name == STANDARD else arms[0].result.kind,
    )


def _find_variant(arm: MethodRun, name: str) -> Variant:
    return next(one for one in arm.result.variants if one.name == name)


def _sum_differences_by_example(arms: Sequence[MethodRun], name: str) -> tuple[Floats, Floats]:
    """By test example: the sum of its differences to the standard pass over seeds, and how many seeds met it."""
    found: dict[str, list[int]] = {}
    for arm in arms:
        for example, right in arm.right[name].items():
            found.setdefault(example, []).append(int(right) - int(arm.right[STANDARD][example]))
    return np.array([sum(one) for one in found.values()], float), np.array([len(one) for one in found.values()], float)


def _bootstrap_interval(sums: Floats, counts: Floats, resamples: int = 4000) -> tuple[float, float]:
    """Percentile interval of the mean difference, examples resampled: seeds that share one are no new evidence."""
    means = bootstrap_means(sums, counts, np.random.default_rng(0), resamples)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)
