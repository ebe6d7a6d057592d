import pytest
import torch

from macro_routing.engine.generation import DecodingStage, generate_greedy, generate_reasoning_then_answer
from macro_routing.models import apply_route
from macro_routing.routes import parse_route
from tests.models.tiny import LAYERS, VARIANTS, tiny_model, tokens

ROUTE = parse_route("L0-L3 L1(+h-2) L2 RJ", LAYERS)
PROMPTS = [tuple(tokens(1, length, seed=length)[0].tolist()) for length in (3, 9, 5, 14)]


def _generate_alone(model, prompt, end_tokens, max_tokens):
    ids = torch.tensor([prompt])
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=max_tokens,
        do_sample=False,
        eos_token_id=list(end_tokens),
    )
    new = out[0, len(prompt) :].tolist()
    return (tuple(new[:-1]), False) if new[-1] in end_tokens else (tuple(new), True)


@pytest.mark.parametrize("name", VARIANTS)
def test_batches_generate_what_each_prompt_gets_alone(name):
    model = apply_route(tiny_model(name), ROUTE)
    ends = set(range(3, 20))  # a fifth of the vocabulary, so that some rows end early
    actual = generate_greedy(model, PROMPTS, ends, 10)
    assert [(row.tokens, row.truncated) for row in actual] == [
        _generate_alone(model, prompt, ends, 10) for prompt in PROMPTS
    ]
    assert any(row.truncated for row in actual) or any(len(row.tokens) < 10 for row in actual)


def test_token_limits_truncate_and_end_tokens_do_not():
    model = tiny_model("llama")
    assert all(row.truncated and len(row.tokens) == 4 for row in generate_greedy(model, PROMPTS, set(), 4))
    assert all(row.tokens == () and not row.truncated for row in generate_greedy(model, PROMPTS, set(range(97)), 4))


def test_two_stages_are_two_generations():
    model = apply_route(tiny_model("qwen3"), ROUTE)
    ends = set(range(3, 12))
    texts = generate_reasoning_then_answer(model, PROMPTS, [DecodingStage(ends, 6, (50, 51)), DecodingStage(ends, 5)])
    for prompt, (reasoning, answer) in zip(PROMPTS, texts, strict=True):
        assert (reasoning.tokens, reasoning.truncated) == _generate_alone(model, prompt, ends, 6)
        extended = (*prompt, *reasoning.tokens, 50, 51)
        assert (answer.tokens, answer.truncated) == _generate_alone(model, extended, ends, 5)
