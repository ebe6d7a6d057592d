"""Triton kernels for everything between the matrix products of a decoding step; by default one program per row.

The kernels read from ``device_tables`` which sequence is in which row of the layer call ``call``.
So no argument of a launch changes from token to token, and one CUDA graph replays all launches of a token.

Rounding follows the eager path: states, normalized states and activations are rounded where it rounds them.
"""

# fmt: off
import triton
import triton.language as tl


@triton.jit
def _rms_norm(state, weight, width, epsilon):
    """RMS norm in float32, rounded before it is multiplied by the weight."""
    variance = tl.sum(state * state, axis=0) / width
    return (state * tl.rsqrt(variance + epsilon)).to(weight.dtype) * weight


@triton.jit
def _store_normed(normed, row, state, weight, column, in_width, width, epsilon):
    """Store the normalized state of a row."""
    scale = tl.load(weight + column, mask=in_width, other=0.0)
    tl.store(normed + row * width + column, _rms_norm(state.to(tl.float32), scale, width, epsilon), mask=in_width)


@triton.jit
def _update_hidden_state(
    states, kept_states, delta, normed, weight, call, row_sequence, row_keep_slot, row_add_slot, row_coefficient,
    max_rows, kept_slots, width, epsilon,
    RESIDUAL: tl.constexpr, KEEP: tl.constexpr, ADD: tl.constexpr, NORM: tl.constexpr, BLOCK: tl.constexpr,
):
    """What happens to a row's state between two matrix products; the flags say which parts.

    ``RESIDUAL`` adds a block's output, ``KEEP`` keeps the state where a later step adds it, ``ADD`` adds the kept state
    that the step asks for (after ``RESIDUAL`` that of the next call), and ``NORM`` normalizes the state.
    """
    row = tl.program_id(0)
    entry = call.to(tl.int64) * max_rows + row
    sequence = tl.load(row_sequence + entry).to(tl.int64)
    if sequence < 0:
        return
    column = tl.arange(0, BLOCK)
    in_width = column < width
    state = tl.load(states + sequence * width + column, mask=in_width, other=0.0)
    if RESIDUAL:
        output = tl.load(delta + row * width + column, mask=in_width, other=0.0)
        state = (state.to(tl.float32) + output.to(tl.float32)).to(state.dtype)
    if KEEP:
        keep_slot = tl.load(row_keep_slot + entry)
        if keep_slot >= 0:
            tl.store(kept_states + (sequence * kept_slots + keep_slot) * width + column, state, mask=in_width)
    if ADD:
        if RESIDUAL:
            entry += max_rows
        add_slot = tl.load(row_add_slot + entry)
        if add_slot >= 0:
            kept = kept_states + (sequence * kept_slots + add_slot) * width + column
            earlier = tl.load(kept, mask=in_width, other=0.0).to(tl.float32)
            scaled = (earlier * tl.load(row_coefficient + entry)).to(state.dtype)
            state = (state.to(tl.float32) + scaled.to(tl.float32)).to(state.dtype)
    tl.store(states + sequence * width + column, state, mask=in_width)
    if NORM:
        _store_normed(normed, row, state, weight, column, in_width, width, epsilon)


@triton.jit(do_not_specialize=["call"])
def pre_attn_norm(
    states, kept_states, normed, weight, call, row_sequence, row_add_slot, row_coefficient,
    max_rows, kept_slots, width, epsilon,
    BLOCK: tl.constexpr,
):
    """Add the kept state that the step asks for, store the state, and normalize it for the attention."""
    _update_hidden_state(
        states, kept_states, states, normed, weight, call, row_sequence, row_add_slot, row_add_slot, row_coefficient,
        max_rows, kept_slots, width, epsilon, RESIDUAL=False, KEEP=False, ADD=True, NORM=True, BLOCK=BLOCK,
    )


@triton.jit(do_not_specialize=["call"])
def post_attn_norm(
    states, delta, normed, weight, call, row_sequence, max_rows, width, epsilon,
    BLOCK: tl.constexpr,
):
    """Add the attention's output to the state, store it, and normalize it for the MLP."""
    _update_hidden_state(
        states, states, delta, normed, weight, call, row_sequence, row_sequence, row_sequence, row_sequence,
        max_rows, 0, width, epsilon, RESIDUAL=True, KEEP=False, ADD=False, NORM=True, BLOCK=BLOCK,
    )


