"""Routes × examples → graded outcomes: read from the score store, computed and stored when missing."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

from macro_routing.engine.decoders import AUTO, FUSED_VERSION, fused_unsupported_reason
from macro_routing.engine.memory import BatchLimit, run_halving_on_oom
from macro_routing.errors import RouteError
from macro_routing.evaluation.decoding_settings import DecodingSettings, default_answer_mode
from macro_routing.evaluation.lazy_outcome_table import LazyOutcomeTable
from macro_routing.evaluation.model_answers import answer_pairs, answer_with_every_route
from macro_routing.evaluation.outcomes import ExampleOutcome, RacedRoundScores, RouteEvaluation
from macro_routing.evaluation.racing import UnitRoute, race_routes
from macro_routing.evaluation.score_store import ScoreStore
from macro_routing.evaluation.scoring_settings import EXACT, NEVER, UnitSizes
from macro_routing.evaluation.statistics import compare_paired, wilson_interval
from macro_routing.evaluation.work_items import (
    EvaluatorSpec,
    Results,
    WorkItem,
    WorkItemExecutor,
    WorkUnit,
    group_examples_into_race_units,
    split_examples_into_work_units,
)
from macro_routing.models.frozen import FrozenModel
from macro_routing.routes.mixture import RouteOrMixture, require_question
from macro_routing.routes.notation import parse_route_or_mixture
from macro_routing.routes.route import Route
from macro_routing.search.searcher import ScoringFailure
from macro_routing.tasks.catalog import load_task
from macro_routing.tasks.prompts import LIKELIHOOD, REASONING
from macro_routing.tasks.splits import make_splits
from macro_routing.tasks.task import Example, Task

Report = Callable[[str], None]
RouteT = TypeVar("RouteT", bound=RouteOrMixture)


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Scores routes of one model on one task."""

    frozen: FrozenModel
    task: Task
    decoding: DecodingSettings
    store: ScoreStore | None = None
    sizes: UnitSizes | None = None
    """None: the sizes that suit the model's device."""
    decoder: str = AUTO
    """How text is generated, see ``engine.decoders``."""
    report: Report = lambda _message: None
    """Called once when memory runs out."""
    on_outcomes: Callable[[int], None] = lambda _count: None
    """Called with the number of outcomes that were just computed."""
    on_known: Callable[[int], None] = lambda _count: None
    """Called with the number of outcomes that the store had, where every route is scored on every example."""
    executor: WorkItemExecutor | None = None
    """Workers that run the model; None runs it in this process."""
    _reported: list[str] = field(default_factory=list, repr=False)
    _pairs_at_once: BatchLimit = field(default_factory=BatchLimit, repr=False)

    @property
    def scope(self) -> dict[str, Any]:
        """Everything except route and example that decides an outcome."""
        decoding = dataclasses.asdict(self.decoding)
        if self.decoding.mode == LIKELIHOOD:
            del decoding["reasoning_budget"], decoding["answer_budget"], decoding["stop_loops"]
        else:
            del decoding["by_letter"]
            if self.decoding.mode != REASONING:
                del decoding["reasoning_budget"]
            if fused_unsupported_reason(self.frozen.model, self.decoder) is None:
                decoding["decoder"] = FUSED_VERSION
        return {
            "numerics": self.frozen.numerics_id,
            "task": self.task.name,
            "prompts": self.task.prompts.texts_digest,
            "template": self.frozen.chat.template_id,
            "grader": [self.task.grader.name, self.task.grader.version],
            "decoding": decoding,
        }

    @property
    def examples_per_unit(self) -> UnitSizes:
        """The sizes in use."""
        return self.sizes or UnitSizes.for_device(self.frozen.model.device.type)

    @property
    def worker_spec(self) -> EvaluatorSpec:
        """How workers have to run this evaluator's work items."""
        scope = hashlib.sha256(json.dumps(self.scope, sort_keys=True).encode()).hexdigest()[:32]
        return EvaluatorSpec(self.task.name, self.decoding, self.decoder, self.examples_per_unit, scope)

    def evaluate(self, routes: Iterable[RouteT], examples: Sequence[Example]) -> dict[RouteT, RouteEvaluation]:
        """Score every distinct route or mixture on every example."""
        distinct = list(dict.fromkeys(routes))
        for route in distinct:
            if route.layers != self.frozen.layers:
                raise RouteError(
                    f"{route} is for a model of {route.layers} layers, but {self.frozen.name} has {self.frozen.layers}"
                )
            if self.decoding.mode != LIKELIHOOD:
                require_question(route)
        cache = self._make_lazy_outcome_table(distinct, examples)
        self.on_known(cache.stored_count)
        cache.compute_missing(
            [(unit, cache.routes) for unit in split_examples_into_work_units(examples, self.examples_per_unit.full)]
        )
        return {route: cache.summarize_route_outcomes(route, examples) for route in distinct}

    def has_stored_all(self, routes: Iterable[RouteOrMixture], examples: Sequence[Example]) -> bool:
        """Whether the store has every outcome of these routes on these examples, so that no weights are needed."""
        cache = self._make_lazy_outcome_table(routes, examples)
        return cache.stored_count == len(cache.routes) * len(set(examples))

    def race_draws(
        self, draws: Sequence[Route], examples: Sequence[Example], keep: int, mode: str = EXACT
    ) -> RacedRoundScores:
        """Score a round's draws until the ``keep`` best are certain; ties go to the earlier draw."""
        needs_all = mode == NEVER or keep >= len(draws)
        units = group_examples_into_race_units(examples, self._choose_unit_sizes(needs_all=needs_all))
        cache = self._make_lazy_outcome_table(draws, examples)

        def score_routes_on_unit(number: int, routes: Sequence[Route]) -> dict[Route, float | ScoringFailure]:
            cache.compute_missing([(units[number], routes)])
            return {route: cache.count_correct_answers(route, units[number]) for route in routes}

        def prefetch_outcomes(needed: Sequence[UnitRoute], likely: Iterator[UnitRoute]) -> None:
            if self.executor is not None:
                cache.prefetch_outcomes(_group_pairs_by_unit(needed, units), _group_pairs_by_unit(likely, units))

        if needs_all:  # every evaluation will be needed
            cache.compute_missing([(unit, cache.routes) for unit in units])
        standings = race_routes(
            draws, [len(unit) for unit in units], keep, mode, score_routes_on_unit, prefetch_outcomes
        )
        return cache.summarize_raced_round(draws, standings, units)

    def _choose_unit_sizes(self, *, needs_all: bool) -> UnitSizes:
        """Small units stop losing routes early; where all are needed to the end, choices are compared in full units."""
        sizes = self.examples_per_unit
        if not needs_all or self.decoding.mode != LIKELIHOOD:
            return sizes
        return dataclasses.replace(sizes, race=sizes.full, race_late=sizes.full)

    def evaluate_pairs(self, pairs: Sequence[tuple[Route, Example]]) -> list[ExampleOutcome | ScoringFailure]:
        """Score each pair's route on its example, or say why it could not be run there."""
        examples_by_route: dict[RouteOrMixture, list[Example]] = {}
        for route, example in pairs:
            examples_by_route.setdefault(route, []).append(example)
        cache = self._make_lazy_outcome_table(examples_by_route, [example for _, example in pairs], examples_by_route)
        cache.compute_missing_pairs(pairs, self.examples_per_unit.full)
        return [cache.get_route_example_outcome(route, example) for route, example in pairs]

    def _make_lazy_outcome_table(
        self,
        routes: Iterable[RouteOrMixture],
        examples: Sequence[Example],
        examples_by_route: Mapping[RouteOrMixture, Sequence[Example]] | None = None,
    ) -> LazyOutcomeTable:
        return LazyOutcomeTable(
            routes,
            examples,
            self._score_work_items,
            store=self.store,
            scope=self.scope,
            model=self.frozen.name,
            workers=1 if self.executor is None else self.executor.worker_count,
            on_outcomes=self.on_outcomes,
            examples_by_route=examples_by_route,
        )

    def _score_work_items(self, items: Sequence[WorkItem]) -> Generator[tuple[WorkItem, Results | ScoringFailure]]:
        """Each item with its results: in this process and in order, or by workers and as they finish."""
        if self.executor is None:
            yield from ((item, self.run_work_item(item)) for item in items)
        else:
            yield from self.executor.run_work_items(self.worker_spec, items)

    def run_work_item(self, item: WorkItem) -> Results:
        """Run an item in this process, without the store; workers call this."""
        if item.paired:
            pairs = list(zip(item.routes, item.unit, strict=True))
            return tuple((outcome,) for outcome in self.run_pairs(pairs))
        by_route = self.run_routes_on_unit(item.routes, item.unit)
        return tuple(tuple(by_route[route]) for route in item.routes)

    def run_pairs(self, pairs: Sequence[tuple[RouteOrMixture, Example]]) -> list[ExampleOutcome]:
        """Run pairs without the store; in smaller batches if memory runs out."""
        run_batch = partial(answer_pairs, self.frozen, task=self.task, decoding=self.decoding, decoder=self.decoder)
        return run_halving_on_oom(run_batch, pairs, self._report_once, self._pairs_at_once)

    def run_routes_on_unit(
        self, routes: Sequence[RouteOrMixture], unit: WorkUnit
    ) -> dict[RouteOrMixture, list[ExampleOutcome]]:
        """Run all routes on a unit without the store; in parts if the unit does not fit into memory."""

        def run_routes_on_examples(examples: Sequence[Example]) -> list[tuple[ExampleOutcome, ...]]:
            by_route = answer_with_every_route(
                self.frozen,
                routes,
                self.task,
                examples,
                self.decoding,
                hidden_state_bytes=self.examples_per_unit.state_megabytes << 20,
                decoder=self.decoder,
            )
            return list(zip(*(by_route[route] for route in routes), strict=True))

        rows = run_halving_on_oom(run_routes_on_examples, unit, self._report_once)
        return {route: [row[index] for row in rows] for index, route in enumerate(routes)}

    def _report_once(self, message: str) -> None:
        if not self._reported:
            self._reported.append(message)
            self.report(message)


