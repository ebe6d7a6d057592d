"""Triton kernels for everything between the matrix products of a decoding step; by default one program per row.

The kernels read from ``device_tables`` which sequence is in which row of the layer call ``call``.
So no argument of a launch changes from token to token, and one CUDA graph replays all launches of a token.

Rounding follows the eager path: states, normalized states and activations are rounded where it rounds them.
"""

# fmt: off
import triton
import triton.language as tl


@triton.jit
def _rms_norm(state, weight, column, in_width, width, epsilon, ROUND_FIRST: tl.constexpr):
    """RMS norm in float32, rounded before it is multiplied by the weight, or after."""
    wide = state.to(tl.float32)
    variance = tl.sum(wide * wide, axis=0) / width
    normed = wide * tl.rsqrt(variance + epsilon)
    scale = tl.load(weight + column, mask=in_width, other=0.0)
    if ROUND_FIRST:
        normed = normed.to(state.dtype)
    return (normed * scale).to(state.dtype)


@triton.jit
def soft_cap(value, cap, CAPPED: tl.constexpr):
    """``cap · tanh(value / cap)``; a power series near zero, where the exponential would lose digits."""
    if CAPPED:
        ratio = value / cap
        square = ratio * ratio
        decay = tl.exp(-2.0 * tl.abs(ratio))
        large = (1.0 - decay) / (1.0 + decay)
        large = tl.where(ratio < 0.0, -large, large)
        small = ratio * (1.0 + square * (-1.0 / 3.0 + square * (2.0 / 15.0 - square * (17.0 / 315.0))))
        value = cap * tl.where(square < 0.01, small, large)
    return value


@triton.jit
def _cap_logit(logit, cap, CAPPED: tl.constexpr):
    """A logit in float32 after the soft cap, which the model computes in the logits' dtype: it makes some equal."""
    if CAPPED:
        ratio = (logit.to(tl.float32) / cap).to(logit.dtype)
        tanh = soft_cap(ratio.to(tl.float32), 1.0, CAPPED).to(logit.dtype)
        logit = (tanh.to(tl.float32) * cap).to(logit.dtype)
    return logit.to(tl.float32)


@triton.jit
def _add_kept_state(
    state, kept_states, entry, sequence, column, in_width, row_add_slot, row_coefficient, kept_slots, width
):
    """Add the kept state that a step asks for, if any."""
    add_slot = tl.load(row_add_slot + entry)
    if add_slot >= 0:
        kept = kept_states + (sequence * kept_slots + add_slot) * width + column
        earlier = tl.load(kept, mask=in_width, other=0.0).to(tl.float32)
        scaled = (earlier * tl.load(row_coefficient + entry)).to(state.dtype)
        state = (state.to(tl.float32) + scaled.to(tl.float32)).to(state.dtype)
    return state


