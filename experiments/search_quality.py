"""The default search against the paper's, random search and RYS on real models (docs/results/search_protocol.md).

    python -m experiments.search_quality MODEL --small SMALL_MODEL --runs FOLDER [--data-dir FOLDER] [--minutes 20]
        [--only sciq,svamp] [--methods guided,rys] [--seeds 1,2] [--share 0.1]
    python -m experiments.search_quality [--write docs/data/search_quality.json]

The first runs what is missing, the second makes the table of what is kept (``recorded_runs``). Settings, seeds, methods
and the budget are the protocol's; runs of ``method_comparison`` are the same runs and are not made again.
Parts with different settings, methods or seeds may run beside each other on one GPU, each with a FOLDER of its own and
its ``--share`` of the memory.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.record import write_record
from experiments.method_comparison import (
    BUDGET,
    SEEDS,
    check_selection,
    is_selected,
    limit_gpu_memory,
    make_parser,
    make_run_config,
)
from experiments.recorded_runs import describe_comparisons_origin, is_recorded, read_recorded_runs

if TYPE_CHECKING:
    from macro_routing.runs.comparison_results import MethodRun
    from macro_routing.runs.result import RouteTestResult

METHODS = ("guided", "macro", "rys", "random", "macro-restarts")


class Setting(NamedTuple):
    """A model, a task and a way to answer."""

    task: str
    mode: str
    small: bool = False
    seen: bool = True
    """Whether anybody had looked at it while the search was developed."""

    @property
    def folder(self) -> str:
        """Where its runs are."""
        return f"{'small-' if self.small else ''}{self.task}-{self.mode}"

    @property
    def earlier_folder(self) -> str:
        """Where those of its runs are that were made again since."""
        return f"{self.folder}-earlier"

    @property
    def name(self) -> str:
        """For the table."""
        return f"{self.task}, {self.mode}{', small model' if self.small else ''}{'' if self.seen else ' (new)'}"


SETTINGS = (
    Setting("arc_easy", "likelihood"),
    Setting("openbookqa", "likelihood", seen=False),
    Setting("counting", "direct"),
    Setting("mawps", "direct", seen=False),
    Setting("sciq", "likelihood", small=True),
    Setting("openbookqa", "likelihood", small=True, seen=False),
    Setting("sciq", "likelihood"),
    Setting("svamp", "direct"),
    Setting("asdiv", "direct", seen=False),
    Setting("svamp", "reasoning"),
)
COLUMNS = {
    "setting": "setting",
    "standard": "standard (%)",
    "guided": "guided",
    "macro": "paper",
    "macro-restarts": "paper, restarted",
    "random": "random",
    "rys": "RYS",
    "seeds": "seeds",
}
SUMMARY = {
    "against": "guided against",
    "mean": "mean difference, points",
    "interval": "95 % interval, settings resampled",
    "wins": "settings better / equal / worse",
    "p": "p (one-sided Wilcoxon)",
    "cells": "setting × seed",
}
ANSWERS = {
    "setting": "setting",
    "standard": "standard",
    **{name: title for name, title in COLUMNS.items() if name in METHODS},
}
EARLIER = {
    "setting": "setting",
    "seed": "seed",
    "before": "with the earlier decision rule, points",
    "now": "with the decision of today, points",
}


def parse_settings(only: str) -> list[Setting]:
    """Those of some tasks or folders, separated by commas; all when none is named."""
    wanted = {name.strip() for name in only.split(",") if name.strip()}
    if unknown := wanted - {name for one in SETTINGS for name in (one.folder, one.task)}:
        sys.exit(f"no setting: {', '.join(sorted(unknown))}; there are {', '.join(one.folder for one in SETTINGS)}")
    return [one for one in SETTINGS if not wanted or one.folder in wanted or one.task in wanted]


def run_missing(arguments: argparse.Namespace) -> None:
    """Cell by cell while there is time: seed by seed, setting by setting; each model is loaded when it is needed."""
    from macro_routing.models import load_model
    from macro_routing.runs.compare_methods import compare_methods
    from macro_routing.runs.comparison_results import read_method_runs

    runs, end = arguments.runs, time.monotonic() + 60 * arguments.minutes
    settings = parse_settings(arguments.only)
    loaded: dict[bool, Any] = {}
    for seed in SEEDS:
        for setting in settings:
            model = arguments.small if setting.small else arguments.model
            if model is None:
                continue
            for method in METHODS:
                if time.monotonic() > end:
                    return
                done = any((arm.method, arm.seed) == (method, seed) for arm in read_method_runs(runs / setting.folder))
                if (
                    done
                    or is_recorded(setting.folder, method, seed, arguments.kept)
                    or not is_selected(arguments, method, seed)
                ):
                    continue
                frozen = loaded.setdefault(setting.small, None) or load_model(model)
                loaded[setting.small] = frozen
                base = make_run_config(model, setting.task, setting.mode, arguments.data_dir, BUDGET)
                known: dict[str, Any] = {"frozen": frozen, "store": runs / f"scores-{setting.folder}.sqlite"}
                try:
                    folder = runs / setting.folder
                    # One point: of a curve nothing is kept.
                    (arm,) = compare_methods(base, [method], [seed], folder, points=1, **known)
                except Exception:  # noqa: BLE001 a table takes hours; one broken cell must not cost the others
                    traceback.print_exc()
                    continue
                print(f"{setting.folder}, {method}, {seed}: {arm.result.verdict} ({arm.seconds:.0f} s)", flush=True)


def iterate_gains(kept: Path) -> Iterator[tuple[Setting, int, dict[str, float]]]:
    """By setting and seed: every method's test accuracy minus the standard pass's on the same examples."""
    for setting in SETTINGS:
        arms = read_recorded_runs(setting.folder, kept)
        for seed in SEEDS:
            found = {arm.method: arm.result.comparison.difference for arm in arms if arm.seed == seed}
            if found:
                yield setting, seed, found


def make_rows(kept: Path) -> list[dict[str, Any]]:
    """A line per setting, each method's mean difference with its interval."""
    from macro_routing.runs.comparison_results import summarize_methods
    from macro_routing.runs.methods import METHODS as KNOWN

    found = []
    for setting in SETTINGS:
        arms = [arm for arm in read_recorded_runs(setting.folder, kept) if arm.method in METHODS and arm.seed in SEEDS]
        line: dict[str, Any] = {"setting": setting.name, **dict.fromkeys(METHODS, "not run")}
        rows = {row.name: row for row in summarize_methods(arms)} if arms else {}
        by_method = {method: rows[KNOWN[method].title] for method in METHODS if KNOWN[method].title in rows}
        line["seeds"] = max((row.seeds for row in by_method.values()), default=0)
        for method, row in by_method.items():
            fewer = f", {row.seeds} of {line['seeds']} seeds" if row.seeds < line["seeds"] else ""
            line[method] = f"{100 * row.difference:+.1f} ({100 * row.low:+.1f} to {100 * row.high:+.1f}){fewer}"
        if "standard" in rows:
            line["standard"] = 100 * rows["standard"].accuracy
        line["raw"] = {f"{arm.method}-{arm.seed}": [arm.result.route, arm.result.comparison.difference] for arm in arms}
        found.append(line)
    return found


