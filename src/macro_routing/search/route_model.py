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
_NEIGHBOURS = 1.0
"""Over how many layers the effect of a layer resembles that of its neighbours."""
_SPREAD = 1.2
"""How far, in log units, the sizes below may reasonably be from where they begin."""
_JITTER = 1e-6


@dataclass(frozen=True)
class Sizes:
    """How large each part of the model is; accuracies are fractions."""

    layer: float = 0.02
    """Effect of one layer more or less."""
    whole: float = 0.03
    """What only the whole route explains."""
    reach: float = 4.0
    """In how many changed steps that part is forgotten."""
    damage: float = 0.01
    """Loss per changed step."""


MODELS = {
    "both": Sizes(),
    "layers": Sizes(whole=0.0),
    "whole": Sizes(layer=0.0),
    "alone": Sizes(layer=0.0, reach=1e-3, damage=0.0),
}
"""Where fitting begins: all parts, one of them, or none, where routes tell nothing about each other; 0 stays 0."""

_FACTORS = {
    "layer": (0.5, 2.0),
    "whole": (0.5, 2.0),
    "reach": (0.6, 1.6),
    "damage": (0.4, 2.5),
}
_LEAST_REACH = 2.0
"""A shorter one would make every route a law of its own, which is what noise looks like."""


@dataclass(frozen=True, eq=False)
class Features:
    """Routes as numbers; rows are routes."""

    times: Floats
    """Skipped, applied a second, third, fourth time: ``[route, 4, layer]``, 0 or 1; the standard pass is all zeros."""
    adds: Floats
    """Whether a layer's input got an earlier state, and which one: ``[route, 1 + backs, layer]``, 0 or 1."""

    @classmethod
    def of(cls, routes: Sequence[Route]) -> Features:
        """Read the routes."""
        layers = routes[0].layers if routes else 1
        found = [_features(route) for route in routes]
        return cls(
            np.stack([times for times, _ in found]) if found else np.zeros((0, _MOST_TIMES, layers)),
            np.stack([adds for _, adds in found]) if found else np.zeros((0, 1 + _MOST_BACK, layers)),
        )

    def __len__(self) -> int:
        return len(self.times)

    def __getitem__(self, places: NDArray[np.int64]) -> Features:
        return Features(self.times[places], self.adds[places])

    @cached_property
    def changed(self) -> Floats:
        """Steps in which each route differs from the standard pass."""
        return np.asarray(self.times.sum(axis=(1, 2)) + 0.5 * self.adds.sum(axis=(1, 2)))

    @cached_property
    def _flat(self) -> Floats:
        # An add counts half for being one and half for its source: another source is as far away as no add.
        parts = (self.times.reshape(len(self), -1), math.sqrt(0.5) * self.adds.reshape(len(self), -1))
        return np.concatenate(parts, axis=1)

    @cached_property
    def _smooth(self) -> Floats:
        """The same, so that products of rows count neighbouring layers as related; sources of adds are not."""
        root = _neighbourhood(self.times.shape[2])
        parts = (self.times @ root, math.sqrt(0.5) * self.adds[:, :1] @ root, math.sqrt(0.5) * self.adds[:, 1:])
        return np.concatenate([part.reshape(len(self), -1) for part in parts], axis=1)

    def distance(self, other: Features) -> Floats:
        """In how many steps each of these differs from each of the others."""
        common = self._flat @ other._flat.T
        return np.asarray(np.maximum(self.changed[:, None] + other.changed - 2 * common, 0))

    def likeness(self, other: Features) -> Floats:
        """Layers changed in both."""
        return np.asarray(self._smooth @ other._smooth.T)


