"""Outcomes of some routes on some examples: read from the score store first, computed and stored when missing."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

from macro_routing.evaluation.outcomes import ExampleOutcome, RacedRoundScores, RouteEvaluation
from macro_routing.evaluation.racing import RaceStanding
from macro_routing.evaluation.score_store import ScoreStore
from macro_routing.evaluation.work_items import Results, WorkItem, WorkUnit, split_work
from macro_routing.routes.mixture import RouteOrMixture
from macro_routing.routes.route import Route
from macro_routing.search.searcher import ScoringFailure
from macro_routing.tasks.task import Example, fingerprint_examples

_WRONG = ExampleOutcome(correct=False, prediction="")
"""Counts for a route that could not be run; it is never stored."""

RunItems = Callable[[Sequence[WorkItem]], Generator[tuple[WorkItem, Results | ScoringFailure]]]
"""Runs work items and yields each with its results."""
RoutesByUnit = Iterable[tuple[WorkUnit, Sequence[RouteOrMixture]]]


class LazyOutcomeTable:
    """Known outcomes of some routes on some examples, and the means to compute the missing ones."""

    def __init__(  # noqa: PLR0913
        self,
        routes: Iterable[RouteOrMixture],
        examples: Sequence[Example],
        run_work_items: RunItems,
        *,
        store: ScoreStore | None = None,
        scope: Mapping[str, Any] | None = None,
        model: str = "",
        workers: int = 1,
        on_outcomes: Callable[[int], None] = lambda _count: None,
        examples_by_route: Mapping[RouteOrMixture, Sequence[Example]] | None = None,
    ) -> None:
        """Look up all routes in the store; ``examples_by_route`` limits the lookup to the examples of each route."""
        self._score_work_items = run_work_items
        self._store = store
        self._scope = scope or {}
        self._model = model
        self._workers = workers
        self._on_outcomes = on_outcomes
        # The key holds the example's contents: data that changed under the same name is another example.
        self._keys = {example: f"{example.id}/{fingerprint_examples([example])}" for example in examples}
        self.routes = list(dict.fromkeys(routes))
        self._failures: dict[RouteOrMixture, str] = {}
        self._no_prefetch: set[RouteOrMixture] = set()
        """Routes of a failed prefetch: the next prefetch may fail, too, and costs a worker."""
        wanted = dict.fromkeys(self.routes, examples) if examples_by_route is None else examples_by_route
        self._stored = {
            route: store.find_outcomes(self._scope, route, [self._keys[example] for example in wanted[route]])
            if store
            else {}
            for route in self.routes
        }
        self._outcomes = {route: dict(stored) for route, stored in self._stored.items()}

    @property
    def stored_count(self) -> int:
        """Number of outcomes that the store had."""
        return sum(map(len, self._stored.values()))

    def compute_missing(self, wanted: RoutesByUnit) -> None:
        """Compute the missing outcomes of these routes on these units; a unit is always run as a whole."""
        items = [item for unit, routes in wanted for item in self._find_missing_items(unit, routes)]
        # Two items per worker, so that no worker waits long for the last one.
        self._run_and_store(split_work(1 if self._workers == 1 else 2 * self._workers, items))

    def prefetch_outcomes(self, needed: RoutesByUnit, likely: RoutesByUnit) -> None:
        """Compute what is needed; workers that would be idle compute what is likely to be needed next."""
        items = [item for unit, routes in needed for item in self._find_missing_items(unit, routes)]
        parts = split_work(self._workers, items)
        if not parts:
            return
        # As a rule, prefetch items are not larger than the needed ones.
        size = max(1, sum(len(part.routes) for part in parts) // len(parts))
        ahead = (
            WorkItem(item.routes[start : start + size], item.unit, prefetch=True)
            for unit, routes in likely
            for item in self._find_missing_items(unit, [route for route in routes if route not in self._no_prefetch])
            for start in range(0, len(item.routes), size)
        )
        self._run_and_store([*parts, *islice(ahead, max(0, self._workers - len(parts)))])

    def compute_missing_pairs(self, pairs: Sequence[tuple[RouteOrMixture, Example]], batch_size: int) -> None:
        """Compute the missing outcomes of these pairs, batched by their order, so that workers change no batch.

        Of a batch only the missing pairs are run: its pairs have little in common, and running all would cost much.
        """
        distinct = list(dict.fromkeys(pairs))
        items = []
        for start in range(0, len(distinct), batch_size):
            batch = distinct[start : start + batch_size]
            if missing := [pair for pair in batch if self._keys[pair[1]] not in self._outcomes[pair[0]]]:
                routes, examples = zip(*missing, strict=True)
                items.append(WorkItem(routes, examples, paired=True))
        self._run_and_store(items)

    def _find_missing_items(self, unit: WorkUnit, routes: Sequence[RouteOrMixture]) -> list[WorkItem]:
        keys = [self._keys[example] for example in unit]
        missing = [
            route
            for route in routes
            if route not in self._failures and any(key not in self._outcomes[route] for key in keys)
        ]
        return [WorkItem(tuple(missing), unit)] if missing else []

    def _run_and_store(self, items: Sequence[WorkItem]) -> None:
        # Closed at once when storing fails: an executor must not be left in the middle of its work.
        with closing(self._score_work_items(items)) as finished:
            for item, results in finished:
                if not isinstance(results, ScoringFailure):
                    self._store_and_count_results(item, results)
                elif item.prefetch:
                    self._no_prefetch.update(item.routes)  # computed again, and judged, when it is needed
                else:
                    self._failures.update(dict.fromkeys(item.routes, results.reason))

    def _store_and_count_results(self, item: WorkItem, results: Results) -> None:
        """Store outcomes first: whatever is counted is stored."""
        computed: dict[RouteOrMixture, dict[str, ExampleOutcome]] = {route: {} for route in item.routes}
        for index, (route, outcomes) in enumerate(zip(item.routes, results, strict=True)):
            examples = item.unit[index : index + 1] if item.paired else item.unit
            computed[route].update(zip((self._keys[example] for example in examples), outcomes, strict=True))
        if self._store is not None:
            self._store.store_outcomes(self._scope, computed, self._model)
        for route, by_key in computed.items():
            # Known outcomes stay: a score never changes once it was reported.
            self._outcomes[route] = {**by_key, **self._outcomes[route]}
        self._on_outcomes(sum(map(len, results)))

    def count_correct_answers(self, route: RouteOrMixture, unit: WorkUnit) -> float | ScoringFailure:
        """Number of correct answers on a unit, or why there are none."""
        if reason := self._failures.get(route):
            return ScoringFailure(reason)
        return sum(outcome.correct for outcome in self.get_known_outcomes(route, unit))

    def get_known_outcomes(self, route: RouteOrMixture, examples: Sequence[Example]) -> list[ExampleOutcome]:
        """Known outcomes; wrong ones where a failed route has none."""
        outcomes = self._outcomes[route]
        if route in self._failures:
            return [outcomes.get(self._keys[example], _WRONG) for example in examples]
        return [outcomes[self._keys[example]] for example in examples]

    def get_route_example_outcome(self, route: RouteOrMixture, example: Example) -> ExampleOutcome | ScoringFailure:
        """One outcome, or why there is none: a pair that could not be run is not counted as wrong."""
        outcome = self._outcomes[route].get(self._keys[example])
        return ScoringFailure(self._failures[route]) if outcome is None else outcome

    def summarize_route_outcomes(self, route: RouteOrMixture, examples: Sequence[Example]) -> RouteEvaluation:
        """One route on a list of examples."""
        failure = self._failures.get(route, "")
        outcomes = (_WRONG,) * len(examples) if failure else tuple(self.get_known_outcomes(route, examples))
        return RouteEvaluation(route, outcomes, len(self._stored[route]), failure)

    def summarize_raced_round(
        self, draws: Sequence[Route], standings: Mapping[Route, RaceStanding], units: Sequence[WorkUnit]
    ) -> RacedRoundScores:
        """A round of draws, with the evaluations that racing and the store saved."""
        total = sum(map(len, units))
        seen = {
            route: [example for unit in units[: standing.units] for example in unit]
            for route, standing in standings.items()
        }
        outcomes = {route: self.get_known_outcomes(route, examples) for route, examples in seen.items()}
        truncated = sum(outcome.truncated for answers in outcomes.values() for outcome in answers)
        return RacedRoundScores(
            outcomes=tuple(standings[route].outcome_told_to_search for route in draws),
            requested=len(draws) * total,
            duplicates=(len(draws) - len(standings)) * total,
            stopped=sum(total - standing.scored for standing in standings.values()),
            from_store=sum(self._keys[example] in self._stored[route] for route in seen for example in seen[route]),
            truncated_share=truncated / max(1, sum(map(len, outcomes.values()))),
            answers=tuple(
                (route, len(answers), sum(outcome.generated_token_count for outcome in answers))
                for route, answers in outcomes.items()
            ),
        )
