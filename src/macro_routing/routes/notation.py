"""One way in and one way out for every notation a user may have."""

from collections.abc import Callable

from macro_routing.errors import NotationError, shorten
from macro_routing.routes import formats
from macro_routing.routes.paper_notation import parse_program
from macro_routing.routes.route import Route
from macro_routing.routes.route_file import is_route_file, parse_route_file

NOTATIONS = ("text", "json", "ranges", "mergekit")


def parse_route(text: str, layers: int | None) -> Route:
    """Read a route in any notation: the paper's text, JSON, a RYS pair, a range list, mergekit YAML, a route file.

    ``layers`` is the model's number of layers; only JSON that carries it may leave it out.
    """
    stripped = text.strip().lstrip("\ufeff")
    if is_route_file(stripped):
        route = parse_route_file(stripped).route
        if layers is not None and route.layers != layers:
            raise NotationError(f"the route file is for {route.layers} layers, but the model has {layers}")
        return route
    if stripped.startswith(("[", "{")):
        return formats.parse_json(stripped, layers)
    if layers is None:
        if stripped[:1] in ("L", "R"):
            parse_program(stripped)  # a malformed route is the first thing to fix
        raise NotationError("the number of the model's layers is not known; give it with --layers")
    return _select_parser(stripped)(stripped, layers)


def _select_parser(text: str) -> Callable[[str, int], Route]:
    if text[:1] in ("L", "R") or not text:
        return lambda text, layers: parse_program(text).expand(layers)
    if "slices:" in text or "merge_method:" in text:
        return formats.parse_mergekit
    if formats.RYS_PAIR.fullmatch(text):
        return formats.parse_rys_pair
    if text[0].isdigit() and ("," in text or ".." in text):
        return formats.parse_ranges
    if ":" in text and "\n" in text:
        return formats.parse_mergekit
    return lambda text, layers: parse_program(text).expand(layers)


def format_route(route: Route, notation: str, model: str = "MODEL") -> str:
    """Write a route in one of ``NOTATIONS``; ``model`` is the name that mergekit should load."""
    if notation == "mergekit":
        return formats.format_mergekit(route, model)
    writers: dict[str, Callable[[Route], str]] = {
        "text": str,
        "json": formats.format_json,
        "ranges": formats.format_ranges,
    }
    if notation not in writers:
        raise NotationError(f"unknown notation {shorten(notation)}; known notations: {', '.join(NOTATIONS)}")
    return writers[notation](route)
