import pytest
import torch

from macro_routing.engine.generation import generate, generate_in_two_stages
from macro_routing.models import apply_route
from macro_routing.routes import parse_route
from tests.models.tiny import LAYERS, VARIANTS, tiny_model, tokens

ROUTE = parse_route("L0-L3 L1(+h-2) L2 RJ", LAYERS)
PROMPTS = [tuple(tokens(1, length, seed=length)[0].tolist()) for length in (3, 9, 5, 14)]


def _alone(model, prompt, ends, budget):
    ids = torch.tensor([prompt])
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=budget, do_sample=False, eos_token_id=list(ends)
    )
    new = out[0, len(prompt) :].tolist()
    return (tuple(new[:-1]), False) if new[-1] in ends else (tuple(new), True)


@pytest.mark.parametrize("name", VARIANTS)
def test_batches_write_what_each_prompt_gets_alone(name):
    model = apply_route(tiny_model(name), ROUTE)
    ends = set(range(3, 20))  # a fifth of the vocabulary, so that some rows end early
    found = generate(model, PROMPTS, ends, 10)
    assert [(row.tokens, row.cut_off) for row in found] == [_alone(model, prompt, ends, 10) for prompt in PROMPTS]
    assert any(row.cut_off for row in found) or any(len(row.tokens) < 10 for row in found)


def test_budgets_cut_and_ends_do_not():
    model = tiny_model("llama")
    assert all(row.cut_off and len(row.tokens) == 4 for row in generate(model, PROMPTS, set(), 4))
    assert all(row.tokens == () and not row.cut_off for row in generate(model, PROMPTS, set(range(97)), 4))


def test_two_stages_are_two_generations():
    model = apply_route(tiny_model("qwen3"), ROUTE)
    ends = set(range(3, 12))
    both = generate_in_two_stages(
        model, PROMPTS, reasoning_ends=ends, reasoning_budget=6, bridge=(50, 51), answer_ends=ends, answer_budget=5
    )
    for prompt, result in zip(PROMPTS, both, strict=True):
        assert (result.reasoning.tokens, result.reasoning.cut_off) == _alone(model, prompt, ends, 6)
        longer = (*prompt, *result.reasoning.tokens, 50, 51)
        assert (result.answer.tokens, result.answer.cut_off) == _alone(model, longer, ends, 5)
