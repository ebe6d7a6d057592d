"""Triton kernels for mixtures of experts: the choice of experts, and products grouped by expert.

A *pair* is a row with one of its chosen experts, number ``row · CHOSEN + choice``. The pairs of an expert are cut into
tiles of ``ROWS``. How many tiles an expert has is known on the device only, so as many programs are launched as there
could be tiles, and every program looks up which tile is its own.
"""

# fmt: off
import triton
import triton.language as tl

from macro_routing.engine.fused.kernels import activation


@triton.jit(do_not_specialize=["call"])
def choose_experts(
    router_logits, chosen_experts, chosen_probs, call, row_sequence, max_rows, experts,
    CHOSEN: tl.constexpr, BLOCK: tl.constexpr,
):
    """The experts of a row with the largest probabilities, the first of equal ones; none for a row without sequence."""
    row = tl.program_id(0).to(tl.int64)
    has_sequence = tl.load(row_sequence + call.to(tl.int64) * max_rows + row) >= 0
    expert = tl.arange(0, BLOCK)
    exists = expert < experts
    logit = tl.load(router_logits + row * experts + expert, mask=exists, other=float("-inf")).to(tl.float32)
    # Where a state is not a number, its output is not either; but it must choose different experts that exist.
    logit = tl.where(logit == logit, logit, 0.0)
    prob = tl.exp(logit - tl.max(logit, axis=0))
    prob = prob / tl.sum(prob, axis=0)
    prob = tl.where(prob == prob, prob, 0.0)
    prob = tl.where(exists, prob, -1.0)
    for choice in tl.static_range(CHOSEN):
        best, index = tl.max(prob, axis=0, return_indices=True)
        prob = tl.where(expert == index, -2.0, prob)
        tl.store(chosen_experts + row * CHOSEN + choice, tl.where(has_sequence, index, -1))
        tl.store(chosen_probs + row * CHOSEN + choice, best)


@triton.jit
def group_pairs_by_expert(chosen_experts, expert_pairs, expert_counts, pairs, max_rows, BLOCK: tl.constexpr):
    """List the pairs of an expert in ascending order, and count them; a program per expert."""
    expert = tl.program_id(0)
    count = tl.sum(tl.zeros([BLOCK], tl.int32), axis=0)
    for first in range(0, pairs, BLOCK):
        pair = first + tl.arange(0, BLOCK)
        chosen = tl.load(chosen_experts + pair, mask=pair < pairs, other=-1)
        is_chosen = chosen == expert
        rank = count + tl.cumsum(is_chosen.to(tl.int32), axis=0) - 1
        tl.store(expert_pairs + expert.to(tl.int64) * max_rows + rank, pair, mask=is_chosen)
        count += tl.sum(is_chosen.to(tl.int32), axis=0)
    tl.store(expert_counts + expert, count)


@triton.jit
def _find_tile(expert_counts, experts, EXPERTS: tl.constexpr, ROWS: tl.constexpr):
    """This program's tile: its expert, the rank of its first pair there, and the expert's number of pairs."""
    tile, expert = tl.program_id(0), tl.arange(0, EXPERTS)
    count = tl.load(expert_counts + expert, mask=expert < experts, other=0)
    tiles = (count + ROWS - 1) // ROWS
    end = tl.cumsum(tiles, axis=0)
    tile_expert = tl.sum((end <= tile).to(tl.int32), axis=0)
    begin = tl.sum(tl.where(expert == tile_expert, end - tiles, 0), axis=0)
    pairs = tl.sum(tl.where(expert == tile_expert, count, 0), axis=0)
    return tile_expert, (tile - begin) * ROWS, pairs