@triton.jit(do_not_specialize=["call"])
def residual_store(
    states, kept_states, delta, call, row_sequence, row_keep_slot, max_rows, kept_slots, width,
    BLOCK: tl.constexpr,
):
    """Add the MLP's output to the state, store it, and keep it where a later step adds it."""
    _update_hidden_state(
        states, kept_states, delta, states, states, call, row_sequence, row_keep_slot, row_keep_slot, row_keep_slot,
        max_rows, kept_slots, width, 0.0, RESIDUAL=True, KEEP=True, ADD=False, NORM=False, BLOCK=BLOCK,
    )


@triton.jit(do_not_specialize=["call"])
def residual_pre_attn_norm(
    states, kept_states, delta, normed, weight, call, row_sequence, row_keep_slot, row_add_slot, row_coefficient,
    max_rows, kept_slots, width, epsilon,
    BLOCK: tl.constexpr,
):
    """``residual_store`` and the next call's ``pre_attn_norm`` in one, where both calls have the same rows."""
    _update_hidden_state(
        states, kept_states, delta, normed, weight, call, row_sequence, row_keep_slot, row_add_slot, row_coefficient,
        max_rows, kept_slots, width, epsilon, RESIDUAL=True, KEEP=True, ADD=True, NORM=True, BLOCK=BLOCK,
    )


@triton.jit
def silu_and_mul(gate_up, out, intermediate, BLOCK: tl.constexpr):
    """silu(gate) · up; a program per row and block."""
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    in_range = column < intermediate
    gate = tl.load(gate_up + row * 2 * intermediate + column, mask=in_range, other=0.0).to(tl.float32)
    up = tl.load(gate_up + (row * 2 + 1) * intermediate + column, mask=in_range, other=0.0)
    active = (gate * tl.sigmoid(gate)).to(up.dtype)
    tl.store(out + row * intermediate + column, active * up, mask=in_range)


@triton.jit
def _qk_norm(low, high, weight, half, epsilon, HALF: tl.constexpr):
    """RMS norm of query or key heads, given as halves ``[heads, HALF]`` (Qwen3)."""
    variance = (tl.sum(low * low, axis=1) + tl.sum(high * high, axis=1)) / (2 * HALF)
    inverse = tl.rsqrt(variance + epsilon)[:, None]
    low_weight, high_weight = tl.load(weight + half)[None, :], tl.load(weight + HALF + half)[None, :]
    low = ((low * inverse).to(low_weight.dtype) * low_weight).to(tl.float32)
    high = ((high * inverse).to(high_weight.dtype) * high_weight).to(tl.float32)
    return low, high


