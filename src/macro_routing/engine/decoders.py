"""How answers are written: in flight where the model and its device allow it, else eagerly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from macro_routing.errors import ModelError
from macro_routing.models.elsewhere import ModelElsewhere
from macro_routing.models.frozen import FrozenModel
from macro_routing.settings import check_choice

if TYPE_CHECKING:
    from macro_routing.engine.flight.decoder import FlightDecoder

AUTO, EAGER, FLIGHT = "auto", "eager", "flight"
DECODERS = (AUTO, EAGER, FLIGHT)
FLIGHT_VERSION = "flight/1"
"""Names how scores were obtained; goes up when the kernels' numbers change."""
_OF_MODEL: WeakKeyDictionary[FrozenModel, FlightDecoder] = WeakKeyDictionary()
"""Cache and graphs are worth keeping as long as the model is."""


def flight_refusal(model: Any, choice: str = AUTO) -> str | None:
    """Why ``model`` writes eagerly; None when it writes in flight. Refuses a choice that cannot be had."""
    check_choice("decoder", choice, DECODERS)
    if choice == EAGER:
        return "it was asked for"
    if isinstance(model, ModelElsewhere):
        reason = model.flight_refusal
    else:
        from macro_routing.engine.flight.support import refusal

        reason = refusal(model)
    if reason is not None and choice == FLIGHT:
        raise ModelError(f"decoder = flight cannot be used: {reason}; use auto or eager")
    return reason


def flight_for(frozen: FrozenModel, choice: str = AUTO) -> FlightDecoder | None:
    """The decoder that writes in flight; None where answers are written eagerly."""
    if flight_refusal(frozen.model, choice) is not None:
        return None
    if frozen not in _OF_MODEL:
        from macro_routing.engine.flight.decoder import FlightDecoder

        _OF_MODEL[frozen] = FlightDecoder(frozen.model)
    return _OF_MODEL[frozen]


def release_flight(frozen: FrozenModel) -> None:
    """Give back what a model's decoder holds, for those who need the memory and write nothing for a while."""
    if (decoder := _OF_MODEL.get(frozen)) is not None:
        decoder.release()
