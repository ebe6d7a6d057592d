"""What happens between the matrix products of a decoding step, fused; one program per row unless said otherwise.

Which sequences sit in which rows is read from tables on the device (see ``tables``), at the tick that a launch is for.
So no argument of a launch changes from token to token, and all launches of a token can be replayed from one graph.

Rounding follows the eager path: states, normalised states and activations are rounded where it rounds them.
"""

# fmt: off
import triton
import triton.language as tl


@triton.jit
def _normalised(state, weight, width, epsilon):
    """Root mean square norm in float32, rounded before it is weighted."""
    variance = tl.sum(state * state, axis=0) / width
    return (state * tl.rsqrt(variance + epsilon)).to(weight.dtype) * weight


@triton.jit
def _with_add(state, sequence, at, shelf, row_add, row_coefficient, kept, width, place, real):
    """A state with the earlier one that its step adds."""
    add = tl.load(row_add + at)
    if add >= 0:
        earlier = tl.load(shelf + (sequence * kept + add) * width + place, mask=real, other=0.0)
        scaled = (earlier.to(tl.float32) * tl.load(row_coefficient + at)).to(state.dtype)
        state = (state.to(tl.float32) + scaled.to(tl.float32)).to(state.dtype)
    return state


@triton.jit(do_not_specialize=["tick"])
def enter(
    states, shelf, normed, weight, tick, row_sequence, row_add, row_coefficient, most_rows, kept, width, epsilon,
    BLOCK: tl.constexpr,
):
    """The state of a row's sequence, after its add, normalised for the attention."""
    row = tl.program_id(0)
    at = tick.to(tl.int64) * most_rows + row
    sequence = tl.load(row_sequence + at).to(tl.int64)
    if sequence < 0:
        return
    place = tl.arange(0, BLOCK)
    real = place < width
    state = tl.load(states + sequence * width + place, mask=real, other=0.0)
    state = _with_add(state, sequence, at, shelf, row_add, row_coefficient, kept, width, place, real)
    tl.store(states + sequence * width + place, state, mask=real)
    scale = tl.load(weight + place, mask=real, other=0.0)
    tl.store(normed + row * width + place, _normalised(state.to(tl.float32), scale, width, epsilon), mask=real)


@triton.jit(do_not_specialize=["tick"])
def middle(
    states, change, normed, weight, tick, row_sequence, most_rows, width, epsilon,
    BLOCK: tl.constexpr,
):
    """The attention's output joins the state, which is normalised for the feed-forward part."""
    row = tl.program_id(0)
    sequence = tl.load(row_sequence + tick.to(tl.int64) * most_rows + row).to(tl.int64)
    if sequence < 0:
        return
    place = tl.arange(0, BLOCK)
    real = place < width
    state = _joined(states + sequence * width + place, change + row * width + place, real)
    tl.store(states + sequence * width + place, state, mask=real)
    scale = tl.load(weight + place, mask=real, other=0.0)
    tl.store(normed + row * width + place, _normalised(state.to(tl.float32), scale, width, epsilon), mask=real)


@triton.jit
def _joined(state_at, change_at, real):
    state = tl.load(state_at, mask=real, other=0.0)
    change = tl.load(change_at, mask=real, other=0.0)
    return (state.to(tl.float32) + change.to(tl.float32)).to(state.dtype)


@triton.jit
def gate(both, out, inner, BLOCK: tl.constexpr):
    """silu(gate) · up, a program per row and block."""
    row, place = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = place < inner
    gated = tl.load(both + row * 2 * inner + place, mask=real, other=0.0).to(tl.float32)
    up = tl.load(both + (row * 2 + 1) * inner + place, mask=real, other=0.0)
    active = (gated * tl.sigmoid(gated)).to(up.dtype)
    tl.store(out + row * inner + place, active * up, mask=real)


@triton.jit(do_not_specialize=["tick"])
def leave(
    states, shelf, change, tick, row_sequence, row_keep, most_rows, kept, width,
    BLOCK: tl.constexpr,
):
    """The feed-forward part's output joins the state, which is kept where a later add wants it."""
    row = tl.program_id(0)
    at = tick.to(tl.int64) * most_rows + row
    sequence = tl.load(row_sequence + at).to(tl.int64)
    if sequence < 0:
        return
    place = tl.arange(0, BLOCK)
    real = place < width
    state = _joined(states + sequence * width + place, change + row * width + place, real)
    tl.store(states + sequence * width + place, state, mask=real)
    keep = tl.load(row_keep + at)
    if keep >= 0:
        tl.store(shelf + (sequence * kept + keep) * width + place, state, mask=real)


