"""Who sits in which row at which tick: planned on the host, read by the kernels on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from macro_routing.engine.flight.schedule import NOTHING, Schedule

_Numbers = np.ndarray[Any, np.dtype[Any]]
_STEPS = ((64, 16), (192, 32), (512, 64), (1024, 128))
"""Up to so many rows, tables come in multiples of so many: every size has graphs of its own, so there are few."""
_LARGEST_STEP = 256


def padded_rows(rows: int) -> int:
    """The size of the graph that runs ``rows`` rows."""
    step = next((step for most, step in _STEPS if rows <= most), _LARGEST_STEP)
    return -(-rows // step) * step


@dataclass(frozen=True, eq=False)
class Seats:
    """All sequences of a flight: a sequence is one prompt under one route."""

    route: _Numbers
    """Place of each sequence's route among the routes in flight."""
    base: _Numbers
    """First token of its first step's lane in the cache."""
    stride: _Numbers
    """Tokens from the lane of one step to that of the next."""

    def __len__(self) -> int:
        """How many there are."""
        return len(self.route)


@dataclass(frozen=True)
class SeatedTick:
    """A layer for some rows; with the numbers of rows it decides what is launched."""

    layer: int
    rows: int
    """With padding."""
    hands_on: bool
    """Whether the same sequences sit in the same rows at the next tick."""


@dataclass(frozen=True, eq=False)
class Seating:
    """A plan for the sequences that still write."""

    ticks: tuple[SeatedTick, ...]
    live_rows: int
    """Live sequences, with padding."""
    sequences: int
    """Live sequences."""
    numbers: _Numbers
    """``[4, ticks, rows]``: sequence, lane, where the state to add was kept, where the state is to be kept."""
    coefficients: _Numbers
    live: _Numbers


def spread(sizes: _Numbers) -> tuple[_Numbers, _Numbers]:
    """For as many things as each size says: whose each is, and which of its owner's it is."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return owner, np.arange(len(owner)) - (np.cumsum(sizes) - sizes)[owner]


def seat(schedule: Schedule, seats: Seats, active: _Numbers, most_rows: int) -> Seating:
    """Seat the active sequences; ticks of routes that are through are left out."""
    live_sequences = np.flatnonzero(active)
    # Sequences route by route: those of a route are a piece of this list.
    by_route = live_sequences[np.argsort(seats.route[live_sequences], kind="stable")]
    sizes = np.bincount(seats.route[live_sequences], minlength=int(seats.route.max()) + 1)
    firsts = np.cumsum(sizes) - sizes
    ticks = [tick for tick in schedule.ticks if sizes[tick.numbers[0]].any()]
    numbers = np.full((4, len(ticks), most_rows), NOTHING, dtype=np.int32)
    coefficients = np.zeros((len(ticks), most_rows), dtype=np.float32)
    rows = []
    for number, tick in enumerate(ticks):
        routes, steps, add_from, keep_at = tick.numbers
        sitting = sizes[routes]
        visit, number_there = spread(sitting)
        sequences = by_route[firsts[routes][visit] + number_there]
        end = len(sequences)
        numbers[0, number, :end] = sequences
        numbers[1, number, :end] = seats.base[sequences] + steps[visit] * seats.stride[sequences]
        numbers[2, number, :end] = add_from[visit]
        numbers[3, number, :end] = keep_at[visit]
        coefficients[number, :end] = tick.coefficients[visit]
        rows.append(padded_rows(end))
    same = [bool((numbers[0, n] == numbers[0, n + 1]).all()) for n in range(len(ticks) - 1)]
    live = np.full(most_rows, NOTHING, dtype=np.int32)
    live[: len(live_sequences)] = live_sequences
    seated = tuple(map(SeatedTick, (tick.layer for tick in ticks), rows, [*same, False]))
    return Seating(seated, padded_rows(len(live_sequences)), len(live_sequences), numbers, coefficients, live)


class Tables:
    """The device's side of the plan, of fixed size so that graphs can refer to it."""

    def __init__(self, most_ticks: int, most_rows: int, device: Any) -> None:
        """Nobody sits anywhere; the two ticks after the last stay like that, for trying launches out."""
        self.most_ticks, self.most_rows = most_ticks, most_rows
        self._numbers = torch.full((4, most_ticks + 2, most_rows), NOTHING, dtype=torch.int32, device=device)
        self.sequence, self.lane, self.add, self.keep = self._numbers
        self.coefficient = torch.zeros(most_ticks + 2, most_rows, device=device)
        self.live, self.nobody = torch.full((2, most_rows), NOTHING, dtype=torch.int32, device=device)

    def take(self, seating: Seating) -> None:
        """Seat everybody as planned, after all that was launched before."""
        ticks = len(seating.ticks)
        self._numbers[:, :ticks].copy_(torch.from_numpy(seating.numbers))
        self.coefficient[:ticks].copy_(torch.from_numpy(seating.coefficients))
        self.live.copy_(torch.from_numpy(seating.live))
