"""What a route is, how it is written, and the space MACRO searches."""

from macro_routing.routes.composition import Composition, analyze_composition
from macro_routing.routes.notation import format_route, parse_route
from macro_routing.routes.paper_notation import parse_program
from macro_routing.routes.route import Add, Program, Route, Step
from macro_routing.routes.space import RouteSpace

__all__ = [
    "Add",
    "Composition",
    "Program",
    "Route",
    "RouteSpace",
    "Step",
    "analyze_composition",
    "format_route",
    "parse_program",
    "parse_route",
]
