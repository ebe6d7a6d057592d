"""The final decision on recorded landscapes: errors where no route is better, and whether what it states is true.

    python -m experiments.decisions {null,calibration,speed,power} [--replays N] [--first 1000] [--processes 2]
        [--runs FILE] [--landscapes NAME,NAME] [--write FILE]

A replay is a whole guided search on a recorded landscape. Two fifths of its examples judge what was returned; neither
the search nor the decision sees them. *null*: the outcomes of all routes on an example are complemented jointly with
probability 1/2, so that no route is better than another. *calibration*: the prior of the gain is learned on all tasks
but one, and what it predicts for the finalists of that task is compared with what the judging examples show. *speed*:
the search is for the fastest route that is as accurate, and its claim is checked on all examples of the landscape.
*power*: the same searches as those kept with the decision of commit d0b977b, where there is a gain to find.
"""

import argparse
import itertools
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from benchmarks.record import write_record
from experiments.landscape import Landscape
from experiments.landscapes import RAW_FOLDER
from experiments.replay import complement_examples, replay_search
from experiments.replay_searches import evaluation_budget, make_searches
from macro_routing.evaluation.gain_posterior import PRIOR_SCALES, GainPosterior
from macro_routing.evaluation.statistics import holm_correction, mcnemar_p_value, wilson_interval
from macro_routing.search.decision_settings import ACCURACY, DecisionSettings

NULL, CALIBRATION, SPEED, POWER = KINDS = ("null", "calibration", "speed", "power")
EARLIER = RAW_FOLDER.parent / "earlier_decision.jsonl"
"""Replays with the decision before it became a corrected test."""
LEVELS = (0.5, 0.8, 0.95)
_EM_STEPS, _PSEUDO_COUNT = 300, 0.5
NULL_COLUMNS = {
    "mode": "answers",
    "returned_percent": "another route returned (%)",
    "low": "95 % interval, from",
    "high": "to",
    "n": "replays",
}
CALIBRATION_COLUMNS = {
    "expected": "expected gain (points)",
    "n": "finalists",
    "mean_expected": "mean expected",
    "mean_measured": "mean measured",
    **{f"coverage_{round(100 * level)}": f"within the {round(100 * level)} % interval (%)" for level in LEVELS},
}
SPEED_COLUMNS = {
    "landscape": "landscape",
    "saved": "layers saved (%)",
    "change": "accuracy change on unseen examples, points",
    "low": "95 % interval, from",
    "high": "to",
    "returned_percent": "route with fewer layers returned (%)",
    "true_percent": "claim true (%)",
    "n": "replays",
}
POWER_COLUMNS = {
    "landscape": "landscape",
    "examples": "examples",
    "earlier": "gain with the earlier decision rule, points",
    "now": "with the decision of today",
    "difference": "difference",
    "low": "95 % interval, from",
    "high": "to",
    "n": "replays",
}
BINS = (-np.inf, -0.01, 0.01, 0.03, np.inf)
Job = tuple[str, str, int]
"""Kind, landscape and seed."""


def run_replay(job: Job) -> dict[str, Any]:
    """One search on one landscape; counts of fixed and broken examples of all finalists."""
    kind, name, seed = job
    landscape = Landscape.load(RAW_FOLDER / f"{name}.json")
    own_seed = zlib.crc32(f"{kind} {name} {seed}".encode())  # no two replays deal or complement examples alike
    if kind == NULL:
        landscape = complement_examples(landscape, own_seed)
    decision = DecisionSettings(SPEED if kind == SPEED else ACCURACY)
    make = make_searches(landscape, decision)["guided"]
    result = replay_search(make, landscape, budget=evaluation_budget(landscape), seed=own_seed)
    return {
        "kind": kind,
        "landscape": name,
        "seed": seed,
        "mode": landscape.about["mode"],
        "task": landscape.about["task"],
        "layers": landscape.layers,
        "returned": None if result.route.is_standard else str(result.route),
        "length": result.route.length,
        "gain_of_all": landscape.gain(result.route),
        "finalists": [
            {
                "route": str(finalist.evidence.route),
                "length": finalist.evidence.route.length,
                "p_value": finalist.evidence.p_value,
                "fresh": count_changes(finalist.evidence.differences),
                "judged": count_changes(finalist.judged),
            }
            for finalist in result.finalists
        ],
    }


