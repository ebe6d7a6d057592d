"""Check whether a route file was made for a model. Everything that reads a route file uses this check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from macro_routing.errors import ModelError, RouteError
from macro_routing.routes.mixture import RouteOrMixture
from macro_routing.routes.route_file import RouteFile

if TYPE_CHECKING:
    from macro_routing.models.catalog import MessageCallback

_SIGNIFICANCE_LEVEL = 0.05
"""A gain with a p-value of at least this much may be noise."""


class IdentifiedModel(Protocol):
    """A model with a name and identities; its weights may be loaded or not."""

    @property
    def name(self) -> str:
        """The name that the user gave."""

    @property
    def layers(self) -> int:
        """Its number of layers."""

    @property
    def weights_id(self) -> str:
        """Identity of the weights."""

    @property
    def numerics_id(self) -> str | None:
        """Identity of the computation (precision, device, versions); None while it is unknown."""


def check_route_file_fits_model(
    route_file: RouteFile, model: IdentifiedModel, source: str, *, report: MessageCallback, any_model: bool = False
) -> RouteOrMixture:
    """Return the route of ``route_file`` if it was made for this model; other numerics give a warning.

    With ``any_model`` other weights give a warning too, not an error. The number of layers must always match.
    """
    if route_file.weights_id != model.weights_id:
        mismatch = (
            f"{source} belongs to {route_file.model} ({route_file.weights_id}),"
            f" not to {model.name} ({model.weights_id})"
        )
        if not any_model:
            raise ModelError(
                f"{mismatch}; to try its route anyway give it as text, '{route_file.route}',"
                " or in Python pass any_model=True"
            )
        report(f"warning: {mismatch}; its evidence says nothing about this model")
    elif model.numerics_id is not None and route_file.numerics_id != model.numerics_id:
        report(f"warning: {source} was found under other numerics (precision, device or versions)")
    if route_file.route.layers != model.layers:
        raise RouteError(f"{source} is for {route_file.route.layers} layers, but {model.name} has {model.layers}")
    return route_file.route


def describe_weak_evidence(route_file: RouteFile) -> str | None:
    """Say why the file's own scores are no evidence for its route; None where they are."""
    if not route_file.recommended:
        return f"this route is not recommended: {route_file.recommendation or 'its test set speaks against it'}"
    test = route_file.scores.get("test")
    if not isinstance(test, Mapping):
        return None
    if route_file.is_shown_as_accurate:
        return None
    chance, gain = test.get("p_value"), test.get("difference")
    by_chance = isinstance(chance, int | float) and chance >= _SIGNIFICANCE_LEVEL
    no_gain = isinstance(gain, int | float) and gain <= 0
    if not (by_chance or no_gain):
        return None
    return str(route_file.scores.get("verdict", "this route was not shown to be better"))
