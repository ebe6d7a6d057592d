"""How probable each choice is after a prompt: one pass over the prompt, then the choices branch from its cache.

Plain form: route by route, batch by batch. It stays as the oracle of the shared engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from macro_routing.engine.batches import Tokens, pad_left, plan_batches, positions_of


@dataclass(frozen=True)
class ChoiceItem:
    """A prompt and the texts that may continue it, as tokens."""

    prompt: Tokens
    choices: tuple[Tokens, ...]

    @property
    def size(self) -> int:
        """Tokens it takes in memory, the prompt once per choice that branches from it."""
        return (len(self.prompt) + max(map(len, self.choices))) * len(self.choices)


def choice_log_likelihoods(model: Any, items: Sequence[ChoiceItem], *, most_tokens: int = 8192) -> list[list[float]]:
    """Log-probability of every choice of every item under ``model``, routed or not, summed over the choice's tokens."""
    found: list[list[float]] = [[] for _ in items]
    for batch in plan_batches([item.size for item in items], most_tokens):
        for place, values in zip(batch, _score_batch(model, [items[place] for place in batch]), strict=True):
            found[place] = values
    return found


@dataclass(frozen=True, eq=False)
class ChoiceBatch:
    """Items side by side in tensors: the prompts, and what is left of each choice after its first token."""

    ids: torch.Tensor
    """``[items, longest prompt]``, padded on the left; so is ``mask``."""
    mask: torch.Tensor
    owners: torch.Tensor
    """``[choices]``: the item each choice belongs to."""
    first: torch.Tensor
    """``[choices]``: first tokens."""
    longer: list[int]
    """Places of choices with more tokens than one; only these branch from the prompt's cache."""
    fed: torch.Tensor
    """``[longer choices, tokens]``: all but the last token, padded on the right; so are ``wanted`` and ``real``."""
    wanted: torch.Tensor
    real: torch.Tensor

    @classmethod
    def of(cls, items: Sequence[ChoiceItem], device: Any) -> ChoiceBatch:
        """Pad and index the items."""
        ids, mask = pad_left([item.prompt for item in items], device)
        choices = [choice for item in items for choice in item.choices]
        longer = [place for place, choice in enumerate(choices) if len(choice) > 1]
        longest = max([len(choices[place]) for place in longer], default=1) - 1

        def padded(rows: list[list[int]]) -> torch.Tensor:
            return torch.tensor([row + [0] * (longest - len(row)) for row in rows], dtype=torch.long, device=device)

        return cls(
            ids,
            mask,
            torch.tensor([place for place, item in enumerate(items) for _ in item.choices], device=device),
            torch.tensor([choice[0] for choice in choices], device=device),
            longer,
            padded([list(choices[place][:-1]) for place in longer]),
            padded([list(choices[place][1:]) for place in longer]),
            padded([[1] * (len(choices[place]) - 1) for place in longer]),
        )

    @property
    def branches(self) -> torch.Tensor:
        """The item that each longer choice continues."""
        return self.owners[self.longer]

    @cached_property
    def later_tokens(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows and columns of ``fed`` in which there is a token; asked of the device once, not for every route."""
        rows, columns = self.real.nonzero(as_tuple=True)
        return rows, columns

    def totals(self, after_prompt: torch.Tensor, later: torch.Tensor | None) -> list[list[float]]:
        """Log-probabilities by item from the logits after each prompt and those of the longer choices' later tokens.

        ``later`` is ``[longer choices, tokens]``; what it holds where there is no token does not count.
        """
        logits = after_prompt.float()  # [items, vocabulary]
        # The logit less the normaliser: a whole log-softmax would be computed for all tokens to read one.
        totals = logits[self.owners, self.first] - _normalisers(logits)[self.owners]
        if later is not None:
            totals[self.longer] += (later * self.real).sum(dim=1)
        found: list[list[float]] = [[] for _ in range(len(self.ids))]
        for owner, value in zip(self.owners.tolist(), totals.tolist(), strict=True):
            found[owner].append(value)
        return found


def log_probabilities(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Of ``tokens``, one for each row of ``logits``."""
    logits = logits.float()
    return logits.gather(-1, tokens[..., None])[..., 0] - _normalisers(logits)


_ROWS = 8
"""Rows whose logits stay in a processor's cache while they are summed."""


def _normalisers(logits: torch.Tensor) -> torch.Tensor:
    """The logarithm of every row's summed exponentials; on a CPU a few rows at a time, memory being what takes long."""
    if logits.device.type != "cpu":
        return logits.logsumexp(dim=-1)
    parts = [logits[start : start + _ROWS] for start in range(0, len(logits), _ROWS)]
    return torch.cat([rows.logsumexp(dim=-1) for rows in parts])


@torch.no_grad()
def _score_batch(model: Any, items: list[ChoiceItem]) -> list[list[float]]:
    batch = ChoiceBatch.of(items, model.device)
    output = model(
        batch.ids, attention_mask=batch.mask, position_ids=positions_of(batch.mask), use_cache=True, logits_to_keep=1
    )
    later = None
    if batch.longer:
        cache = output.past_key_values
        cache.batch_select_indices(batch.branches)
        whole = torch.cat([batch.mask[batch.branches], batch.real], dim=1)
        positions = positions_of(whole)[:, -batch.fed.shape[1] :]
        within = model(batch.fed, attention_mask=whole, position_ids=positions, past_key_values=cache, use_cache=True)
        later = log_probabilities(within.logits, batch.wanted)
    return batch.totals(output.logits[:, -1], later)