@triton.jit
def _update_hidden_state(
    states, kept_states, delta, normed, output_norm, weight, call, row_sequence, row_keep_slot, row_add_slot,
    row_coefficient, max_rows, kept_slots, width, epsilon,
    RESIDUAL: tl.constexpr, KEEP: tl.constexpr, ADD: tl.constexpr, FEED: tl.constexpr, OUTPUT_NORM: tl.constexpr,
    NORM: tl.constexpr, ROUND_FIRST: tl.constexpr, BLOCK: tl.constexpr,
):
    """What happens to a row's state between two matrix products; the flags say which parts.

    ``RESIDUAL`` adds a block's output, which ``OUTPUT_NORM`` normalizes first, ``KEEP`` keeps the state where a later
    step adds it, ``ADD`` adds the kept state that the step asks for (after ``RESIDUAL`` that of the next call), and
    ``FEED`` feeds the state to the next product, normalized with ``NORM``.
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
        if OUTPUT_NORM:
            output = _rms_norm(output, output_norm, column, in_width, width, epsilon, ROUND_FIRST)
        state = (state.to(tl.float32) + output.to(tl.float32)).to(state.dtype)
    if KEEP:
        keep_slot = tl.load(row_keep_slot + entry)
        if keep_slot >= 0:
            tl.store(kept_states + (sequence * kept_slots + keep_slot) * width + column, state, mask=in_width)
    if ADD:
        if RESIDUAL:
            entry += max_rows
        state = _add_kept_state(
            state, kept_states, entry, sequence, column, in_width, row_add_slot, row_coefficient, kept_slots, width
        )
    tl.store(states + sequence * width + column, state, mask=in_width)
    if FEED:
        if NORM:
            state = _rms_norm(state, weight, column, in_width, width, epsilon, ROUND_FIRST)
        tl.store(normed + row * width + column, state, mask=in_width)


@triton.jit(do_not_specialize=["call"])
def pre_attn_norm(
    states, kept_states, normed, weight, call, row_sequence, row_add_slot, row_coefficient,
    max_rows, kept_slots, width, epsilon,
    NORM: tl.constexpr, ROUND_FIRST: tl.constexpr, BLOCK: tl.constexpr,
):
    """Add the kept state that the step asks for, store the state, and normalize it for the attention."""
    _update_hidden_state(
        states, kept_states, states, normed, states, weight, call, row_sequence, row_add_slot, row_add_slot,
        row_coefficient, max_rows, kept_slots, width, epsilon, RESIDUAL=False, KEEP=False, ADD=True, FEED=True,
        OUTPUT_NORM=False, NORM=NORM, ROUND_FIRST=ROUND_FIRST, BLOCK=BLOCK,
    )


@triton.jit(do_not_specialize=["call"])
def post_attn_norm(
    states, delta, normed, output_norm, weight, call, row_sequence, max_rows, width, epsilon,
    OUTPUT_NORM: tl.constexpr, NORM: tl.constexpr, ROUND_FIRST: tl.constexpr, BLOCK: tl.constexpr,
):
    """Add the attention's output to the state, store it, and normalize it for the MLP."""
    _update_hidden_state(
        states, states, delta, normed, output_norm, weight, call, row_sequence, row_sequence, row_sequence,
        row_sequence, max_rows, 0, width, epsilon, RESIDUAL=True, KEEP=False, ADD=False, FEED=True,
        OUTPUT_NORM=OUTPUT_NORM, NORM=NORM, ROUND_FIRST=ROUND_FIRST, BLOCK=BLOCK,
    )


@triton.jit(do_not_specialize=["call"])
def residual_store(
    states, kept_states, delta, output_norm, call, row_sequence, row_keep_slot, max_rows, kept_slots, width, epsilon,
    OUTPUT_NORM: tl.constexpr, ROUND_FIRST: tl.constexpr, BLOCK: tl.constexpr,
):
    """Add the MLP's output to the state, store it, and keep it where a later step adds it."""
    _update_hidden_state(
        states, kept_states, delta, states, output_norm, states, call, row_sequence, row_keep_slot, row_keep_slot,
        row_keep_slot, max_rows, kept_slots, width, epsilon, RESIDUAL=True, KEEP=True, ADD=False, FEED=False,
        OUTPUT_NORM=OUTPUT_NORM, NORM=False, ROUND_FIRST=ROUND_FIRST, BLOCK=BLOCK,
    )


@triton.jit(do_not_specialize=["call"])
def residual_pre_attn_norm(
    states, kept_states, delta, normed, output_norm, weight, call, row_sequence, row_keep_slot, row_add_slot,
    row_coefficient, max_rows, kept_slots, width, epsilon,
    OUTPUT_NORM: tl.constexpr, NORM: tl.constexpr, ROUND_FIRST: tl.constexpr, BLOCK: tl.constexpr,
):
    """``residual_store`` and the next call's ``pre_attn_norm`` in one, where both calls have the same rows."""
    _update_hidden_state(
        states, kept_states, delta, normed, output_norm, weight, call, row_sequence, row_keep_slot, row_add_slot,
        row_coefficient, max_rows, kept_slots, width, epsilon, RESIDUAL=True, KEEP=True, ADD=True, FEED=True,
        OUTPUT_NORM=OUTPUT_NORM, NORM=NORM, ROUND_FIRST=ROUND_FIRST, BLOCK=BLOCK,
    )


@triton.jit
def activation(gate, GELU: tl.constexpr):
    """SiLU, or GELU in its tanh form: 0.5 · (1 + tanh(z)) = sigmoid(2 · z)."""
    if GELU:
        return gate * tl.sigmoid(1.5957691216057308 * (gate + 0.044715 * gate * gate * gate))
    return gate * tl.sigmoid(gate)


