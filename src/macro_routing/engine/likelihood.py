"""How probable each choice is after a prompt: one pass over the prompt, then the choices branch from its cache.

Plain form: route by route, batch by batch. It stays as the oracle of the shared engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from macro_routing.engine.batches import Tokens, pad_left, plan_batches, positions_of


@dataclass(frozen=True)
class ChoiceItem:
    """A prompt and the texts that may continue it, as tokens."""

    prompt: Tokens
    choices: tuple[Tokens, ...]


def choice_log_likelihoods(model: Any, items: Sequence[ChoiceItem], *, most_tokens: int = 4096) -> list[list[float]]:
    """Log-probability of every choice of every item under ``model``, routed or not, summed over the choice's tokens."""
    sizes = [(len(item.prompt) + max(map(len, item.choices))) * len(item.choices) for item in items]
    found: list[list[float]] = [[] for _ in items]
    for batch in plan_batches(sizes, most_tokens):
        for place, values in zip(batch, _score_batch(model, [items[place] for place in batch]), strict=True):
            found[place] = values
    return found


@torch.no_grad()
def _score_batch(model: Any, items: list[ChoiceItem]) -> list[list[float]]:
    ids, mask = pad_left([item.prompt for item in items], model.device)
    output = model(ids, attention_mask=mask, position_ids=positions_of(mask), use_cache=True, logits_to_keep=1)
    rows = torch.tensor([place for place, item in enumerate(items) for _ in item.choices], device=ids.device)
    choices = [choice for item in items for choice in item.choices]
    first = torch.tensor([choice[0] for choice in choices], device=ids.device)
    logits = output.logits[:, -1].float()  # [items, vocabulary]
    # The logit less the normaliser: a whole log-softmax would be computed for all tokens to read one.
    totals = logits[rows, first] - logits.logsumexp(dim=-1)[rows]
    # Choices of one token are settled by the prompt's own pass; only longer ones branch from its cache.
    longer = [place for place, choice in enumerate(choices) if len(choice) > 1]
    if longer:
        chosen = [choices[place] for place in longer]
        totals[longer] += _rest(model, output.past_key_values, mask, rows[longer], chosen)
    values = iter(totals.tolist())
    return [[next(values) for _ in item.choices] for item in items]


def _rest(model: Any, cache: Any, mask: torch.Tensor, rows: torch.Tensor, choices: list[Tokens]) -> torch.Tensor:
    """Log-probability of each choice after its first token, from the prompt's cache repeated per choice."""
    cache.batch_select_indices(rows)
    longest = max(map(len, choices)) - 1
    fed = torch.tensor([[*choice[:-1], *[0] * (longest + 1 - len(choice))] for choice in choices], device=mask.device)
    wanted = torch.tensor([[*choice[1:], *[0] * (longest + 1 - len(choice))] for choice in choices], device=mask.device)
    real = torch.tensor(
        [[1] * (len(choice) - 1) + [0] * (longest + 1 - len(choice)) for choice in choices], device=mask.device
    )
    whole = torch.cat([mask[rows], real], dim=1)
    positions = positions_of(whole)[:, -longest:]
    logits = model(fed, attention_mask=whole, position_ids=positions, past_key_values=cache, use_cache=True).logits
    logits = logits.float()
    each: torch.Tensor = logits.gather(2, wanted[..., None])[..., 0] - logits.logsumexp(dim=-1)
    return (each * real).sum(dim=1)
