"""The default search with half of the budget, where the paper's search gains when it is restarted to all of it.

    python -m experiments.half_budget MODEL --small SMALL_MODEL --runs FOLDER [--data-dir FOLDER] [--minutes 20]
        [--only counting] [--seeds 1,2] [--share 0.1]
    python -m experiments.half_budget [--write docs/data/search_cost.json]

The first runs what is missing, the second makes the table of what is kept (``recorded_runs``). A setting counts when
its restarted searches of all seeds are kept and the interval of their mean gain lies above zero; all others are listed
with the reason why they do not count.
"""

import argparse
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

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
from experiments.recorded_runs import describe_comparisons_origin, read_recorded_runs
from experiments.search_quality import SETTINGS, Setting, parse_settings

HALF = BUDGET // 2
RESTARTED, GUIDED = "macro-restarts", "guided"
COLUMNS = {
    "setting": "setting",
    "restarted": "paper, restarted: gain, points",
    "restarted_asked": "evaluations",
    "guided": "guided, half of the budget: gain, points",
    "guided_asked": "evaluations, guided",
    "difference": "guided minus restarted, points",
    "seeds": "seeds",
}


def half_budget_folder(setting: Setting) -> str:
    """Where a setting's searches with half of the budget are."""
    return f"{setting.folder}-half"


def has_gain(kept: Path, setting: Setting) -> bool | None:
    """Whether restarting gains on a setting; None as long as a seed is missing."""
    arms = {seed: arm for seed, arm in _runs_by_seed(kept, setting.folder, RESTARTED).items() if seed in SEEDS}
    return None if len(arms) < len(SEEDS) else _mean_difference(arms, None)[1] > 0


def run_missing(arguments: argparse.Namespace) -> None:
    """Search by search while there is time."""
    from macro_routing.models import load_model
    from macro_routing.runs.compare_methods import compare_methods

    runs, kept, end = arguments.runs, arguments.kept, time.monotonic() + 60 * arguments.minutes
    for setting in parse_settings(arguments.only):
        model = arguments.small if setting.small else arguments.model
        known_seeds = _runs_by_seed(kept, half_budget_folder(setting), GUIDED)
        missing_seeds = [seed for seed in SEEDS if seed not in known_seeds and is_selected(arguments, GUIDED, seed)]
        if model is None or not missing_seeds or not has_gain(kept, setting):
            continue
        frozen = load_model(model)
        for seed in missing_seeds:
            if time.monotonic() > end:
                return
            base = make_run_config(model, setting.task, setting.mode, arguments.data_dir, HALF)
            # A store of its own: what the whole budget has paid for must not make half of it look quick.
            known: dict[str, Any] = {"frozen": frozen, "store": runs / f"scores-{half_budget_folder(setting)}.sqlite"}
            folder = runs / half_budget_folder(setting)
            try:
                (arm,) = compare_methods(base, [GUIDED], [seed], folder, points=1, **known)
            except Exception:  # noqa: BLE001 one broken search must not cost the others
                traceback.print_exc()
                continue
            print(f"{half_budget_folder(setting)}, seed {seed}: {arm.result.verdict} ({arm.seconds:.0f} s)", flush=True)


def make_rows(kept: Path) -> list[dict[str, Any]]:
    """A line per setting."""
    return [_make_row(kept, setting) for setting in SETTINGS]


def _make_row(kept: Path, setting: Setting) -> dict[str, Any]:
    line: dict[str, Any] = {"setting": setting.name}
    whole, half = (
        _runs_by_seed(kept, setting.folder, RESTARTED),
        _runs_by_seed(kept, half_budget_folder(setting), GUIDED),
    )
    gain = has_gain(kept, setting)
    if gain is None:
        return {**line, "restarted": "not run with all seeds"}
    line |= {
        "restarted": _format_interval(_mean_difference(whole, None)),
        "restarted_asked": _mean_evaluations(whole),
        "seeds": len(whole),
    }
    if not gain:
        return {**line, "guided": "no gain to match"}
    both = sorted(set(whole) & set(half))
    if not both:
        return {**line, "guided": "not run"}
    guided, restarted = ({seed: arms[seed] for seed in both} for arms in (half, whole))
    line |= {
        "guided": _format_interval(_mean_difference(guided, None)),
        "guided_asked": _mean_evaluations(guided),
        "seeds": len(both),
    }
    return {**line, "difference": _format_interval(_mean_difference(guided, restarted))}


def _runs_by_seed(kept: Path, folder: str, method: str) -> dict[int, Any]:
    return {arm.seed: arm for arm in read_recorded_runs(folder, kept) if arm.method == method}


def _mean_evaluations(arms: dict[int, Any]) -> float:
    return float(np.mean([arm.asked for arm in arms.values()]))


def _mean_difference(arms: dict[int, Any], against: dict[int, Any] | None) -> tuple[float, float, float]:
    """Mean difference to other arms of the same seeds, or to the standard pass, with its interval."""
    from macro_routing.runs.result import SELECTED, STANDARD
    from macro_routing.studies.paired_comparisons import estimate_difference_over_seeds

    def selected(arm: Any) -> Any:
        return arm.right[SELECTED[arm.method]]

    pairs = [(selected(against[seed]) if against else arm.right[STANDARD], selected(arm)) for seed, arm in arms.items()]
    found = estimate_difference_over_seeds([pairs])
    return 100 * found.mean, 100 * found.low, 100 * found.high


def _format_interval(mean: Sequence[float]) -> str:
    return f"{mean[0]:+.1f} ({mean[1]:+.1f} to {mean[2]:+.1f})"


def main() -> None:
    """Run, or collect."""
    parser = make_parser(__doc__, "runs/search_quality")
    parser.add_argument("--small")
    arguments = parser.parse_args()
    check_selection(arguments, [GUIDED])
    if arguments.model:
        limit_gpu_memory(arguments.share)
        run_missing(arguments)
    found = make_rows(arguments.kept)
    for line in found:
        print(line)
    if arguments.write:
        folders = [one for setting in SETTINGS for one in (setting.folder, half_budget_folder(setting))]
        write_record(
            arguments.write,
            command="python -m experiments.half_budget MODEL --small SMALL_MODEL --runs FOLDER",
            seed=", ".join(map(str, SEEDS)),
            columns=COLUMNS,
            results=found,
            **describe_comparisons_origin(folders, arguments.kept, budget=BUDGET, half=HALF),
        )


if __name__ == "__main__":
    main()