@triton.jit
def expert_gate_up(
    normed, weight, active, expert_pairs, expert_counts, experts, max_rows, width, intermediate,
    CHOSEN: tl.constexpr, GELU: tl.constexpr, EXPERTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    INNER: tl.constexpr, PRECISION: tl.constexpr,
):
    """activation(gate) · up of a tile's pairs, for a block of columns."""
    expert, first, count = _find_tile(expert_counts, experts, EXPERTS, ROWS)
    if expert >= experts:
        return
    rank = first + tl.arange(0, ROWS)
    in_tile = rank < count
    pair = tl.load(expert_pairs + expert.to(tl.int64) * max_rows + rank, mask=in_tile, other=0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    in_columns = column < intermediate
    state_start = normed + (pair // CHOSEN)[:, None] * width
    gate_start = weight + expert.to(tl.int64) * 2 * intermediate * width + column.to(tl.int64)[None, :] * width
    up_start = gate_start + intermediate.to(tl.int64) * width
    gate, up = tl.zeros([ROWS, COLUMNS], tl.float32), tl.zeros([ROWS, COLUMNS], tl.float32)
    for begin in range(0, width, INNER):
        inner = begin + tl.arange(0, INNER)
        in_width = inner < width
        state = tl.load(state_start + inner[None, :], mask=in_tile[:, None] & in_width[None, :], other=0.0)
        in_weight = in_width[:, None] & in_columns[None, :]
        gate_weight = tl.load(gate_start + inner[:, None], mask=in_weight, other=0.0)
        up_weight = tl.load(up_start + inner[:, None], mask=in_weight, other=0.0)
        gate = tl.dot(state, gate_weight, gate, input_precision=PRECISION)
        up = tl.dot(state, up_weight, up, input_precision=PRECISION)
    dtype = active.dtype.element_ty
    product = activation(gate.to(dtype).to(tl.float32), GELU).to(dtype) * up.to(dtype)
    out = active + pair[:, None] * intermediate + column[None, :]
    tl.store(out, product, mask=in_tile[:, None] & in_columns[None, :])


@triton.jit
def expert_down(
    active, weight, outputs, expert_pairs, expert_counts, experts, max_rows, width, intermediate,
    EXPERTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr, PRECISION: tl.constexpr,
):
    """The experts' outputs of a tile's pairs, for a block of columns."""
    expert, first, count = _find_tile(expert_counts, experts, EXPERTS, ROWS)
    if expert >= experts:
        return
    rank = first + tl.arange(0, ROWS)
    in_tile = rank < count
    pair = tl.load(expert_pairs + expert.to(tl.int64) * max_rows + rank, mask=in_tile, other=0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    in_columns = column < width
    active_start = active + pair[:, None] * intermediate
    weight_start = weight + expert.to(tl.int64) * width * intermediate + column.to(tl.int64)[None, :] * intermediate
    output = tl.zeros([ROWS, COLUMNS], tl.float32)
    for begin in range(0, intermediate, INNER):
        inner = begin + tl.arange(0, INNER)
        in_inner = inner < intermediate
        state = tl.load(active_start + inner[None, :], mask=in_tile[:, None] & in_inner[None, :], other=0.0)
        in_weight = in_inner[:, None] & in_columns[None, :]
        part = tl.load(weight_start + inner[:, None], mask=in_weight, other=0.0)
        output = tl.dot(state, part, output, input_precision=PRECISION)
    out = outputs + pair[:, None] * width + column[None, :]
    tl.store(out, output.to(outputs.dtype.element_ty), mask=in_tile[:, None] & in_columns[None, :])


@triton.jit(do_not_specialize=["call"])
def combine_experts(
    outputs, chosen_probs, delta, call, row_sequence, max_rows, width,
    CHOSEN: tl.constexpr, PADDED: tl.constexpr, NORMALIZED: tl.constexpr, ROUNDED: tl.constexpr, BLOCK: tl.constexpr,
):
    """The sum of a row's expert outputs, weighted by the experts' probabilities; a program per row."""
    row = tl.program_id(0).to(tl.int64)
    if tl.load(row_sequence + call.to(tl.int64) * max_rows + row) < 0:
        return
    number, column = tl.arange(0, PADDED), tl.arange(0, BLOCK)
    in_width = column < width
    total = tl.sum(tl.load(chosen_probs + row * CHOSEN + number, mask=number < CHOSEN, other=0.0), axis=0)
    combined = tl.zeros([BLOCK], tl.float32)
    for choice in tl.static_range(CHOSEN):
        output = tl.load(outputs + (row * CHOSEN + choice) * width + column, mask=in_width, other=0.0)
        prob = tl.load(chosen_probs + row * CHOSEN + choice)
        if NORMALIZED:
            prob = prob / total
        if ROUNDED:
            prob = prob.to(output.dtype).to(tl.float32)
        combined += prob * output.to(tl.float32)
    tl.store(delta + row * width + column, combined.to(delta.dtype.element_ty), mask=in_width)
