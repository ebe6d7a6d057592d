"""``evaluate``: one route against the standard pass, in one call."""

from collections.abc import Sequence
from dataclasses import dataclass

from macro_routing.errors import RouteError
from macro_routing.evaluation.decoding_settings import DecodingSettings, default_answer_mode
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.outcomes import RouteEvaluation
from macro_routing.evaluation.score_store import ScoreStore
from macro_routing.evaluation.statistics import compare_paired, wilson_interval
from macro_routing.models.frozen import FrozenModel
from macro_routing.routes.notation import parse_route
from macro_routing.routes.route import Route
from macro_routing.tasks.catalog import load_task
from macro_routing.tasks.splits import make_splits
from macro_routing.tasks.task import Example, Task

Interval = tuple[float, float]


@dataclass(frozen=True)
class EvaluationSummary:
    """Accuracy of a route, and its difference to the standard pass on the same examples; intervals are 95 %."""

    route: Route
    n: int
    """Number of examples."""
    accuracy: float
    accuracy_interval: Interval
    """Wilson's score interval."""
    baseline_accuracy: float
    """Accuracy of the standard pass."""
    difference: float
    """Gain in accuracy over the standard pass."""
    difference_interval: Interval
    """Paired bootstrap."""
    p_value: float
    """Two-sided exact McNemar test."""
    routed: RouteEvaluation
    """The route's outcomes, example by example."""
    baseline: RouteEvaluation
    """The standard pass's outcomes."""


def evaluate(  # noqa: PLR0913
    model: FrozenModel,
    task: Task | str,
    route: Route | str,
    *,
    examples: Sequence[Example] | None = None,
    decoding: DecodingSettings | None = None,
    store: ScoreStore | None = None,
    seed: int = 0,
) -> EvaluationSummary:
    """Score ``route`` and the standard pass of ``model`` on the same examples of ``task``.

    Examples default to the task's test split for ``seed``; decoding defaults to likelihood for multiple choice and to
    direct generation otherwise. Scores are reused from ``store`` and added to it, if one is given.

    Example::

        model = load_model("smollm2-135m")
        summary = evaluate(model, "category", "L0-L17 L17 RJ")
        print(summary.accuracy, summary.difference, summary.difference_interval, summary.p_value)
    """
    task = load_task(task, seed=seed) if isinstance(task, str) else task
    route = parse_route(route, model.layers) if isinstance(route, str) else route
    examples = make_splits(task, seed=seed).test if examples is None else examples
    standard = Route.standard(model.layers)
    evaluator = Evaluator(model, task, decoding or DecodingSettings(default_answer_mode(task)), store)
    evaluations = evaluator.evaluate([standard, route], examples)
    return summarize_evaluation(evaluations[route], evaluations[standard], seed=seed)


def summarize_evaluation(routed: RouteEvaluation, baseline: RouteEvaluation, *, seed: int = 0) -> EvaluationSummary:
    """Compare a route with the standard pass by their outcomes on the same examples."""
    for evaluation in (routed, baseline):
        if evaluation.failure:
            raise RouteError(f"the route {evaluation.route} cannot be run: it {evaluation.failure}")
    comparison = compare_paired(baseline.correct, routed.correct, seed=seed)
    return EvaluationSummary(
        routed.route,
        comparison.n,
        comparison.routed,
        wilson_interval(comparison.routed, comparison.n),
        comparison.baseline,
        comparison.difference,
        (comparison.low, comparison.high),
        comparison.p_value,
        routed,
        baseline,
    )