@triton.jit(do_not_specialize=["call"])
def attention_decode(
    projected, out, split_outputs, split_stats, split_counters, keys, values, cosines, sines, query_norm, key_norm,
    call, row_sequence, row_cache_start, position, start, done,
    max_rows, cache_tokens, scale, epsilon,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, PADDED: tl.constexpr, HALF: tl.constexpr,
    BLOCK: tl.constexpr, SPLITS: tl.constexpr, NORMED: tl.constexpr, PRECISION: tl.constexpr,
):
    """Apply rotary embeddings, store the new key and value, and attend over the cache; a program per row and KV head.

    The cache is ``[KV heads, tokens, head]``. Each step of a sequence has a region of tokens there. It is filled from
    ``start`` to ``position``, where the new token goes. The new token is used from registers and not read back. With
    few rows the tokens are split between ``SPLITS`` programs, and the last program to finish combines the splits.
    """
    row, kv_head, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    entry = call.to(tl.int64) * max_rows + row
    sequence = tl.load(row_sequence + entry)
    if sequence < 0:
        return
    if tl.load(done + sequence) != 0:
        return
    cache_start = tl.load(row_cache_start + entry).to(tl.int64)
    last, first = tl.load(position + sequence), tl.load(start + sequence)
    HEAD: tl.constexpr = 2 * HALF
    half, column, member = tl.arange(0, HALF), tl.arange(0, HEAD), tl.arange(0, PADDED)
    in_group = (member < GROUP)[:, None]
    row_start = projected + row * (HEADS + 2 * KV_HEADS) * HEAD
    query_pointer = row_start + (kv_head * GROUP + member)[:, None] * HEAD + half[None, :]
    low = tl.load(query_pointer, mask=in_group, other=0.0).to(tl.float32)
    high = tl.load(query_pointer + HALF, mask=in_group, other=0.0).to(tl.float32)
    key_pointer = row_start + (HEADS + kv_head) * HEAD + half[None, :]
    key_low, key_high = tl.load(key_pointer).to(tl.float32), tl.load(key_pointer + HALF).to(tl.float32)
    value = tl.load(row_start + (HEADS + KV_HEADS + kv_head) * HEAD + column)
    if NORMED:
        low, high = _qk_norm(low, high, query_norm, half, epsilon, HALF)
        key_low, key_high = _qk_norm(key_low, key_high, key_norm, half, epsilon, HALF)
    angle = (last - first).to(tl.int64) * HEAD + half[None, :]
    low_cosine, high_cosine = tl.load(cosines + angle).to(tl.float32), tl.load(cosines + angle + HALF).to(tl.float32)
    low_sine, high_sine = tl.load(sines + angle).to(tl.float32), tl.load(sines + angle + HALF).to(tl.float32)
    dtype = value.dtype
    query_low = (low * low_cosine - high * low_sine).to(dtype)
    query_high = (high * high_cosine + low * high_sine).to(dtype)
    new_low = (key_low * low_cosine - key_high * low_sine).to(dtype)
    new_high = (key_high * high_cosine + key_low * high_sine).to(dtype)
    region = (kv_head.to(tl.int64) * cache_tokens + cache_start) * HEAD
    if split == 0:
        new_token = region + last.to(tl.int64) * HEAD
        tl.store(keys + new_token + half[None, :], new_low)
        tl.store(keys + new_token + HALF + half[None, :], new_high)
        tl.store(values + new_token + column, value)
    # The softmax of the first split starts with the new token, that of the others with nothing.
    new_score = tl.sum(query_low.to(tl.float32) * new_low.to(tl.float32), axis=1)
    new_score += tl.sum(query_high.to(tl.float32) * new_high.to(tl.float32), axis=1)
    highest = tl.where(split == 0, new_score * scale, float("-inf"))
    total = tl.full([PADDED], 1.0, tl.float32) * tl.where(split == 0, 1.0, 0.0)
    output = tl.zeros([PADDED, HEAD], tl.float32) + value.to(tl.float32)[None, :] * tl.where(split == 0, 1.0, 0.0)
    split_tokens = tl.cdiv(last - first, SPLITS)
    stop = tl.minimum(first + (split + 1) * split_tokens, last)
    for block_start in range(first + split * split_tokens, stop, BLOCK):
        token = block_start + tl.arange(0, BLOCK)
        valid = token < stop
        token_offset = region + token.to(tl.int64) * HEAD
        low_keys = tl.load(keys + token_offset[None, :] + half[:, None], mask=valid[None, :], other=0.0)
        high_keys = tl.load(keys + token_offset[None, :] + HALF + half[:, None], mask=valid[None, :], other=0.0)
        scores = tl.dot(query_low, low_keys, input_precision=PRECISION)
        scores = tl.dot(query_high, high_keys, scores, input_precision=PRECISION)
        scores = tl.where(valid[None, :], scores * scale, float("-inf"))
        new_highest = tl.maximum(highest, tl.max(scores, axis=1))
        rescale = tl.exp(highest - new_highest)
        probs = tl.exp(scores - new_highest[:, None])
        cached_values = tl.load(values + token_offset[:, None] + column[None, :], mask=valid[:, None], other=0.0)
        total = total * rescale + tl.sum(probs, axis=1)
        output = tl.dot(probs.to(dtype), cached_values, output * rescale[:, None], input_precision=PRECISION)
        highest = new_highest
    if SPLITS > 1:
        head_row = row * KV_HEADS + kv_head
        element = member[:, None] * HEAD + column[None, :]
        split_row = head_row * SPLITS + split
        tl.store(split_outputs + split_row * PADDED * HEAD + element, output)
        tl.store(split_stats + split_row * 2 * PADDED + member, highest)
        tl.store(split_stats + (split_row * 2 + 1) * PADDED + member, total)
        tl.debug_barrier()  # the whole split is stored before it is counted
        if tl.atomic_add(split_counters + head_row, 1) < SPLITS - 1:
            return
        tl.debug_barrier()
        tl.store(split_counters + head_row, 0)
        highest = tl.full([PADDED], float("-inf"), tl.float32)
        total = tl.zeros([PADDED], tl.float32)
        output = tl.zeros([PADDED, HEAD], tl.float32)
        for other in range(SPLITS):
            other_row = head_row * SPLITS + other
            other_highest = tl.load(split_stats + other_row * 2 * PADDED + member, cache_modifier=".cg")
            other_total = tl.load(split_stats + (other_row * 2 + 1) * PADDED + member, cache_modifier=".cg")
            other_output = tl.load(split_outputs + other_row * PADDED * HEAD + element, cache_modifier=".cg")
            new_highest = tl.maximum(highest, other_highest)
            rescale, other_rescale = tl.exp(highest - new_highest), tl.exp(other_highest - new_highest)
            total = total * rescale + other_total * other_rescale
            output = output * rescale[:, None] + other_output * other_rescale[:, None]
            highest = new_highest
    out_pointer = out + row * HEADS * HEAD + (kv_head * GROUP + member)[:, None] * HEAD + column[None, :]
    tl.store(out_pointer, (output / total[:, None]).to(dtype), mask=in_group)