@triton.jit(do_not_specialize=["tick"])
def pass_on(
    states, shelf, change, normed, weight, tick, row_sequence, row_keep, row_add, row_coefficient,
    most_rows, kept, width, epsilon,
    BLOCK: tl.constexpr,
):
    """``leave`` and the ``enter`` of the next tick in one, where the same sequences sit in the same rows in both."""
    row = tl.program_id(0)
    at = tick.to(tl.int64) * most_rows + row
    sequence = tl.load(row_sequence + at).to(tl.int64)
    if sequence < 0:
        return
    place = tl.arange(0, BLOCK)
    real = place < width
    state = _joined(states + sequence * width + place, change + row * width + place, real)
    keep = tl.load(row_keep + at)
    if keep >= 0:
        tl.store(shelf + (sequence * kept + keep) * width + place, state, mask=real)
    state = _with_add(state, sequence, at + most_rows, shelf, row_add, row_coefficient, kept, width, place, real)
    tl.store(states + sequence * width + place, state, mask=real)
    scale = tl.load(weight + place, mask=real, other=0.0)
    tl.store(normed + row * width + place, _normalised(state.to(tl.float32), scale, width, epsilon), mask=real)


@triton.jit
def _head_norm(low, high, weight, half, epsilon, HALF: tl.constexpr):
    """Norm of heads given as halves ``[heads, HALF]``, as Qwen3 has it for queries and keys."""
    variance = (tl.sum(low * low, axis=1) + tl.sum(high * high, axis=1)) / (2 * HALF)
    inverse = tl.rsqrt(variance + epsilon)[:, None]
    low_weight, high_weight = tl.load(weight + half)[None, :], tl.load(weight + HALF + half)[None, :]
    low = ((low * inverse).to(low_weight.dtype) * low_weight).to(tl.float32)
    high = ((high * inverse).to(high_weight.dtype) * high_weight).to(tl.float32)
    return low, high


