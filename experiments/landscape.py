"""A recorded landscape: which examples each of many routes of a real model answers correctly.

Scoring a few hundred routes once makes search research cheap: a search can be replayed on the table as often as wanted,
with the noise, the ties and the correlations of the real model, and without the model.
"""

import json
from collections.abc import Mapping, Sequence
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
from macro_routing.search.route_edits import (
    list_edits_of_standard_pass,
    list_edits_of_standard_pass_without_adds,
    program_from_edits,
)
from macro_routing.search.rys import list_blocks, make_route_repeating_block

FORMAT = "macro-landscape-1"


@dataclass(frozen=True, eq=False)
class Landscape:
    """Routes × examples, correct or not."""

    routes: tuple[Route, ...]
    correct: NDArray[np.bool_]
    """``[route, example]``"""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Model, task, answering mode and whatever else says where the table comes from."""

    def __post_init__(self) -> None:
        """Reject a table that does not fit its routes, or lacks the standard pass."""
        if self.correct.ndim != 2 or len(self.correct) != len(self.routes) or len(self._indices) != len(self.routes):
            raise SettingsError("a landscape needs one row of outcomes per route, and no route twice")
        if not any(route.is_standard for route in self.routes):
            raise SettingsError("a landscape needs the standard pass among its routes: all gains are measured from it")

    @property
    def layers(self) -> int:
        """Layers of the model."""
        return self.routes[0].layers

    @property
    def examples(self) -> int:
        """Examples that every route was scored on."""
        return int(self.correct.shape[1])

    @cached_property
    def _indices(self) -> dict[Route, int]:
        return {route: index for index, route in enumerate(self.routes)}

    def __contains__(self, route: Route) -> bool:
        return route in self._indices

    def correct_examples(self, route: Route) -> NDArray[np.bool_]:
        """Which examples a recorded route answers correctly."""
        return np.asarray(self.correct[self._indices[route]])

    @cached_property
    def standard(self) -> NDArray[np.bool_]:
        """Which examples the standard pass answers correctly."""
        return self.correct_examples(Route.standard(self.layers))

    def gain(self, route: Route) -> float:
        """By how much a recorded route is better than the standard pass, as a fraction."""
        return float(self.correct_examples(route).mean() - self.standard.mean())

    # --- on disk --------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The table as text: a route per line, its outcomes as hexadecimal bits."""
        head = {"format": FORMAT, "layers": self.layers, "examples": self.examples, **self.about}
        rows = {
            str(route): np.packbits(row).tobytes().hex() for route, row in zip(self.routes, self.correct, strict=True)
        }
        return json.dumps({**head, "routes": rows}, indent=0, ensure_ascii=False) + "\n"

    @classmethod
    def load(cls, path: Path) -> "Landscape":
        """A table that ``to_json`` wrote."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            layers, examples, rows = values.pop("layers"), values.pop("examples"), values.pop("routes")
            is_known = values.pop("format") == FORMAT
            routes = tuple(parse_program(text).to_route(layers) for text in rows)
            bits = [np.frombuffer(bytes.fromhex(row), np.uint8) for row in rows.values()]
            correct = np.unpackbits(np.stack(bits), axis=1)[:, :examples].astype(bool)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SettingsError(
                f"{path} is not a recorded landscape ({type(error).__name__}: {error}); record one first"
            ) from None
        if not is_known:
            raise SettingsError(f"{path} was written by another version; record it again")
        return cls(routes, correct, values)


@dataclass(frozen=True, eq=False)
class ChoiceScores:
    """Log-likelihoods of every choice under some routes of a landscape, for work on sums of several routes."""

    routes: tuple[str, ...]
    log_likelihoods: NDArray[np.float16]
    """``[route, example, choice]``, NaN where an example has fewer choices"""
    choice_bytes: NDArray[np.uint16]
    """``[example, choice]``: choices are compared per byte of text"""
    answers: NDArray[np.uint8]
    """The correct choice of each example."""

    def save(self, path: Path) -> None:
        """Write the arrays as a compressed archive."""
        np.savez_compressed(
            path,
            routes=np.array(self.routes),
            log_likelihoods=self.log_likelihoods,
            choice_bytes=self.choice_bytes,
            answers=self.answers,
        )

    @classmethod
    def load(cls, path: Path) -> "ChoiceScores":
        """Read what ``save`` wrote."""
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in ("log_likelihoods", "choice_bytes", "answers")}
            return cls(tuple(map(str, archive["routes"])), **arrays)


def list_routes_to_record(space: RouteSpace, two_edits: int, seed: int) -> list[Route]:
    """The standard pass, all single moves and adds in place, all blocks that fit, and random routes of two edits."""
    adds = [edit for edit in list_edits_of_standard_pass(space) if space.action_lookbacks[edit.action]]
    chosen = [
        *list_edits_of_standard_pass_without_adds(space),
        *(edit for edit in adds if space.action_displacements[edit.action] == 1),
    ]
    spare = space.max_length - space.layers
    blocks = list_blocks(space.layers, max_span=spare) if spare else []
    routes = dict.fromkeys([Route.standard(space.layers), *(_expand_edits(space, [edit]) for edit in chosen)])
    routes |= dict.fromkeys(make_route_repeating_block(space.layers, i, j) for i, j in blocks)
    rng = np.random.default_rng(seed)
    wanted = len(routes) + two_edits
    for _ in range(100 * two_edits):
        if len(routes) >= wanted:
            break
        first, second = (chosen[index] for index in sorted(rng.choice(len(chosen), 2, replace=False)))
        program = program_from_edits(space, [first, second])
        if program is not None:
            routes.setdefault(program.to_route(space.layers))
    return list(routes)


def is_short_repeat_or_skip(route: Route) -> bool:
    """Whether a route is the standard pass, or that with one layer skipped or one block of 1 to 3 layers repeated."""
    order = [step.layer for step in route.steps]
    plain = list(range(route.layers))
    skips = ([*plain[:i], *plain[i + 1 :]] for i in plain)
    repeats = (plain[: i + size] + plain[i:] for size in (1, 2, 3) for i in range(route.layers - size + 1))
    return not route.has_adds and (order == plain or order in skips or order in repeats)


def _expand_edits(space: RouteSpace, edits: Sequence[Any]) -> Route:
    program = program_from_edits(space, edits)
    assert program is not None  # the standard pass reaches every layer
    return program.to_route(space.layers)
