"""The shared engine against the plain route-by-route path: same routes, same prompts, one run.

What sharing can save is known before anything runs (steps of all routes over nodes of their tree); so is what racing
can save once the outcomes are known (the elite scored first). Both limits stand beside what was reached.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from macro_routing.engine.likelihood import ChoiceItem, choice_log_likelihoods
from macro_routing.engine.prefix_tree import plan_tree
from macro_routing.engine.shared_likelihood import choice_log_likelihoods_of_routes
from macro_routing.evaluation.answering import answer, answer_routes, choice_items, judged
from macro_routing.evaluation.decoding import Decoding
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.racing import EXACT, NEVER, STATISTICAL
from macro_routing.evaluation.score_store import ScoreStore
from macro_routing.evaluation.units import units_for_race
from macro_routing.models.frozen import FrozenModel
from macro_routing.routes.route import Route, Step
from macro_routing.search.macro import elite_of
from macro_routing.tasks.prompts import LIKELIHOOD
from macro_routing.tasks.task import Example, Task

_TURNS = 6
"""Both paths run in so many turns, so that a machine that slows down slows both."""
SWEPT_BLOCKS = (1, 2, 3, 5)


def block_sweep(layers: int) -> list[Route]:
    """All single repeats of blocks of a few layers, and all single skips."""
    standard = list(range(layers))
    found = [Route.standard(layers)]
    for size in SWEPT_BLOCKS:
        for start in range(layers - size + 1):
            repeated = standard[: start + size] + standard[start:]
            found.append(Route(tuple(map(Step, repeated)), layers))
    found += [Route(tuple(Step(n) for n in standard if n != skipped), layers) for skipped in range(1, layers)]
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Sharing:
    """Routes scored together against one after the other."""

    routes: int
    """Different ones."""
    examples: int
    limit: float
    """Steps of all routes over nodes of their tree."""
    plain_turns: tuple[float, ...]
    """Seconds, turn by turn; so are ``shared_turns``."""
    shared_turns: tuple[float, ...]
    tokens: int
    """Tokens of prompts and choices per route."""
    plain_applications: int
    """Layers applied to a batch of prompts, if every route ran alone; ``shared_applications`` in the tree."""
    shared_applications: int
    largest_difference: float
    """Of log-likelihoods; 0 where answers are generated."""
    changed_verdicts: int
    plain_peak: int | None
    """Most memory in use, in bytes; None where it cannot be told."""
    shared_peak: int | None

    @property
    def plain_seconds(self) -> float:
        """All turns one after the other."""
        return sum(self.plain_turns)

    @property
    def shared_seconds(self) -> float:
        """All turns together."""
        return sum(self.shared_turns)

    @property
    def speedup(self) -> float:
        """Seconds route by route over seconds together: the middle one of all turns."""
        return statistics.median(a / b for a, b in zip(self.plain_turns, self.shared_turns, strict=True))

    @property
    def share_of_limit(self) -> float:
        """How much of the limit was reached."""
        return self.speedup / self.limit


def measure_sharing(
    frozen: FrozenModel, task: Task, routes: Sequence[Route], examples: Sequence[Example], decoding: Decoding
) -> Sharing:
    """Run both paths in turn on chunks of the examples."""
    different = list(dict.fromkeys(routes))
    plan = plan_tree(different)
    size = -(-len(examples) // _TURNS)
    chunks = [examples[start : start + size] for start in range(0, len(examples), size)]
    run = _Runner(frozen, task, decoding)
    run.shared(different[:1], chunks[0][:1])  # what is done once is not timed
    plain, shared = _Watch(frozen), _Watch(frozen)
    difference, changed = 0.0, 0
    for chunk in chunks:
        with plain:
            expected = run.plainly(different, chunk)
        with shared:
            found = run.shared(different, chunk)
        difference = max(difference, _largest_difference(expected, found))
        changed += run.changed_verdicts(expected, found, chunk)
    items = choice_items(frozen, task, examples, by_letter=decoding.by_letter) if decoding.mode == LIKELIHOOD else []
    return Sharing(
        len(different),
        len(examples),
        plan.shared,
        tuple(plain.seconds),
        tuple(shared.seconds),
        sum(len(item.prompt) + sum(map(len, item.choices)) for item in items),
        sum(route.length for route in different) * len(chunks),
        len(plan.applications) * len(chunks),
        difference,
        changed,
        plain.peak,
        shared.peak,
    )


@dataclass(frozen=True, eq=False)
class _Runner:
    """Both paths: log-likelihoods of choices, or graded answers where they are generated."""

    frozen: FrozenModel
    task: Task
    decoding: Decoding

    def plainly(self, routes: Sequence[Route], examples: Sequence[Example]) -> dict[Route, Any]:
        if self.decoding.mode != LIKELIHOOD:
            routed = ((route, self.frozen.routed(route)) for route in routes)
            return {route: answer(self.frozen, model, self.task, examples, self.decoding) for route, model in routed}
        items = self._items(examples)
        return {route: choice_log_likelihoods(self.frozen.routed(route), items) for route in routes}

    def shared(self, routes: Sequence[Route], examples: Sequence[Example]) -> dict[Route, Any]:
        if self.decoding.mode != LIKELIHOOD:
            return dict(answer_routes(self.frozen, routes, self.task, examples, self.decoding))
        return dict(choice_log_likelihoods_of_routes(self.frozen.model, routes, self._items(examples)))

    def _items(self, examples: Sequence[Example]) -> list[ChoiceItem]:
        return choice_items(self.frozen, self.task, examples, by_letter=self.decoding.by_letter)

    def changed_verdicts(self, expected: dict[Route, Any], found: dict[Route, Any], examples: Sequence[Example]) -> int:
        if self.decoding.mode == LIKELIHOOD:
            expected, found = (
                {route: judged(examples, values, self.decoding) for route, values in scored.items()}
                for scored in (expected, found)
            )
        return sum(
            one.correct != other.correct
            for route, outcomes in expected.items()
            for one, other in zip(outcomes, found[route], strict=True)
        )


class _Watch:
    """Seconds spent and the most memory in use while it runs."""

    def __init__(self, frozen: FrozenModel) -> None:
        self._on_gpu = frozen.model.device.type == "cuda"
        self._started = 0.0
        self.seconds: list[float] = []
        self.peak: int | None = None

    def __enter__(self) -> None:
        import torch

        if self._on_gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        else:
            with contextlib.suppress(OSError):  # forgets the process's highest mark
                Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        import torch

        if self._on_gpu:
            torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - self._started)
        peak = int(torch.cuda.max_memory_allocated()) if self._on_gpu else _highest_mark()
        self.peak = peak if self.peak is None or peak is None else max(self.peak, peak)


def _highest_mark() -> int | None:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    return None


def _largest_difference(expected: dict[Route, Any], found: dict[Route, Any]) -> float:
    return max(
        (
            abs(one - other)
            for route, rows in expected.items()
            for values, others in zip(rows, found[route], strict=True)
            if isinstance(values, list)
            for one, other in zip(values, others, strict=True)
        ),
        default=0.0,
    )


# --- racing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Race:
    """A round of draws, raced and then scored to the end."""

    draws: int
    different: int
    examples: int
    keep: int
    elite_accuracy: float
    """Of the last place of the elite."""
    asked: int
    by_duplicates: int
    """Outcomes saved because routes repeat."""
    by_racing: int
    """Outcomes saved by stopping."""
    by_hindsight: int
    """What an order known in hindsight would have saved."""
    by_statistics: int
    """What the statistical mode saves."""
    same_elite: bool
    statistical_same_elite: bool
    race_seconds: float
    full_seconds: float

    @property
    def share_of_hindsight(self) -> float:
        """How much of what could be saved was."""
        return self.by_racing / self.by_hindsight if self.by_hindsight else 1.0

    def factor(self, saved: int) -> float:
        """Outcomes of different routes over those left when so many are saved."""
        whole = self.asked - self.by_duplicates
        return whole / (whole - saved)


def measure_race(  # noqa: PLR0913
    frozen: FrozenModel, task: Task, draws: Sequence[Route], examples: Sequence[Example], keep: int, decoding: Decoding
) -> Race:
    """Race the draws, then score the rest too, and see whether the elite is the same."""
    with tempfile.TemporaryDirectory() as folder:
        store = ScoreStore(Path(folder) / "scores.sqlite")
        evaluator = Evaluator(frozen, task, decoding, store)
        start = time.perf_counter()
        raced = evaluator.race(draws, examples, keep)
        race_seconds = time.perf_counter() - start
        full = evaluator.race(draws, examples, keep, NEVER)
        full_seconds = time.perf_counter() - start
        guessed = evaluator.race(draws, examples, keep, STATISTICAL)
        # Hindsight knows the elite, but sees the examples in the same order.
        in_order = [one for unit in units_for_race(examples, evaluator.unit_sizes) for one in unit]
        scores = evaluator.evaluate(draws, in_order)
        store.close()
    table = np.array([scores[route].correct for route in draws], dtype=float)
    elite = elite_of(full.outcomes, keep)
    return Race(
        len(draws),
        len(set(draws)),
        len(examples),
        keep,
        float(table[elite[-1]].mean()),
        raced.asked,
        raced.repeated,
        raced.stopped,
        saved_in_hindsight(table, [list(draws).index(route) for route in draws], keep),
        guessed.stopped,
        _same(raced.outcomes, full.outcomes, keep),
        _same(guessed.outcomes, full.outcomes, keep),
        race_seconds,
        full_seconds,
    )


def _same(raced: Sequence[Any], full: Sequence[Any], keep: int) -> bool:
    places = elite_of(full, keep)
    return elite_of(raced, keep) == places and all(raced[place] == full[place] for place in places)


def saved_in_hindsight(table: np.ndarray[Any, Any], first: Sequence[int], keep: int) -> int:
    """Outcomes not needed if the elite were scored first and every other draw until it is out, one example at a time.

    ``table`` is draws × examples of credit; ``first`` is the earliest draw of the same route, which stands for all.
    """
    total = table.shape[1]
    losses = total - table.sum(axis=1)
    last = sorted((losses[draw], draw) for draw in range(len(table)))[keep - 1]
    saved = 0
    for draw in sorted(set(first)):
        lost = np.cumsum(1 - table[draw])
        out = np.flatnonzero([(value, draw) > last for value in lost])
        saved += total - 1 - int(out[0]) if len(out) else 0
    return saved


def as_record(measured: Sharing | Race) -> dict[str, Any]:
    """Plain values for a JSON file, the derived ones included."""
    found = dataclasses.asdict(measured)
    if isinstance(measured, Sharing):
        return {
            **found,
            "speedup": measured.speedup,
            "plain_seconds": measured.plain_seconds,
            "shared_seconds": measured.shared_seconds,
            "share_of_limit": measured.share_of_limit,
        }
    return {
        **found,
        "racing_factor": measured.factor(measured.by_racing),
        "hindsight_factor": measured.factor(measured.by_hindsight),
        "statistical_factor": measured.factor(measured.by_statistics),
        "share_of_hindsight": measured.share_of_hindsight,
        "mode": EXACT,
    }
