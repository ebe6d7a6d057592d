"""Routes in flight over prompts: the prompts' pass fills the cache, then all sequences write until each is done.

The host launches some tokens ahead and reads what was written a moment later, so the device never waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from macro_routing.engine.batches import pad_left, plan_batches
from macro_routing.engine.flight.boarding import PROMPT_TOKENS, Batch, Boarding, Party, board
from macro_routing.engine.flight.machine import Machine, Room
from macro_routing.engine.flight.schedule import Schedule, plan_ticks
from macro_routing.engine.flight.support import refusal
from macro_routing.engine.flight.tables import Seating, Seats, padded_rows, seat, spread
from macro_routing.engine.flight.weights import weights_of
from macro_routing.engine.memory import SHARE, cache_bytes_per_token, free_bytes
from macro_routing.engine.prefix_tree import plan_tree
from macro_routing.engine.prompt_segments import prompt_segments
from macro_routing.engine.row_pass import RowPass, Turn
from macro_routing.engine.shared_pass import Segment, SharedPass
from macro_routing.engine.writing import Stage, Writer
from macro_routing.errors import ModelError
from macro_routing.models.lens import read_out
from macro_routing.models.routing import decoder_of

_TOKENS_AHEAD = 8
"""Tokens that are launched before the host looks at what was written."""
_WORTH_SEATING_ANEW = 0.85
"""Sequences that are done are unseated when the rest is at most this share of those seated."""
_LEAST = Room(rows=64, ticks=128, tokens=1, kept=8, text=256)


class FlightDecoder:
    """Decodes routes of one model; its memory and its graphs stay from one call to the next."""

    def __init__(self, model: Any, *, graphs: bool = True) -> None:
        """Join the model's projections; nothing else is allocated before it is known how much is needed.

        Without ``graphs`` every launch is made by itself, which also works where kernels are interpreted.
        """
        if (reason := refusal(model, interpreted=not graphs)) is not None:
            raise ModelError(f"this model cannot decode in flight: {reason}")
        self._model, self._graphs = model, graphs
        self.weights = weights_of(model)
        self.machine: Machine | None = None

    @property
    def cache_bytes(self) -> int:
        """What the cache takes now."""
        return 0 if self.machine is None else 2 * self.machine.keys.numel() * self.machine.keys.element_size()

    @property
    def most_tokens(self) -> int:
        """Tokens that the cache may hold, each step of each sequence counted."""
        free = free_bytes(self.weights.embeddings.device) + self.cache_bytes
        return min(2**31 - 1, int(SHARE * free) // cache_bytes_per_token(self._model))

    def release(self) -> None:
        """Give cache and graphs back; the next call makes them anew."""
        self.machine = None
        if self.weights.embeddings.is_cuda:
            torch.cuda.empty_cache()

    @torch.no_grad()
    def write(
        self, parties: Sequence[Party], stages: Sequence[Stage], *, stop_loops: bool = False
    ) -> list[list[list[Writer]]]:
        """Writers by party, route and prompt, each as far as it came."""
        device = self.weights.embeddings.device
        # Kernels are launched on the current device, which need not be the model's.
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            return self._write(parties, stages, stop_loops=stop_loops)

    def _write(
        self, parties: Sequence[Party], stages: Sequence[Stage], *, stop_loops: bool
    ) -> list[list[list[Writer]]]:
        room = sum(stage.budget + len(stage.bridge) for stage in stages)
        boarding = board(parties, room)
        schedule = plan_ticks(boarding.routes)
        machine = self._ready(_room(boarding, schedule))
        machine.texts.fill(stages)
        # A prompt pass per party would leave the device idle where every prompt has a route of its own.
        by_row = len(parties) > 1 and all(len(party.routes) == 1 for party in parties)
        tokens = (self._read_rows if by_row else self._read_prompts)(machine, boarding)
        writers = [Writer(stages, stop_loops=stop_loops) for _ in range(boarding.sequences)]
        _Flight(machine, schedule, boarding.seats, writers).run(tokens, room)
        return boarding.by_party(writers)

    def _ready(self, wanted: Room) -> Machine:
        if self.machine is None or not self.machine.room.holds(wanted):
            before = self.machine.room if self.machine is not None else _LEAST
            room = before.grown_for(wanted, self.most_tokens)
            self.machine = None  # its memory is free before more is asked for
            self.machine = Machine(self.weights, self._rotary(room), room, graphs=self._graphs)
        return self.machine

    def _rotary(self, room: Room) -> tuple[torch.Tensor, torch.Tensor]:
        places = torch.arange(room.text, device=self.weights.embeddings.device)
        cosines, sines = decoder_of(self._model).rotary_emb(self.weights.embeddings[:1, None], places[None])
        return cosines[0].contiguous(), sines[0].contiguous()

    def _read_prompts(self, machine: Machine, boarding: Boarding) -> torch.Tensor:
        """Fill the cache and the sequences' state; the first token that each sequence predicts."""
        tokens = torch.zeros(boarding.sequences, dtype=torch.int32, device=machine.states.device)
        for batch in boarding.batches:
            segments = prompt_segments(self._model, batch.prompts, boarding.room)
            mask = segments[-1].mask
            # Padding stands between a common beginning and the rest; in the cache it goes to the front.
            order = mask.argsort(dim=1, stable=True) if len(segments) > 1 else None
            plan = plan_tree(batch.routes)
            for arrival in SharedPass(self._model, segments).run(plan, keep_caches=True):
                place = batch.routes.index(plan.routes[arrival.route])
                mine = batch.sequences_of(place)
                tokens[mine] = read_out(self._model, arrival.states[-1][:, -1:])[:, -1].argmax(-1).to(torch.int32)
                machine.start[mine] = (mask == 0).sum(dim=1).to(torch.int32)
                machine.position[mine] = batch.length - 1
                _copy_cache(_lanes(machine, batch, place), arrival.slots, order)
        _begin(machine)
        return tokens

    def _read_rows(self, machine: Machine, boarding: Boarding) -> torch.Tensor:
        """The same where every party has one route: prompts on different routes are read together."""
        tokens = torch.zeros(boarding.sequences, dtype=torch.int32, device=machine.states.device)
        rows = [(batch, row) for batch in boarding.batches for row in range(len(batch.prompts))]
        for places in plan_batches([batch.length for batch, _ in rows], PROMPT_TOKENS):
            chosen = [rows[place] for place in places]
            # As long as the lanes are: the longest row of a batch may be read at another time than this one.
            longest = max(batch.length for batch, _ in chosen)
            ids, mask = pad_left([batch.prompts[row] for batch, row in chosen], machine.states.device, least=longest)

            def keep(turn: Turn, slot: Any, chosen: list[tuple[Batch, int]] = chosen) -> None:
                steps = [visit.step for visit in turn.visits]
                _copy_rows(machine, [(*chosen[row], step) for row, step in zip(turn.rows, steps, strict=True)], slot)

            found = RowPass(self._model, [Segment(ids, mask)]).run([batch.routes[0] for batch, _ in chosen], keep)[0]
            first = read_out(self._model, found[:, -1:])[:, -1].argmax(-1).to(torch.int32)
            sequences = torch.tensor([batch.first_sequence + row for batch, row in chosen], device=tokens.device)
            tokens[sequences] = first
            lengths = [(batch.length, batch.length - len(batch.prompts[row])) for batch, row in chosen]
            length, padding = torch.tensor(lengths, dtype=torch.int32, device=tokens.device).unbind(1)
            machine.start[sequences], machine.position[sequences] = padding, length - 1
        _begin(machine)
        return tokens


