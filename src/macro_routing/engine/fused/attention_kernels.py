"""The attention of a decoding step as a Triton kernel: rotary embeddings, the cache, and scores over it."""

# fmt: off
import triton
import triton.language as tl

from macro_routing.engine.fused.kernels import soft_cap


@triton.jit
def _without_padding(mask, in_head, WHOLE: tl.constexpr):
    """``mask`` without the padding of heads; all other heads load with as few masks as possible."""
    if not WHOLE:
        mask = mask & in_head
    return mask


@triton.jit
def _qk_norm(low, high, weight, half, epsilon, rounded, HALF: tl.constexpr, ROUND_FIRST: tl.constexpr):
    """RMS norm of query or key heads, given as halves ``[heads, HALF]``, with the dtype of ``rounded``."""
    variance = (tl.sum(low * low, axis=1) + tl.sum(high * high, axis=1)) / (2 * HALF)
    inverse = tl.rsqrt(variance + epsilon)[:, None]
    in_half = half < HALF
    low_weight = tl.load(weight + half, mask=in_half, other=0.0)[None, :]
    high_weight = tl.load(weight + HALF + half, mask=in_half, other=0.0)[None, :]
    low, high = low * inverse, high * inverse
    if ROUND_FIRST:
        low = (low.to(rounded.dtype) * low_weight).to(tl.float32)
        high = (high.to(rounded.dtype) * high_weight).to(tl.float32)
    else:
        low = (low * low_weight).to(rounded.dtype).to(tl.float32)
        high = (high * high_weight).to(rounded.dtype).to(tl.float32)
    return low, high


@triton.jit
def _rotate(low, high, low_cosine, high_cosine, low_sine, high_sine, dtype: tl.constexpr):
    """Rotary embeddings of heads, given as halves."""
    return (low * low_cosine - high * low_sine).to(dtype), (high * high_cosine + low * high_sine).to(dtype)


@triton.jit
def _combine_splits(
    split_outputs, split_stats, head_row, member, column,
    PADDED: tl.constexpr, HEAD_BLOCK: tl.constexpr, SPLITS: tl.constexpr,
):
    """The outputs of all splits of a row and KV head before the division by the total, and the total."""
    element = member[:, None] * HEAD_BLOCK + column[None, :]
    highest = tl.full([PADDED], float("-inf"), tl.float32)
    total = tl.zeros([PADDED], tl.float32)
    output = tl.zeros([PADDED, HEAD_BLOCK], tl.float32)
    for split in range(SPLITS):
        split_row = head_row * SPLITS + split
        split_highest = tl.load(split_stats + split_row * 2 * PADDED + member, cache_modifier=".cg")
        split_total = tl.load(split_stats + (split_row * 2 + 1) * PADDED + member, cache_modifier=".cg")
        split_output = tl.load(split_outputs + split_row * PADDED * HEAD_BLOCK + element, cache_modifier=".cg")
        new_highest = tl.maximum(highest, split_highest)
        rescale, split_rescale = tl.exp(highest - new_highest), tl.exp(split_highest - new_highest)
        total = total * rescale + split_total * split_rescale
        output = output * rescale[:, None] + split_output * split_rescale[:, None]
        highest = new_highest
    return output, total


