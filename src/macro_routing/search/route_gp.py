"""What some scored routes say about others: a Gaussian process over routes.

Routes that apply nearly the same layers do nearly the same. A gain over the standard pass is modelled as a sum of three
parts: what each layer more, or less, brings by itself (neighbouring layers alike); what only the whole route explains,
shared by routes that differ in little; and a damage that grows with the number of changed steps. How large each part
is, is read off the scores themselves (marginal likelihood). The standard pass has gain zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from macro_routing.routes.route import Route

Floats = NDArray[np.float64]

_MOST_TIMES = 4
"""Applications of one layer that are told apart."""
_MOST_BACK = 8
"""Adds that look back further are told apart no more."""
_WIDEST_TURN = 8
"""Jumps that go further, forwards or back, are told apart no more."""
_NEIGHBOURS = 2.0
"""Over how many layers the effect of a layer resembles that of its neighbours."""
_TURN = 0.5
"""A jump counts as half a changed step, beside the layers that it repeats or skips."""
_SPREAD = 1.2
"""How far, in log units, the sizes below may reasonably be from where they begin."""
_LEVEL = 0.5
"""How far the accuracy of the standard pass may be from the mean of all scores."""
_SHARED = 6.0
"""In how many changed steps two routes stop to succeed and fail on the same examples."""
_USUAL = 40
"""Examples that a route's own accuracy is mixed with, to say how noisy its scores are."""
_JITTER = 1e-6
_MOST_FITTED = 600
"""Scores from which sizes are read off, at most: that is done many times over, and its work grows with their cube."""


@dataclass(frozen=True)
class Sizes:
    """How large each part of the model is; accuracies are fractions. The defaults are those of recorded landscapes."""

    layer: float = 0.02
    """Effect of one layer more or less."""
    turn: float = 0.01
    """Effect of a jump from one layer to another."""
    whole: float = 0.01
    """What only the whole route explains."""
    reach: float = 4.0
    """In how many changed steps that part is forgotten."""
    own: float = 0.001
    """What a route has for itself, shared by none."""
    damage: float = 0.015
    """Loss per changed step."""
    round: float = 0.03
    """How much the examples of one round are easier or harder than those of another."""
    example: float = 0.2
    """How much a route's effect differs from example to example, in a way that routes like it share."""
    noise: float = 0.4
    """Variance of a score within its round, relative to coin flips, that is left then."""


KERNELS = {
    "combined": Sizes(),
    "additive": Sizes(whole=0.0),
    "similarity": Sizes(layer=0.0, turn=0.0),
    "independent": Sizes(layer=0.0, turn=0.0, whole=0.0, own=0.03, damage=0.0, example=0.0),
}
"""Where fitting begins: all parts, one of them, or none, where routes tell nothing about each other; 0 stays 0."""

_BEGINNINGS = (Sizes(), Sizes(example=0.05, noise=1.0))
"""From where fitting may begin anew: what recorded landscapes have, where like routes fail on the same examples; and
coin flips, each for itself. To take the second for the first is to be sure too early."""

_FACTORS = {
    "layer": (0.5, 2.0),
    "turn": (0.5, 2.0),
    "whole": (0.5, 2.0),
    "reach": (0.6, 1.6),
    "own": (0.5, 2.0),
    "damage": (0.4, 2.5),
    "round": (0.5, 2.0),
    "example": (0.5, 2.0),
    "noise": (0.7, 1.4),
}
_LEAST_REACH = 2.0
"""A shorter one would make every route a law of its own, which is what noise looks like."""
_NOISE = (0.05, 1.2)
"""Less than coin flips where routes fail on the same examples, hardly ever more."""


