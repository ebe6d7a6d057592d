"""What a route is, how it is written, and the space MACRO searches.

Public names are imported on first use: the space needs numpy, mergekit's notation needs PyYAML.
"""

from typing import TYPE_CHECKING

from macro_routing.lazy_imports import make_lazy_imports

if TYPE_CHECKING:
    from macro_routing.routes.mixture import Member, Mixture, parse_mixture
    from macro_routing.routes.notation import format_route, parse_route, parse_route_or_mixture
    from macro_routing.routes.paper_notation import parse_program
    from macro_routing.routes.route import Add, Program, Route, Step
    from macro_routing.routes.route_diff import RouteEdit, diff_routes
    from macro_routing.routes.route_file import RouteFile
    from macro_routing.routes.route_moves import RouteMoveCounts, count_route_moves
    from macro_routing.routes.space import RouteSpace

__all__ = [
    "Add",
    "Member",
    "Mixture",
    "Program",
    "Route",
    "RouteEdit",
    "RouteFile",
    "RouteMoveCounts",
    "RouteSpace",
    "Step",
    "count_route_moves",
    "diff_routes",
    "format_route",
    "parse_mixture",
    "parse_program",
    "parse_route",
    "parse_route_or_mixture",
]
__getattr__, __dir__ = make_lazy_imports(
    __name__,
    {
        "Add": "route",
        "Member": "mixture",
        "Mixture": "mixture",
        "Program": "route",
        "Route": "route",
        "RouteEdit": "route_diff",
        "RouteFile": "route_file",
        "RouteMoveCounts": "route_moves",
        "RouteSpace": "space",
        "Step": "route",
        "count_route_moves": "route_moves",
        "diff_routes": "route_diff",
        "format_route": "notation",
        "parse_mixture": "mixture",
        "parse_program": "paper_notation",
        "parse_route": "notation",
        "parse_route_or_mixture": "notation",
    },
)
