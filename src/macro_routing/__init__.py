"""MACRO: Markov chain routing of transformer layers. Runs the layers of a frozen language model in a better order.

The public names are here; they are imported on first use, so that ``import macro_routing`` loads no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from macro_routing.lazy_imports import make_lazy_imports

if TYPE_CHECKING:
    from macro_routing.deploy.route_loading import load_route
    from macro_routing.deploy.routed_checkpoint import register
    from macro_routing.evaluation.evaluator import evaluate
    from macro_routing.evaluation.own_objective import maximize_objective
    from macro_routing.models.frozen import load_model
    from macro_routing.models.routing import apply_route
    from macro_routing.routes.mixture import Member, Mixture, parse_mixture
    from macro_routing.routes.notation import parse_route, parse_route_or_mixture
    from macro_routing.routes.route import Program, Route
    from macro_routing.runs.prepare import search_routes
    from macro_routing.tasks.catalog import load_task
    from macro_routing.version import __version__

__all__ = [
    "Member",
    "Mixture",
    "Program",
    "Route",
    "__version__",
    "apply_route",
    "evaluate",
    "load_model",
    "load_route",
    "load_task",
    "maximize_objective",
    "parse_mixture",
    "parse_route",
    "parse_route_or_mixture",
    "register",
    "search_routes",
]
__getattr__, __dir__ = make_lazy_imports(
    __name__,
    {
        "Member": "routes.mixture",
        "Mixture": "routes.mixture",
        "Program": "routes.route",
        "Route": "routes.route",
        "__version__": "version",
        "apply_route": "models.routing",
        "evaluate": "evaluation.evaluator",
        "load_model": "models.frozen",
        "load_route": "deploy.route_loading",
        "load_task": "tasks.catalog",
        "maximize_objective": "evaluation.own_objective",
        "parse_mixture": "routes.mixture",
        "parse_route": "routes.notation",
        "parse_route_or_mixture": "routes.notation",
        "register": "deploy.routed_checkpoint",
        "search_routes": "runs.prepare",
    },
)