@lru_cache(maxsize=100_000)
def _features(route: Route) -> tuple[Floats, Floats]:
    applied = np.zeros(route.layers)
    adds = np.zeros((1 + _MOST_BACK, route.layers))
    for step in route.steps:
        applied[step.layer] += 1
        if step.add is not None:
            adds[[0, min(step.add.back, _MOST_BACK)], step.layer] = 1
    more = [applied > times for times in range(1, _MOST_TIMES)]
    return np.stack([applied < 1, *more]).astype(np.float64), adds


@lru_cache(maxsize=8)
def _neighbourhood(layers: int) -> Floats:
    places = np.arange(layers)
    alike = np.exp(-np.abs(places[:, None] - places) / _NEIGHBOURS)
    return np.asarray(np.linalg.cholesky(alike + 1e-9 * np.eye(layers)))


@dataclass(frozen=True, eq=False)
class RouteModel:
    """The process after some routes were scored."""

    known: Features
    sizes: Sizes
    _inverse: Floats = field(repr=False)
    _weights: Floats = field(repr=False)

    @classmethod
    def fit(cls, known: Features, gains: Floats, variances: Floats, *, begin: Sizes, sweeps: int = 1) -> RouteModel:
        """Learn from observed gains; ``sweeps`` says how often every size is tried larger and smaller."""
        parts = _Parts(known.likeness(known), known.distance(known), known.changed, known.changed)
        sizes, best = begin, _evidence(begin, parts, gains, variances)
        for _ in range(sweeps):
            for name, factors in _FACTORS.items():
                for factor in factors:
                    tried = replace(sizes, **{name: getattr(sizes, name) * factor})
                    if tried.reach < _LEAST_REACH:
                        continue
                    if (evidence := _evidence(tried, parts, gains, variances)) > best:
                        sizes, best = tried, evidence
                        break
        inverse = np.asarray(np.linalg.inv(_covariance(sizes, parts) + np.diag(variances)), np.float64)
        return cls(known, sizes, inverse, inverse @ gains)

    def told(self, gains: Floats) -> RouteModel:
        """The same routes and noise with other gains."""
        return replace(self, _weights=self._inverse @ gains)

    def mean(self, routes: Features) -> Floats:
        """Expected gain."""
        return np.asarray(self._across(routes).T @ self._weights)

    def joint(self, routes: Features) -> tuple[Floats, Floats]:
        """Expected gains, and their covariance."""
        across = self._across(routes)
        own = _covariance(self.sizes, _parts(routes, routes))
        return np.asarray(across.T @ self._weights), np.asarray(own - across.T @ self._inverse @ across)

    def _across(self, routes: Features) -> Floats:
        return _covariance(self.sizes, _parts(self.known, routes))


@dataclass(frozen=True)
class _Parts:
    likeness: Floats
    distance: Floats
    changed: Floats
    other: Floats


def _parts(one: Features, other: Features) -> _Parts:
    return _Parts(one.likeness(other), one.distance(other), one.changed, other.changed)


def _covariance(sizes: Sizes, parts: _Parts) -> Floats:
    rows, columns = parts.changed[:, None], parts.other[None]
    # Differences from the standard pass, which lies `changed` steps away from each: its own gain is zero.
    whole = np.exp(-parts.distance / sizes.reach) - np.exp(-rows / sizes.reach) - np.exp(-columns / sizes.reach) + 1
    return np.asarray(sizes.layer**2 * parts.likeness + sizes.whole**2 * whole + sizes.damage**2 * rows * columns)


def _evidence(sizes: Sizes, parts: _Parts, gains: Floats, variances: Floats) -> float:
    """Log marginal likelihood, and how far the sizes are from where they begin."""
    count = len(gains)
    # One more row and column, the gains: its part of the root is what a triangular solve would give.
    bordered = np.full((count + 1, count + 1), 1e12)
    bordered[:count, :count] = _covariance(sizes, parts) + np.diag(variances)
    bordered[count, :count] = bordered[:count, count] = gains
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
    rest = [place for place in hopeful if place not in set(chosen)]
    return chosen + rest[: wanted - len(chosen)]
