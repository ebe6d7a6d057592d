"""How the right answer emerges: its first token's probability, read after every executed step (paper, "logit lens").

The reasoning is the standard pass's own and is held fixed in the context of both routes; what differs is only the order
in which layers read it. The position is the one before the answer: for choices by likelihood the end of the prompt,
else after the task's answer cue.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from macro_routing.engine.batching import Tokens, compute_position_ids, pad_left
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.graded_answers import build_choice_items, encode_prompts_and_stages
from macro_routing.evaluation.statistics import paired_bootstrap_interval
from macro_routing.models.frozen import FrozenModel
from macro_routing.models.lens import apply_lm_head, collect_hidden_states
from macro_routing.models.routing import apply_route
from macro_routing.report.formatting import format_signed
from macro_routing.report.line_chart import Axis, Line, Point, lines_figure
from macro_routing.routes.route import Route
from macro_routing.studies.columns import comparisons_note, number_column, text_column
from macro_routing.studies.context import StudyContext, Subject, mark_of
from macro_routing.studies.paired_comparisons import short_route
from macro_routing.studies.study_result import TABLE, StudyResult
from macro_routing.studies.tables import Column, Table
from macro_routing.studies.task_names import TaskName
from macro_routing.tasks.prompts import LIKELIHOOD, REASONING
from macro_routing.tasks.task import Example

STUDY = "logit-lens"
_BATCH = 8
_PART = 16
"""Examples that are measured and kept together."""


@dataclass(frozen=True)
class LensItem:
    """What a model has read before the answer, and the answer's first token that says something."""

    context: Tokens
    gold: int


def run_logit_lens(context: StudyContext, subject: Subject) -> StudyResult:
    """Read both routes after every step on the task's test examples."""
    route, task = subject.route, subject.task
    run = context.prepared(task, subject.seed)
    examples, routes = run.splits.test, {"standard": context.standard, "route": route}
    mark = {**mark_of(run.evaluator, examples), "route": str(route)}
    found: dict[str, list[list[float]]] = {name: [] for name in routes}
    for start in range(0, len(examples), _PART):
        part = examples[start : start + _PART]
        kept = context.cell(
            f"examples-{start}-{start + len(part) - 1}", mark, lambda part=part: _measure(run.evaluator, routes, part)
        )
        for name in routes:
            found[name] += kept[name]
    return _findings(context, task, routes, {name: np.array(rows) for name, rows in found.items()})


def _measure(evaluator: Evaluator, routes: dict[str, Route], examples: Sequence[Example]) -> dict[str, Any]:
    items = lens_items(evaluator, examples)
    return {name: readings(evaluator.frozen, route, items) for name, route in routes.items()}


def lens_items(evaluator: Evaluator, examples: Sequence[Example]) -> list[LensItem]:
    """Contexts and gold tokens of examples, in the evaluator's way to answer."""
    frozen, decoding = evaluator.frozen, evaluator.decoding
    if decoding.mode == LIKELIHOOD:
        asked = build_choice_items(frozen, evaluator.task, examples, by_letter=decoding.by_letter)
        pairs = [(item.prompt, item.choices[one.correct_choice]) for item, one in zip(asked, examples, strict=True)]
    else:
        contexts = _contexts(evaluator, examples)
        answers = frozen.tokenize_texts([f" {one.answer}" for one in examples], add_special_tokens=False)
        pairs = [(context, tuple(answer)) for context, answer in zip(contexts, answers, strict=True)]
    return [_item(frozen, context, answer) for context, answer in pairs]


def _contexts(evaluator: Evaluator, examples: Sequence[Example]) -> list[Tokens]:
    """Prompts, the standard pass's reasoning where there is one, and the cue that an answer follows."""
    frozen, task, decoding = evaluator.frozen, evaluator.task, evaluator.decoding
    prompts, stages = encode_prompts_and_stages(frozen, task, examples, decoding)
    cue = tuple(frozen.tokenizer.encode(task.prompts.cue, add_special_tokens=False))
    if decoding.mode != REASONING:
        return [(*prompt, *cue) for prompt in prompts]
    standard = Route.standard(frozen.layers)
    outcomes = evaluator.evaluate([standard], examples)[standard].outcomes
    reasonings = frozen.tokenize_texts([one.reasoning for one in outcomes], add_special_tokens=False)
    # Without a think block the bridge between the stages ends with the cue already.
    after = (*stages[0].forced_tokens, *(cue if frozen.chat.think else ()))
    return [(*prompt, *thought, *after) for prompt, thought in zip(prompts, reasonings, strict=True)]


def _item(frozen: FrozenModel, context: Tokens, answer: Tokens) -> LensItem:
    """Tokenizers that cut numbers into digits give the space a token of its own, which says nothing: it is read too."""
    place = 0
    while place < len(answer) - 1 and not frozen.tokenizer.decode([answer[place]]).strip():
        place += 1
    return LensItem((*context, *answer[:place]), answer[place])


