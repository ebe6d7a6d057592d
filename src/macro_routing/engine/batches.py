"""Rows of different length in one tensor, and which rows go together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

Tokens = tuple[int, ...]


def plan_batches(lengths: Sequence[int], most_tokens: int) -> list[list[int]]:
    """Places of rows that are run together: similar lengths, at most ``most_tokens`` with padding, longest first.

    Decided by the lengths alone, so the same rows always meet the same neighbours.
    """
    order = sorted(range(len(lengths)), key=lambda place: (-lengths[place], place))
    batches: list[list[int]] = []
    for place in order:
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= most_tokens:
            batches[-1].append(place)
        else:
            batches.append([place])
    return batches


def pad_left(rows: Sequence[Tokens], device: Any, *, least: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and attention mask, ``[rows, longest]``, padding first, so that all rows end together.

    ``least`` makes them longer than the longest needs.
    """
    longest = max(least, *(len(row) for row in rows))
    ids = torch.tensor([[0] * (longest - len(row)) + list(row) for row in rows], device=device)
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=device)
    return ids, mask


def positions_of(mask: torch.Tensor) -> torch.Tensor:
    """Position of every token within its own row."""
    return (mask.cumsum(-1) - 1).clamp(min=0)


LEAST_BEGINNING = 16
"""Tokens from which a common beginning is worth a pass of its own."""


def common_beginning(prompts: Sequence[Tokens], window: int | None = None) -> int:
    """How many tokens all prompts begin with, where computing them once pays; else 0.

    Every prompt keeps at least one token of its own. Under a sliding window no padding may stand between a beginning
    and the rest (windows count places, padding included), so only prompts that fit into it are cut.
    """
    if len(prompts) < 2 or (window is not None and max(map(len, prompts)) > window):
        return 0
    first, last = min(prompts), max(prompts)
    shared = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    shared = min(shared, min(map(len, prompts)) - 1)
    return shared if shared >= LEAST_BEGINNING else 0
