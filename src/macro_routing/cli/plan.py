"""What a search or a comparison would do and how long it takes at most; nothing is searched and nothing written."""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from macro_routing.cli.console import print_fields, print_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from macro_routing.runs.compare_methods import PlannedRun
    from macro_routing.runs.config import RunConfig
    from macro_routing.runs.prepared_run import PreparedRun
    from macro_routing.runs.progress import RunPlan


def print_plan(run_config: RunConfig, store: Path | None, *, as_json: bool) -> None:
    """The plan of one search."""
    from macro_routing.cli.progress import LineListener
    from macro_routing.runs.prepare import prepare_run

    run = prepare_run(run_config, store=store, listener=LineListener(Path()))
    plan = run.plan
    if not as_json:
        rounds = f"{plan.rounds} {'round' if plan.rounds == 1 else 'rounds'} of {plan.draws} draws"
        _print_fields(plan, ("search", f"{plan.method}: {rounds}"), plan.max_evaluations)
    rate = _measure_evaluations_per_second(run)
    if as_json:
        minutes = plan.max_evaluations / rate / 60
        print_json({**dataclasses.asdict(plan), "outcomes_per_second": rate, "most_minutes": minutes})
        return
    _print_time(plan.max_evaluations, rate)


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
    from macro_routing.cli.progress import LineListener
    from macro_routing.runs.compare_methods import plan_methods
    from macro_routing.runs.prepare import load_configured_model, load_configured_task, prepare_run

    load_configured_task(base)  # what cannot be read is refused before the model is loaded
    known: dict[str, Any] = {"frozen": load_configured_model(base, None, LineListener(Path())), "store": store}
    planned = plan_methods(base, names, seeds, folder, known, search)
    left = sum(one.max_evaluations for one in planned if not one.finished)
    if not as_json:
        done = sum(one.finished for one in planned)
        runs = f"{len(planned)}, of which {done} there already; seeds {', '.join(map(str, seeds))}"
        _print_fields(planned[0].plan, ("runs", runs), left)
        for name in names:
            print(f"  {name:<14}  at most {_format_evaluations(name, planned)} a run")
        sys.stdout.flush()
    rate = _measure_evaluations_per_second(prepare_run(planned[0].config, **known))
    if as_json:
        runs_left = [
            {"method": one.method, "seed": one.seed, "finished": one.finished, "max_evaluations": one.max_evaluations}
            for one in planned
        ]
        print_json({"runs": runs_left, "outcomes_per_second": rate, "most_minutes": left / rate / 60})
        return
    _print_time(left, rate)


def _format_evaluations(name: str, planned: Sequence[PlannedRun]) -> str:
    """What a method's runs ask for, whether they are there or not."""
    most = [one.max_evaluations for one in planned if one.method == name]
    return f"{min(most):,}" if min(most) == max(most) else f"{min(most):,} to {max(most):,}"


def _print_fields(plan: RunPlan, what: tuple[str, str], outcomes: int) -> None:
    from macro_routing.runs.result import describe_detectable_gain

    print_fields(
        [
            ("model", f"{plan.model}, {plan.layers} layers"),
            ("task", f"{plan.task}, {plan.mode}"),
            ("splits", f"{plan.training} training, {plan.validation} validation, {plan.test} test"),
            what,
            ("outcomes", f"at most {outcomes} (route × example); repeats and racing save some"),
            ("can show", describe_detectable_gain(plan.detectable, plan.test)),
        ]
    )
    sys.stdout.flush()


def _print_time(outcomes: int, rate: float) -> None:
    minutes = outcomes / rate / 60
    speed = f"{rate:.2g} evaluations per second"
    print(f"time      about {_format_duration(minutes)} if nothing is saved, at {speed} and no other load")


def _format_duration(minutes: float) -> str:
    """In the unit a person would use."""
    for most, per, unit in ((120, 1, "minutes"), (48 * 60, 60, "hours")):
        if minutes < most:
            return f"{minutes / per:.1f} {unit}"
    return f"{minutes / 60 / 24:.0f} days"


_TIMED_TOKENS = 8
"""Tokens of a text that are timed; the rest would take as long again and again."""


def _measure_evaluations_per_second(run: PreparedRun) -> float:
    """A short timing of the standard pass, past the store; texts are cut short and their time is scaled up."""
    from macro_routing.routes.route import Route

    decoding = run.evaluator.decoding
    stages = {"direct": ["answer_budget"], "reasoning": ["reasoning_budget", "answer_budget"]}.get(decoding.mode, [])
    whole = sum(getattr(decoding, name) for name in stages)
    short = {name: min(_TIMED_TOKENS, getattr(decoding, name)) for name in stages}
    timed = dataclasses.replace(run.evaluator, decoding=dataclasses.replace(decoding, **short))
    standard = [Route.standard(run.evaluator.frozen.layers)]
    few = run.splits.train[:8]
    timed.run_unit(standard, tuple(few[:1]))
    start = time.perf_counter()
    timed.run_unit(standard, tuple(few))
    seconds = time.perf_counter() - start
    return len(few) / (seconds * (whole / sum(short.values()) if stages else 1))