@dataclass(frozen=True, eq=False)
class Features:
    """Routes as numbers; rows are routes."""

    routes: tuple[Route, ...]
    times: Floats
    """Skipped, applied a second, third, fourth time: ``[route, 4, layer]``, 0 or 1; the standard pass is all zeros."""
    turns: Floats
    """Where a layer is not followed by the next one, and by which: ``[route, jump, layer]``, 0 or 1."""
    adds: Floats
    """Whether a layer's input got an earlier state, and which one: ``[route, 1 + backs, layer]``, its coefficient."""

    @classmethod
    def of(cls, routes: Sequence[Route]) -> Features:
        """Read the routes."""
        layers = routes[0].layers if routes else 1
        found = [_features(route) for route in routes]
        sizes = (_MOST_TIMES, 2 * _WIDEST_TURN + 1, 1 + _MOST_BACK)
        return cls(
            tuple(routes),
            *(
                np.stack([one[part] for one in found]) if found else np.zeros((0, size, layers))
                for part, size in enumerate(sizes)
            ),
        )

    def __len__(self) -> int:
        return len(self.times)

    def __getitem__(self, places: NDArray[np.int64]) -> Features:
        chosen = tuple(self.routes[place] for place in places)
        return Features(chosen, self.times[places], self.turns[places], self.adds[places])

    @cached_property
    def changed(self) -> Floats:
        """Steps in which each route differs from the standard pass."""
        return np.asarray((self._flat**2).sum(axis=1))

    @cached_property
    def _flat(self) -> Floats:
        # An add counts half for being one and half for its source: another source is as far away as no add.
        parts = (self.times, math.sqrt(_TURN) * self.turns, math.sqrt(0.5) * self.adds)
        return np.concatenate([part.reshape(len(self), -1) for part in parts], axis=1)

    @cached_property
    def _smooth_layers(self) -> Floats:
        """Layers and adds, so that products of rows count neighbouring layers as related; sources of adds are not."""
        root = _neighbourhood(self.times.shape[2])
        parts = (self.times @ root, math.sqrt(0.5) * self.adds[:, :1] @ root, math.sqrt(0.5) * self.adds[:, 1:])
        return np.concatenate([part.reshape(len(self), -1) for part in parts], axis=1)

    @cached_property
    def _smooth_turns(self) -> Floats:
        """Jumps, so that those between neighbouring layers, and those of nearly the same width, are related."""
        widths, layers = self.turns.shape[1:]
        related = _neighbourhood(widths).T @ self.turns @ _neighbourhood(layers)
        return np.asarray(related.reshape(len(self), -1))

    def distance(self, other: Features) -> Floats:
        """In how many steps each of these differs from each of the others."""
        common = self._flat @ other._flat.T
        return np.asarray(np.maximum(self.changed[:, None] + other.changed - 2 * common, 0))

    def same(self, other: Features) -> Floats:
        """Which of these is which of the others; the standard pass has nothing for itself."""
        places = {route: place for place, route in enumerate(self.routes) if not route.is_standard}
        found = np.zeros((len(self), len(other)))
        for column, route in enumerate(other.routes):
            if route in places:
                found[places[route], column] = 1
        return found

    def likeness(self, other: Features) -> Floats:
        """Layers changed in both."""
        return np.asarray(self._smooth_layers @ other._smooth_layers.T)

    def turning(self, other: Features) -> Floats:
        """Jumps made by both."""
        return np.asarray(self._smooth_turns @ other._smooth_turns.T)


@lru_cache(maxsize=10_000)
def _features(route: Route) -> tuple[Floats, Floats, Floats]:
    applied = np.zeros(route.layers)
    turns = np.zeros((2 * _WIDEST_TURN + 1, route.layers))
    adds = np.zeros((1 + _MOST_BACK, route.layers))
    before = -1
    for step in route.steps:
        applied[step.layer] += 1
        if step.add is not None:
            # A subtraction does the opposite of an addition; a small one does less.
            adds[[0, min(step.add.back, _MOST_BACK)], step.layer] = np.clip(step.add.coefficient, -1, 1)
        if step.layer != before + 1:
            width = max(-_WIDEST_TURN, min(_WIDEST_TURN, step.layer - before - 1))
            turns[_WIDEST_TURN + width, max(before, 0)] = 1
        before = step.layer
    more = [applied > times for times in range(1, _MOST_TIMES)]
    return np.stack([applied < 1, *more]).astype(np.float64), turns, adds


