"""Other people's ways to write a layer order, in and out: JSON, RYS pairs, range lists, mergekit passthrough.

All but JSON describe plain routes only; a route with adds is rejected, never approximated.
"""

import json
import re
from typing import Any

import yaml

from macro_routing.errors import NotationError, RouteError, shorten
from macro_routing.routes.route import MAX_LAYERS, MAX_STEPS, Add, Program, Route, Step, is_next_layer

RYS_PAIR = re.compile(r"\s*\(?\s*([0-9]{1,6})\s*,\s*([0-9]{1,6})\s*\)?\s*")
_RANGE = re.compile(r"\s*([0-9]{1,6})(?:\s*\.\.\s*([0-9]{1,6}))?\s*")


def parse_json(text: str, layers: int | None) -> Route:
    """Read a JSON list of layer numbers, or an object with ``steps`` and optionally ``layers`` and ``rejoin``."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotationError(f"this starts like JSON but is not: {error}") from None
    if isinstance(value, list):
        value = {"steps": value}
    if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
        raise NotationError(
            "a JSON route is a list of layer numbers or an object with a list 'steps'; a route file of macro also has"
            " its 'format'"
        )
    if unknown := sorted(set(value) - {"steps", "layers", "rejoin"}):
        raise NotationError(f"unknown key {shorten(unknown[0])} in the JSON route; known keys: steps, layers, rejoin")
    rejoin = value.get("rejoin", False)
    if not isinstance(rejoin, bool):
        raise NotationError(f"'rejoin' must be true or false, not {shorten(rejoin)}")
    if len(value["steps"]) > MAX_STEPS:
        raise NotationError(f"the JSON route has more than {MAX_STEPS} steps")
    steps = tuple(_step_from_json(step, number) for number, step in enumerate(value["steps"], 1))
    return Program(steps, rejoin).expand(_resolve_layer_count(value.get("layers"), layers))


def _step_from_json(value: Any, number: int) -> Step:
    where = f"step {number} of the JSON route"
    if not isinstance(value, dict):
        return Step(_check_index(value, where))
    if unknown := sorted(set(value) - {"layer", "back", "coefficient"}):
        raise NotationError(f"{where} has the unknown key {shorten(unknown[0])}; known keys: layer, back, coefficient")
    layer = _check_index(value.get("layer"), where)
    if "back" not in value:
        if "coefficient" in value:
            raise NotationError(f"{where} has a coefficient but no 'back': what should be added?")
        return Step(layer)
    coefficient = value.get("coefficient", 1.0)
    if isinstance(coefficient, bool) or not isinstance(coefficient, int | float):
        raise NotationError(f"{where}: the coefficient must be a number, not {shorten(coefficient)}")
    try:
        return Step(layer, Add(_check_index(value["back"], where), float(coefficient)))
    except (RouteError, OverflowError) as error:
        raise NotationError(f"{where}: {error}") from None


def _check_index(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_STEPS:
        raise NotationError(f"{where}: {shorten(value)} is not a layer or state number")
    return value


def _resolve_layer_count(written: Any, expected: int | None) -> int:
    if written is None and expected is None:
        raise NotationError("the number of the model's layers is not known; give it with --layers")
    if written is None:
        return int(expected or 0)
    if isinstance(written, bool) or not isinstance(written, int) or not 1 <= written <= MAX_LAYERS:
        raise NotationError(f"'layers' must be a number from 1 to {MAX_LAYERS}, not {shorten(written)}")
    if expected is not None and written != expected:
        raise NotationError(f"the route was written for {written} layers, but the model has {expected}")
    return written


def format_json(route: Route) -> str:
    """The executed steps as JSON: a number for a plain step, an object for an add."""
    steps = [
        step.layer
        if step.add is None
        else {"layer": step.layer, "back": step.add.back, "coefficient": step.add.coefficient}
        for step in route.steps
    ]
    return json.dumps({"layers": route.layers, "steps": steps})


def parse_rys_pair(text: str, layers: int) -> Route:
    """Read a RYS pair ``i,j``: layers 0 to j-1, then i to the last."""
    match = RYS_PAIR.fullmatch(text)
    if match is None:
        raise NotationError(f"{shorten(text)} is not a RYS pair; write it as 45,52")
    start, end = (int(digits) for digits in match.groups())
    if not 0 <= start < end <= layers:
        raise NotationError(f"the RYS pair {start},{end} does not fit {layers} layers: it needs i < j and j ≤ {layers}")
    return Route.from_layers([*range(end), *range(start, layers)], layers)


def parse_ranges(text: str, layers: int) -> Route:
    """Read a range list such as ``0..14,12..14,15..39``; both ends of a range are applied."""
    steps: list[Step] = []
    parts = text.split(",")
    for number, part in enumerate(parts, 1):
        where = f"range {number} of {len(parts)}, {shorten(part)}"
        match = _RANGE.fullmatch(part)
        if match is None:
            raise NotationError(f"{where}, is not a range; write 12..14, or 12 for one layer")
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if first > last:
            raise NotationError(f"{where}: a range ascends")
        if last >= MAX_LAYERS or len(steps) > MAX_STEPS:
            raise NotationError(f"{where}: a route has layers up to {MAX_LAYERS - 1} and at most {MAX_STEPS} steps")
        steps += [Step(layer) for layer in range(first, last + 1)]
    return Route(tuple(steps), layers)


def format_ranges(route: Route) -> str:
    """The route as a range list; adds are rejected."""
    runs = _split_into_ranges(route, "a range list")
    # One or two bare numbers would be read as something else (two are a RYS pair), so they are written as ranges.
    bare = len(runs) > 2 or any(first != last for first, last in runs)
    return ",".join(str(first) if first == last and bare else f"{first}..{last}" for first, last in runs)


def parse_mergekit(text: str, layers: int) -> Route:
    """Read a mergekit passthrough configuration whose slices all come from one model, unscaled."""
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError, TypeError, AttributeError) as error:
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise NotationError(f"this is not readable YAML: {first_line}") from None
    if not isinstance(value, dict) or not isinstance(value.get("slices"), list):
        raise NotationError("a mergekit configuration needs a list 'slices'")
    if value.get("merge_method") != "passthrough":
        raise NotationError(
            f"merge_method {shorten(value.get('merge_method'))} changes weights; only passthrough is a route"
        )
    if value.get("parameters"):
        raise NotationError("the configuration scales weights ('parameters'), which a route cannot do")
    steps: list[Step] = []
    models: set[str] = set()
    for number, part in enumerate(value["slices"], 1):
        model, first, end = _parse_mergekit_slice(part, f"slice {number}", layers)
        models.add(model)
        steps += [Step(layer) for layer in range(first, end)]
        if len(models) > 1 or len(steps) > MAX_STEPS:
            raise NotationError(f"slice {number}: all slices must come from one model, with at most {MAX_STEPS} layers")
    return Route(tuple(steps), layers)


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
        raise NotationError(f"{where}: layer_range {shorten(span)} must be [first, end) within 0 to {layers}")
    if not isinstance(source.get("model"), str):
        raise NotationError(f"{where} names no model")
    return source["model"], span[0], span[1]


def format_mergekit(route: Route, model: str, dtype: str = "bfloat16") -> str:
    """A mergekit passthrough configuration that writes the route out as a deeper checkpoint; adds are rejected."""
    slices = [
        {"sources": [{"model": model, "layer_range": [first, last + 1]}]}
        for first, last in _split_into_ranges(route, "mergekit")
    ]
    configuration = {"merge_method": "passthrough", "dtype": dtype, "slices": slices}
    return str(yaml.safe_dump(configuration, sort_keys=False)).rstrip("\n")


def _split_into_ranges(route: Route, form: str) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for number, step in enumerate(route.steps, 1):
        if step.add is not None:
            raise RouteError(f"{form} cannot express the add at step {number} ({step}); use text or JSON")
        if number > 1 and is_next_layer(route.steps[number - 2], step):
            runs[-1] = (runs[-1][0], step.layer)
        else:
            runs.append((step.layer, step.layer))
    return runs
