"""One decoding step on the device: layer after layer for the rows seated there, and the turn to the next token.

A step is replayed from a CUDA graph; without graphs the same launches are made one by one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from macro_routing.engine.flight import kernels
from macro_routing.engine.flight.captured import Captured
from macro_routing.engine.flight.tables import SeatedTick, Seating, Tables
from macro_routing.engine.flight.texts import TextTables
from macro_routing.engine.flight.weights import LayerWeights, ModelWeights

_HEAD_ROWS = 512
"""Rows whose logits are held at once."""
_VOCABULARY_BLOCK = 8192
_GATE_BLOCK = 1024
_TOKENS_AT_ONCE = 64
"""Of the cache, in one turn of the attention's loop."""
_LEAST_GROUP = 16
"""Query heads that the matrix units take at least."""
_ENOUGH_PROGRAMS, _MOST_SPLITS = 264, 8
"""Attention is split while fewer programs than this would run, into at most so many parts: parts cost time, too."""
_MOST_PARTS = 2 * _ENOUGH_PROGRAMS


@dataclass(frozen=True)
class Room:
    """Sizes of a machine's memory."""

    rows: int
    """Sequences in flight."""
    ticks: int
    tokens: int
    """Of the cache, over all sequences and steps."""
    kept: int
    """States a sequence may keep for its adds."""
    text: int
    """Tokens of a text, its prompt included."""

    def holds(self, other: Room) -> bool:
        """Whether this is enough for ``other``."""
        return all(mine >= theirs for mine, theirs in zip(self._sizes, other._sizes, strict=True))

    def grown_for(self, other: Room, most_tokens: int) -> Room:
        """Enough for both and some more: what is made anew loses its graphs."""
        rows, ticks, tokens, kept, text = map(max, self._sizes, other._sizes)
        spare = max(tokens, min(tokens * 5 // 4, most_tokens))
        return Room(_up(rows, 256), _up(ticks, 128), spare, _up(kept, 8), _up(text, 256))

    @property
    def _sizes(self) -> tuple[int, ...]:
        return (self.rows, self.ticks, self.tokens, self.kept, self.text)


class Machine:
    """Weights, the cache, and the state of all sequences, at addresses that stay."""

    def __init__(
        self, weights: ModelWeights, rotary: tuple[torch.Tensor, torch.Tensor], room: Room, *, graphs: bool
    ) -> None:
        """Allocate everything a step touches."""
        self.weights, self.room = weights, room
        self._cosines, self._sines = rotary
        device = weights.embeddings.device
        self._make_state(room, {"dtype": weights.embeddings.dtype, "device": device})
        self._make_scratch(room.rows, {"dtype": weights.embeddings.dtype, "device": device})
        self.texts = TextTables(device)
        self.captured = Captured(device) if graphs else None

    def _make_state(self, room: Room, made: dict[str, Any]) -> None:
        shape, whole = self.weights.shape, {"dtype": torch.int32, "device": made["device"]}
        self.tables = Tables(room.ticks, room.rows, made["device"])
        self.keys = torch.empty(shape.kv_heads, room.tokens, shape.head, **made)
        self.values = torch.empty_like(self.keys)
        self.states = torch.zeros(room.rows, shape.width, **made)
        self._shelf = torch.zeros(room.rows, max(1, room.kept), shape.width, **made)
        self.position, self.start, self.done, self.stage, self.count, self.dictated = torch.zeros(6, room.rows, **whole)
        self.step, self._no_step = torch.zeros(2, 1, **whole)
        self.log = torch.zeros(room.text + 1, room.rows, **whole)

    def _make_scratch(self, rows: int, made: dict[str, Any]) -> None:
        shape = self.weights.shape
        self._normed, self._change = torch.zeros(2, rows, shape.width, **made)
        self._projected = torch.zeros(rows, (shape.heads + 2 * shape.kv_heads) * shape.head, **made)
        self._attended = torch.zeros(rows, shape.heads * shape.head, **made)
        self._both = torch.zeros(rows, 2 * shape.inner, **made)
        self._active = torch.zeros(rows, shape.inner, **made)
        group = _power(shape.heads // shape.kv_heads)
        self._parts = torch.zeros(_MOST_PARTS, max(_LEAST_GROUP, group), shape.head, device=made["device"])
        self._part_weights = torch.zeros(_MOST_PARTS, 2, max(_LEAST_GROUP, group), device=made["device"])
        self._arrived = torch.zeros(_MOST_PARTS, dtype=torch.int32, device=made["device"])
        self._logits = torch.empty(min(rows, _HEAD_ROWS), shape.vocabulary, **made)
        self._blocks = -(-shape.vocabulary // _VOCABULARY_BLOCK)
        self._best_value = torch.zeros(rows, self._blocks, device=made["device"])
        self._best_token = torch.zeros(rows, self._blocks, dtype=torch.int32, device=made["device"])

    # --- running ---------------------------------------------------------------------------------------------------

    def prepare(self, seating: Seating) -> Callable[[], None]:
        """What to call for one token of this seating; a graph that is missing is captured."""
        launch = functools.partial(self._step, seating.ticks, seating.live_rows)
        if self.captured is None:
            return launch
        trials: dict[Hashable, Callable[[], None]] = {
            tick.rows: functools.partial(self._try_layer, tick.rows) for tick in seating.ticks
        }
        trials[None, seating.live_rows] = functools.partial(self._turn, seating.live_rows, seated=False)
        return self.captured.replay((seating.ticks, seating.live_rows), launch, trials)

    def begin(self, tokens: torch.Tensor, rows: int) -> None:
        """Feed the first tokens, which the prompts' own pass has predicted, to all sequences."""
        self._best_value.fill_(float("-inf"))
        self._best_value[:, 0] = 0
        self._best_token[: len(tokens), 0] = tokens
        self.step.zero_()
        self._advance(rows)

    # --- launches --------------------------------------------------------------------------------------------------

    def _step(self, ticks: Sequence[SeatedTick], live_rows: int) -> None:
        entered = False
        for number, tick in enumerate(ticks):
            layer = self.weights.layers[tick.layer]
            if not entered:
                self._enter(layer, number, tick.rows)
            self._layer(layer, number, tick.rows)
            entered = tick.hands_on
            if entered:
                self._pass_on(self.weights.layers[ticks[number + 1].layer], number, tick.rows)
            else:
                self._leave(number, tick.rows)
        self._turn(live_rows)

    def _try_layer(self, rows: int) -> None:
        """Launch all that a layer takes for so many rows, at a tick at which nobody is seated."""
        layer, tick = self.weights.layers[0], self.tables.most_ticks
        self._enter(layer, tick, rows)
        self._layer(layer, tick, rows)
        self._pass_on(layer, tick, rows)
        self._leave(tick, rows)

    def _enter(self, layer: LayerWeights, tick: int, rows: int) -> None:
        tables = self.tables
        kernels.enter[(rows,)](
            self.states, self._shelf, self._normed, layer.first_norm, tick, tables.sequence, tables.add,
            tables.coefficient, *self._sizes, self.weights.shape.epsilon, BLOCK=self._block,
        )  # fmt: skip

    def _layer(self, layer: LayerWeights, tick: int, rows: int) -> None:
        """From the normalised states to the change that the layer ends with."""
        shape, tables = self.weights.shape, self.tables
        normed, change, active = self._normed[:rows], self._change[:rows], self._active[:rows]
        self._attend(layer, layer.attention_in.into(normed, self._projected[:rows]), tick, rows)
        layer.attention_out.into(self._attended[:rows], change)
        kernels.middle[(rows,)](
            self.states, change, normed, layer.second_norm, tick, tables.sequence, tables.most_rows, shape.width,
            shape.epsilon, BLOCK=self._block,
        )  # fmt: skip
        both = layer.gate_and_up.into(normed, self._both[:rows])
        kernels.gate[(rows, -(-shape.inner // _GATE_BLOCK))](both, active, shape.inner, BLOCK=_GATE_BLOCK)
        layer.down.into(active, change)

    def _leave(self, tick: int, rows: int) -> None:
        tables = self.tables
        kernels.leave[(rows,)](
            self.states, self._shelf, self._change, tick, tables.sequence, tables.keep, *self._sizes, BLOCK=self._block
        )

    def _pass_on(self, next_layer: LayerWeights, tick: int, rows: int) -> None:
        tables = self.tables
        kernels.pass_on[(rows,)](
            self.states, self._shelf, self._change, self._normed, next_layer.first_norm, tick, tables.sequence,
            tables.keep, tables.add, tables.coefficient, *self._sizes, self.weights.shape.epsilon, BLOCK=self._block,
        )  # fmt: skip

    @property
    def _sizes(self) -> tuple[int, int, int]:
        return self.tables.most_rows, self._shelf.shape[1], self.weights.shape.width

    @property
    def _block(self) -> int:
        return _power(self.weights.shape.width)

    def _attend(self, layer: LayerWeights, projected: torch.Tensor, tick: int, rows: int) -> None:
        shape, tables = self.weights.shape, self.tables
        group, splits = shape.heads // shape.kv_heads, _splits(rows * shape.kv_heads)
        norms = (layer.query_norm, layer.key_norm)
        kernels.attend[(rows, shape.kv_heads, splits)](
            projected, self._attended, self._parts, self._part_weights, self._arrived,
            self.keys, self.values, self._cosines, self._sines,
            *(self.states if norm is None else norm for norm in norms),
            tick, tables.sequence, tables.lane, self.position, self.start, self.done,
            tables.most_rows, self.keys.shape[1], shape.scale, shape.epsilon,
            HEADS=shape.heads, KV_HEADS=shape.kv_heads, GROUP=group, PADDED=max(_LEAST_GROUP, _power(group)),
            HALF=shape.head // 2, BLOCK=_TOKENS_AT_ONCE, SPLITS=splits, NORMED=norms[0] is not None,
            PRECISION="ieee" if self.states.dtype == torch.float32 else "tf32", num_warps=4, num_stages=2,
        )  # fmt: skip

    def _turn(self, rows: int, *, seated: bool = True) -> None:
        shape = self.weights.shape
        live, step = (self.tables.live, self.step) if seated else (self.tables.nobody, self._no_step)
        for first in range(0, rows, _HEAD_ROWS):
            part = min(_HEAD_ROWS, rows - first)
            normed = self._normed[:part]
            kernels.read[(part,)](
                self.states, normed, self.weights.norm, live, first, shape.width, shape.epsilon, BLOCK=self._block
            )
            logits = self.weights.head.into(normed, self._logits[:part])
            kernels.best_of_block[(part, self._blocks)](
                logits, self._best_value, self._best_token, step, first, shape.vocabulary, self._blocks,
                BLOCK=_VOCABULARY_BLOCK,
            )  # fmt: skip
        self._advance(rows, seated=seated)

    def _advance(self, rows: int, *, seated: bool = True) -> None:
        shape, texts = self.weights.shape, self.texts
        live = self.tables.live if seated else self.tables.nobody
        kernels.advance[(rows,)](
            self._best_value, self._best_token, live, self.states, self.weights.embeddings, self.log,
            self.step, self.position, self.done, self.stage, self.count, self.dictated,
            texts.ends, texts.budgets, texts.bridges, texts.bridge_lengths, texts.stages,
            texts.ends.shape[1], texts.bridges.shape[1], self.tables.most_rows, shape.width, self._blocks,
            ENDS=_power(texts.ends.shape[1]), BLOCKS=_power(self._blocks), BLOCK=self._block,
        )  # fmt: skip


def _up(size: int, step: int) -> int:
    """The next multiple."""
    return -(-size // step) * step


def _splits(programs: int) -> int:
    """Among how many programs each row and key head is divided."""
    return min(_MOST_SPLITS, max(1, _ENOUGH_PROGRAMS // programs))


def _power(size: int) -> int:
    """The smallest power of 2 that is no smaller."""
    return 1 << (size - 1).bit_length()
