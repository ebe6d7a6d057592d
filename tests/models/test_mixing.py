"""Mixtures on all architectures against a plain loop over their members."""

import pytest
import torch

from macro_routing.errors import ModelError
from macro_routing.models import apply_route
from macro_routing.models.mixing import apply_members, combine_logits, plan_mixture_steps
from macro_routing.routes import parse_route
from macro_routing.routes.mixture import Mixture, parse_mixture
from tests.models.tiny import LAYERS, VARIANTS, tiny_model, tokens

MIXTURES = [
    parse_mixture(text, LAYERS)
    for text in (
        "1.7 [L0 RJ] - 0.7 [L0 L1 L3 RJ]",
        "[L0-L3 L2 RJ] + 0.5 [L0-L3 L3 RJ] - 0.4 [L0 RJ] - 0.2 [L0-L3 L1(+h-2) L2(-0.25h-1) RJ]",
        "2 [L0 RJ] - [L0-L2]",
        "[L0-L2] - 0.5 [L0 L4 RJ] + 0.25 [L0-L3]",
        "0.6 [L0-L4 L2 L3(+h-3) RJ] + 0.4 [L1 L0 L2 RJ]",
    )
]


@pytest.fixture(params=VARIANTS, ids=str)
def model(request):
    return tiny_model(request.param)


def plain_logits(model, mixture, ids, **inputs):
    members = [apply_route(model, route)(ids, use_cache=False, **inputs).logits for route in mixture.routes]
    return combine_logits(members, mixture)


@pytest.mark.parametrize("mixture", MIXTURES, ids=str)
def test_logits_are_those_of_a_plain_loop(model, mixture):
    mixed = apply_route(model, mixture)
    ids = tokens()
    assert torch.equal(mixed(ids, use_cache=False).logits, plain_logits(model, mixture, ids))
    assert mixed.config.num_hidden_layers == mixture.length


def test_members_are_the_routed_models(model):
    ids = tokens()
    members = apply_members(model, MIXTURES[1])(ids, use_cache=False).logits.chunk(4)
    for member, route in zip(members, MIXTURES[1].routes, strict=True):
        assert torch.equal(member, apply_route(model, route)(ids, use_cache=False).logits)


@pytest.mark.parametrize("mixture", MIXTURES[:2], ids=str)
def test_cached_decoding_is_recomputing(model, mixture):
    mixed = apply_route(model, mixture)
    ids, cache = tokens(rows=2, length=10), None
    feed, seen = ids, []
    with torch.no_grad():
        for _ in range(6):
            output = mixed(feed, past_key_values=cache, use_cache=True)
            cache, last = output.past_key_values, output.logits[:, -1]
            seen.append(last)
            feed = last.argmax(-1, keepdim=True)
            ids = torch.cat([ids, feed], dim=1)
    whole = plain_logits(model, mixture, ids[:, :-1])[:, 9:]
    stepwise = torch.stack(seen, dim=1)
    there = torch.isfinite(stepwise) & torch.isfinite(whole)
    assert torch.allclose(stepwise[there], whole[there], atol=1e-4)
    assert torch.equal(stepwise.argmax(-1), whole.argmax(-1))


def test_generate_on_a_padded_batch_is_each_row_alone(model):
    mixed = apply_route(model, MIXTURES[0])
    long, short = tokens(rows=1, length=10), tokens(rows=1, length=6, seed=5)
    options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    alone = [mixed.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, -6:] for ids in (long, short)]
    padding = torch.zeros(1, 4, dtype=torch.long)
    batch = torch.cat([long, torch.cat([padding, short], dim=1)])
    mask = (batch != 0).long()
    together = mixed.generate(batch, attention_mask=mask, **options)[:, -6:]
    assert torch.equal(together, torch.stack(alone))


def test_a_mixture_of_one_is_the_route_bit_for_bit(model):
    route = parse_route("L0-L3 L1(+h-2) RJ", LAYERS)
    ids = tokens()
    single = apply_route(model, Mixture.from_route(route))
    assert torch.equal(single(ids).logits, apply_route(model, route)(ids).logits)


def test_what_a_mixture_cannot_return_is_rejected(model):
    mixed, ids = apply_route(model, MIXTURES[0]), tokens()
    with pytest.raises(ModelError, match="a mixture computes no loss: leave out labels"):
        mixed(ids, labels=ids)
    with pytest.raises(ModelError, match="leave out return_dict=False"):
        mixed(ids, return_dict=False)


def test_steps_are_shared_up_to_the_first_difference():
    mixture = MIXTURES[0]
    steps = plan_mixture_steps(mixture.routes)
    assert len(steps) == mixture.length == LAYERS + 3
    assert [node.parent for node in steps] == [None, 0, 1, 2, 3, 4, 1, 6, 7]
    assert [node.ends for node in steps if node.ends] == [(0,), (1,)]


def test_implausible_tokens_follow_the_others_and_stay_in_order():
    mixture = parse_mixture("1.5 [L0 RJ] - 0.5 [L0 L1 L3 RJ]", LAYERS)
    standard = torch.tensor([5.0, 4.5, -3.0, 1.0, 4.9])
    weaker = torch.tensor([9.0, 0.0, -900.0, -50.0, 8.0])
    combined = combine_logits([standard, weaker], mixture)
    assert combined.argsort(descending=True).tolist() == [1, 4, 0, 3, 2]  # 0, 1 and 4 are plausible
    assert torch.equal(combined[[0, 1, 4]], (1.5 * standard - 0.5 * weaker)[[0, 1, 4]])
    assert combined.isfinite().all()
    assert combined.softmax(-1)[[2, 3]].max() < 1e-20


@pytest.mark.parametrize("limits", [{"min_new_tokens": 5}, {"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 1}])
def test_what_forbids_tokens_leaves_others_to_choose(limits):
    model = tiny_model("llama")
    mixed, ids = apply_route(model, MIXTURES[0]), tokens(rows=1)
    options = {"do_sample": False, "pad_token_id": 0, "attention_mask": torch.ones_like(ids), "max_new_tokens": 8}
    free = mixed.generate(ids, **options, eos_token_id=None)[0, ids.shape[1] :]
    ends = free[:1].tolist()  # the text would end at once
    written = mixed.generate(ids, **options, **limits, eos_token_id=ends)[0, ids.shape[1] :]
    if "min_new_tokens" in limits:
        assert len(written) >= 5
        assert not set(written[:5].tolist()) & set(ends)
    if "no_repeat_ngram_size" in limits:
        whole = [*ids[0].tolist(), *written.tolist()]
        assert len(set(whole[len(ids[0]) :])) == len(written)


def test_a_repetition_penalty_acts_as_on_a_single_route():
    """It divides positive logits and multiplies negative ones, so it needs logits, not log-probabilities."""
    model, ids = tiny_model("llama"), tokens(rows=1)
    route = parse_route("L0-L3 L1 RJ", LAYERS)
    same = Mixture.from_weights([(route, 1.0), (parse_route("L0 L1 L3 RJ", LAYERS), 1e-6)])
    options = {"do_sample": False, "pad_token_id": 0, "attention_mask": torch.ones_like(ids), "max_new_tokens": 8}
    single, mixed = (
        apply_route(model, one).generate(ids, **options, eos_token_id=None, repetition_penalty=1.01)
        for one in (route, same)
    )
    assert torch.equal(single, mixed)
