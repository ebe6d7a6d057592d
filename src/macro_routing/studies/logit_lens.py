"""How the correct answer emerges: its first token's probability, read after every executed step (paper, "logit lens").

The reasoning is the standard pass's own and is held fixed in the context of both routes; what differs is only the order
in which layers read it. The position is the one before the answer: for choices by likelihood the end of the prompt,
else after the task's answer cue.
"""

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from macro_routing.engine.batching import Tokens, compute_position_ids, pad_left
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.model_answers import build_choice_items, encode_prompts_and_generation_stages
from macro_routing.evaluation.statistics import paired_bootstrap_interval
from macro_routing.models.frozen import FrozenModel
from macro_routing.models.hidden_states import apply_lm_head, collect_hidden_states
from macro_routing.models.routing import apply_route
from macro_routing.report.figure import Figure
from macro_routing.report.formatting import format_signed, use_minus_sign
from macro_routing.report.line_chart import AxisLabels, ChartPoint, LineSeries, draw_line_chart
from macro_routing.routes.route import Route
from macro_routing.studies.context import RouteWithSearchedTask, StudyContext, fingerprint_measurement_inputs
from macro_routing.studies.paired_comparisons import describe_comparison_count, truncate_route_text
from macro_routing.studies.study_result import StudyResult
from macro_routing.studies.tables import Column, Row, Table, make_text_column, number_column
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode
from macro_routing.tasks.prompts import LIKELIHOOD, REASONING
from macro_routing.tasks.task import Example

STUDY = "logit-lens"
_BATCH = 8
_PART_SIZE = 16
"""Examples that are measured and kept together."""


@dataclass(frozen=True)
class LogitLensPrompt:
    """What a model has read before the answer, and the answer's first token that says something."""

    context: Tokens
    gold: int


def run_logit_lens(context: StudyContext, subject: RouteWithSearchedTask) -> StudyResult:
    """Read both routes after every step on the task's test examples."""
    route, task = subject.get_single_route("the logit lens"), subject.task
    run = context.prepare_task(task, subject.seed)
    examples, routes = run.splits.test, {"standard": context.standard_route, "route": route}
    inputs = {**fingerprint_measurement_inputs(run.evaluator, examples), "route": str(route)}
    values: dict[str, list[list[float]]] = {name: [] for name in routes}
    for start in range(0, len(examples), _PART_SIZE):
        part = examples[start : start + _PART_SIZE]
        measure = functools.partial(_measure_stepwise_gold_log_probabilities, run.evaluator, routes, part)
        measured = context.load_or_measure(
            f"examples-{start}-{start + len(part) - 1}",
            f"reading test examples {start + 1} to {start + len(part)} after every step",
            inputs,
            measure,
        )
        for name in routes:
            values[name] += measured[name]
    return _make_study_result(context, task, routes, {name: np.array(rows) for name, rows in values.items()})


def _measure_stepwise_gold_log_probabilities(
    evaluator: Evaluator, routes: dict[str, Route], examples: Sequence[Example]
) -> dict[str, Any]:
    items = make_logit_lens_examples(evaluator, examples)
    return {name: compute_stepwise_gold_log_probs(evaluator.frozen, route, items) for name, route in routes.items()}


def make_logit_lens_examples(evaluator: Evaluator, examples: Sequence[Example]) -> list[LogitLensPrompt]:
    """Contexts and gold tokens of examples, in the evaluator's way to answer."""
    frozen, decoding = evaluator.frozen, evaluator.decoding
    if decoding.mode == LIKELIHOOD:
        items = build_choice_items(frozen, evaluator.task, examples, by_letter=decoding.by_letter)
        pairs = [
            (item.prompt, item.choices[example.correct_choice]) for item, example in zip(items, examples, strict=True)
        ]
    else:
        contexts = _make_prompts_up_to_answer(evaluator, examples)
        answers = frozen.tokenize_texts([f" {example.answer}" for example in examples], add_special_tokens=False)
        pairs = [(context, tuple(answer)) for context, answer in zip(contexts, answers, strict=True)]
    return [_make_lens_context_and_target(frozen, context, answer) for context, answer in pairs]


