"""Layers that are replayed from CUDA graphs against layers that are called."""

import pytest
import torch
from transformers import PreTrainedModel

from macro_routing.engine import likelihood
from macro_routing.engine.layer_graphs import LayerGraphs, can_replay_layers
from macro_routing.engine.likelihood import ChoiceItem, score_choices_for_routes
from macro_routing.engine.prefix_tree import plan_prefix_tree
from macro_routing.engine.shared_forward import PrefixTreeForward, split_prompts_at_common_prefix
from tests.engine.test_likelihood import _make_items
from tests.engine.test_shared_likelihood import COMMON_PREFIX, ROUTES
from tests.models.tiny import VARIANTS, tiny_model

NAMES = (
    [name for name in VARIANTS if can_replay_layers(tiny_model(name).to("cuda"))] if torch.cuda.is_available() else []
)


def run_states(model, graphs):
    prompts = [(*COMMON_PREFIX, *item.prompt) for item in _make_items()]
    forward = PrefixTreeForward(model, split_prompts_at_common_prefix(model, prompts, 0), graphs)
    return {
        finished.route_index: [state.clone() for state in finished.states]
        for finished in forward.run_prefix_tree(plan_prefix_tree(ROUTES))
    }


def test_a_replay_reads_and_writes_the_same_buffers_for_all_layers():
    captured = []

    def capture(launch, is_first):
        captured.append(is_first)
        return launch  # a replay that starts the kernels again

    model = tiny_model("llama")
    replayed, called = run_states(model, LayerGraphs(capture)), run_states(model, None)
    assert replayed.keys() == called.keys()
    for route, states in called.items():
        assert all(map(torch.equal, replayed[route], states))
    assert captured[0]
    assert not any(captured[1:])
    assert 1 < len(captured) < sum(route.length for route in ROUTES)  # a layer is captured once


def test_a_model_on_a_cpu_is_not_captured():
    model = tiny_model("llama")
    assert not can_replay_layers(model)
    assert len(score_choices_for_routes(model, ROUTES, _make_items())) == len(ROUTES)


def test_what_cannot_be_captured_is_called(monkeypatch):
    models = {name: tiny_model(name) for name in VARIANTS}
    monkeypatch.setattr(PreTrainedModel, "device", torch.device("cuda"))
    captured = {name for name, model in models.items() if can_replay_layers(model)}
    assert captured == {"llama", "qwen2", "qwen3", "olmo2", "phi3"}
    models["llama"].config._attn_implementation = "flash_attention_2"
    assert not can_replay_layers(models["llama"])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", NAMES or ["llama"])
def test_replayed_scores_are_equal(name, dtype, monkeypatch):
    model = tiny_model(name).to("cuda", dtype)
    items = [ChoiceItem((*COMMON_PREFIX, *item.prompt), item.choices) for item in _make_items()]
    for batch in (items, _make_items(), items[:1]):
        with monkeypatch.context() as patch:
            patch.setattr(likelihood, "REPLAYS_LAYERS", False)
            expected = score_choices_for_routes(model, ROUTES, batch)
        assert score_choices_for_routes(model, ROUTES, batch) == expected
