"""What a route is, how it is written, and the space MACRO searches."""

from macro_routing.routes.composition import Composition, compose
from macro_routing.routes.notation import parse_route, print_route
from macro_routing.routes.route import Add, Program, Route, Step
from macro_routing.routes.space import RouteSpace
from macro_routing.routes.text import parse_program

__all__ = [
    "Add",
    "Composition",
    "Program",
    "Route",
    "RouteSpace",
    "Step",
    "compose",
    "parse_program",
    "parse_route",
    "print_route",
]
