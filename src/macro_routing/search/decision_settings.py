"""When a route replaces the standard pass: the objective, its certainty, the price of layers, the allowed loss."""

from dataclasses import dataclass
from typing import Annotated

from macro_routing.routes.route import Route
from macro_routing.settings import AllowedRange, CheckedSettings, check_choice, option

ACCURACY, SPEED = OBJECTIVES = ("accuracy", "speed")
_PANEL = "Decision"


@dataclass(frozen=True)
class DecisionSettings(CheckedSettings):
    """The settings of the final decision."""

    objective: str = option(
        ACCURACY, "accuracy: a route that is better; speed: the fastest route that is as accurate.", _PANEL,
        choices=OBJECTIVES,
    )  # fmt: skip
    max_error_probability: Annotated[float, AllowedRange(0, 0.5, exclusive=True)] = option(
        0.05, "Maximum probability of returning another route when none meets the objective.", _PANEL
    )
    price: Annotated[float, AllowedRange(0, 100)] = option(
        0.5, "Points of accuracy that a route must gain for every 10 % of additional layers.", _PANEL
    )
    margin: Annotated[float, AllowedRange(0, 100, exclusive=True)] = option(
        3.0, "Points of accuracy that a faster route may lose; with --objective speed.", _PANEL
    )

    def __post_init__(self) -> None:
        """Reject impossible settings."""
        check_choice("objective", self.objective, OBJECTIVES)
        super().__post_init__()

    def can_meet_objective(self, route: Route) -> bool:
        """Whether a route can meet the objective at all; the standard pass never replaces itself."""
        return route.length < route.layers if self.objective == SPEED else not route.is_standard

    def required_gain(self, route: Route) -> float:
        """What the true gain of a route must exceed, as a fraction of the examples."""
        if self.objective == SPEED:
            return -self.margin / 100
        return self.price / 100 * max(0.0, 10 * (route.length / route.layers - 1))