@triton.jit(do_not_specialize=["tick"])
def attend(
    projected, out, parts, weights, arrived, keys, values, cosines, sines, query_norm, key_norm,
    tick, row_sequence, row_lane, position, start, done,
    most_rows, pool_tokens, scale, epsilon,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, PADDED: tl.constexpr, HALF: tl.constexpr,
    BLOCK: tl.constexpr, SPLITS: tl.constexpr, NORMED: tl.constexpr, PRECISION: tl.constexpr,
):
    """Rotate, write the new key and value, attend over the live part of the cache; a program per row and key head.

    The cache is ``[key heads, tokens, head]``; a sequence's step owns a *lane* of tokens there, live from ``start`` up
    to ``position``, where the new token goes. The new token is taken from registers, never read back. With few rows the
    live part is split between ``SPLITS`` programs, and the one that arrives last puts the parts together.
    """
    row, group, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    at = tick.to(tl.int64) * most_rows + row
    sequence = tl.load(row_sequence + at)
    if sequence < 0:
        return
    if tl.load(done + sequence) != 0:
        return
    lane = tl.load(row_lane + at).to(tl.int64)
    last, first = tl.load(position + sequence), tl.load(start + sequence)
    HEAD: tl.constexpr = 2 * HALF
    half, whole, member = tl.arange(0, HALF), tl.arange(0, HEAD), tl.arange(0, PADDED)
    real = (member < GROUP)[:, None]
    mine = projected + row * (HEADS + 2 * KV_HEADS) * HEAD
    query_at = mine + (group * GROUP + member)[:, None] * HEAD + half[None, :]
    low = tl.load(query_at, mask=real, other=0.0).to(tl.float32)
    high = tl.load(query_at + HALF, mask=real, other=0.0).to(tl.float32)
    key_at = mine + (HEADS + group) * HEAD + half[None, :]
    key_low, key_high = tl.load(key_at).to(tl.float32), tl.load(key_at + HALF).to(tl.float32)
    value = tl.load(mine + (HEADS + KV_HEADS + group) * HEAD + whole)
    if NORMED:
        low, high = _head_norm(low, high, query_norm, half, epsilon, HALF)
        key_low, key_high = _head_norm(key_low, key_high, key_norm, half, epsilon, HALF)
    angle = (last - first).to(tl.int64) * HEAD + half[None, :]
    low_cosine, high_cosine = tl.load(cosines + angle).to(tl.float32), tl.load(cosines + angle + HALF).to(tl.float32)
    low_sine, high_sine = tl.load(sines + angle).to(tl.float32), tl.load(sines + angle + HALF).to(tl.float32)
    kind = value.dtype
    query_low = (low * low_cosine - high * low_sine).to(kind)
    query_high = (high * high_cosine + low * high_sine).to(kind)
    new_low = (key_low * low_cosine - key_high * low_sine).to(kind)
    new_high = (key_high * high_cosine + key_low * high_sine).to(kind)
    pool = (group.to(tl.int64) * pool_tokens + lane) * HEAD
    if split == 0:
        here = pool + last.to(tl.int64) * HEAD
        tl.store(keys + here + half[None, :], new_low)
        tl.store(keys + here + HALF + half[None, :], new_high)
        tl.store(values + here + whole, value)
    # The softmax of the first part begins with the new token, that of the others with nothing.
    own = tl.sum(query_low.to(tl.float32) * new_low.to(tl.float32), axis=1)
    own += tl.sum(query_high.to(tl.float32) * new_high.to(tl.float32), axis=1)
    highest = tl.where(split == 0, own * scale, float("-inf"))
    total = tl.full([PADDED], 1.0, tl.float32) * tl.where(split == 0, 1.0, 0.0)
    gathered = tl.zeros([PADDED, HEAD], tl.float32) + value.to(tl.float32)[None, :] * tl.where(split == 0, 1.0, 0.0)
    part = tl.cdiv(last - first, SPLITS)
    stop = tl.minimum(first + (split + 1) * part, last)
    for begin in range(first + split * part, stop, BLOCK):
        token = begin + tl.arange(0, BLOCK)
        live = token < stop
        spot = pool + token.to(tl.int64) * HEAD
        low_keys = tl.load(keys + spot[None, :] + half[:, None], mask=live[None, :], other=0.0)
        high_keys = tl.load(keys + spot[None, :] + HALF + half[:, None], mask=live[None, :], other=0.0)
        scores = tl.dot(query_low, low_keys, input_precision=PRECISION)
        scores = tl.dot(query_high, high_keys, scores, input_precision=PRECISION)
        scores = tl.where(live[None, :], scores * scale, float("-inf"))
        top = tl.maximum(highest, tl.max(scores, axis=1))
        fade = tl.exp(highest - top)
        share = tl.exp(scores - top[:, None])
        seen = tl.load(values + spot[:, None] + whole[None, :], mask=live[:, None], other=0.0)
        total = total * fade + tl.sum(share, axis=1)
        gathered = tl.dot(share.to(kind), seen, gathered * fade[:, None], input_precision=PRECISION)
        highest = top
    if SPLITS > 1:
        seat = row * KV_HEADS + group
        cell = member[:, None] * HEAD + whole[None, :]
        mine_at = seat * SPLITS + split
        tl.store(parts + mine_at * PADDED * HEAD + cell, gathered)
        tl.store(weights + mine_at * 2 * PADDED + member, highest)
        tl.store(weights + (mine_at * 2 + 1) * PADDED + member, total)
        tl.debug_barrier()  # all of the part is written before it is counted
        if tl.atomic_add(arrived + seat, 1) < SPLITS - 1:
            return
        tl.debug_barrier()
        tl.store(arrived + seat, 0)
        highest = tl.full([PADDED], float("-inf"), tl.float32)
        total = tl.zeros([PADDED], tl.float32)
        gathered = tl.zeros([PADDED, HEAD], tl.float32)
        for other in range(SPLITS):
            other_at = seat * SPLITS + other
            their_highest = tl.load(weights + other_at * 2 * PADDED + member, cache_modifier=".cg")
            their_total = tl.load(weights + (other_at * 2 + 1) * PADDED + member, cache_modifier=".cg")
            theirs = tl.load(parts + other_at * PADDED * HEAD + cell, cache_modifier=".cg")
            top = tl.maximum(highest, their_highest)
            fade, weight = tl.exp(highest - top), tl.exp(their_highest - top)
            total = total * fade + their_total * weight
            gathered = gathered * fade[:, None] + theirs * weight[:, None]
            highest = top
    answer_at = out + row * HEADS * HEAD + (group * GROUP + member)[:, None] * HEAD + whole[None, :]
    tl.store(answer_at, (gathered / total[:, None]).to(kind), mask=real)


