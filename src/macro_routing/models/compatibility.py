"""Whether a route file belongs to a model: the one check behind everything that takes such a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from macro_routing.errors import ModelError, RouteError
from macro_routing.models.catalog import MessageCallback
from macro_routing.routes.route import Route
from macro_routing.routes.route_file import RouteFile

_SIGNIFICANCE_LEVEL = 0.05
"""From this p-value on a gain may well be chance."""


class IdentifiedModel(Protocol):
    """A model that is known by its identities, whether its weights are loaded or not."""

    @property
    def name(self) -> str:
        """How the user calls it."""

    @property
    def layers(self) -> int:
        """Its number of layers."""

    @property
    def weights_id(self) -> str:
        """What it knows."""

    @property
    def numerics_id(self) -> str | None:
        """How it computes; None where that is not settled yet."""


def check_route_file(
    found: RouteFile, model: IdentifiedModel, source: str, *, report: MessageCallback, any_model: bool = False
) -> Route:
    """The route in ``found``, if it was made for this model; other numerics are only reported.

    With ``any_model`` a route of other weights is reported too instead of refused; the number of layers must fit.
    """
    if found.weights_id != model.weights_id:
        mismatch = f"{source} belongs to {found.model} ({found.weights_id}), not to {model.name} ({model.weights_id})"
        if not any_model:
            raise ModelError(
                f"{mismatch}; to try its route anyway give it as text, '{found.route}', or in Python say any_model=True"
            )
        report(f"warning: {mismatch}; its evidence says nothing about this model")
    elif model.numerics_id is not None and found.numerics_id != model.numerics_id:
        report(f"warning: {source} was found under other numerics (precision, device or versions)")
    if found.route.layers != model.layers:
        raise RouteError(f"{source} is for {found.route.layers} layers, but {model.name} has {model.layers}")
    return found.route


def describe_weak_evidence(found: RouteFile) -> str | None:
    """What the file itself says against its route: no gain that chance would not explain."""
    test = found.scores.get("test")
    if not isinstance(test, Mapping):
        return None
    chance, gain = test.get("p_value"), test.get("difference")
    by_chance = isinstance(chance, int | float) and chance >= _SIGNIFICANCE_LEVEL
    no_gain = isinstance(gain, int | float) and gain <= 0
    if not (by_chance or no_gain):
        return None
    return str(found.scores.get("verdict", "this route was not shown to be better"))
