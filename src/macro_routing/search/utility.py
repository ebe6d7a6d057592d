"""What a search maximizes: the gain beyond the price of its layers, or the layers saved."""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from macro_routing.routes.route import Route
from macro_routing.search.decision_settings import SPEED, DecisionSettings
from macro_routing.search.route_features import Floats

_CONFIRMATION_DISCORDANCE = 0.15
"""Share of examples on which a faster route and the standard pass usually differ; for its chance to be confirmed."""


def compute_utility(decision: DecisionSettings, routes: Sequence[Route], gains: Floats) -> Floats:
    """What the search maximizes, by route and sample of its gain.

    For accuracy, the gain beyond the price of the layers; for speed, the layers saved by a route that loses less
    than the margin. One that loses more ranks below all others, by its loss.
    """
    required = np.array([decision.required_gain(route) for route in routes])[:, None]
    if decision.objective != SPEED:
        return np.asarray(gains - required)
    return np.asarray(np.where(gains >= required, _layers_saved(routes)[:, None], gains - required - 1))


def expected_layers_saved(
    decision: DecisionSettings, routes: Sequence[Route], mean: Floats, variance: Floats, examples: int
) -> Floats:
    """Layers saved × probability that a confirmation on ``examples`` examples accepts the route."""
    noise = _CONFIRMATION_DISCORDANCE / max(1, examples)
    quantile = NormalDist().inv_cdf(1 - decision.max_error_probability)
    slack = mean + decision.margin / 100 - quantile * math.sqrt(noise)
    accepted = np.array([math.erfc(-z / math.sqrt(2)) / 2 for z in slack / np.sqrt(variance + noise)])
    return np.asarray(_layers_saved(routes) * accepted)


def _layers_saved(routes: Sequence[Route]) -> Floats:
    """As a share of the model's layers."""
    return np.array([1 - route.length / route.layers for route in routes])
