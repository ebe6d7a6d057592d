"""The kernels of mixtures of experts against transformers' own modules; interpreted without a GPU."""

import pytest
import torch

from macro_routing.engine.fused.device_tables import DeviceRowAssignment
from macro_routing.engine.fused.expert_runner import ExpertRunner
from macro_routing.engine.fused.weights import fuse_weights
from tests.models.tiny import tiny_model

ROWS, SEQUENCES = 48, 37


def _mixture(name, **changes):
    """A mixture of experts, one of which every row chooses, so that it has more rows than a tile; and its runner."""
    model = tiny_model(name, head_dim=32, **changes)
    block = model.model.layers[0].mlp
    with torch.no_grad():
        block.gate.weight[2] = 1.0
    weights = fuse_weights(model)
    tables = DeviceRowAssignment(1, ROWS, "cpu")
    tables.sequence[0, :SEQUENCES] = torch.arange(SEQUENCES)
    runner = ExpertRunner(weights, tables, ROWS, {"dtype": torch.float32, "device": "cpu"})
    return block, runner, weights.layers[0].mlp


def _states():
    return torch.randn(ROWS, 32, generator=torch.Generator().manual_seed(0)).abs()


@pytest.mark.parametrize(
    ("name", "changes"),
    [("mixtral", {}), ("qwen3_moe", {}), ("qwen3_moe", {"norm_topk_prob": True, "num_experts_per_tok": 3})],
    ids=str,
)
def test_outputs_equal_those_of_transformers(name, changes):
    block, runner, experts = _mixture(name, **changes)
    states, delta = _states(), torch.zeros(ROWS, 32)
    runner.launch(experts, states, delta, call=0)
    expected = block(states[None, :SEQUENCES])[0]
    assert torch.allclose(delta[:SEQUENCES], expected, atol=1e-6)
    assert expected.abs().max() > 0.01
    assert not delta[SEQUENCES:].any()  # rows without a sequence choose no expert
    assert runner._expert_counts[2] == SEQUENCES > 32
    assert runner._expert_counts.sum() == SEQUENCES * experts.chosen


def test_a_state_that_is_not_a_number_spoils_no_other_row():
    _, runner, experts = _mixture("mixtral")
    states, delta, expected = _states(), torch.zeros(ROWS, 32), torch.zeros(ROWS, 32)
    runner.launch(experts, states, expected, call=0)
    states[5] = float("nan")
    runner.launch(experts, states, delta, call=0)
    assert delta[5].isnan().all()
    delta[5] = expected[5]
    assert torch.equal(delta, expected)
    assert runner._expert_counts.sum() == SEQUENCES * experts.chosen


def test_equal_probabilities_choose_the_first_experts():
    _, runner, experts = _mixture("mixtral")
    runner.launch(experts, torch.zeros(ROWS, 32), torch.zeros(ROWS, 32), call=0)
    assert runner._expert_counts.tolist() == [SEQUENCES, SEQUENCES, 0, 0]
