"""The tables that the kernels read on the device: the sequence in each row of each layer call, and the decoding stages.

Rows are assigned on the host.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from macro_routing.engine.fused.support import MAX_STAGE_TOKENS, MAX_STAGES
from macro_routing.engine.generation import DecodingStage
from macro_routing.engine.layer_schedule import NONE, LayerSchedule

_Array = np.ndarray[Any, np.dtype[Any]]
_ROW_MULTIPLES = ((64, 16), (192, 32), (512, 64), (1024, 128))
"""Up to this many rows, row counts are multiples of this: every count needs its own CUDA graphs, so there are few."""
_LARGEST_MULTIPLE = 256


def pad_row_count(rows: int) -> int:
    """The number of rows that a layer call with ``rows`` rows is launched with."""
    multiple = next((multiple for limit, multiple in _ROW_MULTIPLES if rows <= limit), _LARGEST_MULTIPLE)
    return -(-rows // multiple) * multiple


@dataclass(frozen=True, eq=False)
class SequenceTable:
    """All sequences of a call; a sequence is one prompt with one route."""

    route: _Array
    """Index of each sequence's route."""
    cache_start: _Array
    """First token of its first step's region in the cache."""
    step_stride: _Array
    """Tokens from the region of one step to that of the next."""
    order: _Array
    """All sequences, those of a mixture's members that write one answer as neighbours."""
    members: int
    """Routes of each mixture; 0 where every route answers alone."""
    weight: _Array
    """Weight of each sequence's route in its mixture."""
    reference: _Array
    """The member that says which tokens are plausible, counted from the first of its mixture."""

    def __len__(self) -> int:
        """The number of sequences."""
        return len(self.route)


@dataclass(frozen=True)
class LayerCallLaunchSize:
    """The size of one layer call; layers and sizes determine what is launched."""

    layer: int
    rows: int
    """With padding."""
    same_rows_next: bool
    """Whether the next call has the same sequences in the same rows."""


@dataclass(frozen=True, eq=False)
class RunningSequenceRows:
    """The rows of the sequences that are still running."""

    calls: tuple[LayerCallLaunchSize, ...]
    padded_rows: int
    """Running sequences, with padding."""
    num_sequences: int
    """Running sequences."""
    indices: _Array
    """``[4, calls, rows]``: sequence, start of the cache region, slot to add from, slot to keep in."""
    coefficients: _Array
    live_sequences: _Array
    members: int
    """Neighbouring rows whose logits are combined; 0 where every row predicts its own token."""


def enumerate_within_groups(counts: _Array) -> tuple[_Array, _Array]:
    """For as many items as each count says: the index of the count, and the item's number within it."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]


def assign_rows_to_sequences(
    schedule: LayerSchedule, table: SequenceTable, active: _Array, max_rows: int
) -> RunningSequenceRows:
    """Assign rows to the active sequences; layer calls that no active route needs are left out."""
    live = table.order[active[table.order]]
    # Sequences sorted by route: those of one route are a slice of this list.
    by_route = live[np.argsort(table.route[live], kind="stable")]
    counts = np.bincount(table.route[live], minlength=int(table.route.max()) + 1)
    starts = np.cumsum(counts) - counts
    calls = [call for call in schedule.calls if counts[call.step_and_slot_indices[0]].any()]
    indices = np.full((4, len(calls), max_rows), NONE, dtype=np.int32)
    coefficients = np.zeros((len(calls), max_rows), dtype=np.float32)
    rows = []
    for number, call in enumerate(calls):
        routes, steps, add_slots, keep_slots = call.step_and_slot_indices
        step_index, offset = enumerate_within_groups(counts[routes])
        sequences = by_route[starts[routes][step_index] + offset]
        cache_starts = table.cache_start[sequences] + steps[step_index] * table.step_stride[sequences]
        indices[:, number, : len(step_index)] = sequences, cache_starts, add_slots[step_index], keep_slots[step_index]
        coefficients[number, : len(step_index)] = call.add_coefficients[step_index]
        rows.append(pad_row_count(len(step_index)))
    same_rows = [bool((indices[0, n] == indices[0, n + 1]).all()) for n in range(len(calls) - 1)]
    assigned = tuple(map(LayerCallLaunchSize, (call.layer for call in calls), rows, [*same_rows, False]))
    live_sequences = np.full(max_rows, NONE, dtype=np.int32)
    live_sequences[: len(live)] = live
    return RunningSequenceRows(
        assigned, pad_row_count(len(live)), len(live), indices, coefficients, live_sequences, table.members
    )


class DeviceRowAssignment:
    """The row assignment on the device, of fixed size so that CUDA graphs can refer to it."""

    def __init__(self, max_calls: int, max_rows: int, device: Any) -> None:
        """Allocate empty tables; two extra layer calls stay empty, for warm-up launches."""
        self.max_calls, self.max_rows = max_calls, max_rows
        self._indices = torch.full((4, max_calls + 2, max_rows), NONE, dtype=torch.int32, device=device)
        self.sequence, self.cache_start, self.add_slot, self.keep_slot = self._indices
        self.coefficient = torch.zeros(max_calls + 2, max_rows, device=device)
        self.live_sequences, self.no_sequences = torch.full((2, max_rows), NONE, dtype=torch.int32, device=device)
        self.weight = torch.ones(max_rows, device=device)
        self.reference = torch.zeros(max_rows, dtype=torch.int32, device=device)

    def upload_mixtures(self, table: SequenceTable) -> None:
        """Copy the sequences' parts in mixtures to the device."""
        self.weight[: len(table)].copy_(torch.from_numpy(table.weight))
        self.reference[: len(table)].copy_(torch.from_numpy(table.reference))

    def upload_row_assignment(self, assignment: RunningSequenceRows) -> None:
        """Copy an assignment to the device, after everything that was launched before."""
        calls = len(assignment.calls)
        self._indices[:, :calls].copy_(torch.from_numpy(assignment.indices))
        self.coefficient[:calls].copy_(torch.from_numpy(assignment.coefficients))
        self.live_sequences.copy_(torch.from_numpy(assignment.live_sequences))


class ReasoningAndAnswerStageTables:
    """Decoding stages on the device."""

    def __init__(self, device: Any) -> None:
        """Allocate tables without stages."""
        int32 = {"dtype": torch.int32, "device": device}
        self.end_tokens = torch.full((MAX_STAGES + 1, MAX_STAGE_TOKENS), NONE, **int32)
        self.forced_tokens = torch.zeros(MAX_STAGES + 1, MAX_STAGE_TOKENS, **int32)
        """Per stage the tokens that are fed when it starts; the first stage has none."""
        self.forced_lengths, self.max_tokens = torch.zeros(2, MAX_STAGES + 1, **int32)
        self.num_stages = torch.zeros(1, **int32)

    def copy_stages_to_device(self, stages: Sequence[DecodingStage]) -> None:
        """Copy stages to the device."""
        self.end_tokens.fill_(NONE)
        self.num_stages.fill_(len(stages))
        for index, stage in enumerate(stages):
            end_tokens = torch.tensor(sorted(stage.end_tokens), dtype=torch.int32)
            forced_tokens = torch.tensor(stage.forced_tokens, dtype=torch.int32)
            self.end_tokens[index, : len(end_tokens)] = end_tokens
            self.max_tokens[index] = stage.max_tokens
            self.forced_tokens[index + 1, : len(forced_tokens)] = forced_tokens
            self.forced_lengths[index + 1] = len(forced_tokens)