@triton.jit
def final_norm(states, normed, weight, live_sequences, first_row, width, epsilon, BLOCK: tl.constexpr):
    """Normalize the last state of a live sequence for the LM head."""
    row = tl.program_id(0)
    sequence = tl.load(live_sequences + first_row + row).to(tl.int64)
    if sequence < 0:
        return
    column = tl.arange(0, BLOCK)
    in_width = column < width
    state = tl.load(states + sequence * width + column, mask=in_width, other=0.0)
    _store_normed(normed, row, state, weight, column, in_width, width, epsilon)


@triton.jit
def block_argmax(
    logits, best_value, best_token, step, first_row, vocabulary, blocks,
    BLOCK: tl.constexpr,
):
    """The largest logit of a block of the vocabulary, the first of equal ones; a program per row and block.

    The token has passed all layers, so this kernel also increases the step counter; no other program here reads it.
    """
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if row + block + first_row == 0:
        tl.store(step, tl.load(step) + 1)
    token = block * BLOCK + tl.arange(0, BLOCK)
    logit = tl.load(logits + row * vocabulary + token, mask=token < vocabulary, other=float("-inf")).to(tl.float32)
    logit = tl.where(logit != logit, float("inf"), logit)  # NaN counts as the largest, as in torch
    value, index = tl.max(logit, axis=0, return_indices=True)
    tl.store(best_value + (first_row + row) * blocks + block, value)
    tl.store(best_token + (first_row + row) * blocks + block, block * BLOCK + index)


