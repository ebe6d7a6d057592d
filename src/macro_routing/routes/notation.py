"""One way in and one way out for every notation of a route.

The paper's text (``paper_notation``), JSON, RYS pairs, range lists, mergekit passthrough, route files. All but the text
and JSON describe plain routes only; a route with adds is rejected, never approximated.
"""

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from macro_routing.errors import NotationError, RouteError, shorten_value
from macro_routing.routes.mixture import RouteOrMixture, parse_program_or_mixture, require_single_route
from macro_routing.routes.paper_notation import parse_program
from macro_routing.routes.route import MAX_LAYERS, MAX_STEPS, Add, Program, Route, Step, split_into_ascending_runs
from macro_routing.routes.route_file import is_route_file_text, parse_route_file

NOTATIONS = ("text", "json", "ranges", "mergekit")
_RYS_PAIR = re.compile(r"\s*\(?\s*([0-9]{1,6})\s*,\s*([0-9]{1,6})\s*\)?\s*")
_MIXTURE = re.compile(r"\[\s*(?:L[0-9]|RJ\b)", re.IGNORECASE)
_JSON_OBJECTS = re.compile(r'\{|\[\s*[{"]')
"""The beginning of an object, or of a list of objects or texts, whatever is in them."""
_ROUTE_PART = re.compile(r"\bL[0-9]|^\s*[-+.0-9(\[{]|\bRJ\b|\b(?:slices|merge_method)\s*:", re.IGNORECASE)
"""A layer, the beginning of another notation, or the end of a program."""
_RANGE = re.compile(r"\s*([0-9]{1,6})(?:\s*\.\.\s*([0-9]{1,6}))?\s*")


def looks_like_route(text: str) -> bool:
    """Whether a text may be a route or a mixture in some notation, not a mistyped name."""
    return _ROUTE_PART.search(text) is not None


def parse_route(text: str, layers: int | None) -> Route:
    """Read a route in any notation: the paper's text, JSON, a RYS pair, a range list, mergekit YAML, a route file.

    ``layers`` is the model's number of layers; only JSON that carries it may leave it out. A mixture is rejected.
    """
    return require_single_route(parse_route_or_mixture(text, layers))


def parse_route_or_mixture(text: str, layers: int | None) -> RouteOrMixture:
    """Read what ``parse_route`` reads, or a mixture such as ``1.5 [L0 RJ] - 0.5 [L0-L3 L5 RJ]``."""
    stripped = text.strip().lstrip("\ufeff")
    if is_route_file_text(stripped):
        route = parse_route_file(stripped).route
        if layers is not None and route.layers != layers:
            raise NotationError(f"the route file is for {route.layers} layers, but the model has {layers}")
        return route
    if _MIXTURE.search(stripped) and not _JSON_OBJECTS.match(stripped):
        if layers is None:
            raise NotationError("the number of the model's layers is not known; give it with --layers")
        return parse_program_or_mixture(stripped, layers)
    if stripped.startswith(("[", "{")):
        return _parse_json_route(stripped, layers)
    if layers is None:
        if stripped[:1] in ("L", "R"):
            parse_program(stripped)  # a malformed route is the first thing to fix
        raise NotationError("the number of the model's layers is not known; give it with --layers")
    return _parse_notation_without_layer_count(stripped, layers)


def _parse_notation_without_layer_count(text: str, layers: int) -> Route:
    """Read a route in a notation that does not say how many layers the model has."""
    if text[:1] in ("L", "R", ""):
        return parse_program(text).to_route(layers)
    if "slices:" in text or "merge_method:" in text:
        return _parse_mergekit(text, layers)
    if pair := _RYS_PAIR.fullmatch(text):
        return _parse_rys_pair(pair, layers)
    if text[0].isdigit() and ("," in text or ".." in text):
        return _parse_ranges(text, layers)
    return _parse_mergekit(text, layers) if ":" in text and "\n" in text else parse_program(text).to_route(layers)


def format_route(route: Route, notation: str, model: str = "MODEL") -> str:
    """Write a route in one of ``NOTATIONS``; ``model`` is the name that mergekit should load."""
    formatters: dict[str, Callable[[Route], str]] = {
        "text": str,
        "json": _format_steps_as_json,
        "ranges": _format_layer_ranges,
        "mergekit": partial(format_mergekit, model=model),
    }
    if notation not in NOTATIONS:
        raise NotationError(f"unknown notation {shorten_value(notation)}; known notations: {', '.join(NOTATIONS)}")
    return formatters[notation](route)