def _group_pairs_by_unit(
    pairs: Iterable[UnitRoute], units: Sequence[WorkUnit]
) -> Iterator[tuple[WorkUnit, Sequence[RouteOrMixture]]]:
    """Adjacent pairs of one unit together."""
    for number, group in groupby(pairs, key=lambda pair: pair[0]):
        yield units[number], [route for _, route in group]


# --- one route in one call ------------------------------------------------------------------------------------------

Interval = tuple[float, float]


@dataclass(frozen=True)
class EvaluationSummary:
    """Accuracy of a route, and its difference to the standard pass on the same examples; intervals are 95 %."""

    route: RouteOrMixture
    """The route or mixture that was scored."""
    n: int
    """Number of examples."""
    accuracy: float
    """Share of correct answers of the route, from 0 to 1."""
    accuracy_interval: Interval
    """Wilson's score interval of ``accuracy``."""
    baseline_accuracy: float
    """Share of correct answers of the standard pass, from 0 to 1."""
    difference: float
    """``accuracy - baseline_accuracy``, a share from -1 to 1; times 100 it is in points."""
    difference_interval: Interval
    """Paired bootstrap interval of ``difference``."""
    p_value: float
    """Two-sided exact McNemar test, from 0 to 1."""
    routed: RouteEvaluation
    """The route's outcomes, example by example."""
    baseline: RouteEvaluation
    """The standard pass's outcomes."""


