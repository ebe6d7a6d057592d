import pytest
import torch

from macro_routing.models import apply_lm_head, apply_route, collect_hidden_states
from macro_routing.routes import parse_route
from tests.models.tiny import LAYERS, VARIANTS, tiny_model, tokens

ROUTE = parse_route("L0-L3 L1(+h-2) L2 RJ", LAYERS)


@pytest.mark.parametrize("name", VARIANTS)
def test_one_state_per_step_and_the_last_gives_the_logits(name):
    model = tiny_model(name)
    routed = apply_route(model, ROUTE)
    ids = tokens()
    states = collect_hidden_states(routed, ids)
    assert len(states) == ROUTE.length
    with torch.no_grad():
        expected = routed(ids).logits
    assert torch.equal(apply_lm_head(routed, states[-1]), expected)
    assert torch.equal(apply_lm_head(model, states[-1]), expected)
    assert torch.equal(states[3], collect_hidden_states(model, ids)[3])
    assert not any(part._forward_hooks for part in routed.modules())