class _Flight:
    """The sequences of one call, from their first token to their last."""

    def __init__(self, machine: Machine, schedule: Schedule, seats: Seats, writers: list[Writer]) -> None:
        self._machine, self._schedule, self._seats, self._writers = machine, schedule, seats, writers
        self._active = np.ones(len(seats), dtype=bool)

    def run(self, tokens: torch.Tensor, room: int) -> None:
        """Write until all are done; ``room`` is the most tokens that a sequence is fed."""
        seating, step = self._seated()
        self._machine.begin(tokens, seating.live_rows)
        unread = [self._copied(0, 1)]
        launched = 0
        while launched < room and self._active.any():
            if self._active.sum() <= _WORTH_SEATING_ANEW * seating.sequences:
                seating, step = self._seated()
            ahead = min(_TOKENS_AHEAD, room - launched)
            for _ in range(ahead):
                step()
            launched += ahead
            unread.append(self._copied(launched - ahead + 1, launched + 1))
            self._take(unread.pop(0))
        for block in unread:
            self._take(block)

    def _seated(self) -> tuple[Seating, Callable[[], None]]:
        seating = seat(self._schedule, self._seats, self._active, self._machine.room.rows)
        step = self._machine.prepare(seating)  # while the device is still busy with what was launched before
        self._machine.tables.take(seating)
        return seating, step

    def _copied(self, begin: int, end: int) -> tuple[torch.Tensor, Any]:
        """Tokens predicted in some steps, on their way to the host."""
        found = self._machine.log[begin:end, : len(self._seats)]
        if not found.is_cuda:
            return found.clone(), None
        host = torch.empty(found.shape, dtype=found.dtype, pin_memory=True)
        host.copy_(found, non_blocking=True)
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return host, event

    def _take(self, block: tuple[torch.Tensor, Any]) -> None:
        predicted, event = block
        if event is not None:
            event.synchronize()
        columns = predicted.t().tolist()
        for sequence in np.flatnonzero(self._active):
            take = self._writers[sequence].take
            if any(take(token) is None for token in columns[sequence]):
                self._active[sequence] = False


