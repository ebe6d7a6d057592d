"""The route file: a route with its model, its task and its scores, as a small JSON.

Everything that takes a route takes such a file. It holds no code and needs none of the search to be read.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from macro_routing.errors import MacroError, NotationError, shorten_value, suggest_name
from macro_routing.files import digest_file
from macro_routing.routes.mixture import RouteOrMixture, parse_program_or_mixture

_MANIFEST = "manifest.json"
FORMAT = "macro-route/1"
_FORMAT_KEY = re.compile(r'"format"\s*:')


@dataclass(frozen=True)
class RouteFile:
    """A route or mixture for one model and one task, with its evidence."""

    route: RouteOrMixture
    model: str
    """Name by which the model was loaded."""
    weights_id: str
    """The model the route belongs to, whatever it is called."""
    numerics_id: str
    """How it was run: the same weights in another precision may score differently."""
    task: str
    revision: str | None = None
    decoding: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, Any] = field(default_factory=dict)
    """Accuracies, their difference with its interval and p-value."""
    found_by: Mapping[str, Any] = field(default_factory=dict)
    """Method, settings, seed and version."""
    recommended: bool = True
    """False where the test set speaks against the route: then the standard pass is the better choice."""
    recommendation: str = ""
    """Why it is recommended or not."""

    @property
    def is_shown_as_accurate(self) -> bool:
        """Whether it was searched for speed, and the test set shows that it loses less than the margin."""
        decision, test = self.found_by.get("decision"), self.scores.get("test")
        if not isinstance(decision, Mapping) or not isinstance(test, Mapping) or decision.get("objective") != "speed":
            return False
        margin, low = decision.get("margin"), test.get("low")
        return isinstance(margin, int | float) and isinstance(low, int | float) and low > -margin / 100

    def to_json(self) -> str:
        """The file's text."""
        values = asdict(self)
        values["route"] = str(self.route)
        return json.dumps({"format": FORMAT, "layers": self.route.layers, **values}, indent=1, ensure_ascii=False)


def is_route_file_text(text: str) -> bool:
    """Whether a text looks like a route file."""
    return text.lstrip("\ufeff \t\r\n").startswith("{") and _FORMAT_KEY.search(text) is not None


def check_unchanged_since_run(path: Path) -> None:
    """Reject a run's route file that was edited: its scores are those of another route.

    The manifest beside it has the digest that the file had when the run was finished.
    """
    manifest = path.parent / _MANIFEST
    try:
        digest = json.loads(manifest.read_text(encoding="utf-8"))["files"][path.name]
    except (OSError, ValueError, KeyError, TypeError):
        return  # not a finished run's
    if digest != digest_file(path):
        raise NotationError(
            f"{path} was changed after its run was finished, so its scores may belong to another route; restore it, or"
            " give the changed route as text"
        )


def parse_route_file(text: str) -> RouteFile:
    """Read a route file; another version or a damaged one is rejected with an explanation."""
    try:
        # Some editors put that sign first.
        values = json.loads(
            text.lstrip("\ufeff"), object_pairs_hook=_reject_repeated_keys, parse_constant=_reject_constant
        )
        version = values.pop("format")
    except (ValueError, KeyError, AttributeError, RecursionError) as error:
        raise NotationError(f"the route file is damaged: {error}") from None
    if version != FORMAT:
        raise NotationError(f"the route file has the format {shorten_value(version)}; this version reads {FORMAT}")
    _check_route_file_keys(values)
    _check_route_file_types(values)
    try:
        route = parse_program_or_mixture(values.pop("route"), values.pop("layers"))
        return RouteFile(route, **values)
    except (KeyError, TypeError, AttributeError) as error:
        raise NotationError(f"the route file is damaged: {error}") from None
    except MacroError as error:
        raise NotationError(f"the route file's route cannot be read: {error}") from None


def _reject_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A table; JSON would take the last of equal keys."""
    values = dict(pairs)
    for name in values if len(values) < len(pairs) else ():
        if sum(key == name for key, _ in pairs) > 1:
            raise ValueError(f"the key {shorten_value(name)} is there twice")
    return values


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")


def _check_route_file_keys(values: Mapping[str, Any]) -> None:
    known = ["layers", *(item.name for item in fields(RouteFile))]
    for name in values:
        if name not in known:
            raise NotationError(f"the route file has the unknown key {shorten_value(name)}{suggest_name(name, known)}")
    for name in ("route", "layers", "model", "weights_id", "numerics_id", "task"):
        if name not in values:
            raise NotationError(f"the route file is damaged: {name} is missing")
    if isinstance(values["layers"], bool) or not isinstance(values["layers"], int):
        raise NotationError(
            f"the route file is damaged: layers must be an integer, not {shorten_value(values['layers'])}"
        )


def _check_route_file_types(values: Mapping[str, Any]) -> None:
    """Check the type of every value: readers of the file rely on it."""
    expected = dict.fromkeys(("route", "model", "weights_id", "numerics_id", "task"), "string")
    expected |= {name: "table" for name in ("decoding", "scores", "found_by") if name in values}
    expected |= {name: "string" for name in ("revision", "recommendation") if values.get(name) is not None}
    if not isinstance(values.get("recommended", True), bool):
        raise NotationError("the route file is damaged: recommended must be true or false")
    for name, kind in expected.items():
        value = values.get(name)
        if not isinstance(value, str if kind == "string" else dict):
            raise NotationError(f"the route file is damaged: {name} must be a {kind}, not {shorten_value(value)}")
