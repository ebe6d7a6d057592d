"""Routes × examples → graded outcomes: looked up where they are known, worked out and kept where they are not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from macro_routing.evaluation.answering import Decoding, answer
from macro_routing.evaluation.outcome import ExampleOutcome
from macro_routing.evaluation.score_store import ScoreStore
from macro_routing.models.frozen import FrozenModel
from macro_routing.routes.route import Route
from macro_routing.tasks.prompts import LIKELIHOOD, REASONING
from macro_routing.tasks.task import Example, Task, fingerprint


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
    def cut_off(self) -> float:
        """Share of answers that a budget cut off, in either stage."""
        return sum(outcome.reasoning_cut or outcome.answer_cut for outcome in self.outcomes) / len(self.outcomes)

    @property
    def tokens(self) -> float:
        """Mean number of tokens written per example."""
        return sum(outcome.reasoning_tokens + outcome.answer_tokens for outcome in self.outcomes) / len(self.outcomes)


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Scores routes of one model on one task."""

    frozen: FrozenModel
    task: Task
    decoding: Decoding
    store: ScoreStore | None = None

    @property
    def scope(self) -> dict[str, Any]:
        """Everything but route and example that decides an outcome."""
        decoding = dataclasses.asdict(self.decoding)
        if self.decoding.mode == LIKELIHOOD:
            del decoding["reasoning_budget"], decoding["answer_budget"]
        else:
            del decoding["by_letter"]
            if self.decoding.mode != REASONING:
                del decoding["reasoning_budget"]
        return {
            "numerics": self.frozen.numerics_id,
            "task": self.task.name,
            "prompts": self.task.prompts.version,
            "template": self.frozen.chat.template_id,
            "grader": [self.task.grader.name, self.task.grader.version],
            "decoding": decoding,
        }

    def evaluate(self, routes: Iterable[Route], examples: Sequence[Example]) -> dict[Route, Evaluated]:
        """Every different route on every example."""
        return {route: self._one(route, examples) for route in dict.fromkeys(routes)}

    def _one(self, route: Route, examples: Sequence[Example]) -> Evaluated:
        # The key holds the example's contents: data that changed under the same name is another example.
        keys = {example: f"{example.id}/{fingerprint([example])}" for example in examples}
        known = {} if self.store is None else self.store.find(self.scope, route, list(keys.values()))
        missing = [example for example, key in keys.items() if key not in known]
        if missing:
            model = self.frozen.model if route.is_standard else self.frozen.routed(route)
            found = answer(self.frozen, model, self.task, missing, self.decoding)
            fresh = {keys[example]: outcome for example, outcome in zip(missing, found, strict=True)}
            if self.store is not None:
                self.store.add(self.scope, route, fresh)
            known = {**known, **fresh}
        outcomes = tuple(known[keys[example]] for example in examples)
        return Evaluated(route, outcomes, len(keys) - len(missing))