def _parse_json_route(text: str, layers: int | None) -> Route:
    """Read a JSON list of layer numbers, or an object with ``steps`` and optionally ``layers`` and ``rejoin``."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise NotationError("this starts like JSON but has too many brackets within each other") from None
    except ValueError as error:
        raise NotationError(f"this starts like JSON but is not: {error}") from None
    if isinstance(value, list):
        value = {"steps": value}
    if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
        raise NotationError(
            "a JSON route is a list of layer numbers or an object with a list 'steps'; a route file of macro is an"
            " object with its 'format'"
        )
    if unknown := sorted(set(value) - {"steps", "layers", "rejoin"}):
        raise NotationError(
            f"unknown key {shorten_value(unknown[0])} in the JSON route; known keys: steps, layers, rejoin"
        )
    rejoin = value.get("rejoin", False)
    if not isinstance(rejoin, bool):
        raise NotationError(f"'rejoin' must be true or false, not {shorten_value(rejoin)}")
    if len(value["steps"]) > MAX_STEPS:
        raise NotationError(f"the JSON route has more than {MAX_STEPS} steps")
    steps = tuple(_step_from_json(step, number) for number, step in enumerate(value["steps"], 1))
    return Program(steps, rejoin).to_route(_resolve_layer_count(value.get("layers"), layers))


def _step_from_json(value: Any, number: int) -> Step:
    where = f"step {number} of the JSON route"
    if not isinstance(value, dict):
        return Step(_check_layer_or_state_number(value, where))
    if unknown := sorted(set(value) - {"layer", "back", "coefficient"}):
        raise NotationError(
            f"{where} has the unknown key {shorten_value(unknown[0])}; known keys: layer, back, coefficient"
        )
    layer = _check_layer_or_state_number(value.get("layer"), where)
    if "back" not in value:
        if "coefficient" in value:
            raise NotationError(f"{where} has a coefficient but no 'back': what should be added?")
        return Step(layer)
    coefficient = value.get("coefficient", 1.0)
    if isinstance(coefficient, bool) or not isinstance(coefficient, int | float):
        raise NotationError(f"{where}: the coefficient must be a number, not {shorten_value(coefficient)}")
    try:
        return Step(layer, Add(_check_layer_or_state_number(value["back"], where), float(coefficient)))
    except (RouteError, OverflowError) as error:
        raise NotationError(f"{where}: {error}") from None


def _check_layer_or_state_number(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_STEPS:
        raise NotationError(f"{where}: {shorten_value(value)} is not a layer or state number")
    return value


def _resolve_layer_count(written: Any, expected: int | None) -> int:
    if written is None:
        if expected is None:
            raise NotationError("the number of the model's layers is not known; give it with --layers")
        return expected
    if isinstance(written, bool) or not isinstance(written, int) or not 1 <= written <= MAX_LAYERS:
        raise NotationError(f"'layers' must be a number from 1 to {MAX_LAYERS}, not {shorten_value(written)}")
    if expected is not None and written != expected:
        raise NotationError(f"the route was written for {written} layers, but the model has {expected}")
    return written


def _format_steps_as_json(route: Route) -> str:
    """The executed steps as JSON: a number for a plain step, an object for an add."""
    steps = [
        step.layer
        if step.add is None
        else {"layer": step.layer, "back": step.add.back, "coefficient": step.add.coefficient}
        for step in route.steps
    ]
    return json.dumps({"layers": route.layers, "steps": steps})


def _parse_rys_pair(pair: re.Match[str], layers: int) -> Route:
    """Read a RYS pair ``i,j``: layers 0 to j-1, then i to the last."""
    start, end = map(int, pair.groups())
    if not 0 <= start < end <= layers:
        raise NotationError(f"the RYS pair {start},{end} does not fit {layers} layers: it needs i < j and j ≤ {layers}")
    return Route.from_layers([*range(end), *range(start, layers)], layers)


def _parse_ranges(text: str, layers: int) -> Route:
    """Read a range list such as ``0..14,12..14,15..39``; both ends of a range are applied."""
    order: list[int] = []
    parts = text.split(",")
    for number, part in enumerate(parts, 1):
        where = f"range {number} of {len(parts)}, {shorten_value(part)}"
        match = _RANGE.fullmatch(part)
        if match is None:
            raise NotationError(f"{where}, is not a range; write 12..14, or 12 for one layer")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise NotationError(f"{where}: a range ascends")
        if last >= MAX_LAYERS or len(order) > MAX_STEPS:
            raise NotationError(f"{where}: a route has layers up to {MAX_LAYERS - 1} and at most {MAX_STEPS} steps")
        order += range(first, last + 1)
    return Route.from_layers(order, layers)


def _format_layer_ranges(route: Route) -> str:
    """The route as a range list; adds are rejected."""
    runs = _split_into_layer_ranges(route, "a range list")
    # One or two bare numbers would be read as something else (two are a RYS pair), so they are written as ranges.
    bare = len(runs) > 2 or any(first != last for first, last in runs)
    return ",".join(str(first) if first == last and bare else f"{first}..{last}" for first, last in runs)


def _parse_mergekit(text: str, layers: int) -> Route:
    """Read a mergekit passthrough configuration whose slices all come from one model, unscaled."""
    import yaml

    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError, TypeError, AttributeError) as error:
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise NotationError(f"this is not readable YAML: {first_line}") from None
    if not isinstance(value, dict) or not isinstance(value.get("slices"), list):
        raise NotationError("a mergekit configuration needs a list 'slices'")
    if value.get("merge_method") != "passthrough":
        raise NotationError(
            f"merge_method {shorten_value(value.get('merge_method'))} changes weights; only passthrough is a route"
        )
    if value.get("parameters"):
        raise NotationError("the configuration scales weights ('parameters'), which a route cannot do")
    order: list[int] = []
    models: set[str] = set()
    for number, part in enumerate(value["slices"], 1):
        model, first, end = _parse_mergekit_slice(part, f"slice {number}", layers)
        models.add(model)
        order += range(first, end)
        if len(models) > 1 or len(order) > MAX_STEPS:
            raise NotationError(f"slice {number}: all slices must come from one model, with at most {MAX_STEPS} layers")
    return Route.from_layers(order, layers)


def _parse_mergekit_slice(part: Any, where: str, layers: int) -> tuple[str, int, int]:
    sources = part.get("sources") if isinstance(part, dict) else None
    if not isinstance(sources, list) or len(sources) != 1 or not isinstance(sources[0], dict):
        raise NotationError(f"{where} needs exactly one source with a model and a layer_range")
    source = sources[0]
    if source.get("parameters") or part.get("parameters"):
        raise NotationError(f"{where} scales weights ('parameters'), which a route cannot do")
    span = source.get("layer_range")
    if (
        not isinstance(span, list)
        or len(span) != 2
        or not all(isinstance(end, int) and not isinstance(end, bool) for end in span)
        or not 0 <= span[0] < span[1] <= layers
    ):
        raise NotationError(f"{where}: layer_range {shorten_value(span)} must be [first, end) within 0 to {layers}")
    if not isinstance(source.get("model"), str):
        raise NotationError(f"{where} names no model")
    return source["model"], span[0], span[1]


def format_mergekit(route: Route, model: str, dtype: str = "bfloat16") -> str:
    """A mergekit passthrough configuration that writes the route out as a deeper checkpoint; adds are rejected."""
    import yaml

    slices = [
        {"sources": [{"model": model, "layer_range": [first, last + 1]}]}
        for first, last in _split_into_layer_ranges(route, "mergekit")
    ]
    configuration = {"merge_method": "passthrough", "dtype": dtype, "slices": slices}
    return str(yaml.safe_dump(configuration, sort_keys=False)).rstrip("\n")


def _split_into_layer_ranges(route: Route, notation: str) -> list[tuple[int, int]]:
    for number, step in enumerate(route.steps, 1):
        if step.add is not None:
            raise RouteError(f"{notation} cannot express the add at step {number} ({step}); use text or JSON")
    return [(run[0].layer, run[-1].layer) for run in split_into_ascending_runs(route.steps)]
