import pytest
import torch

from macro_routing.engine.batching import batch_by_length
from macro_routing.engine.likelihood import ChoiceItem, score_choices
from macro_routing.models import apply_route
from macro_routing.routes import parse_route
from tests.models.tiny import LAYERS, VARIANTS, tiny_model

ROUTE = parse_route("L0-L3 L1(+h-2) L2 RJ", LAYERS)


def _make_items(seed=0, count=7):
    rng = torch.Generator().manual_seed(seed)

    def tokens(low, high):
        length = int(torch.randint(low, high, (1,), generator=rng))
        return tuple(torch.randint(3, 90, (length,), generator=rng).tolist())

    return [
        ChoiceItem(tokens(2, 20), tuple(tokens(1, 6) for _ in range(int(torch.randint(2, 5, (1,), generator=rng)))))
        for _ in range(count)
    ]


def _score_without_cache(model, item):
    """One choice at a time, everything recomputed, no cache, no padding."""
    actual = []
    for choice in item.choices:
        ids = torch.tensor([[*item.prompt, *choice]])
        with torch.no_grad():
            logs = torch.log_softmax(model(ids, use_cache=False).logits[0].float(), dim=-1)
        start = len(item.prompt) - 1
        actual.append(sum(logs[start + index, token].item() for index, token in enumerate(choice)))
    return actual


@pytest.mark.parametrize("name", VARIANTS)
def test_batched_scores_equal_scores_without_cache(name):
    model = apply_route(tiny_model(name), ROUTE)
    items = _make_items()
    for actual, item in zip(score_choices(model, items), items, strict=True):
        assert actual == pytest.approx(_score_without_cache(model, item), abs=2e-4)


@pytest.mark.parametrize("max_tokens", [1, 50, 100_000])
def test_the_batch_size_changes_no_score(max_tokens):
    model = tiny_model("llama")
    expected = score_choices(model, _make_items())
    actual = score_choices(model, _make_items(), max_tokens=max_tokens)
    for actual_row, expected_row in zip(actual, expected, strict=True):
        assert actual_row == pytest.approx(expected_row, abs=1e-5)


def test_batches_hold_every_row_once_within_the_limit():
    lengths = [3, 9, 1, 9, 4, 30, 2]
    batches = batch_by_length(lengths, 20)
    assert sorted(index for batch in batches for index in batch) == list(range(7))
    assert all(len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= 20 for batch in batches)
