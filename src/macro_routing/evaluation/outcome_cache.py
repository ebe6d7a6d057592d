"""What is known of some routes on some examples: from the store at first, then worked out and kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

from macro_routing.evaluation.evaluation_results import RaceResult, RouteEvaluation
from macro_routing.evaluation.executor import Results, WorkItem, split_work
from macro_routing.evaluation.outcome import ExampleOutcome
from macro_routing.evaluation.racing import Standing
from macro_routing.evaluation.units import Unit
from macro_routing.routes.route import Route
from macro_routing.search.searcher import Failure
from macro_routing.tasks.task import Example, fingerprint_examples

if TYPE_CHECKING:
    from macro_routing.evaluation.evaluator import Evaluator

_WRONG = ExampleOutcome(correct=False, prediction="")
"""What counts for a route that could not be run; it is kept nowhere."""


class OutcomeCache:
    """What is known of some routes on some examples, from the store at first."""

    def __init__(
        self,
        evaluator: Evaluator,
        routes: Iterable[Route],
        examples: Sequence[Example],
        only: Mapping[Route, Sequence[Example]] | None = None,
    ) -> None:
        """``only`` says which examples are of interest to which route, where not all are to all."""
        self._evaluator = evaluator
        self._store = evaluator.store
        self._scope = evaluator.scope
        # The key holds the example's contents: data that changed under the same name is another example.
        self._keys = {example: f"{example.id}/{fingerprint_examples([example])}" for example in examples}
        everything = list(self._keys.values())
        self.routes = list(dict.fromkeys(routes))
        self._failed: dict[Route, str] = {}
        self._not_ahead: set[Route] = set()
        """Routes in an ask ahead that failed: the next one may, too, and costs a worker."""

        def stored(route: Route) -> dict[str, ExampleOutcome]:
            wanted = everything if only is None else [self._keys[example] for example in only[route]]
            return self._store.find(self._scope, route, wanted) if self._store else {}

        self._stored = {route: stored(route) for route in self.routes}
        self._known = {route: dict(stored) for route, stored in self._stored.items()}

    def work_out_all(self, wanted: Iterable[tuple[Unit, Sequence[Route]]]) -> None:
        """Know all outcomes of these routes on these units; where one is missing the whole unit is run."""
        if self._evaluator.executor is not None:
            asks = [ask for unit, routes in wanted for ask in self._lacking(unit, routes)]
            self._run(split_work(self._plenty, asks))
            return
        for unit, routes in wanted:
            self._run(self._lacking(unit, routes))

    def work_ahead(
        self, sure: Iterable[tuple[Unit, Sequence[Route]]], likely: Iterable[tuple[Unit, Sequence[Route]]]
    ) -> None:
        """The same for what is sure; workers that this leaves idle take what is likely."""
        asks = [ask for unit, routes in sure for ask in self._lacking(unit, routes)]
        workers = self._workers
        cut = split_work(workers, asks)
        if not cut:
            return
        # Not larger than what is waited for, as a rule.
        size = max(1, sum(len(ask.routes) for ask in cut) // len(cut))
        more = (
            WorkItem(part, ask.unit, ahead=True)
            for unit, routes in likely
            for ask in self._lacking(unit, [route for route in routes if route not in self._not_ahead])
            for part in _chunks(ask.routes, size)
        )
        self._run([*cut, *islice(more, max(0, workers - len(cut)))])

    def _lacking(self, unit: Unit, routes: Sequence[Route]) -> list[WorkItem]:
        keys = [self._keys[example] for example in unit]
        lacking = [
            route
            for route in routes
            if route not in self._failed and any(key not in self._known[route] for key in keys)
        ]
        return [WorkItem(tuple(lacking), unit)] if lacking else []

    def work_out_pairs(self, pairs: Sequence[tuple[Route, Example]]) -> None:
        """Know the outcomes of these pairs; cut by their order, so that who works them out changes no batch.

        Of a part only what is lacking is run: pairs of one part have little in common, and to redo all would cost much.
        """
        different, whole = list(dict.fromkeys(pairs)), self._evaluator.unit_sizes.whole
        asks = []
        for start in range(0, len(different), whole):
            part = different[start : start + whole]
            if lacking := [(route, one) for route, one in part if self._keys[one] not in self._known[route]]:
                routes, examples = zip(*lacking, strict=True)
                asks.append(WorkItem(routes, examples, paired=True))
        self._run(asks)

    @property
    def _workers(self) -> int:
        return 1 if self._evaluator.executor is None else self._evaluator.executor.workers

    @property
    def _plenty(self) -> int:
        """Enough parts that no worker waits long for the last; one is never split, so that its batches stay."""
        return 1 if self._workers == 1 else 2 * self._workers

    def _run(self, asks: Sequence[WorkItem]) -> None:
        # Closed at once when keeping fails: an executor must not be left in the middle of its work.
        with closing(self._evaluator.answered(asks)) as answered:
            for ask, answers in answered:
                if isinstance(answers, Failure) and ask.ahead:
                    self._not_ahead.update(ask.routes)  # asked for in earnest it is tried again, and judged
                elif isinstance(answers, Failure):
                    self._failed.update(dict.fromkeys(ask.routes, answers.reason))
                else:
                    self._keep(ask, answers)

    def _keep(self, ask: WorkItem, answers: Results) -> None:
        """Into the store first: what is counted is stored."""
        fresh: dict[Route, dict[str, ExampleOutcome]] = {route: {} for route in ask.routes}
        for place, (route, found) in enumerate(zip(ask.routes, answers, strict=True)):
            examples = ask.unit[place : place + 1] if ask.paired else ask.unit
            fresh[route].update(zip((self._keys[example] for example in examples), found, strict=True))
        if self._store is not None:
            self._store.add_all(self._scope, fresh)
        for route, outcomes in fresh.items():
            # What was known stays: a score never changes once it was given.
            self._known[route] = {**outcomes, **self._known[route]}
        self._evaluator.on_outcomes(sum(map(len, answers)))

    def credit(self, route: Route, unit: Unit) -> float | Failure:
        """Right answers on a unit, or why there are none."""
        if reason := self._failed.get(route):
            return Failure(reason)
        return sum(one.correct for one in self.found(route, unit))

    def found(self, route: Route, examples: Sequence[Example]) -> list[ExampleOutcome]:
        """Outcomes that were worked out or known; wrong ones where a failed route has none."""
        known = self._known[route]
        if route in self._failed:
            return [known.get(self._keys[example], _WRONG) for example in examples]
        return [known[self._keys[example]] for example in examples]

    def of_pair(self, route: Route, example: Example) -> ExampleOutcome | Failure:
        """One outcome, or why there is none: what could not be run was not answered, and so not answered wrong."""
        known = self._known[route].get(self._keys[example])
        return Failure(self._failed[route]) if known is None else known

    def evaluated(self, route: Route, examples: Sequence[Example]) -> RouteEvaluation:
        """One route on a list of examples."""
        reason = self._failed.get(route, "")
        outcomes = (_WRONG,) * len(examples) if reason else tuple(self.found(route, examples))
        return RouteEvaluation(route, outcomes, len(self._stored[route]), reason)

    def raced(self, draws: Sequence[Route], standings: dict[Route, Standing], units: Sequence[Unit]) -> RaceResult:
        """A round of draws, with what racing and the store saved."""
        total = sum(map(len, units))
        seen = {
            route: [example for unit in units[: standing.units] for example in unit]
            for route, standing in standings.items()
        }
        looked_at = [outcome for route, examples in seen.items() for outcome in self.found(route, examples)]
        cut = sum(outcome.reasoning_cut or outcome.answer_cut for outcome in looked_at)
        return RaceResult(
            outcomes=tuple(standings[route].outcome for route in draws),
            asked=len(draws) * total,
            repeated=(len(draws) - len(standings)) * total,
            stopped=sum(total - standing.scored for standing in standings.values()),
            from_store=sum(self._keys[example] in self._stored[route] for route in seen for example in seen[route]),
            cut_off=cut / max(1, len(looked_at)),
            looked_at=tuple((route, len(examples), self._written(route, examples)) for route, examples in seen.items()),
        )

    def _written(self, route: Route, examples: Sequence[Example]) -> int:
        return sum(one.reasoning_tokens + one.answer_tokens for one in self.found(route, examples))


def _chunks(routes: tuple[Route, ...], size: int) -> Iterator[tuple[Route, ...]]:
    for start in range(0, len(routes), size):
        yield routes[start : start + size]
