"""When a route replaces the standard pass: the objective, its certainty, the price of layers, the allowed loss."""

from dataclasses import dataclass
from typing import Annotated

from macro_routing.routes.mixture import MAX_MEMBERS, RouteOrMixture
from macro_routing.settings import AllowedRange, CheckedSettings, check_choice, check_integer, check_number, option

ACCURACY, SPEED = OBJECTIVES = ("accuracy", "speed")
_PANEL = "Decision"
_PRICE, _MEMBERS = 0.5, 3
"""The price where no maximum cost is given, and the number of members where one is."""
_ROUNDING = 1e-6
"""Layers by which a product such as 1.1 × 30 may fall short of its value."""


@dataclass(frozen=True)
class DecisionSettings(CheckedSettings):
    """The settings of the final decision."""

    objective: str = option(
        ACCURACY, "accuracy: a route that is better; speed: the fewest layers that lose less than the margin.", _PANEL,
        choices=OBJECTIVES,
    )  # fmt: skip
    max_error_probability: Annotated[float, AllowedRange(0, 0.5, exclusive=True)] = option(
        0.05, "Maximum probability of leaving the standard pass when no route meets the objective.", _PANEL
    )
    price: float | None = option(
        None, "Points of accuracy that a route must gain for every 10 % of additional layers.", _PANEL,
        shown_default="0.5; 0 with --max-cost",
    )  # fmt: skip
    margin: Annotated[float, AllowedRange(0, 100, exclusive=True)] = option(
        3.0, "Points of accuracy that a route with fewer layers may lose; with --objective speed.", _PANEL
    )
    max_cost: float | None = option(
        None, "Maximum number of layers applied, as a multiple of the model's, from 1. Sets the price to 0 and, above 1"
        " and where choices are compared by likelihood, allows mixtures.", _PANEL, shown_default="no maximum",
    )  # fmt: skip
    members: int | None = option(
        None, "Maximum number of routes of a mixture, whose predictions are added with weights; above 1, half of the"
        " budget is for mixtures.", _PANEL,
        shown_default="1; 3 with --max-cost above 1",
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Reject impossible settings."""
        check_choice("objective", self.objective, OBJECTIVES)
        super().__post_init__()
        if self.max_cost is not None:
            check_number("max_cost", self.max_cost, minimum=1)
            object.__setattr__(self, "max_cost", float(self.max_cost))
        price = _PRICE if self.max_cost is None else 0.0
        members = _MEMBERS if (self.max_cost or 1) > 1 else 1
        if self.price is not None:
            check_number("price", self.price, minimum=0, maximum=100)
            price = float(self.price)
        if self.members is not None:
            check_integer("members", self.members, minimum=1, maximum=MAX_MEMBERS)
            members = self.members
        object.__setattr__(self, "price", price)
        object.__setattr__(self, "members", members)

    def describe(self) -> str:
        """What is asked of a route, in words."""
        if self.objective == SPEED:
            return f"speed, the route with the fewest layers that loses less than {self.margin:g} points"
        price = f"{self.price:g} points for every 10 % of additional layers" if self.price else "no price of layers"
        cost = "" if self.max_cost is None else f", at most {self.max_cost:g} × the model's layers"
        mixtures = f", mixtures of up to {self.members} routes" if self.members != 1 else ""
        return f"accuracy, {price}{cost}{mixtures}"

    def can_meet_objective(self, route: RouteOrMixture) -> bool:
        """Whether a route can meet the objective at all; the standard pass never replaces itself."""
        if self.objective == SPEED:
            return route.length < route.layers
        return not route.is_standard and self.is_affordable(route)

    def is_affordable(self, route: RouteOrMixture) -> bool:
        """Whether a route applies as few layers as ``max_cost`` wants."""
        return self.max_cost is None or route.length <= self.max_cost * route.layers + _ROUNDING

    def required_gain(self, route: RouteOrMixture) -> float:
        """What the true gain of a route must exceed, as a fraction of the examples."""
        if self.objective == SPEED:
            return -self.margin / 100
        assert self.price is not None
        return self.price / 100 * max(0.0, 10 * (route.length / route.layers - 1))