@torch.no_grad()
def readings(frozen: FrozenModel, route: Route, items: Sequence[LensItem]) -> list[list[float]]:
    """By item: the log-probability of its gold token after every step of the route."""
    model = apply_route(frozen, route)
    found: list[list[float]] = []
    for start in range(0, len(items), _BATCH):
        part = items[start : start + _BATCH]
        ids, mask = pad_left([item.context for item in part], frozen.model.device)
        states = collect_hidden_states(
            model, ids, attention_mask=mask, position_ids=compute_position_ids(mask), logits_to_keep=1
        )
        gold = torch.tensor([[item.gold] for item in part], device=ids.device)
        steps = []
        for state in states:
            logits = apply_lm_head(model, state[:, -1:])[:, -1].float()
            steps.append(torch.log_softmax(logits, -1).gather(-1, gold.to(logits.device))[:, 0].cpu())
        found += torch.stack(steps, dim=1).tolist()
    return found


# --- what is shown ------------------------------------------------------------------------------------------------


def _findings(context: StudyContext, task: TaskName, routes: dict[str, Route], read: dict[str, Any]) -> StudyResult:
    asked = len(read["route"])
    usable = np.logical_and.reduce([np.isfinite(values).all(axis=1) for values in read.values()])
    if not usable.any():
        return _nothing_to_read(context, task, routes["route"], asked)
    read = {name: values[usable] for name, values in read.items()}
    ends = {name: values[:, -1] for name, values in read.items()}
    low, high = paired_bootstrap_interval(ends["standard"], ends["route"])
    rows = [_row(name, routes[name], values) for name, values in read.items()]
    rows[1] |= {"difference": float((ends["route"] - ends["standard"]).mean()), "low": low, "high": high}
    n = len(ends["route"])
    title = f"How the right answer emerges ({context.told([task])}, {n} examples)"
    headline = (
        f"After the last step the right token has {100 * rows[0]['end_probability']:.1f} % in the standard pass and"
        f" {100 * rows[1]['end_probability']:.1f} % on the route; difference in log-probability"
        f" {format_signed(rows[1]['difference'], 2)} nats ({format_signed(low, 2)} to"
        f" {format_signed(high, 2)}), n = {n}."
    )
    notes = (
        (
            f"Mean over {n} test examples of the gold answer's first token, read through the model's own norm and"
            " head after every executed step. Steps of the two routes with the same number need not apply the same"
            " layer."
        ),
        *([f"Of {asked} examples {asked - n} are left out: a route came to no finite number on them."] * (n < asked)),
        comparisons_note(1),
    )
    told = {"standard": "standard pass", "route": short_route(routes["route"])}
    lines = [_line(told[arm], values) for arm, values in read.items()]
    chances = [_line(told[arm], np.exp(values)) for arm, values in read.items()]
    steps = Axis("layers applied so far")
    figures = [
        lines_figure("figure", title, lines, steps, Axis("log-probability of the right token, nats")),
        lines_figure("probability", title, chances, steps, Axis("probability of the right token", "{:.2g}".format)),
    ]
    details = {"route": str(routes["route"]), "steps": {arm: _steps(routes[arm], read[arm]) for arm in read}}
    return StudyResult(STUDY, headline, {TABLE: Table(title, _columns(), rows, notes)}, figures, 1, details)


def _nothing_to_read(context: StudyContext, task: TaskName, route: Route, asked: int) -> StudyResult:
    """A route whose numbers run over on every example."""
    headline = f"None of {asked} examples can be read: {short_route(route)} comes to no finite number on them."
    table = Table(f"How the right answer emerges ({context.told([task])})", _columns(), [], (comparisons_note(0),))
    return StudyResult(STUDY, headline, {TABLE: table}, [], 0, {"route": str(route)})


def _row(name: str, route: Route, values: Any) -> dict[str, Any]:
    means = values.mean(axis=0)
    best = int(np.exp(values).mean(axis=0).argmax())
    return {
        "arm": name,
        "route": str(route),
        "steps": route.length,
        "end_log_probability": float(means[-1]),
        "end_probability": float(np.exp(values[:, -1]).mean()),
        "best_step": best + 1,
        "best_layer": route.steps[best].layer,
        "best_probability": float(np.exp(values[:, best]).mean()),
        "n": len(values),
    }


def _line(name: str, values: Any) -> Line:
    low, high = np.percentile(values, [25, 75], axis=0)
    points = [
        Point(step + 1, float(mean), float(low[step]), float(high[step]))
        for step, mean in enumerate(values.mean(axis=0))
    ]
    return Line(f"{name}: mean; band: middle half", points)


def _steps(route: Route, values: Any) -> list[dict[str, Any]]:
    quartiles = np.percentile(values, [25, 50, 75], axis=0)
    return [
        {
            "step": place + 1,
            "applied": str(step),
            "mean": float(values[:, place].mean()),
            "deviation": statistics.stdev(values[:, place].tolist()) if len(values) > 1 else math.nan,
            "quartiles": [float(value) for value in quartiles[:, place]],
            "probability": float(np.exp(values[:, place]).mean()),
        }
        for place, step in enumerate(route.steps)
    ]


def _columns() -> list[Column]:
    def difference(row: Any) -> str:
        if row.get("difference") is None:
            return ""
        return f"{row['difference']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f})".replace("-", "−")

    return [
        text_column("", "arm"),
        text_column("route", "route", is_code=True),
        number_column("steps", "steps"),
        Column("probability at the end, %", lambda row: f"{100 * row['end_probability']:.1f}"),
        Column("log-probability at the end", lambda row: f"{row['end_log_probability']:.2f}".replace("-", "−")),
        Column("difference (95 % interval)", difference),
        Column(
            "highest on the way, %",
            lambda row: f"{100 * row['best_probability']:.1f} after step {row['best_step']} (L{row['best_layer']})",
        ),
    ]
