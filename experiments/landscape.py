"""A recorded landscape: which examples each of many routes of a real model got right.

Scoring a few hundred routes once makes search research cheap: a search can be replayed on the table as often as wanted,
with the noise, the ties and the correlations of the real model, and without the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macro_routing.errors import SettingsError
from macro_routing.routes.paper_notation import parse_program
from macro_routing.routes.route import Route
from macro_routing.routes.space import RouteSpace
from macro_routing.search.edits import filter_moves, filter_plain_adds, list_single_edits, program_from_edits
from macro_routing.search.rys_sweep import list_blocks, route_from_block

FORMAT = "macro-landscape-1"


@dataclass(frozen=True, eq=False)
class Landscape:
    """Routes × examples, right or wrong."""

    routes: tuple[Route, ...]
    right: NDArray[np.bool_]
    """``[route, example]``"""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Model, task, way of answering and whatever else says where the table comes from."""

    def __post_init__(self) -> None:
        """Refuse a table that does not fit its routes, or lacks the standard pass."""
        if self.right.ndim != 2 or len(self.right) != len(self.routes) or len(self._places) != len(self.routes):
            raise SettingsError("a landscape needs one row of verdicts per route, and no route twice")
        if not any(route.is_standard for route in self.routes):
            raise SettingsError("a landscape needs the standard pass among its routes: all gains are measured from it")

    @property
    def layers(self) -> int:
        """Layers of the model."""
        return self.routes[0].layers

    @property
    def examples(self) -> int:
        """Examples that every route was scored on."""
        return int(self.right.shape[1])

    @cached_property
    def _places(self) -> dict[Route, int]:
        return {route: place for place, route in enumerate(self.routes)}

    def __contains__(self, route: Route) -> bool:
        return route in self._places

    def verdicts(self, route: Route) -> NDArray[np.bool_]:
        """Which examples a recorded route got right."""
        return np.asarray(self.right[self._places[route]])

    @cached_property
    def standard(self) -> NDArray[np.bool_]:
        """The standard pass's verdicts."""
        return self.verdicts(Route.standard(self.layers))

    def gain(self, route: Route) -> float:
        """By how much a recorded route is better than the standard pass, as a fraction."""
        return float(self.verdicts(route).mean() - self.standard.mean())

    # --- on disk --------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The table as text: a route per line, its verdicts as hexadecimal bits."""
        head = {"format": FORMAT, "layers": self.layers, "examples": self.examples, **self.about}
        rows = {
            str(route): np.packbits(row).tobytes().hex() for route, row in zip(self.routes, self.right, strict=True)
        }
        return json.dumps({**head, "routes": rows}, indent=0, ensure_ascii=False) + "\n"

    @classmethod
    def load(cls, path: Path) -> Landscape:
        """A table that ``to_json`` wrote."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            layers, examples, rows = values.pop("layers"), values.pop("examples"), values.pop("routes")
            known = values.pop("format") == FORMAT
            routes = tuple(parse_program(text).expand(layers) for text in rows)
            bits = [np.frombuffer(bytes.fromhex(row), np.uint8) for row in rows.values()]
            right = np.unpackbits(np.stack(bits), axis=1)[:, :examples].astype(bool)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SettingsError(
                f"{path} is no recorded landscape ({type(error).__name__}: {error}); record one first"
            ) from None
        if not known:
            raise SettingsError(f"{path} was written by another version; record it again")
        return cls(routes, right, values)


def routes_to_record(space: RouteSpace, two_edits: int, seed: int) -> list[Route]:
    """The standard pass, all single moves and adds in place, all blocks that fit, and random routes of two edits."""
    edits = list_single_edits(space)
    chosen = [*filter_moves(space, edits), *filter_plain_adds(space, edits)]
    found = [Route.standard(space.layers)]
    found += [_expanded(space, [edit]) for edit in chosen]
    longest = space.max_length - space.layers
    found += [
        route_from_block(space.layers, i, j)
        for i, j in (list_blocks(space.layers, max_span=longest) if longest else [])
    ]
    rng = np.random.default_rng(seed)
    singles = len(set(found))
    wanted = dict.fromkeys(found)
    for _ in range(100 * two_edits):
        if len(wanted) >= singles + two_edits:
            break
        first, second = (chosen[place] for place in sorted(rng.choice(len(chosen), 2, replace=False)))
        program = program_from_edits(space, [first, second])
        if program is not None:
            wanted.setdefault(program.expand(space.layers))
    return list(wanted)


def _expanded(space: RouteSpace, edits: Sequence[Any]) -> Route:
    program = program_from_edits(space, edits)
    assert program is not None  # the standard pass reaches every layer
    return program.expand(space.layers)


Score = Callable[[Sequence[Route]], Mapping[Route, Sequence[bool]]]


def record(routes: Sequence[Route], score: Score, about: Mapping[str, Any]) -> Landscape:
    """Score all routes, together, and keep who was right where."""
    found = score(routes)
    return Landscape(tuple(routes), np.array([list(found[route]) for route in routes], dtype=bool), about)
