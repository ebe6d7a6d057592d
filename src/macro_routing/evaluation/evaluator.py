"""Routes × examples → graded outcomes: looked up where they are known, worked out and kept where they are not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from macro_routing.engine.decoders import AUTO, FLIGHT_VERSION, flight_refusal
from macro_routing.engine.memory import in_halves
from macro_routing.evaluation.answering import Decoding, answer_pairs, answer_routes
from macro_routing.evaluation.outcome import ExampleOutcome
from macro_routing.evaluation.racing import EXACT, Standing, race
from macro_routing.evaluation.score_store import ScoreStore
from macro_routing.evaluation.units import Unit, UnitSizes, units_for_race, units_in_order
from macro_routing.models.frozen import FrozenModel
from macro_routing.routes.route import Route
from macro_routing.search.searcher import Outcome, Score
from macro_routing.tasks.prompts import LIKELIHOOD, REASONING
from macro_routing.tasks.task import Example, Task, fingerprint

Report = Callable[[str], None]


@dataclass(frozen=True)
class Evaluated:
    """One route on a list of examples."""

    route: Route
    outcomes: tuple[ExampleOutcome, ...]
    from_store: int
    """How many outcomes were known already."""

    @property
    def correct(self) -> list[bool]:
        """Right or wrong, example by example."""
        return [outcome.correct for outcome in self.outcomes]

    @property
    def score(self) -> Score:
        """Right answers of all."""
        return Score(sum(self.correct), len(self.outcomes))

    @property
    def cut_off(self) -> float:
        """Share of answers that a budget cut off, in either stage."""
        return sum(outcome.reasoning_cut or outcome.answer_cut for outcome in self.outcomes) / len(self.outcomes)

    @property
    def tokens(self) -> float:
        """Mean number of tokens written per example."""
        return sum(outcome.reasoning_tokens + outcome.answer_tokens for outcome in self.outcomes) / len(self.outcomes)


@dataclass(frozen=True)
class Raced:
    """A round of draws, scored as far as the elite needs."""

    outcomes: tuple[Outcome, ...]
    """By draw: a score, or where it was stopped."""
    asked: int
    """Draws × examples."""
    repeated: int
    """Saved because a route was drawn more than once."""
    stopped: int
    """Saved by stopping hopeless routes."""
    from_store: int
    """Known already."""
    cut_off: float
    """Share of the answers looked at that a budget cut off."""
    looked_at: tuple[tuple[Route, int, int], ...]
    """Every different route, how many of its answers were looked at, and the tokens written in them."""

    @property
    def run(self) -> int:
        """Outcomes that had to be worked out."""
        return self.asked - self.repeated - self.stopped - self.from_store


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
    _reported: list[str] = field(default_factory=list, repr=False)

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
            if flight_refusal(self.frozen.model, self.decoder) is None:
                decoding["decoder"] = FLIGHT_VERSION
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

    def evaluate(self, routes: Iterable[Route], examples: Sequence[Example]) -> dict[Route, Evaluated]:
        """Every different route on every example."""
        book = _Book(self, routes, examples)
        for unit in units_in_order(examples, self.unit_sizes.whole):
            book.work_out(unit, list(book.routes))
        return {route: book.evaluated(route, examples) for route in book.routes}

    def race(self, draws: Sequence[Route], examples: Sequence[Example], keep: int, mode: str = EXACT) -> Raced:
        """Score a round's draws until the ``keep`` best, ties to the earlier draw, are certain."""
        units = units_for_race(examples, self.unit_sizes)
        book = _Book(self, draws, examples)

        def score(number: int, routes: Sequence[Route]) -> dict[Route, float]:
            book.work_out(units[number], routes)
            return {route: sum(one.correct for one in book.found(route, units[number])) for route in routes}

        standings = race(draws, [len(unit) for unit in units], keep, mode, score)
        return book.raced(draws, standings, units)

    def evaluate_pairs(self, pairs: Sequence[tuple[Route, Example]]) -> list[ExampleOutcome]:
        """Each pair's route on its example; known ones come from the store, the others are worked out together."""
        wanted: dict[Route, list[Example]] = {}
        for route, example in pairs:
            wanted.setdefault(route, []).append(example)
        book = _Book(self, wanted, [example for _, example in pairs], wanted)
        for start in range(0, len(pairs), self.unit_sizes.whole):
            book.work_out_pairs(pairs[start : start + self.unit_sizes.whole])
        return [book.found(route, [example])[0] for route, example in pairs]

    def run_pairs(self, pairs: Sequence[tuple[Route, Example]]) -> list[ExampleOutcome]:
        """The same, past the store; where memory runs out, in parts."""

        def run(some: Sequence[tuple[Route, Example]]) -> list[ExampleOutcome]:
            return answer_pairs(self.frozen, some, self.task, self.decoding, decoder=self.decoder)

        return in_halves(run, pairs, self._report_once)

    def run_unit(self, routes: Sequence[Route], unit: Unit) -> dict[Route, list[ExampleOutcome]]:
        """Answers of all routes to a unit, past the store; a unit that does not fit into memory is run in parts."""

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

        rows = in_halves(run, unit, self._report_once)
        return {route: [row[place] for row in rows] for place, route in enumerate(routes)}

    def _report_once(self, message: str) -> None:
        if not self._reported:
            self._reported.append(message)
            self.report(message)


