"""Several routes on one set of weights: one is chosen for a call, or for everything inside a ``with``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

from macro_routing.errors import ModelError, RouteError, suggestion
from macro_routing.models.decoder import count_layers
from macro_routing.models.frozen import FrozenModel
from macro_routing.models.routing import apply_route
from macro_routing.routes.route import Route

STANDARD = "standard"
"""The name of the standard pass, which is there without being given."""

# One variable for all routed models, as the standard library advises: who chose what, innermost last. A thread or an
# asynchronous task sees only its own choices, so two can use one model with different routes.
_active_routes: ContextVar[tuple[tuple[RoutedModel, str], ...]] = ContextVar("macro_routes", default=())


class RoutedModel:
    """A transformers model with several routes by name; every weight is there once.

    ``routed["math"]`` is the model on that route, with all its methods. Inside ``with routed.use_route("math"):`` the
    object itself acts as that model; outside it acts as the standard pass.
    """

    def __init__(self, model: Any, routes: Mapping[str, Route], *, allow_untested: bool = False) -> None:
        if isinstance(model, FrozenModel):
            model, allow_untested = model.model, True  # it was checked when it was loaded
        if STANDARD in routes:
            raise RouteError(f"{STANDARD!r} names the standard pass; call the route something else")
        # The standard pass is a copy too, since the guard below must not be left on the caller's model.
        named = {STANDARD: Route.standard(count_layers(model)), **routes}
        self._models = {name: apply_route(model, route, allow_untested=allow_untested) for name, route in named.items()}
        for name, one in self._models.items():
            one.register_forward_pre_hook(partial(_check_cache_route, name), with_kwargs=True)
            one.register_forward_hook(partial(_mark_cache_route, name))

    @property
    def names(self) -> tuple[str, ...]:
        """The routes there are, the standard pass first."""
        return tuple(self._models)

    @property
    def active(self) -> str:
        """The route that a plain call takes now."""
        return next((name for owner, name in reversed(_active_routes.get()) if owner is self), STANDARD)

    def __getitem__(self, name: str) -> Any:
        """The model on the route ``name``."""
        if name not in self._models:
            raise RouteError(f"there is no route {name!r}; there are {', '.join(self.names)}{self._hint(name)}")
        return self._models[name]

    def _hint(self, name: str) -> str:
        return suggestion(str(name), self.names)

    @contextmanager
    def use_route(self, name: str) -> Iterator[Any]:
        """Take the route ``name`` inside the block; blocks may be nested, and the innermost one counts."""
        model = self[name]
        token = _active_routes.set((*_active_routes.get(), (self, name)))
        try:
            yield model
        finally:
            _active_routes.reset(token)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A forward pass on the active route."""
        return self._models[self.active](*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Everything else, ``generate`` and ``config`` among it, is the active model's."""
        if name.startswith("_"):  # copy and pickle ask for such names before there are any models
            raise AttributeError(name)
        return getattr(self._models[self.active], name)


# --- caches -------------------------------------------------------------------------------------------------------
# Slot 5 of one route's cache holds another layer's keys than slot 5 of another's; read by the wrong one it gives
# numbers that look like any other. So a cache carries the name of the route that filled it.


def _check_cache_route(name: str, _: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    cache = kwargs.get("past_key_values")
    owner = getattr(cache, "macro_route_name", name)
    if owner != name:
        raise ModelError(f"this cache was filled on the route {owner!r} and means nothing on {name!r}; start a new one")
    if cache is not None:
        cache.macro_route_name = name
    return args, kwargs


def _mark_cache_route(name: str, _model: Any, _args: Any, output: Any) -> None:
    cache = getattr(output, "past_key_values", None)
    if cache is not None:
        cache.macro_route_name = name