@lru_cache(maxsize=8)
def _neighbourhood(places: int) -> Floats:
    numbers = np.arange(places)
    alike = np.exp(-np.abs(numbers[:, None] - numbers) / _NEIGHBOURS)
    return np.asarray(np.linalg.cholesky(alike + 1e-9 * np.eye(places)))


@dataclass(frozen=True, eq=False)
class Scores:
    """What was seen: a route's accuracy on the examples of a round, per row."""

    routes: Features
    """Different routes, the standard pass among them."""
    where: NDArray[np.int64]
    """Which of them a row is about."""
    when: NDArray[np.int64]
    """Its round."""
    accuracy: Floats
    examples: Floats
    """How many examples the accuracy is of."""

    @cached_property
    def flips(self) -> Floats:
        """Variance of each row if its examples were coin flips of the route's probability, roughly known."""
        right = np.bincount(self.where, self.accuracy * self.examples, len(self.routes))
        seen = np.bincount(self.where, self.examples, len(self.routes))
        usual = right.sum() / seen.sum()
        # As if every route had been seen on some more examples, where it did as well as all of them.
        typical = np.clip((right + _USUAL * usual) / (seen + _USUAL), 0.03, 0.97)[self.where]
        return np.asarray(typical * (1 - typical) / self.examples)

    @cached_property
    def parts(self) -> _Parts:
        """What covariances are made of."""
        return _parts(self.routes, self.routes)

    @cached_property
    def centred(self) -> Floats:
        """Accuracies around their mean."""
        return np.asarray(self.accuracy - np.average(self.accuracy, weights=self.examples))

    @cached_property
    def _same_round(self) -> Floats:
        return np.asarray(self.when[:, None] == self.when, np.float64)

    @cached_property
    def _same_examples(self) -> Floats:
        """How far two rows share what their examples do to a route, per square of how much that is."""
        together = _whole(self.parts, _SHARED)[self.where[:, None], self.where]
        return np.asarray(self._same_round * together / (2 * np.sqrt(self.examples[:, None] * self.examples)))

    def thinned(self, most: int) -> Scores:
        """About so many rows: those of every second, third, … route, chosen by nothing that they scored."""
        if len(self.where) <= most:
            return self
        every = -(-len(self.where) // most)
        kept = np.flatnonzero(self.where % every == 0)
        routes = self.routes[np.arange(0, len(self.routes), every)]
        return Scores(routes, self.where[kept] // every, self.when[kept], self.accuracy[kept], self.examples[kept])

    def covariance(self, sizes: Sizes) -> Floats:
        """Covariance of the rows."""
        found = _covariance(sizes, self.parts)[self.where[:, None], self.where]
        found += _LEVEL**2
        found += sizes.round**2 * self._same_round
        found += sizes.example**2 * self._same_examples
        found[np.diag_indices(len(found))] += sizes.noise * self.flips
        return found


@dataclass(frozen=True, eq=False)
class RouteModel:
    """The process after some routes were scored."""

    known: Features
    sizes: Sizes
    _precision: Floats = field(repr=False)
    _weights: Floats = field(repr=False)

    @classmethod
    def fit(cls, scores: Scores, *, begin: Sizes, sweeps: int = 1) -> RouteModel:
        """Learn from scores; ``sweeps`` says how often every size is tried larger and smaller.

        That begins with ``begin``, or with what was typical before anything was known, if it explains the scores
        better: sizes that have shrunk while nothing was found would take long to grow again.
        """
        some = scores.thinned(_MOST_FITTED)
        sizes, best = begin, _evidence(begin, some) if sweeps else 0.0
        for typical in _BEGINNINGS if sweeps else ():
            tried = replace(typical, **{name: 0.0 for name in _FACTORS if getattr(begin, name) == 0})
            if (evidence := _evidence(tried, some)) > best:
                sizes, best = tried, evidence
        for _ in range(sweeps):
            for name, factors in _FACTORS.items():
                for factor in factors:
                    tried = replace(sizes, **{name: getattr(sizes, name) * factor})
                    if tried.reach < _LEAST_REACH or not _NOISE[0] <= tried.noise <= _NOISE[1]:
                        continue
                    if tried == sizes:
                        continue
                    if (evidence := _evidence(tried, some)) > best:
                        sizes, best = tried, evidence
                        break
        inverse = np.linalg.inv(scores.covariance(sizes))
        # Rows of one route are taken together: what is wanted is about routes.
        order = np.argsort(scores.where, kind="stable")
        first = np.flatnonzero(np.diff(scores.where[order], prepend=-1))
        known = scores.routes[scores.where[order][first]]
        precision = np.add.reduceat(np.add.reduceat(inverse[order[:, None], order], first, axis=0), first, axis=1)
        return cls(known, sizes, precision, np.add.reduceat((inverse @ scores.centred)[order], first))

    def mean(self, routes: Features) -> Floats:
        """Expected gain."""
        return np.asarray(self._across(routes).T @ self._weights)

    def joint(self, routes: Features) -> tuple[Floats, Floats]:
        """Expected gains, and their covariance."""
        across = self._across(routes)
        own = _covariance(self.sizes, _parts(routes, routes))
        return np.asarray(across.T @ self._weights), np.asarray(own - across.T @ self._precision @ across)

    def _across(self, routes: Features) -> Floats:
        return _covariance(self.sizes, _parts(self.known, routes))


@dataclass(frozen=True)
class _Parts:
    same: Floats
    likeness: Floats
    turning: Floats
    distance: Floats
    changed: Floats
    other: Floats


def _parts(one: Features, other: Features) -> _Parts:
    return _Parts(
        one.same(other), one.likeness(other), one.turning(other), one.distance(other), one.changed, other.changed
    )


def _whole(parts: _Parts, reach: float) -> Floats:
    """How far two routes share what only the whole of a route explains.

    Differences from the standard pass, which lies `changed` steps away from each: its own gain is zero.
    """
    rows, columns = np.exp(-parts.changed / reach)[:, None], np.exp(-parts.other / reach)
    return np.asarray(np.exp(-parts.distance / reach) - rows - columns + 1)


def _covariance(sizes: Sizes, parts: _Parts) -> Floats:
    linear = sizes.layer**2 * parts.likeness + sizes.turn**2 * parts.turning
    damage = np.outer(sizes.damage * parts.changed, sizes.damage * parts.other)
    own = sizes.own**2 * parts.same
    return np.asarray(linear + sizes.whole**2 * _whole(parts, sizes.reach) + own + damage)


def _evidence(sizes: Sizes, scores: Scores) -> float:
    """Log marginal likelihood, and how far the sizes are from where they begin."""
    count = len(scores.where)
    # One more row and column, the scores: its part of the root is what a triangular solve would give.
    bordered = np.full((count + 1, count + 1), 1e12)
    bordered[:count, :count] = scores.covariance(sizes)
    bordered[count, :count] = bordered[:count, count] = scores.centred
    try:
        root = np.linalg.cholesky(bordered)
    except np.linalg.LinAlgError:
        return -math.inf
    fit = root[count, :count] @ root[count, :count]
    strange = sum(
        math.log(getattr(sizes, name) / getattr(Sizes(), name)) ** 2 for name in _FACTORS if getattr(sizes, name) > 0
    )
    return float(-0.5 * fit - np.log(np.diag(root)[:count]).sum() - strange / (2 * _SPREAD**2))


def draw_best(mean: Floats, covariance: Floats, count: int, wanted: int, rng: np.random.Generator) -> list[int]:
    """Places of different routes, each the best one in a draw from the posterior; filled up by optimism."""
    root = np.linalg.cholesky(covariance + _JITTER * np.eye(len(mean)))
    drawn = mean[:, None] + root @ rng.standard_normal((len(mean), count))
    chosen = list(dict.fromkeys(drawn.argmax(axis=0).tolist()))[:wanted]
    hopeful = np.argsort(-(mean + np.sqrt(np.clip(np.diag(covariance), 0, None))), kind="stable").tolist()
    taken = set(chosen)
    rest = [place for place in hopeful if place not in taken]
    return chosen + rest[: wanted - len(chosen)]