@triton.jit
def activate_and_mul(gate_up, out, intermediate, GELU: tl.constexpr, BLOCK: tl.constexpr):
    """activation(gate) · up; a program per row and block."""
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    in_range = column < intermediate
    gate = tl.load(gate_up + row * 2 * intermediate + column, mask=in_range, other=0.0).to(tl.float32)
    up = tl.load(gate_up + (row * 2 + 1) * intermediate + column, mask=in_range, other=0.0)
    active = activation(gate, GELU).to(up.dtype)
    tl.store(out + row * intermediate + column, active * up, mask=in_range)


@triton.jit(do_not_specialize=["call"])
def norm_query_and_key(
    projected, query_norm, key_norm, call, row_sequence, max_rows, epsilon,
    QUERY: tl.constexpr, KEY: tl.constexpr, ROUND_FIRST: tl.constexpr, BLOCK: tl.constexpr,
):
    """RMS norm in place over all ``QUERY`` elements of a row's queries, or all ``KEY`` of its keys (OLMo)."""
    row = tl.program_id(0).to(tl.int64)
    if tl.load(row_sequence + call.to(tl.int64) * max_rows + row) < 0:
        return
    column = tl.arange(0, BLOCK)
    pointer = projected + row * (QUERY + 2 * KEY) + column
    if tl.program_id(1) == 0:
        in_range = column < QUERY
        part = tl.load(pointer, mask=in_range, other=0.0)
        normed = _rms_norm(part, query_norm, column, in_range, QUERY, epsilon, ROUND_FIRST)
        tl.store(pointer, normed, mask=in_range)
    else:
        in_range = column < KEY
        part = tl.load(pointer + QUERY, mask=in_range, other=0.0)
        normed = _rms_norm(part, key_norm, column, in_range, KEY, epsilon, ROUND_FIRST)
        tl.store(pointer + QUERY, normed, mask=in_range)


@triton.jit
def final_norm(
    states, normed, weight, live_sequences, first_row, width, epsilon, ROUND_FIRST: tl.constexpr, BLOCK: tl.constexpr,
):
    """Normalize the last state of a live sequence for the LM head."""
    row = tl.program_id(0)
    sequence = tl.load(live_sequences + first_row + row).to(tl.int64)
    if sequence < 0:
        return
    column = tl.arange(0, BLOCK)
    in_width = column < width
    state = tl.load(states + sequence * width + column, mask=in_width, other=0.0)
    state = _rms_norm(state, weight, column, in_width, width, epsilon, ROUND_FIRST)
    tl.store(normed + row * width + column, state, mask=in_width)


@triton.jit
def block_argmax(
    logits, best_value, best_token, step, first_row, vocabulary, blocks, logit_cap,
    CAPPED: tl.constexpr, BLOCK: tl.constexpr,
):
    """The largest logit of a block of the vocabulary, the first of equal ones; a program per row and block.

    The token has passed all layers, so this kernel also increases the step counter; no other program here reads it.
    """
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if row + block + first_row == 0:
        tl.store(step, tl.load(step) + 1)
    token = block * BLOCK + tl.arange(0, BLOCK)
    in_vocabulary = token < vocabulary
    logit = tl.load(logits + row * vocabulary + token, mask=in_vocabulary, other=0.0)
    logit = tl.where(in_vocabulary, _cap_logit(logit, logit_cap, CAPPED), float("-inf"))
    logit = tl.where(logit != logit, float("inf"), logit)  # NaN counts as the largest, as in torch
    value, index = tl.max(logit, axis=0, return_indices=True)
    tl.store(best_value + (first_row + row) * blocks + block, value)
    tl.store(best_token + (first_row + row) * blocks + block, block * BLOCK + index)


@triton.jit
def mixture_argmax(
    logits, member_best_value, best_value, best_token, live_sequences, member_weight, reference_member, first_row,
    vocabulary, blocks, log_plausibility, logit_cap,
    CAPPED: tl.constexpr, MEMBERS: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
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
        logit = tl.load(logits + (row + member) * vocabulary + token, mask=in_vocabulary, other=0.0)
        logit = _cap_logit(logit, logit_cap, CAPPED)
        total += tl.load(member_weight + tl.load(live_sequences + entry + member)) * logit
    logit = tl.load(logits + (row + reference) * vocabulary + token, mask=in_vocabulary, other=0.0)
    logit = _cap_logit(logit, logit_cap, CAPPED)
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
    max_rows, width, blocks, embedding_scale,
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
    embedded = (embedded.to(tl.float32) * embedding_scale).to(embedded.dtype)
    tl.store(states + sequence * width + column, embedded, mask=in_width)