def evaluate(  # noqa: PLR0913
    model: FrozenModel,
    task: Task | str,
    route: RouteOrMixture | str,
    *,
    examples: Sequence[Example] | None = None,
    decoding: DecodingSettings | None = None,
    store: ScoreStore | None = None,
    seed: int = 0,
    test_seed: int | None = None,
) -> EvaluationSummary:
    """Score ``route`` and the standard pass of ``model`` on the same examples of ``task``.

    Examples default to the task's test split for ``seed``, or to the one that all seeds share with ``test_seed`` (0 in
    preset ``paper``). Decoding defaults to likelihood for multiple choice and to direct generation otherwise. Scores
    are reused from ``store`` and added to it, if one is given.

    Example::

        model = load_model("smollm2-135m")
        summary = evaluate(model, "category", "L0-L17 L17 RJ")
        print(summary.accuracy, summary.difference, summary.difference_interval, summary.p_value)
    """
    if isinstance(task, str):
        task = load_task(task, seed=seed if test_seed is None else test_seed)
    route = parse_route_or_mixture(route, model.layers) if isinstance(route, str) else route
    examples = make_splits(task, seed=seed, test_seed=test_seed).test if examples is None else examples
    standard = Route.standard(model.layers)
    evaluator = Evaluator(model, task, decoding or DecodingSettings(default_answer_mode(task)), store)
    evaluations = evaluator.evaluate([standard, route], examples)
    return compare_route_with_standard(evaluations[route], evaluations[standard], seed=seed)


def compare_route_with_standard(
    routed: RouteEvaluation, baseline: RouteEvaluation, *, seed: int = 0
) -> EvaluationSummary:
    """Compare a route with the standard pass by their outcomes on the same examples."""
    for evaluation in (routed, baseline):
        if evaluation.failure:
            raise RouteError(f"the route {evaluation.route} cannot be run: it {evaluation.failure}")
    is_same_route = baseline.route == routed.route
    comparison = compare_paired(baseline.correct, routed.correct, seed=seed, is_same_route=is_same_route)
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
