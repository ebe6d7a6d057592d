"""Block influence against the formula, on a model whose layers are known."""

import pytest
import torch

from macro_routing.engine.batching import pad_left
from macro_routing.models.hidden_states import collect_hidden_states, compute_block_influence
from tests.models.tiny import tiny_model


def test_influence_is_one_less_the_mean_cosine():
    model = tiny_model("llama")
    prompts = [(5, 6, 7, 8), (9, 10), (11, 12, 13, 14, 15, 16)]
    actual = compute_block_influence(model, [pad_left(prompts[:2], "cpu"), pad_left(prompts[2:], "cpu")])
    totals, count = [0.0] * model.config.num_hidden_layers, 0
    for prompt in prompts:
        ids = torch.tensor([prompt])
        with torch.no_grad():
            states = [model.get_input_embeddings()(ids), *collect_hidden_states(model, ids)]
        count += len(prompt)
        for layer in range(len(totals)):
            cosine = torch.cosine_similarity(states[layer][0], states[layer + 1][0])
            totals[layer] += float((1 - cosine).sum())
    assert actual == pytest.approx([total / count for total in totals], abs=1e-5)


def test_a_layer_that_does_nothing_has_no_influence():
    model = tiny_model("llama")
    with torch.no_grad():
        model.model.layers[2].self_attn.o_proj.weight.zero_()
        model.model.layers[2].mlp.down_proj.weight.zero_()
    actual = compute_block_influence(model, [pad_left([(5, 6, 7, 8)], "cpu")])
    assert actual[2] == pytest.approx(0, abs=1e-6)
    assert min(actual[:2] + actual[3:]) > 1e-4
