import copy
import threading

import pytest
import torch
from transformers import DynamicCache

from macro_routing.deploy.route_switching import RoutedModel
from macro_routing.errors import ModelError, RouteError
from macro_routing.models import apply_route, freeze_model
from macro_routing.routes import parse_route
from tests.models.tiny import LAYERS, VARIANTS, tiny_model, tokens

ROUTES = {
    "math": parse_route("L0-L3 L1-L3 RJ", LAYERS),
    "law": parse_route("L0-L2 L1(+h-2) L4 RJ", LAYERS),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_route_is_bit_equal_with_apply_route(name):
    model = tiny_model(name)
    before = model(tokens()).logits
    routed = RoutedModel(model, ROUTES)
    for _ in range(2):  # switching back and forth leaves nothing behind
        for wanted, route in ROUTES.items():
            expected = apply_route(model, route)(tokens()).logits
            with routed.use_route(wanted):
                assert torch.equal(routed(tokens()).logits, expected)
            assert torch.equal(routed[wanted](tokens()).logits, expected)
            assert torch.equal(routed(tokens()).logits, before)
    assert torch.equal(model(tokens()).logits, before)


def generated(model):
    return model.generate(tokens(), max_new_tokens=6, do_sample=False)


def test_generate_per_call_and_in_a_block():
    model = tiny_model("qwen3")
    routed = RoutedModel(model, ROUTES)
    expected = {name: generated(apply_route(model, route)) for name, route in ROUTES.items()}
    assert not torch.equal(expected["math"], expected["law"])
    assert torch.equal(generated(routed["law"]), expected["law"])
    with routed.use_route("math") as inner:
        assert torch.equal(generated(routed), expected["math"])
        assert torch.equal(generated(inner), expected["math"])
        assert torch.equal(generated(routed["law"]), expected["law"])
    assert torch.equal(generated(routed), generated(model))


def test_blocks_nest_and_end_with_their_errors():
    routed, other = RoutedModel(tiny_model("llama"), ROUTES), RoutedModel(tiny_model("llama"), ROUTES)
    with routed.use_route("math"):
        with routed.use_route("law"), routed.use_route("law"), other.use_route("math"):
            assert (routed.active_route_name, other.active_route_name) == ("law", "math")
        assert (routed.active_route_name, other.active_route_name) == ("math", "standard")
        with pytest.raises(ZeroDivisionError), routed.use_route("law"):
            _ = 1 / 0
        assert routed.active_route_name == "math"
    assert routed.active_route_name == "standard"


def test_threads_choose_for_themselves():
    routed = RoutedModel(tiny_model("llama"), ROUTES)
    seen, inside = {}, threading.Barrier(2)

    def use(name):
        with routed.use_route(name):
            inside.wait(timeout=300)
            seen[name] = (routed.active_route_name, routed(tokens()).logits)

    workers = [threading.Thread(target=use, args=(name,)) for name in ROUTES]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for name in ROUTES:
        assert seen[name][0] == name
        assert torch.equal(seen[name][1], routed[name](tokens()).logits)


def test_weights_are_there_once():
    model = tiny_model("llama")
    routed = RoutedModel(freeze_model(model), ROUTES)
    own = {parameter.data_ptr() for parameter in model.parameters()}
    for name in routed.switchable_route_names:
        assert {parameter.data_ptr() for parameter in routed[name].parameters()} <= own
    assert not model._forward_pre_hooks
    assert not model._forward_hooks


def test_a_cache_of_another_route_is_rejected():
    routed = RoutedModel(tiny_model("llama"), ROUTES)
    made = routed["math"](tokens()).past_key_values
    given = DynamicCache()
    routed["law"](tokens(), past_key_values=given)
    following = tokens(length=1)
    for cache, name in ((made, "law"), (given, "math"), (made, "standard")):
        with pytest.raises(ModelError, match="was filled on the route"):
            routed[name](following, past_key_values=cache)
    routed["math"](following, past_key_values=made)


def test_names_are_checked():
    model = tiny_model("llama")
    with pytest.raises(RouteError, match="did you mean 'math'"):
        RoutedModel(model, ROUTES)["maths"]
    with pytest.raises(RouteError, match="unknown route 'x'"), RoutedModel(model, ROUTES).use_route("x"):
        pass
    with pytest.raises(RouteError, match="give the route another name"):
        RoutedModel(model, {"standard": ROUTES["math"]})
    with pytest.raises(RouteError, match="8 layers"):
        RoutedModel(model, {"math": parse_route("L0 RJ", 8)})


def test_it_acts_as_a_model():
    model = tiny_model("llama")
    routed = RoutedModel(model, ROUTES)
    assert routed.config.num_hidden_layers == LAYERS
    with routed.use_route("math"):
        assert routed.config.num_hidden_layers == ROUTES["math"].length
        assert routed.macro_route == ROUTES["math"]
    assert routed.device == model.device
    assert copy.copy(routed).switchable_route_names == ("standard", "math", "law")