def _begin(machine: Machine) -> None:
    """Nothing is written yet."""
    for state, value in ((machine.done, 0), (machine.stage, 0), (machine.count, 0), (machine.dictated, -1)):
        state.fill_(value)


def _copy_rows(machine: Machine, visits: Sequence[tuple[Batch, int, int]], slot: Any) -> None:
    """Keys and values of one turn to the lanes of its rows, each (batch, row, step), padding of its batch included."""
    first = np.array(
        [batch.first_token + (step * len(batch.prompts) + row) * batch.size for batch, row, step in visits]
    )
    length = np.array([batch.length for batch, _, _ in visits])
    # Token by token: whose it is, which of the row's it is, and where it goes; a row's own tokens stand at its end.
    row, number = spread(length)
    places = np.stack([row, slot.keys.shape[2] - length[row] + number, first[row] + number])
    rows, tokens, into = torch.from_numpy(places).to(machine.keys.device)
    for pool, given in ((machine.keys, slot.keys), (machine.values, slot.values)):
        pool[:, into] = given.transpose(0, 1)[:, rows, tokens]


def _room(boarding: Boarding, schedule: Schedule) -> Room:
    longest = max(batch.length for batch in boarding.batches) + boarding.room
    return Room(padded_rows(boarding.sequences), len(schedule.ticks), boarding.tokens, schedule.kept, longest)


def _lanes(machine: Machine, batch: Batch, place: int) -> list[torch.Tensor]:
    """A route's part of the cache for a batch: keys and values, ``[key heads, steps, rows, tokens, head]``."""
    steps, rows = batch.routes[place].length, len(batch.prompts)
    first = batch.first_token_of(place)
    return [
        pool[:, first : first + steps * rows * batch.size].view(pool.shape[0], steps, rows, batch.size, pool.shape[2])
        for pool in (machine.keys, machine.values)
    ]


def _copy_cache(lanes: Sequence[torch.Tensor], slots: Sequence[Any], order: torch.Tensor | None) -> None:
    """Keys and values of the prompts to their lanes; ``order`` says which of a row's tokens goes where."""
    for pool, name in zip(lanes, ("keys", "values"), strict=True):
        for step, slot in enumerate(slots):
            given = getattr(slot, name)
            if order is not None:
                given = given.take_along_dim(order[:, None, :, None], dim=2)
            pool[:, step, :, : given.shape[2]].copy_(given.transpose(0, 1))