def _make_prompts_up_to_answer(evaluator: Evaluator, examples: Sequence[Example]) -> list[Tokens]:
    """Prompts, the standard pass's reasoning where there is one, and the cue that an answer follows."""
    frozen, task, decoding = evaluator.frozen, evaluator.task, evaluator.decoding
    prompts, stages = encode_prompts_and_generation_stages(frozen, task, examples, decoding)
    cue = tuple(frozen.tokenizer.encode(task.prompts.cue, add_special_tokens=False))
    if decoding.mode != REASONING:
        return [(*prompt, *cue) for prompt in prompts]
    standard = Route.standard(frozen.layers)
    outcomes = evaluator.evaluate([standard], examples)[standard].outcomes
    reasonings = frozen.tokenize_texts([outcome.reasoning for outcome in outcomes], add_special_tokens=False)
    # Without a think block the bridge between the stages ends with the cue already.
    after = (*stages[0].forced_tokens, *(cue if frozen.chat.think else ()))
    return [(*prompt, *thought, *after) for prompt, thought in zip(prompts, reasonings, strict=True)]


def _make_lens_context_and_target(frozen: FrozenModel, context: Tokens, answer: Tokens) -> LogitLensPrompt:
    """Skip tokens that are only white space, which some tokenizers put before a number; they join the context."""
    visible = (index for index, token in enumerate(answer[:-1]) if frozen.tokenizer.decode([token]).strip())
    index = next(visible, len(answer) - 1)
    return LogitLensPrompt((*context, *answer[:index]), answer[index])


@torch.no_grad()
def compute_stepwise_gold_log_probs(
    frozen: FrozenModel, route: Route, items: Sequence[LogitLensPrompt]
) -> list[list[float]]:
    """By item: the log-probability of its gold token after every step of the route."""
    model = apply_route(frozen, route)
    values: list[list[float]] = []
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
        values += torch.stack(steps, dim=1).tolist()
    return values


# --- result -------------------------------------------------------------------------------------------------------


def _make_study_result(
    context: StudyContext, task: TaskWithAnswerMode, routes: dict[str, Route], measured: dict[str, Any]
) -> StudyResult:
    """Tables and figures of the examples on which both routes have finite numbers."""
    total, details = len(measured["route"]), {"route": str(routes["route"])}
    usable = np.logical_and.reduce([np.isfinite(values).all(axis=1) for values in measured.values()])
    values = {name: array[usable] for name, array in measured.items()}
    n = int(usable.sum())
    where = context.describe_model_and_tasks([task])
    if n == 0:
        name = truncate_route_text(routes["route"])
        headline = f"None of {total} examples can be read: {name} has no finite number on them."
        table = Table(f"How the correct answer emerges ({where})", _COLUMNS, [], (describe_comparison_count(0),))
        return StudyResult(STUDY, headline, table, (), details)
    rows = _summarize_gold_log_probabilities(routes, values)
    title = f"How the correct answer emerges ({where}, {n} examples)"
    notes = [
        (
            f"Mean over {n} test examples of the gold answer's first token, read through the model's own norm and head"
            " after every executed step. Steps of the two routes with the same number need not apply the same layer."
        ),
        *(
            [f"Of {total} examples {total - n} are left out: a route has no finite number on them."]
            if n < total
            else []
        ),
        describe_comparison_count(1),
    ]
    steps = {name: _make_lens_step_rows(routes[name], array) for name, array in values.items()}
    figures = _draw_log_probability_by_layer_charts(
        title, {"standard": "standard pass", "route": truncate_route_text(routes["route"])}, values
    )
    table = Table(title, _COLUMNS, rows, notes)
    headline = _describe_correct_token_probability(rows)
    return StudyResult(STUDY, headline, table, figures, {**details, "steps": steps}, untabled_comparisons=1)