class _Book:
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
        self._keys = {example: f"{example.id}/{fingerprint([example])}" for example in examples}
        everything = list(self._keys.values())
        self.routes = list(dict.fromkeys(routes))

        def stored(route: Route) -> dict[str, ExampleOutcome]:
            wanted = everything if only is None else [self._keys[example] for example in only[route]]
            return self._store.find(self._scope, route, wanted) if self._store else {}

        self._stored = {route: stored(route) for route in self.routes}
        self._known = {route: dict(stored) for route, stored in self._stored.items()}

    def work_out(self, unit: Unit, routes: Sequence[Route]) -> None:
        """Know all outcomes of these routes on the unit; where one is missing the whole unit is run."""
        keys = [self._keys[example] for example in unit]
        lacking = [route for route in routes if any(key not in self._known[route] for key in keys)]
        if not lacking:
            return
        fresh = {
            route: dict(zip(keys, outcomes, strict=True))
            for route, outcomes in self._evaluator.run_unit(lacking, unit).items()
        }
        if self._store is not None:
            self._store.add_all(self._scope, fresh)
        for route, outcomes in fresh.items():
            # What was known stays: a score never changes once it was given.
            self._known[route] = {**outcomes, **self._known[route]}
        self._evaluator.on_outcomes(len(lacking) * len(unit))

    def work_out_pairs(self, pairs: Sequence[tuple[Route, Example]]) -> None:
        """Know the outcomes of these pairs."""
        different = dict.fromkeys(pairs)
        lacking = [(route, one) for route, one in different if self._keys[one] not in self._known[route]]
        if not lacking:
            return
        fresh: dict[Route, dict[str, ExampleOutcome]] = {}
        for (route, example), outcome in zip(lacking, self._evaluator.run_pairs(lacking), strict=True):
            fresh.setdefault(route, {})[self._keys[example]] = outcome
        if self._store is not None:
            self._store.add_all(self._scope, fresh)
        for route, outcomes in fresh.items():
            self._known[route] = {**outcomes, **self._known[route]}
        self._evaluator.on_outcomes(len(lacking))

    def found(self, route: Route, examples: Sequence[Example]) -> list[ExampleOutcome]:
        """Outcomes that were worked out or known."""
        return [self._known[route][self._keys[example]] for example in examples]

    def evaluated(self, route: Route, examples: Sequence[Example]) -> Evaluated:
        return Evaluated(route, tuple(self.found(route, examples)), len(self._stored[route]))

    def raced(self, draws: Sequence[Route], standings: dict[Route, Standing], units: Sequence[Unit]) -> Raced:
        total = sum(map(len, units))
        seen = {
            route: [example for unit in units[: standing.units] for example in unit]
            for route, standing in standings.items()
        }
        looked_at = [outcome for route, examples in seen.items() for outcome in self.found(route, examples)]
        cut = sum(outcome.reasoning_cut or outcome.answer_cut for outcome in looked_at)
        return Raced(
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
