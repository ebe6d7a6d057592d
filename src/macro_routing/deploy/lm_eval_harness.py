"""The model ``macro`` of lm-evaluation-harness: its transformers model on a route.

The harness has a registry of models and loads no entry points, so a program calls ``register_harness`` first.
"""

from pathlib import Path
from typing import Any

from lm_eval.api.registry import register_model
from lm_eval.models.huggingface import HFLM

from macro_routing.deploy.route_loading import load_route
from macro_routing.errors import ModelError
from macro_routing.models.catalog import fetch_model_folder
from macro_routing.models.find_decoder import count_model_layers
from macro_routing.models.routing import apply_route
from macro_routing.routes.mixture import require_single_route
from macro_routing.routes.notation import parse_route
from macro_routing.routes.route import Route
from macro_routing.version import __version__

HARNESS_MODEL_NAME = "macro"
_ROUTE_FILE = "route.json"


def register_harness() -> None:
    """Make ``--model macro`` known to the harness."""
    register_model(HARNESS_MODEL_NAME)(RoutedHFLM)


class RoutedHFLM(HFLM):  # type: ignore[misc]  # the harness has no types
    """``HFLM`` with a ``route``, for every model this project can name; all other arguments are the harness's."""

    _model: Any

    def __init__(
        self,
        pretrained: str,
        route: str = "L0 RJ",
        *,
        any_model: bool = False,
        allow_untested: bool = False,
        **arguments: Any,
    ) -> None:
        """Load the model ``pretrained`` and put it on ``route``: any notation, a route file, or a run's folder."""
        if arguments.get("delta"):
            raise ModelError("delta changes the weights a route was found on; merge it, save the result and use that")
        self._route_arguments = (str(route), any_model, allow_untested)
        self._requested_name = pretrained
        folder = fetch_model_folder(pretrained, revision=arguments.get("revision"))
        super().__init__(pretrained=str(folder), **arguments)

    def _create_model(self, *args: Any, **kwargs: Any) -> None:
        super()._create_model(*args, **kwargs)
        text, any_model, allow_untested = self._route_arguments
        route = _read_route(text, self._model, any_model=any_model)
        self._model = apply_route(self._model, route, allow_untested=allow_untested)

    def get_model_info(self) -> dict[str, Any]:
        """The model information that the harness saves, with the route."""
        route: Route = self._model.macro_route
        return {
            **super().get_model_info(),
            "macro_model": self._requested_name,
            "macro_route": str(route),
            "macro_route_length": route.length,
            "macro_layers": route.layers,
            "macro_version": __version__,
        }


def _read_route(text: str, model: Any, *, any_model: bool) -> Route:
    path = Path(text)
    path = path / _ROUTE_FILE if (path / _ROUTE_FILE).is_file() else path
    if path.is_file() or path.suffix == ".json":  # a mistyped file name gets its own error
        return require_single_route(load_route(path, model, any_model=any_model), "lm-eval")
    return parse_route(text, count_model_layers(model))