@triton.jit(do_not_specialize=["call", "window"])
def attention_decode(
    projected, out, split_outputs, split_stats, split_counters, keys, values, cosines, sines, query_norm, key_norm,
    call, row_sequence, row_cache_start, position, start, done,
    max_rows, cache_tokens, window, scale, score_cap, epsilon,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, PADDED: tl.constexpr, HALF: tl.constexpr,
    HALF_BLOCK: tl.constexpr, BLOCK: tl.constexpr, SPLITS: tl.constexpr, NORMED: tl.constexpr,
    ROUND_FIRST: tl.constexpr, CAPPED: tl.constexpr, PRECISION: tl.constexpr,
):
    """Apply rotary embeddings, store the new key and value, and attend over the cache; a program per row and KV head.

    The last ``window`` tokens are seen. The cache is ``[KV heads, tokens, head]``. Each step of a sequence has a region
    of tokens there. It is filled from ``start`` to ``position``, where the new token goes. The new token is used from
    registers and not read back. With few rows the tokens are split between ``SPLITS`` programs, and the last program to
    finish combines the splits.
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
    HEAD_BLOCK: tl.constexpr = 2 * HALF_BLOCK
    WHOLE: tl.constexpr = HALF == HALF_BLOCK
    half, column, member = tl.arange(0, HALF_BLOCK), tl.arange(0, HEAD_BLOCK), tl.arange(0, PADDED)
    in_half, in_head, in_group = half < HALF, column < HEAD, (member < GROUP)[:, None]
    row_start = projected + row * (HEADS + 2 * KV_HEADS) * HEAD
    query_pointer = row_start + (kv_head * GROUP + member)[:, None] * HEAD + half[None, :]
    in_query = _without_padding(in_group, in_half[None, :], WHOLE)
    low = tl.load(query_pointer, mask=in_query, other=0.0).to(tl.float32)
    high = tl.load(query_pointer + HALF, mask=in_query, other=0.0).to(tl.float32)
    key_pointer, in_key = row_start + (HEADS + kv_head) * HEAD + half[None, :], in_half[None, :]
    key_low = tl.load(key_pointer, mask=in_key, other=0.0).to(tl.float32)
    key_high = tl.load(key_pointer + HALF, mask=in_key, other=0.0).to(tl.float32)
    value = tl.load(row_start + (HEADS + KV_HEADS + kv_head) * HEAD + column, mask=in_head, other=0.0)
    if NORMED:
        low, high = _qk_norm(low, high, query_norm, half, epsilon, value, HALF, ROUND_FIRST)
        key_low, key_high = _qk_norm(key_low, key_high, key_norm, half, epsilon, value, HALF, ROUND_FIRST)
    angle = (last - first).to(tl.int64) * HEAD + half[None, :]
    low_cosine = tl.load(cosines + angle, mask=in_key, other=0.0).to(tl.float32)
    high_cosine = tl.load(cosines + angle + HALF, mask=in_key, other=0.0).to(tl.float32)
    low_sine = tl.load(sines + angle, mask=in_key, other=0.0).to(tl.float32)
    high_sine = tl.load(sines + angle + HALF, mask=in_key, other=0.0).to(tl.float32)
    dtype = value.dtype
    query_low, query_high = _rotate(low, high, low_cosine, high_cosine, low_sine, high_sine, dtype)
    new_low, new_high = _rotate(key_low, key_high, low_cosine, high_cosine, low_sine, high_sine, dtype)
    region = (kv_head.to(tl.int64) * cache_tokens + cache_start) * HEAD
    if split == 0:
        new_token = region + last.to(tl.int64) * HEAD
        tl.store(keys + new_token + half[None, :], new_low, mask=in_key)
        tl.store(keys + new_token + HALF + half[None, :], new_high, mask=in_key)
        tl.store(values + new_token + column, value, mask=in_head)
    # The softmax of the first split starts with the new token, that of the others with nothing.
    new_score = tl.sum(query_low.to(tl.float32) * new_low.to(tl.float32), axis=1)
    new_score += tl.sum(query_high.to(tl.float32) * new_high.to(tl.float32), axis=1)
    highest = tl.where(split == 0, soft_cap(new_score * scale, score_cap, CAPPED), float("-inf"))
    total = tl.full([PADDED], 1.0, tl.float32) * tl.where(split == 0, 1.0, 0.0)
    output = tl.zeros([PADDED, HEAD_BLOCK], tl.float32) + value.to(tl.float32)[None, :] * tl.where(split == 0, 1.0, 0.0)
    first = tl.maximum(first, last - window + 1)
    split_tokens = tl.cdiv(last - first, SPLITS)
    stop = tl.minimum(first + (split + 1) * split_tokens, last)
    for block_start in range(first + split * split_tokens, stop, BLOCK):
        token = block_start + tl.arange(0, BLOCK)
        valid = token < stop
        token_offset = region + token.to(tl.int64) * HEAD
        key_offset = token_offset[None, :] + half[:, None]
        in_keys = _without_padding(valid[None, :], in_half[:, None], WHOLE)
        low_keys = tl.load(keys + key_offset, mask=in_keys, other=0.0)
        high_keys = tl.load(keys + key_offset + HALF, mask=in_keys, other=0.0)
        scores = tl.dot(query_low, low_keys, input_precision=PRECISION)
        scores = tl.dot(query_high, high_keys, scores, input_precision=PRECISION)
        scores = tl.where(valid[None, :], soft_cap(scores * scale, score_cap, CAPPED), float("-inf"))
        new_highest = tl.maximum(highest, tl.max(scores, axis=1))
        rescale = tl.exp(highest - new_highest)
        probs = tl.exp(scores - new_highest[:, None])
        in_values = _without_padding(valid[:, None], in_head[None, :], WHOLE)
        cached_values = tl.load(values + token_offset[:, None] + column[None, :], mask=in_values, other=0.0)
        total = total * rescale + tl.sum(probs, axis=1)
        output = tl.dot(probs.to(dtype), cached_values, output * rescale[:, None], input_precision=PRECISION)
        highest = new_highest
    if SPLITS > 1:
        head_row = row * KV_HEADS + kv_head
        element = member[:, None] * HEAD_BLOCK + column[None, :]
        split_row = head_row * SPLITS + split
        tl.store(split_outputs + split_row * PADDED * HEAD_BLOCK + element, output)
        tl.store(split_stats + split_row * 2 * PADDED + member, highest)
        tl.store(split_stats + (split_row * 2 + 1) * PADDED + member, total)
        tl.debug_barrier()  # the whole split is stored before it is counted
        if tl.atomic_add(split_counters + head_row, 1) < SPLITS - 1:
            return
        tl.debug_barrier()
        tl.store(split_counters + head_row, 0)
        output, total = _combine_splits(
            split_outputs, split_stats, head_row, member, column, PADDED, HEAD_BLOCK, SPLITS
        )
    out_pointer = out + row * HEADS * HEAD + (kv_head * GROUP + member)[:, None] * HEAD + column[None, :]
    tl.store(out_pointer, (output / total[:, None]).to(dtype), mask=_without_padding(in_group, in_head[None, :], WHOLE))
