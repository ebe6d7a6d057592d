"""What a search or a comparison would do and about how long it takes; nothing is searched and nothing written."""

import dataclasses
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from macro_routing.cli.console import print_fields, print_json
from macro_routing.cli.progress import ProgressLinePrinter
from macro_routing.routes.route import Route
from macro_routing.runs.config import RunConfig
from macro_routing.runs.progress import RunPlan
from macro_routing.runs.result import describe_detectable_gain
from macro_routing.search.decision_settings import SPEED


def print_search_plan(run_config: RunConfig, store: Path | None, *, as_json: bool) -> None:
    """The plan of one search."""
    from macro_routing.runs.prepare import prepare_run

    run = prepare_run(run_config, store=store, listener=ProgressLinePrinter(Path()))
    plan = run.plan
    if not as_json:
        _print_plan_fields(plan, ("search", f"{plan.method}: {plan.schedule}"), plan.max_evaluations)
    _print_duration_estimate(run, plan.max_evaluations, dataclasses.asdict(plan) if as_json else None)


def print_comparison_plan(
    base: RunConfig,
    names: Sequence[str],
    seeds: Sequence[int],
    folder: Path,
    search: Mapping[str, Any],
    store: Path | None,
    *,
    as_json: bool,
) -> None:
    """The plan of a comparison: what each method asks for, and what is there already."""
    from macro_routing.runs.compare_methods import plan_methods
    from macro_routing.runs.prepare import load_configured_model, load_configured_task, prepare_run

    load_configured_task(base)  # what cannot be read is rejected before the model is loaded
    known: dict[str, Any] = {"frozen": load_configured_model(base, None, ProgressLinePrinter(Path())), "store": store}
    planned = plan_methods(base, names, seeds, folder, known, search)
    left = sum(run.max_evaluations for run in planned if not run.finished)
    if not as_json:
        done = sum(run.finished for run in planned)
        runs = f"{len(planned)}, of which {done} there already; seeds {', '.join(map(str, seeds))}"
        _print_plan_fields(planned[0].plan, ("runs", runs), left)
        for name in names:
            most = [run.max_evaluations for run in planned if run.config.method == name]
            limits = dict.fromkeys(f"{count:,}" for count in (min(most), max(most)))
            print(f"  {name:<14}  at most {' to '.join(limits)} a run")
        sys.stdout.flush()
    records = [
        {
            "method": run.config.method,
            "seed": run.config.seed,
            "finished": run.finished,
            "max_evaluations": run.max_evaluations,
        }
        for run in planned
    ]
    _print_duration_estimate(prepare_run(planned[0].config, **known), left, {"runs": records} if as_json else None)


def _print_plan_fields(plan: RunPlan, what: tuple[str, str], evaluations: int) -> None:
    is_for_speed = plan.objective.startswith(SPEED)  # no gain is looked for
    held = f" (of which {plan.holdout} are kept for the decision)" if plan.holdout else ""
    print_fields(
        [
            ("model", f"{plan.model}, {plan.layers} layers"),
            ("task", f"{plan.task}, {plan.mode}"),
            ("splits", f"{plan.training} training{held}, {plan.validation} validation, {plan.test} test"),
            what,
            ("evaluations", f"at most {evaluations} (route × example); repeats and racing save some"),
            *([("objective", plan.objective), ("decision", plan.decision)] if plan.decision else []),
            *([] if is_for_speed else [("can show", describe_detectable_gain(plan.detectable, plan.test))]),
        ]
    )
    sys.stdout.flush()


def _print_duration_estimate(run: Any, evaluations: int, record: Mapping[str, Any] | None) -> None:
    """How long so many evaluations take, by a short timing of a prepared run; JSON where there is a ``record``."""
    rate = _measure_evaluations_per_second(run)
    minutes = evaluations / rate / 60
    if record is not None:
        print_json({**record, "outcomes_per_second": rate, "most_minutes": minutes})
        return
    speed = f"{rate:.2g} evaluations per second"
    print(f"time         about {_format_duration(minutes)} if nothing is saved, at {speed} and no other load")


def _format_duration(minutes: float) -> str:
    """In the unit a person would use."""
    for most, per, unit in ((120, 1, "minutes"), (48 * 60, 60, "hours")):
        if minutes < most:
            return f"{minutes / per:.1f} {unit}"
    return f"{minutes / 60 / 24:.0f} days"


_TIMED_TOKENS = 8
"""Tokens of a text that are timed; the rest would take as long again and again."""


def _measure_evaluations_per_second(run: Any) -> float:
    """Time a prepared run's standard pass, past the store; texts are cut short and their time is scaled up."""
    decoding = run.evaluator.decoding
    stages = {"direct": ["answer_budget"], "reasoning": ["reasoning_budget", "answer_budget"]}.get(decoding.mode, [])
    tokens = sum(getattr(decoding, name) for name in stages)
    short = {name: min(_TIMED_TOKENS, getattr(decoding, name)) for name in stages}
    timed = dataclasses.replace(run.evaluator, decoding=dataclasses.replace(decoding, **short))
    standard = [Route.standard(run.evaluator.frozen.layers)]
    few = run.splits.train[:8]
    timed.run_routes_on_unit(standard, tuple(few[:1]))  # what is done once is not timed
    start = time.perf_counter()
    timed.run_routes_on_unit(standard, tuple(few))
    seconds = time.perf_counter() - start
    return len(few) / (seconds * (tokens / sum(short.values()) if stages else 1))