def _describe_correct_token_probability(rows: Sequence[Row]) -> str:
    standard, routed = rows
    low, high = format_signed(routed["low"], 2), format_signed(routed["high"], 2)
    return (
        f"After the last step the correct token has {100 * standard['end_probability']:.1f} % in the standard pass and"
        f" {100 * routed['end_probability']:.1f} % on the route; difference in log-probability"
        f" {format_signed(routed['difference'], 2)} nats ({low} to {high}), n = {routed['n']}."
    )


def _summarize_gold_log_probabilities(routes: dict[str, Route], values: dict[str, Any]) -> list[dict[str, Any]]:
    """A row per route; the route's has the difference to the standard pass after the last step."""
    rows: list[dict[str, Any]] = []
    for name, array in values.items():
        probabilities = np.exp(array).mean(axis=0)
        best = int(probabilities.argmax())
        rows.append(
            {
                "arm": name,
                "route": str(routes[name]),
                "steps": routes[name].length,
                "end_log_probability": float(array[:, -1].mean()),
                "end_probability": float(probabilities[-1]),
                "best_step": best + 1,
                "best_layer": routes[name].steps[best].layer,
                "best_probability": float(probabilities[best]),
                "n": len(array),
            }
        )
    standard, routed = (values[name][:, -1] for name in ("standard", "route"))
    low, high = paired_bootstrap_interval(standard, routed)
    rows[1] |= {"difference": float((routed - standard).mean()), "low": low, "high": high}
    return rows


def _draw_log_probability_by_layer_charts(title: str, names: dict[str, str], values: dict[str, Any]) -> list[Figure]:
    steps = AxisLabels("layers applied so far")
    lines = [_make_mean_line_with_band(names[name], array) for name, array in values.items()]
    probabilities = [_make_mean_line_with_band(names[name], np.exp(array)) for name, array in values.items()]
    probability_axis = AxisLabels("probability of the correct token", "{:.2g}".format)
    return [
        draw_line_chart("figure", title, lines, steps, AxisLabels("log-probability of the correct token, nats")),
        draw_line_chart("probability", title, probabilities, steps, probability_axis),
    ]


def _make_mean_line_with_band(name: str, values: Any) -> LineSeries:
    low, high = np.percentile(values, [25, 75], axis=0)
    columns = zip(values.mean(axis=0).tolist(), low.tolist(), high.tolist(), strict=True)
    return LineSeries(
        f"{name}: mean; band: middle half", [ChartPoint(step, *point) for step, point in enumerate(columns, 1)]
    )


def _make_lens_step_rows(route: Route, values: Any) -> list[dict[str, Any]]:
    quartiles = np.percentile(values, [25, 50, 75], axis=0)
    return [
        {
            "step": index + 1,
            "applied": str(step),
            "mean": float(values[:, index].mean()),
            "deviation": statistics.stdev(values[:, index].tolist()) if len(values) > 1 else math.nan,
            "quartiles": [float(value) for value in quartiles[:, index]],
            "probability": float(np.exp(values[:, index]).mean()),
        }
        for index, step in enumerate(route.steps)
    ]


def _format_difference_with_interval(row: Row) -> str:
    if row.get("difference") is None:
        return ""
    return use_minus_sign(f"{row['difference']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f})")


_COLUMNS = [
    make_text_column("", "arm"),
    make_text_column("route", "route", is_code=True),
    number_column("steps", "steps"),
    Column("probability at the end, %", lambda row: f"{100 * row['end_probability']:.1f}"),
    Column("log-probability at the end", lambda row: use_minus_sign(f"{row['end_log_probability']:.2f}")),
    Column("difference (95 % interval)", _format_difference_with_interval),
    Column(
        "highest on the way, %",
        lambda row: f"{100 * row['best_probability']:.1f} after step {row['best_step']} (L{row['best_layer']})",
    ),
]