def count_changes(differences: NDArray[np.int8] | NDArray[np.float64]) -> list[int]:
    """Fixed, broken and all examples."""
    return [int((differences > 0).sum()), int((differences < 0).sum()), len(differences)]


def list_jobs(kind: str, replays: int, first: int, names: Sequence[str] = ()) -> Iterator[Job]:
    """For the null, replays for each way to answer, over its landscapes in turn; else for each landscape."""
    if kind == POWER:
        yield from ((kind, line["landscape"], line["seed"]) for line in map(json.loads, _read_lines(EARLIER)))
        return
    names = names or sorted(path.stem for path in RAW_FOLDER.glob("*.json"))
    if kind != NULL:
        yield from ((kind, name, first + seed) for seed in range(replays) for name in names)
        return
    by_mode: dict[str, list[str]] = {}
    for name in names:
        by_mode.setdefault(name.rsplit("-", 1)[1], []).append(name)
    for same in by_mode.values():
        yield from ((kind, same[number % len(same)], first + number // len(same)) for number in range(replays))


def make_null_rows(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """How often another route was returned, by way to answer."""
    rows = []
    for mode in sorted({run["mode"] for run in runs}):
        returned = [run["returned"] is not None for run in runs if run["mode"] == mode]
        low, high = wilson_interval(float(np.mean(returned)), len(returned))
        rows.append(
            {
                "mode": mode,
                "returned_percent": 100 * float(np.mean(returned)),
                "low": 100 * low,
                "high": 100 * high,
                "n": len(returned),
            }
        )
    return rows


def make_speed_rows(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """By landscape and for all: what was saved, what it cost, and how often the route loses at most the margin."""
    margin = DecisionSettings().margin / 100
    names = sorted({run["landscape"] for run in runs})
    rows = []
    for name in [*names, "all"]:
        same = [run for run in runs if name in (run["landscape"], "all")]
        changes = 100 * np.array([_measured_change(run) for run in same])
        error = norm.ppf(0.975) * changes.std(ddof=1) / len(changes) ** 0.5
        rows.append(
            {
                "landscape": name,
                "saved": 100 * float(np.mean([1 - run["length"] / run["layers"] for run in same])),
                "change": float(changes.mean()),
                "low": float(changes.mean() - error),
                "high": float(changes.mean() + error),
                "returned_percent": 100 * float(np.mean([run["returned"] is not None for run in same])),
                "true_percent": 100 * float(np.mean([run["gain_of_all"] >= -margin for run in same])),
                "n": len(same),
            }
        )
    return rows


def make_power_rows(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """By landscape and for all: what was gained on the judging examples, with the earlier decision rule and now."""
    earlier = {(line["landscape"], line["seed"]): line["gain"] for line in map(json.loads, _read_lines(EARLIER))}
    rows = []
    for name in [*sorted({run["landscape"] for run in runs}), "all"]:
        same = [run for run in runs if name in (run["landscape"], "all")]
        before = 100 * np.array([earlier[run["landscape"], run["seed"]] for run in same])
        now = 100 * np.array([_measured_change(run) for run in same])
        difference = now - before
        error = norm.ppf(0.975) * difference.std(ddof=1) / len(same) ** 0.5
        size = "" if name == "all" else Landscape.load(RAW_FOLDER / f"{name}.json").examples
        means = {"earlier": before.mean(), "now": now.mean(), "difference": difference.mean()}
        means |= {"low": difference.mean() - error, "high": difference.mean() + error}
        told = {what: float(mean) for what, mean in means.items()}
        rows.append({"landscape": name, "examples": size, **told, "n": len(same)})
    return rows


def _read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _measured_change(run: dict[str, Any]) -> float:
    """On the judging examples, of the returned route."""
    judged = next((one["judged"] for one in run["finalists"] if one["route"] == run["returned"]), (0, 0, 1))
    return (judged[0] - judged[1]) / judged[2]


def fit_prior_weights(counts: Sequence[tuple[int, int, int]], weights: NDArray[np.float64]) -> list[float]:
    """The weights of the prior's components, by expectation maximization on fixed, broken and all examples."""
    uniform = np.full(len(PRIOR_SCALES), 1 / len(PRIOR_SCALES))
    evidence = np.array([GainPosterior.from_counts(*count, uniform.tolist()).weights for count in counts])
    prior = uniform
    for _ in range(_EM_STEPS):
        shares = evidence * prior
        prior = weights @ (shares / shares.sum(axis=1, keepdims=True)) + _PSEUDO_COUNT
        prior /= prior.sum()
    fitted: list[float] = prior.tolist()
    return fitted


def predict_left_out_tasks(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every finalist with what a prior learned on the other tasks predicts, and what the judging examples show."""
    finalists = [
        {"task": run["task"], "landscape": run["landscape"], "seed": run["seed"], **finalist}
        | {"returned": finalist["route"] == run["returned"]}
        for run in runs
        for finalist in run["finalists"]
    ]
    for task in sorted({run["task"] for run in runs}):
        others = [finalist for finalist in finalists if finalist["task"] != task]
        sizes = {run["landscape"]: 0 for run in runs}
        for finalist in others:
            sizes[finalist["landscape"]] += 1
        weights = np.array([1 / sizes[finalist["landscape"]] for finalist in others])
        prior = fit_prior_weights([tuple(finalist["fresh"]) for finalist in others], weights)
        for finalist in finalists:
            if finalist["task"] == task:
                fixed, broken, n = finalist["fresh"]
                posterior = GainPosterior.from_counts(fixed, broken, n, prior)
                fixed, broken, n = finalist["judged"]
                measured, noise = (fixed - broken) / n, (fixed + broken + 2) / n**2
                finalist |= {
                    "expected": posterior.expected_gain,
                    "measured": measured,
                    "quantile": posterior.measured_gain_cdf(measured, noise),
                }
    return finalists


def make_calibration_rows(finalists: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Expected and measured gains by bins of the expected gain, and all together; in points."""
    groups = {"all": list(finalists)}
    for low, high in itertools.pairwise(BINS):
        name = f"{100 * low:+.0f} to {100 * high:+.0f}".replace("-inf to ", "below ").replace(" to +inf", " and more")
        groups[name] = [finalist for finalist in finalists if low <= finalist["expected"] < high]
    groups["returned routes"] = [finalist for finalist in finalists if finalist["returned"]]
    rows = []
    for name, group in groups.items():
        quantiles = np.array([finalist["quantile"] for finalist in group])
        covered = {
            f"coverage_{round(100 * level)}": 100 * float(np.mean(np.abs(quantiles - 0.5) <= level / 2))
            for level in LEVELS
            if group
        }
        means = {
            f"mean_{what}": 100 * float(np.mean([finalist[what] for finalist in group]))
            for what in ("expected", "measured")
            if group
        }
        rows.append({"expected": name, "n": len(group), **means, **covered})
    return rows


def compute_calibration_slope(finalists: Sequence[dict[str, Any]], resamples: int = 2000) -> dict[str, float]:
    """The slope of measured on expected gains, with a 95 % interval by resampling whole tasks."""
    tasks = sorted({finalist["task"] for finalist in finalists})
    points = {
        task: np.array([(one["expected"], one["measured"]) for one in finalists if one["task"] == task])
        for task in tasks
    }

    def slope(chosen: Sequence[str]) -> float:
        expected, measured = np.concatenate([points[task] for task in chosen]).T
        return float(np.polyfit(expected, measured, 1)[0])

    rng = np.random.default_rng(0)
    draws = [slope([tasks[index] for index in rng.integers(len(tasks), size=len(tasks))]) for _ in range(resamples)]
    low, high = np.percentile(draws, [2.5, 97.5])
    return {"slope": slope(tasks), "slope_low": float(low), "slope_high": float(high)}


def count_worse_after_holm(finalists: Sequence[dict[str, Any]]) -> int:
    """Returned routes that are significantly worse than the standard pass on the judging examples."""
    judged = [finalist["judged"] for finalist in finalists if finalist["returned"]]
    corrected = holm_correction([mcnemar_p_value(fixed, broken) for fixed, broken, _ in judged])
    return sum(p < 0.05 and fixed < broken for p, (fixed, broken, _) in zip(corrected, judged, strict=True))


def summarize_returned(runs: Sequence[dict[str, Any]], finalists: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the returned routes brought, and how many of all runs returned a longer one without a measured gain."""
    returned = [finalist for finalist in finalists if finalist["returned"]]
    layers = {run["landscape"]: run["layers"] for run in runs}
    differences = [finalist["measured"] - finalist["expected"] for finalist in returned]
    low, high = bootstrap_mean_by_task(differences, [finalist["task"] for finalist in returned])
    unpaid = 0
    for finalist in returned:
        fixed, broken, n = finalist["judged"]
        error = norm.ppf(0.975) * np.sqrt(fixed + broken) / n
        unpaid += finalist["length"] > layers[finalist["landscape"]] and (fixed - broken) / n - error <= 0
    return {
        "returned": len(returned),
        "replays": len(runs),
        "mean_expected_gain": 100 * float(np.mean([finalist["expected"] for finalist in returned])),
        "mean_measured_gain": 100 * float(np.mean([finalist["measured"] for finalist in returned])),
        "measured_minus_expected_low": 100 * low,
        "measured_minus_expected_high": 100 * high,
        "worse_after_holm": count_worse_after_holm(finalists),
        "longer_without_gain_percent": 100 * float(unpaid) / len(runs),
    }


def bootstrap_mean_by_task(values: Sequence[float], tasks: Sequence[str], resamples: int = 2000) -> tuple[float, float]:
    """The 95 % interval of a mean, by resampling whole tasks."""
    by_task = [[value for value, name in zip(values, tasks, strict=True) if name == task] for task in sorted({*tasks})]
    rng = np.random.default_rng(0)
    draws = [
        np.concatenate([by_task[index] for index in rng.integers(len(by_task), size=len(by_task))]).mean()
        for _ in range(resamples)
    ]
    low, high = np.percentile(draws, [2.5, 97.5])
    return float(low), float(high)


def run_missing(jobs: Sequence[Job], kept: Path | None, processes: int) -> list[dict[str, Any]]:
    """All replays; those that an earlier call kept are not run again."""
    lines = _read_lines(kept) if kept and kept.is_file() else []
    runs = {(run["kind"], run["landscape"], run["seed"]): run for run in map(json.loads, lines)}
    missing = [job for job in jobs if job not in runs]
    with ProcessPoolExecutor(processes) as pool:
        for job, run in zip(missing, pool.map(run_replay, missing), strict=True):
            runs[job] = run
            if kept:
                with kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(run) + "\n")
    return [runs[job] for job in jobs]


def main() -> None:
    """Replay, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--replays", type=int, help="for each way to answer (null) or each landscape (others)")
    parser.add_argument("--first", type=int, default=1000, help="first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--landscapes", default="", help="names, separated by commas; all without it")
    parser.add_argument("--runs", type=Path, help="keeps every replay, so that the command can be stopped and repeated")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    replays = arguments.replays or (1000 if arguments.kind == NULL else 40)
    names = [name for name in arguments.landscapes.split(",") if name]
    jobs = list(list_jobs(arguments.kind, replays, arguments.first, names))
    runs = run_missing(jobs, arguments.runs, arguments.processes)
    columns, summary = NULL_COLUMNS, {}
    if arguments.kind == NULL:
        rows = make_null_rows(runs)
    elif arguments.kind == SPEED:
        rows, columns = make_speed_rows(runs), SPEED_COLUMNS
    elif arguments.kind == POWER:
        rows, columns = make_power_rows(runs), POWER_COLUMNS
    else:
        finalists = predict_left_out_tasks(runs)
        rows, columns = make_calibration_rows(finalists), CALIBRATION_COLUMNS
        summary = compute_calibration_slope(finalists) | summarize_returned(runs, finalists)
    for row in [*rows, summary]:
        print(row)
    if arguments.write:
        command = f"python -m experiments.decisions {arguments.kind}"
        command += "" if arguments.kind == POWER else f" --replays {replays} --first {arguments.first}"
        write_record(
            arguments.write,
            command=command,
            config={"landscapes": len({run["landscape"] for run in runs})},
            seed=arguments.first,
            columns=columns,
            results=rows,
            summary=summary,
        )


if __name__ == "__main__":
    main()
