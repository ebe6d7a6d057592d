"""MACRO's route space: states, actions and the feasibility mask (specification §2).

A state is (layer, budget phase, incoming displacement, operator context); each factor but the layer can be
switched off, which leaves an axis of size one. Every table over states and actions has the axes
``[layer, phase, displacement, operator, action]``; actions come in the order that settles ties:
moves from ``-r`` to ``r``, rejoin, then adds by (back, coefficient, displacement).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from macro_routing.errors import RouteOutsideSpaceError, SettingsError, shorten_value
from macro_routing.routes.route import Add, Program, Route, Step
from macro_routing.settings import AllowedRange, CheckedSettings, check_number

PHASES = ("early", "mid", "late")
MAX_SEARCH_LAYERS = 1_000
"""Tables grow with the layers; no model comes near."""
EXTRA_LENGTH = 12
"""Without a ``max_length`` a route may be this much longer than the model is deep."""


class PartialProgramPosition(NamedTuple):
    """Where a partial program stands: enough to know its state, its mask and everything that can follow."""

    layer: int
    displacement: int
    """Index into the displacement axis: 0 … 2r for -r … r, 2r+1 for START; always 0 when the factor is off."""
    operator: int
    """1 when the last step was an add-and-apply; always 0 when the factor is off."""
    applied: int
    """Layer applications so far (``n``)."""


@dataclass(frozen=True)
class RouteSpace(CheckedSettings):
    """Which programs MACRO may write for a model with ``layers`` layers."""

    layers: Annotated[int, AllowedRange(1, MAX_SEARCH_LAYERS, symbol="L")]
    """Layers of the model (``L``)."""
    max_length: Annotated[int, AllowedRange(0, 10 * MAX_SEARCH_LAYERS, symbol="T_max")] = 0
    """Longest executed route allowed (``T_max``); 0 means layers + 12."""
    radius: Annotated[int, AllowedRange(1, MAX_SEARCH_LAYERS, symbol="r")] = 5
    """Largest displacement of one move (``r``)."""
    window: Annotated[int, AllowedRange(0, MAX_SEARCH_LAYERS, symbol="W")] = 6
    """How many states back an add may look (``W``); 0 switches adds off."""
    coefficients: tuple[float, ...] = (1.0,)
    """What an added state may be multiplied with (``Γ``); a negative one is a subtraction."""
    phase: bool = True
    """Whether the state knows the budget phase."""
    displacement: bool = True
    """Whether the state knows the incoming displacement."""
    operator: bool = True
    """Whether the state knows that the last step was an add."""
    previous_layer: bool = False
    """Whether the state knows the previous layer. Moves stay within the radius, so together with the layer this
    says exactly what the displacement says, and both switches share one axis of the table."""

    def __post_init__(self) -> None:
        """Fill in defaults and reject impossible settings."""
        super().__post_init__()
        if self.max_length == 0:
            object.__setattr__(self, "max_length", self.layers + EXTRA_LENGTH)
        if self.max_length < self.layers:
            raise SettingsError(
                f"max_length (T_max) = {self.max_length} is not allowed: the standard pass of {self.layers} layers"
                f" must fit, so it must be at least {self.layers}"
            )
        self._sort_and_check_coefficients()

    def _sort_and_check_coefficients(self) -> None:
        if not isinstance(self.coefficients, list | tuple):
            raise SettingsError(
                f"coefficients (Γ) = {shorten_value(self.coefficients)} is not allowed: it must be a list"
            )
        for value in self.coefficients:
            check_number("coefficients (Γ)", value, minimum=-1e6, maximum=1e6)
        distinct = sorted({float(value) for value in self.coefficients})
        if not distinct or 0.0 in distinct or len(distinct) < len(self.coefficients):
            raise SettingsError(
                f"coefficients (Γ) = {list(self.coefficients)} is not allowed: at least one number, none twice, none 0;"
                " to switch adds off set window to 0"
            )
        # Γ is a set: the order a user writes it in must not change any result.
        object.__setattr__(self, "coefficients", tuple(distinct))

    # --- geometry -----------------------------------------------------------------------------------------------

    @cached_property
    def table_shape(self) -> tuple[int, int, int, int, int]:
        """Axes of a policy table: layer, phase, displacement, operator, action."""
        return (
            self.layers,
            len(PHASES) if self.phase else 1,
            2 * self.radius + 2 if self.displacement or self.previous_layer else 1,
            2 if self.operator else 1,
            self.action_count,
        )

    @cached_property
    def move_action_count(self) -> int:
        """Number of plain moves; they are the actions 0 … 2r, and ``move_action_count`` itself is the rejoin action."""
        return 2 * self.radius + 1

    @cached_property
    def rejoin_action(self) -> int:
        """The rejoin action."""
        return self.move_action_count

    @cached_property
    def forward_action(self) -> int:
        """The action that moves to the next layer."""
        return self.radius + 1

    @cached_property
    def action_count(self) -> int:
        """Number of actions."""
        return self.move_action_count + 1 + self.window * len(self.coefficients) * self.move_action_count

    @cached_property
    def action_displacements_and_adds(self) -> tuple[tuple[int, Add | None], ...]:
        """(displacement, add) of every action; the rejoin action's entry is (0, None) and never used."""
        deltas = range(-self.radius, self.radius + 1)
        moves: list[tuple[int, Add | None]] = [(delta, None) for delta in deltas]
        adds = [
            (delta, Add(back, coefficient))
            for back in range(1, self.window + 1)
            for coefficient in self.coefficients
            for delta in deltas
        ]
        return (*moves, (0, None), *adds)

    @cached_property
    def action_displacements(self) -> NDArray[np.int64]:
        """Displacement of every action."""
        return np.array([delta for delta, _ in self.action_displacements_and_adds])

    @cached_property
    def action_lookbacks(self) -> NDArray[np.int64]:
        """How far every action looks back; 0 for plain moves and rejoin."""
        return np.array([add.back if add else 0 for _, add in self.action_displacements_and_adds])

    @cached_property
    def _action_by_displacement_and_add(self) -> dict[tuple[int, Add | None], int]:
        return {
            step: number
            for number, step in enumerate(self.action_displacements_and_adds)
            if number != self.rejoin_action
        }

    def compute_route_length_phase(self, applied: int) -> int:
        """Budget phase after ``applied`` applications, in whole numbers so that thirds are exact; 0 when it is off."""
        left = 3 * (self.max_length - applied)
        return 0 if not self.phase or left > 2 * self.max_length else 1 if left > self.max_length else 2

    def state_index(self, position: PartialProgramPosition) -> tuple[int, int, int, int]:
        """Index of a position's state in a table."""
        return (
            position.layer,
            self.compute_route_length_phase(position.applied),
            position.displacement,
            position.operator,
        )

    # --- feasibility --------------------------------------------------------------------------------------------

    @cached_property
    def feasibility_mask(self) -> NDArray[np.bool_]:
        """The mask, ``[applied, layer, action]`` for ``applied`` from 0 (unused) to ``max_length``."""
        applied = np.arange(self.max_length + 1)[:, None, None]
        target = np.arange(self.layers)[:, None] + self.action_displacements  # [layer, action]
        in_range = (target >= 0) & (target < self.layers)
        fits = applied + 1 + (self.layers - 1 - target) <= self.max_length
        in_history = self.action_lookbacks <= applied - 1
        mask: NDArray[np.bool_] = in_range & fits & (in_history | (self.action_lookbacks == 0))
        mask[:, :, self.rejoin_action] = True
        mask.setflags(write=False)
        return mask

    @cached_property
    def _feasible_actions(self) -> list[list[list[bool]]]:
        """The mask as lists, of which single entries are read faster."""
        return cast("list[list[list[bool]]]", self.feasibility_mask.tolist())

    @cached_property
    def initial_position(self) -> PartialProgramPosition:
        """Every program begins by applying layer 0."""
        return PartialProgramPosition(layer=0, displacement=self.table_shape[2] - 1, operator=0, applied=1)

    @cached_property
    def action_arrival_states(self) -> NDArray[np.int64]:
        """Displacement and operator index of the position each action leads to, ``[action, 2]``."""
        arrivals = np.stack([self.action_displacements + self.radius, self.action_lookbacks > 0], axis=-1)
        return np.asarray(np.minimum(arrivals, np.array(self.table_shape[2:4]) - 1))

    @property
    def route_position_shape(self) -> tuple[int, int, int, int]:
        """Axes of an array over positions: applied (one more than allowed), layer, displacement, operator."""
        layers, _, displacements, operators, _ = self.table_shape
        return self.max_length + 2, layers, displacements, operators

    def gather_successor_values(self, values: NDArray[Any], applied: int, *, infeasible: float) -> NDArray[Any]:
        """Of an array over positions, the values where each action leads after ``applied``: ``[layer, action]``."""
        target = np.clip(np.arange(self.layers)[:, None] + self.action_displacements, 0, self.layers - 1)
        arrivals = values[applied + 1, target, self.action_arrival_states[:, 0], self.action_arrival_states[:, 1]]
        return np.where(self.feasibility_mask[applied], arrivals, infeasible)

    @cached_property
    def _displacement_and_arrival_by_action(self) -> list[tuple[int, int, int]]:
        return [
            (delta, *arrival)
            for delta, arrival in zip(
                self.action_displacements.tolist(), self.action_arrival_states.tolist(), strict=True
            )
        ]

    def position_after_action(self, position: PartialProgramPosition, action: int) -> PartialProgramPosition:
        """The position after a move or an add."""
        delta, displacement, operator = self._displacement_and_arrival_by_action[action]
        return PartialProgramPosition(position.layer + delta, displacement, operator, position.applied + 1)

    def list_program_actions_with_positions(self, program: Program) -> list[tuple[PartialProgramPosition, int]]:
        """The actions that write ``program``, rejoin last, each with the position in which it is taken.

        Programs outside the space are rejected.
        """
        if not program.rejoin:
            raise RouteOutsideSpaceError("a program of MACRO's route space ends with RJ")
        if program.steps[0] != Step(0):
            raise RouteOutsideSpaceError(
                f"step 1 ({program.steps[0]}): programs of MACRO's route space begin with a plain L0"
            )
        position = self.initial_position
        trace = []
        for number, step in enumerate(program.steps[1:], 2):
            action = self._step_to_action(position, step, number)
            trace.append((position, action))
            position = self.position_after_action(position, action)
        return [*trace, (position, self.rejoin_action)]

    def program_to_actions(self, program: Program) -> list[int]:
        """The actions that write ``program``, rejoin last; rejects programs outside the space."""
        return [action for _, action in self.list_program_actions_with_positions(program)]

    def _step_to_action(self, position: PartialProgramPosition, step: Step, number: int) -> int:
        delta, add = step.layer - position.layer, step.add
        if add is None:
            action = delta + self.radius if abs(delta) <= self.radius else None
        else:
            action = self._action_by_displacement_and_add.get((delta, add))
        # The mask leaves out layers and states that do not exist, too.
        if action is None or not self._feasible_actions[position.applied][position.layer][action]:
            raise self._explain_infeasible_step(position, step, number)
        return action

    def _explain_infeasible_step(
        self, position: PartialProgramPosition, step: Step, number: int
    ) -> RouteOutsideSpaceError:
        delta, where = step.layer - position.layer, f"step {number} ({step})"
        length = position.applied + self.layers - step.layer
        if abs(delta) > self.radius:
            reason = f"moves by {delta:+d}, but the radius is {self.radius}"
        elif step.add and step.add.back > self.window:
            reason = f"looks back {step.add.back}, but the window is {self.window}"
        elif step.add and step.add.coefficient not in self.coefficients:
            reason = f"uses the coefficient {step.add.coefficient:g}; allowed: {list(self.coefficients)}"
        elif not 0 <= step.layer < self.layers:
            return RouteOutsideSpaceError(f"{where}: the model's layers are numbered 0 to {self.layers - 1}")
        elif step.add and step.add.back > position.applied - 1:
            reason = f"looks back {step.add.back}, but only {position.applied} states exist"
        else:
            reason = f"makes the route at least {length} long, but max_length is {self.max_length}"
        return RouteOutsideSpaceError(f"{where} {reason}")

    def check_route(self, route: Route | Program) -> None:
        """Reject a route or program outside the space; the error names the step and the rule."""
        self.list_program_actions_with_positions(self.route_to_program(route) if isinstance(route, Route) else route)

    def route_to_program(self, route: Route) -> Program:
        """The shortest program that executes ``route``."""
        if route.layers != self.layers:
            raise RouteOutsideSpaceError(f"the route is for {route.layers} layers, the space for {self.layers}")
        return route.program_with_earliest_rejoin()

    @cached_property
    def _plain_steps(self) -> list[Step]:
        return [Step(layer) for layer in range(self.layers)]

    def program_from_actions(self, actions: list[int]) -> Program:
        """The program that ``actions`` write, with or without the final rejoin; inverse of ``program_to_actions``."""
        layer, steps = 0, [Step(0)]
        for action in actions:
            if action != self.rejoin_action:
                delta, add = self.action_displacements_and_adds[action]
                layer += delta
                steps.append(self._plain_steps[layer] if add is None else Step(layer, add))
        return Program(tuple(steps))