@triton.jit
def mixture_argmax(
    logits, member_best_value, best_value, best_token, live_sequences, member_weight, reference_member, first_row,
    vocabulary, blocks, log_plausibility,
    MEMBERS: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The best plausible token of a block by the weighted sum of a mixture's logits; a program per mixture and block.

    The members are in neighbouring rows, and the first one gets the result. Their normalizers are the same for all
    tokens, so the sum of logits has its maximum where that of log-probabilities has it.
    """
    row, block = tl.program_id(0).to(tl.int64) * MEMBERS, tl.program_id(1)
    entry = first_row + row
    sequence = tl.load(live_sequences + entry)
    if sequence < 0:
        return
    reference = tl.load(reference_member + sequence)
    other_block = tl.arange(0, BLOCKS)
    best = member_best_value + (entry + reference) * blocks + other_block
    highest = tl.max(tl.load(best, mask=other_block < blocks, other=float("-inf")), axis=0)
    token = block * BLOCK + tl.arange(0, BLOCK)
    in_vocabulary = token < vocabulary
    total = tl.zeros([BLOCK], tl.float32)
    for member in tl.static_range(MEMBERS):
        logit = tl.load(logits + (row + member) * vocabulary + token, mask=in_vocabulary, other=0.0).to(tl.float32)
        total += tl.load(member_weight + tl.load(live_sequences + entry + member)) * logit
    logit = tl.load(logits + (row + reference) * vocabulary + token, mask=in_vocabulary, other=0.0).to(tl.float32)
    total = tl.where(total != total, float("inf"), total)  # NaN counts as the largest, as in torch
    total = tl.where((logit < highest + log_plausibility) | (token >= vocabulary), float("-inf"), total)
    value, index = tl.max(total, axis=0, return_indices=True)
    tl.store(best_value + entry * blocks + block, value)
    tl.store(best_token + entry * blocks + block, block * BLOCK + index)


@triton.jit
def update_sequences(
    best_value, best_token, live_sequences, states, embeddings, token_log, step,
    position, done, stage, stage_tokens, forced_index,
    end_tokens, max_tokens, forced_tokens, forced_lengths, num_stages, end_tokens_width, forced_tokens_width,
    max_rows, width, blocks,
    MEMBERS: tl.constexpr, ENDS: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
):
    """Log the predicted token and feed the next one: ``SequenceStageTracker.step`` on the device.

    ``MEMBERS`` neighbouring rows write one text; the first one has the prediction.
    """
    row = tl.program_id(0).to(tl.int64)
    sequence = tl.load(live_sequences + row).to(tl.int64)
    if sequence < 0:
        return
    block = tl.arange(0, BLOCKS)
    prediction = row // MEMBERS * MEMBERS * blocks + block
    value = tl.load(best_value + prediction, mask=block < blocks, other=float("-inf"))
    candidate = tl.load(best_token + prediction, mask=block < blocks, other=2147483647)
    token = tl.min(tl.where(value == tl.max(value, axis=0), candidate, 2147483647), axis=0)
    tl.store(token_log + tl.load(step).to(tl.int64) * max_rows + sequence, token)
    if tl.load(done + sequence) != 0:
        return
    stage_now = tl.load(stage + sequence)
    forced_now = tl.load(forced_index + sequence)
    next_token = token
    if forced_now >= 0:
        next_token = tl.load(forced_tokens + stage_now * forced_tokens_width + forced_now)
        forced_now += 1
        forced_now = tl.where(forced_now >= tl.load(forced_lengths + stage_now), -1, forced_now)
        tl.store(forced_index + sequence, forced_now)
    else:
        end_column = tl.arange(0, ENDS)
        end_pointer = end_tokens + stage_now * end_tokens_width + end_column
        end_token = tl.load(end_pointer, mask=end_column < end_tokens_width, other=-1)
        ended = tl.sum((end_token == token).to(tl.int32), axis=0) > 0
        num_tokens = tl.load(stage_tokens + sequence) + tl.where(ended, 0, 1)
        truncated = num_tokens >= tl.load(max_tokens + stage_now)
        stage_done = ended | truncated
        tl.store(stage_tokens + sequence, tl.where(stage_done, 0, num_tokens))
        if stage_done:
            stage_now += 1
            tl.store(stage + sequence, stage_now)
            if stage_now >= tl.load(num_stages):
                tl.store(done + sequence, 1)
            elif ended:  # the end token is not fed; the forced tokens start instead
                next_token = tl.load(forced_tokens + stage_now * forced_tokens_width)
                tl.store(forced_index + sequence, tl.where(tl.load(forced_lengths + stage_now) > 1, 1, -1))
            else:
                tl.store(forced_index + sequence, 0)
    tl.store(position + sequence, tl.load(position + sequence) + 1)
    column = tl.arange(0, BLOCK)
    in_width = column < width
    embedded = tl.load(embeddings + next_token.to(tl.int64) * width + column, mask=in_width, other=0.0)
    tl.store(states + sequence * width + column, embedded, mask=in_width)
