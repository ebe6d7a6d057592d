"""Several routes on one set of weights: choose one for a call, or for a ``with`` block."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

from macro_routing.errors import ModelError, RouteError, suggest_name
from macro_routing.models.find_decoder import count_model_layers
from macro_routing.models.frozen import FrozenModel
from macro_routing.models.routing import apply_route
from macro_routing.routes.mixture import RouteOrMixture
from macro_routing.routes.route import Route

STANDARD = "standard"
"""The name of the standard pass, which always exists."""

# One variable for all routed models, as the standard library advises: (model, route name), innermost last. A thread
# or an asynchronous task sees only its own choices, so two can use one model with different routes.
_active_routes: "ContextVar[tuple[tuple[RoutedModel, str], ...]]" = ContextVar("macro_routes", default=())


class RoutedModel:
    """A transformers model with several named routes; every weight exists once.

    ``routed["math"]`` is the model on that route, with all its methods. Inside ``with routed.use_route("math"):`` the
    object itself acts as that model; outside it acts as the standard pass.
    """

    def __init__(self, model: Any, routes: Mapping[str, RouteOrMixture], *, allow_untested: bool = False) -> None:
        if isinstance(model, FrozenModel):
            model, allow_untested = model.model, True  # it was checked when it was loaded
        if STANDARD in routes:
            raise RouteError(f"{STANDARD!r} is the name of the standard pass; give the route another name")
        # The standard pass is a copy too, since the guard below must not be left on the caller's model.
        all_routes = {STANDARD: Route.standard(count_model_layers(model)), **routes}
        self._models = {
            name: apply_route(model, route, allow_untested=allow_untested) for name, route in all_routes.items()
        }
        for name, routed in self._models.items():
            routed.register_forward_pre_hook(partial(_check_cache_from_same_route, name), with_kwargs=True)
            routed.register_forward_hook(partial(_mark_cache_route, name))

    @property
    def switchable_route_names(self) -> tuple[str, ...]:
        """The names of all routes, the standard pass first."""
        return tuple(self._models)

    @property
    def active_route_name(self) -> str:
        """The name of the route that a call uses now."""
        return next((name for owner, name in reversed(_active_routes.get()) if owner is self), STANDARD)

    def __getitem__(self, name: str) -> Any:
        """The model on the route ``name``."""
        if name not in self._models:
            hint = suggest_name(str(name), self.switchable_route_names)
            raise RouteError(f"unknown route {name!r}; known routes: {', '.join(self.switchable_route_names)}{hint}")
        return self._models[name]

    @contextmanager
    def use_route(self, name: str) -> Iterator[Any]:
        """Use the route ``name`` inside the block; blocks may be nested, and the innermost one counts."""
        model = self[name]
        token = _active_routes.set((*_active_routes.get(), (self, name)))
        try:
            yield model
        finally:
            _active_routes.reset(token)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A forward pass on the active route."""
        return self._models[self.active_route_name](*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Forward every other attribute, such as ``generate`` and ``config``, to the active model."""
        if name.startswith("_"):  # copy and pickle read such names before there are any models
            raise AttributeError(name)
        return getattr(self._models[self.active_route_name], name)


# --- caches -------------------------------------------------------------------------------------------------------
# Slot 5 of a cache belongs to different layers on different routes. The wrong route would read it without an error,
# so a cache carries the name of the route that filled it.


def _check_cache_from_same_route(name: str, _model: Any, _args: Any, kwargs: dict[str, Any]) -> None:
    cache = kwargs.get("past_key_values")
    owner = getattr(cache, "macro_route_name", name)
    if owner != name:
        raise ModelError(
            f"this cache was filled on the route {owner!r} and cannot be used on {name!r}; start a new one"
        )
    if cache is not None:
        cache.macro_route_name = name


def _mark_cache_route(name: str, _model: Any, _args: Any, output: Any) -> None:
    cache = getattr(output, "past_key_values", None)
    if cache is not None:
        cache.macro_route_name = name
