"""The planted problems on which searches are developed and judged (docs/results/search_protocol.md)."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from macro_routing.evaluation.planted_problem import PlantedProblem, edit_distance
from macro_routing.routes.route import Route
from macro_routing.routes.space import RouteSpace
from macro_routing.search.route_edits import (
    ProgramEdit,
    list_edits_of_standard_pass,
    list_edits_of_standard_pass_without_adds,
    program_from_edits,
)

LAYERS, TRAINING, VALIDATION, BUDGET = 28, 1000, 100, 43_500
SPACE = RouteSpace(LAYERS)
LEVELS = {"easy": (0.061, 0.155), "noisy": (0.493, 0.042), "hard": (0.693, 0.026)}
"""Accuracy of the standard pass, and gain per edit of the target."""
KINDS = ("moves", "adds")
MOST_EDITS = 4
FLOOR = 0.02
"""What a route far away from the target scores."""
_TARGETS = 77


@dataclass(frozen=True)
class FamilyMember:
    """One problem, and what is asked of a search in it."""

    problem: PlantedProblem
    level: str
    edits: int
    kind: str

    @property
    def standard_score(self) -> float:
        """True score of the standard pass."""
        return LEVELS[self.level][0]

    @property
    def gain(self) -> float:
        """What there is to gain."""
        return self.problem.peak - self.standard_score

    def share(self, route: Route) -> float:
        """How much of it a route truly gains."""
        return (self.problem.true_score(route) - self.standard_score) / self.gain


def make_problem(seed: int, *, nothing: bool = False, alike: bool = False) -> FamilyMember:
    """The problem of a seed; ``nothing`` plants the standard pass, ``alike`` makes every route as good as it."""
    level = list(LEVELS)[seed % 3]
    edits = 1 + seed // 3 % MOST_EDITS
    kind = KINDS[seed // (3 * MOST_EDITS) % 2]
    standard, per_edit = LEVELS[level]
    if alike:
        same = PlantedProblem(Route.standard(LAYERS), base=standard * (1 - 1e-9), peak=standard, seed=seed)
        return FamilyMember(same, level, edits, kind)
    target, distance = (Route.standard(LAYERS), 1) if nothing else _draw_target(seed, edits, kind)
    gain = 0.0 if nothing else per_edit * edits
    slope = per_edit if nothing else gain / distance
    peak = standard + gain
    problem = PlantedProblem(target, base=FLOOR, peak=peak, reach=(peak - FLOOR) / slope, seed=seed)
    return FamilyMember(problem, level, edits, kind)


def _draw_target(seed: int, edits: int, kind: str) -> tuple[Route, int]:
    rng = np.random.default_rng([seed, _TARGETS])
    moves, adds = _single_edits_by_kind()
    while True:
        is_add = np.zeros(edits, dtype=bool)
        if kind == "adds":
            is_add = rng.random(edits) < 0.5
            is_add[rng.integers(edits)] = True
        drawn = sorted((adds if add else moves)[rng.integers(len(adds if add else moves))] for add in is_add)
        program = program_from_edits(SPACE, drawn) if len({edit.layer for edit in drawn}) == edits else None
        if program is not None and (distance := edit_distance(program.to_route(LAYERS), Route.standard(LAYERS))):
            return program.to_route(LAYERS), distance


@lru_cache(maxsize=1)
def _single_edits_by_kind() -> tuple[list[ProgramEdit], list[ProgramEdit]]:
    adds = [edit for edit in list_edits_of_standard_pass(SPACE) if edit.action >= SPACE.move_action_count]
    return list_edits_of_standard_pass_without_adds(SPACE), adds