def make_summary_rows(kept: Path) -> list[dict[str, Any]]:
    """The guided search against nothing and against each other method, over the settings that both have run."""
    from macro_routing.evaluation.statistics import bootstrap_gain_over_benchmarks

    gains_of_runs = list(iterate_gains(kept))
    found = []
    for other in ("", *METHODS[1:]):
        by_setting: dict[Setting, list[float]] = {}
        for setting, _, gains in gains_of_runs:
            if "guided" in gains and (not other or other in gains):
                by_setting.setdefault(setting, []).append(100 * (gains["guided"] - (gains[other] if other else 0.0)))
        line: dict[str, Any] = {"against": {"": "the standard pass", "macro": "paper"}.get(other, other)}
        if by_setting:
            told = bootstrap_gain_over_benchmarks([sum(some) / len(some) for some in by_setting.values()])
            line |= {"mean": told.mean, "interval": f"{told.low:+.2f} to {told.high:+.2f}", "p": told.p_value}
            line |= {"wins": f"{told.wins} / {told.ties} / {told.losses}", "cells": sum(map(len, by_setting.values()))}
        else:
            line["interval"] = "not run"
        found.append(line)
    return found


def make_answer_rows(kept: Path) -> list[dict[str, Any]]:
    """Where answers are written: how many of them are cut off, and how long they are, means over seeds."""
    from macro_routing.runs.result import SELECTED, STANDARD

    found = []
    for setting in SETTINGS:
        arms = [arm for arm in read_recorded_runs(setting.folder, kept) if arm.method in METHODS and arm.seed in SEEDS]
        if setting.mode == "likelihood" or not arms:
            continue
        of_whom: dict[str, list[RouteTestResult]] = {name: [] for name in ANSWERS if name != "setting"}
        for arm in arms:
            by_name = {variant.name: variant for variant in arm.result.variants}
            of_whom["standard"].append(by_name[STANDARD])
            of_whom[arm.method].append(by_name[SELECTED[arm.method]])
        told = {name: _format_truncation(variants) for name, variants in of_whom.items()}
        found.append({"setting": setting.name, **told})
    return found


