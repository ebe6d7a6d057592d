"""Routes as arrays of features: what the Gaussian process over routes compares them by."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from macro_routing.routes.route import Route

Floats = NDArray[np.float64]

_MAX_APPLICATIONS = 4
"""More applications of one layer count as this many."""
_MAX_BACK = 8
"""Adds that look back further count as this far."""
_MAX_JUMP = 8
"""Longer jumps, forward or back, count as this long."""
_LAYER_LENGTH_SCALE = 2.0
"""Over how many layers the effects of neighbouring layers are correlated."""
_JUMP_EDITS = 0.5
"""A jump counts as half an edited step, in addition to the layers that it repeats or skips."""
_KEPT_KERNELS = 3
"""That of shared examples, that of the parameters so far and that of the ones which are tried."""


@dataclass(frozen=True, eq=False)
class RouteFeatures:
    """Routes as arrays; rows are routes."""

    routes: tuple[Route, ...]
    applications: Floats
    """Skipped, applied a second, third, fourth time: ``[route, 4, layer]``, 0 or 1; all zeros for the standard pass."""
    jumps: Floats
    """Jumps by length and by the layer they start from: ``[route, jump, layer]``, 0 or 1."""
    adds: Floats
    """Coefficients of adds by layer, of any add and by how far it looks back: ``[route, 1 + backs, layer]``."""

    @classmethod
    def from_routes(cls, routes: Sequence[Route]) -> "RouteFeatures":
        """Compute the features of routes."""
        layers = routes[0].layers if routes else 1
        features = [_compute_feature_arrays(route) for route in routes]
        sizes = (_MAX_APPLICATIONS, 2 * _MAX_JUMP + 1, 1 + _MAX_BACK)
        return cls(
            tuple(routes),
            *(
                np.stack([route[part] for route in features]) if features else np.zeros((0, size, layers))
                for part, size in enumerate(sizes)
            ),
        )

    def __len__(self) -> int:
        return len(self.applications)

    def __getitem__(self, indices: NDArray[np.int64]) -> "RouteFeatures":
        routes = tuple(self.routes[index] for index in indices)
        return RouteFeatures(routes, self.applications[indices], self.jumps[indices], self.adds[indices])

    @cached_property
    def num_edits_by_route(self) -> Floats:
        """Number of steps in which each route differs from the standard pass."""
        return np.asarray((self._edit_distance_features**2).sum(axis=1))

    @cached_property
    def _edit_distance_features(self) -> Floats:
        # An add counts half for being one and half for its source: another source is as distant as no add.
        parts = (self.applications, math.sqrt(_JUMP_EDITS) * self.jumps, math.sqrt(0.5) * self.adds)
        return np.concatenate([part.reshape(len(self), -1) for part in parts], axis=1)

    @cached_property
    def _layer_usage_features(self) -> Floats:
        """Applications and adds, smoothed over neighbouring layers; the sources of adds are not smoothed."""
        root = _neighbour_correlation_cholesky(self.applications.shape[2])
        parts = (self.applications @ root, math.sqrt(0.5) * self.adds[:, :1] @ root, math.sqrt(0.5) * self.adds[:, 1:])
        return np.concatenate([part.reshape(len(self), -1) for part in parts], axis=1)

    @cached_property
    def _jump_effect_features(self) -> Floats:
        """Jumps, smoothed over neighbouring layers and similar lengths."""
        lengths, layers = self.jumps.shape[1:]
        smoothed = _neighbour_correlation_cholesky(lengths).T @ self.jumps @ _neighbour_correlation_cholesky(layers)
        return np.asarray(smoothed.reshape(len(self), -1))

    def compute_kernel_terms(self, others: Self) -> "RouteCovarianceInputs":
        """Compare each of these routes with each of the others."""
        common = self._edit_distance_features @ others._edit_distance_features.T
        rows = {route: row for row, route in enumerate(self.routes) if not route.is_standard}
        same_route = np.zeros((len(self), len(others)))
        for column, route in enumerate(others.routes):
            if route in rows:
                same_route[rows[route], column] = 1
        return RouteCovarianceInputs(
            same_route,
            shared_layers=self._layer_usage_features @ others._layer_usage_features.T,
            shared_jumps=self._jump_effect_features @ others._jump_effect_features.T,
            edit_distances=np.maximum(self.num_edits_by_route[:, None] + others.num_edits_by_route - 2 * common, 0),
            row_edits=self.num_edits_by_route,
            column_edits=others.num_edits_by_route,
        )


@dataclass(frozen=True, eq=False)
class RouteCovarianceInputs:
    """What the covariance between routes is computed from; a row and a column are a route each."""

    same_route: Floats
    """1 where both routes are the same, except for the standard pass."""
    shared_layers: Floats
    """Layers edited in both."""
    shared_jumps: Floats
    """Jumps in both."""
    edit_distances: Floats
    """Number of edited steps between them."""
    row_edits: Floats
    column_edits: Floats
    _kernels: dict[float, Floats] = field(default_factory=dict, repr=False)
    """The last similarity kernels by length scale: fitting changes one parameter at a time."""

    def compute_similarity_kernel(self, length_scale: float) -> Floats:
        """Covariance of the part shared by similar routes, relative to the standard pass, whose gain is zero."""
        if length_scale not in self._kernels:
            kernel = np.exp(-self.edit_distances / length_scale)
            kernel -= np.exp(-self.row_edits / length_scale)[:, None]
            kernel -= np.exp(-self.column_edits / length_scale)
            kernel += 1
            if len(self._kernels) == _KEPT_KERNELS:
                del self._kernels[next(iter(self._kernels))]
            self._kernels[length_scale] = kernel
        return self._kernels[length_scale]


@lru_cache(maxsize=10_000)
def _compute_feature_arrays(route: Route) -> tuple[Floats, Floats, Floats]:
    applied = np.zeros(route.layers)
    jumps = np.zeros((2 * _MAX_JUMP + 1, route.layers))
    adds = np.zeros((1 + _MAX_BACK, route.layers))
    previous = -1
    for step in route.steps:
        applied[step.layer] += 1
        if step.add is not None:
            # A subtraction has the opposite effect of an addition; a small coefficient has less effect.
            adds[[0, min(step.add.back, _MAX_BACK)], step.layer] = np.clip(step.add.coefficient, -1, 1)
        if step.layer != previous + 1:
            length = max(-_MAX_JUMP, min(_MAX_JUMP, step.layer - previous - 1))
            jumps[_MAX_JUMP + length, max(previous, 0)] = 1
        previous = step.layer
    more = [applied > times for times in range(1, _MAX_APPLICATIONS)]
    return np.stack([applied < 1, *more]).astype(np.float64), jumps, adds


@lru_cache(maxsize=8)
def _neighbour_correlation_cholesky(size: int) -> Floats:
    """Cholesky factor of the correlation between neighbours."""
    numbers = np.arange(size)
    correlation = np.exp(-np.abs(numbers[:, None] - numbers) / _LAYER_LENGTH_SCALE)
    return np.asarray(np.linalg.cholesky(correlation + 1e-9 * np.eye(size)))
