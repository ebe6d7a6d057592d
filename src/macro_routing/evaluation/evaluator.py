"""Routes × examples → graded outcomes: looked up where they are known, worked out and kept where they are not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from macro_routing.engine.decoders import AUTO, FUSED_VERSION, fused_unsupported_reason
from macro_routing.engine.memory import BatchLimit, run_halving_on_oom
from macro_routing.evaluation.answering import answer_pairs, answer_routes
from macro_routing.evaluation.decoding import Decoding
from macro_routing.evaluation.evaluation_results import RaceResult, RouteEvaluation
from macro_routing.evaluation.executor import Executor, Results, WorkItem
from macro_routing.evaluation.outcome import ExampleOutcome
from macro_routing.evaluation.outcome_cache import OutcomeCache
from macro_routing.evaluation.racing import EXACT, NEVER, Place, race
from macro_routing.evaluation.score_store import ScoreStore
from macro_routing.evaluation.units import Unit, UnitSizes, units_for_race, units_in_order
from macro_routing.models.frozen import FrozenModel
from macro_routing.routes.route import Route
from macro_routing.search.searcher import Failure
from macro_routing.tasks.prompts import LIKELIHOOD, REASONING
from macro_routing.tasks.task import Example, Task

Report = Callable[[str], None]


def _say_nothing(_message: str) -> None:
    pass


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Scores routes of one model on one task."""

    frozen: FrozenModel
    task: Task
    decoding: Decoding
    store: ScoreStore | None = None
    sizes: UnitSizes | None = None
    """None takes what suits the model's device."""
    decoder: str = AUTO
    """How texts are written, see ``engine.decoders``."""
    report: Report = _say_nothing
    """Told, once, when memory runs out."""
    on_outcomes: Callable[[int], None] = lambda _: None
    """Told how many outcomes were just worked out."""
    executor: Executor | None = None
    """Workers that run the model; None runs it in this process."""
    _reported: list[str] = field(default_factory=list, repr=False)
    _pairs_at_once: BatchLimit = field(default_factory=BatchLimit, repr=False)

    @property
    def scope(self) -> dict[str, Any]:
        """Everything but route and example that decides an outcome."""
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
            "prompts": self.task.prompts.version,
            "template": self.frozen.chat.template_id,
            "grader": [self.task.grader.name, self.task.grader.version],
            "decoding": decoding,
        }

    @property
    def unit_sizes(self) -> UnitSizes:
        """The sizes in use."""
        return self.sizes or UnitSizes.for_device(self.frozen.model.device.type)

    def evaluate(self, routes: Iterable[Route], examples: Sequence[Example]) -> dict[Route, RouteEvaluation]:
        """Every different route on every example."""
        book = OutcomeCache(self, routes, examples)
        book.work_out_all([(unit, book.routes) for unit in units_in_order(examples, self.unit_sizes.whole)])
        return {route: book.evaluated(route, examples) for route in book.routes}

    def race(self, draws: Sequence[Route], examples: Sequence[Example], keep: int, mode: str = EXACT) -> RaceResult:
        """Score a round's draws until the ``keep`` best, ties to the earlier draw, are certain."""
        units = units_for_race(examples, self.unit_sizes)
        book = OutcomeCache(self, draws, examples)

        def score(number: int, routes: Sequence[Route]) -> dict[Route, float | Failure]:
            book.work_out_all([(units[number], routes)])
            return {route: book.credit(route, units[number]) for route in routes}

        def foresee(sure: Sequence[Place], likely: Iterator[Place]) -> None:
            if self.executor is not None:
                book.work_ahead(_by_unit(sure, units), _by_unit(likely, units))

        if self.executor is not None and (mode == NEVER or keep >= len(draws)):  # everything will be asked for
            book.work_out_all([(unit, book.routes) for unit in units])
        standings = race(draws, [len(unit) for unit in units], keep, mode, score, foresee)
        return book.raced(draws, standings, units)

    def evaluate_pairs(self, pairs: Sequence[tuple[Route, Example]]) -> list[ExampleOutcome | Failure]:
        """Each pair's route on its example, or why it could not be run there.

        Known ones come from the store, the others are worked out together.
        """
        wanted: dict[Route, list[Example]] = {}
        for route, example in pairs:
            wanted.setdefault(route, []).append(example)
        book = OutcomeCache(self, wanted, [example for _, example in pairs], wanted)
        book.work_out_pairs(pairs)
        return [book.of_pair(route, example) for route, example in pairs]

    def run_pairs(self, pairs: Sequence[tuple[Route, Example]]) -> list[ExampleOutcome]:
        """The same, past the store; where memory runs out, in parts."""

        def run(some: Sequence[tuple[Route, Example]]) -> list[ExampleOutcome]:
            return answer_pairs(self.frozen, some, self.task, self.decoding, decoder=self.decoder)

        return run_halving_on_oom(run, pairs, self._report_once, self._pairs_at_once)

    def run_unit(self, routes: Sequence[Route], unit: Unit) -> dict[Route, list[ExampleOutcome]]:
        """Outcomes of all routes on a unit, past the store; a unit that does not fit into memory is run in parts."""

        def run(examples: Sequence[Example]) -> list[tuple[ExampleOutcome, ...]]:
            found = answer_routes(
                self.frozen,
                routes,
                self.task,
                examples,
                self.decoding,
                state_bytes=self.unit_sizes.state_megabytes << 20,
                decoder=self.decoder,
            )
            return list(zip(*(found[route] for route in routes), strict=True))

        rows = run_halving_on_oom(run, unit, self._report_once)
        return {route: [row[place] for row in rows] for place, route in enumerate(routes)}

    def run_work_item(self, ask: WorkItem) -> Results:
        """What a worker does with an ask."""
        if ask.paired:
            return tuple((one,) for one in self.run_pairs(list(zip(ask.routes, ask.unit, strict=True))))
        found = self.run_unit(ask.routes, ask.unit)
        return tuple(tuple(found[route]) for route in ask.routes)

    def answered(self, asks: Sequence[WorkItem]) -> Generator[tuple[WorkItem, Results | Failure]]:
        """Every ask with its answers: here and in order, or by the workers and as they come."""
        if self.executor is not None:
            yield from self.executor.run(self, asks)
            return
        for ask in asks:
            yield ask, self.run_work_item(ask)

    def _report_once(self, message: str) -> None:
        if not self._reported:
            self._reported.append(message)
            self.report(message)


def _by_unit(places: Iterable[Place], units: Sequence[Unit]) -> Iterator[tuple[Unit, Sequence[Route]]]:
    """Neighbouring places of one unit together."""
    for number, group in groupby(places, key=lambda place: place[0]):
        yield units[number], [route for _, route in group]