def _format_truncation(variants: Sequence[RouteTestResult]) -> str:
    if not variants:
        return "not run"
    truncated, tokens = fmean(one.truncated_share for one in variants), fmean(one.tokens for one in variants)
    return f"{100 * truncated:.1f} ({tokens:.0f})"


def make_earlier_rows(kept: Path) -> list[dict[str, Any]]:
    """Searches that were made again because the default has changed, and what they had ended with.

    Two last rows have the mean difference between the two, where answers are direct and where choices are compared.
    """
    from macro_routing.runs.result import SELECTED
    from macro_routing.studies.paired_comparisons import estimate_difference_over_seeds

    found = []
    pairs: dict[str, list[list[Any]]] = {"direct": [], "likelihood": []}
    for setting in SETTINGS:
        now = {(arm.method, arm.seed): arm for arm in read_recorded_runs(setting.folder, kept)}
        of_setting = []
        for before in read_recorded_runs(setting.earlier_folder, kept):
            after = now.get((before.method, before.seed))
            told = {"before": _format_gain(before), "now": _format_gain(after) if after else "not run again"}
            routes = {"raw": [before.result.route, after.result.route if after else None]}
            found.append({"setting": setting.name, "seed": before.seed, **told, **routes})
            if after:
                name = SELECTED[before.method]
                of_setting.append((before.right[name], after.right[name]))
        if of_setting and setting.mode in pairs:
            pairs[setting.mode].append(of_setting)
    for mode, settings in pairs.items():
        if settings:
            mean = estimate_difference_over_seeds(settings)
            change = f"{100 * mean.mean:+.1f} ({100 * mean.low:+.1f} to {100 * mean.high:+.1f}) against the earlier one"
            found.append({"setting": f"mean of {len(settings)} settings, {mode}", "seed": "all", "now": change})
    return found


def _format_gain(arm: MethodRun) -> str:
    gain = arm.result.comparison
    if arm.result.best_route.is_standard:
        return "the standard pass"
    return f"{100 * gain.difference:+.1f} ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})"


def _print(rows: Sequence[dict[str, Any]]) -> None:
    for row in rows:
        print({name: value for name, value in row.items() if name != "raw"})


def main() -> None:
    """Run, or collect."""
    parser = make_parser(__doc__, "runs/search_quality")
    parser.add_argument("--small")
    arguments = parser.parse_args()
    check_selection(arguments, METHODS)
    if arguments.model:
        arguments.runs.mkdir(parents=True, exist_ok=True)
        limit_gpu_memory(arguments.share)
        run_missing(arguments)
    found, told, written = (
        make_rows(arguments.kept),
        make_summary_rows(arguments.kept),
        make_answer_rows(arguments.kept),
    )
    again = make_earlier_rows(arguments.kept)
    _print([*found, *told, *written, *again])
    if arguments.write:
        common: dict[str, Any] = {
            "command": "python -m experiments.search_quality MODEL --small SMALL_MODEL --runs FOLDER",
            "seed": ", ".join(map(str, SEEDS)),
            **describe_comparisons_origin((one.folder for one in SETTINGS), arguments.kept, budget=BUDGET),
        }
        write_record(arguments.write, columns=COLUMNS, results=found, **common)
        for part, columns, results in (
            ("summary", SUMMARY, told),
            ("answers", ANSWERS, written),
            ("earlier", EARLIER, again),
        ):
            rest = arguments.write.with_name(f"{arguments.write.stem}_{part}.json")
            write_record(rest, columns=columns, results=results, **common)


if __name__ == "__main__":
    main()