@triton.jit
def read(states, normed, weight, live, first_row, width, epsilon, BLOCK: tl.constexpr):
    """The last state of a live sequence, normalised for the head."""
    row = tl.program_id(0)
    sequence = tl.load(live + first_row + row).to(tl.int64)
    if sequence < 0:
        return
    place = tl.arange(0, BLOCK)
    real = place < width
    state = tl.load(states + sequence * width + place, mask=real, other=0.0).to(tl.float32)
    scale = tl.load(weight + place, mask=real, other=0.0)
    tl.store(normed + row * width + place, _normalised(state, scale, width, epsilon), mask=real)


@triton.jit
def best_of_block(
    logits, best_value, best_token, step, first_row, vocabulary, blocks,
    BLOCK: tl.constexpr,
):
    """The largest logit of a block of the vocabulary, a program per row and block; the first one where several tie.

    A token has passed all layers here, so the counter of tokens goes on; nobody here reads it.
    """
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if row + block + first_row == 0:
        tl.store(step, tl.load(step) + 1)
    token = block * BLOCK + tl.arange(0, BLOCK)
    logit = tl.load(logits + row * vocabulary + token, mask=token < vocabulary, other=float("-inf")).to(tl.float32)
    logit = tl.where(logit != logit, float("inf"), logit)  # what is no number counts as the largest, as in torch
    value, place = tl.max(logit, axis=0, return_indices=True)
    tl.store(best_value + (first_row + row) * blocks + block, value)
    tl.store(best_token + (first_row + row) * blocks + block, block * BLOCK + place)


@triton.jit
def advance(
    best_value, best_token, live, states, embeddings, log, step,
    position, done, stage, count, dictated,
    ends, budgets, bridges, bridge_lengths, stages, most_ends, most_bridge, sequences, width, blocks,
    ENDS: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The predicted token is noted, and the row is fed its next one: ``writing.Writer.take`` on the device."""
    row = tl.program_id(0).to(tl.int64)
    sequence = tl.load(live + row).to(tl.int64)
    if sequence < 0:
        return
    block = tl.arange(0, BLOCKS)
    value = tl.load(best_value + row * blocks + block, mask=block < blocks, other=float("-inf"))
    choice = tl.load(best_token + row * blocks + block, mask=block < blocks, other=2147483647)
    token = tl.min(tl.where(value == tl.max(value, axis=0), choice, 2147483647), axis=0)
    tl.store(log + tl.load(step).to(tl.int64) * sequences + sequence, token)
    if tl.load(done + sequence) != 0:
        return
    at = tl.load(stage + sequence)
    pointer = tl.load(dictated + sequence)
    feed = token
    if pointer >= 0:
        feed = tl.load(bridges + at * most_bridge + pointer)
        pointer += 1
        pointer = tl.where(pointer >= tl.load(bridge_lengths + at), -1, pointer)
        tl.store(dictated + sequence, pointer)
    else:
        end = tl.arange(0, ENDS)
        ending = tl.load(ends + at * most_ends + end, mask=end < most_ends, other=-1)
        ended = tl.sum((ending == token).to(tl.int32), axis=0) > 0
        written = tl.load(count + sequence) + tl.where(ended, 0, 1)
        cut = written >= tl.load(budgets + at)
        over = ended | cut
        tl.store(count + sequence, tl.where(over, 0, written))
        if over:
            at += 1
            tl.store(stage + sequence, at)
            if at >= tl.load(stages):
                tl.store(done + sequence, 1)
            elif ended:  # the token that ended the stage is not fed; the bridge begins at once
                feed = tl.load(bridges + at * most_bridge)
                tl.store(dictated + sequence, tl.where(tl.load(bridge_lengths + at) > 1, 1, -1))
            else:
                tl.store(dictated + sequence, 0)
    tl.store(position + sequence, tl.load(position + sequence) + 1)
    place = tl.arange(0, BLOCK)
    real = place < width
    embedded = tl.load(embeddings + feed.to(tl.int64) * width + place, mask=real, other=0.0)
    tl.store(states + sequence * width + place, embedded, mask=real)
