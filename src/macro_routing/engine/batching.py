"""Batches of token sequences: which rows run together, left padding, and position ids."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

Tokens = tuple[int, ...]
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

MIN_SHARED_PREFIX = 16
"""A common prefix of at least this many tokens gets a forward pass of its own."""


def batch_by_length(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Indices of rows that run together: similar lengths, at most ``max_tokens`` with padding, longest first.

    The batches depend on the lengths alone, so the same rows always share a batch.
    """
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    batches: list[list[int]] = []
    for index in order:
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= max_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def run_in_batches(
    run: Callable[[list[_Item]], Sequence[_Result]], items: Sequence[_Item], lengths: Sequence[int], max_tokens: int
) -> list[_Result]:
    """The results of ``run`` over batches of ``items`` by length, in the order of the items."""
    results: dict[int, _Result] = {}
    for batch in batch_by_length(lengths, max_tokens):
        results.update(zip(batch, run([items[index] for index in batch]), strict=True))
    return [results[index] for index in range(len(items))]


def pad_left(rows: Sequence[Tokens], device: Any, *, min_length: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and attention mask, ``[rows, tokens]``, padded on the left to at least ``min_length`` tokens."""
    length = max(min_length, *(len(row) for row in rows))
    ids = torch.tensor([[0] * (length - len(row)) + list(row) for row in rows], device=device)
    mask = torch.tensor([[0] * (length - len(row)) + [1] * len(row) for row in rows], device=device)
    return ids, mask


def compute_position_ids(mask: torch.Tensor) -> torch.Tensor:
    """The position of every token within its own row."""
    return (mask.cumsum(-1) - 1).clamp(min=0)


def choose_shared_prompt_prefix_length(prompts: Sequence[Tokens], window: int | None = None) -> int:
    """The number of tokens that all prompts start with, if computing them once is faster; else 0.

    Every prompt keeps at least one token of its own. With a sliding window, padding must not stand between the prefix
    and the rest (a window counts padding), so prompts longer than the window share nothing.
    """
    if len(prompts) < 2 or (window is not None and max(map(len, prompts)) > window):
        return 0
    first, last = min(prompts), max(prompts)
    shared = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    shared = min(shared, min(map(len, prompts)) - 1)
    return shared if shared >= MIN_SHARED_PREFIX else 0
