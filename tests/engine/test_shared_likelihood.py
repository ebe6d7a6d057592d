"""Many routes over a prefix tree against route by route."""

import pytest

from macro_routing.engine import likelihood
from macro_routing.engine.likelihood import ChoiceItem, score_choices, score_choices_for_routes
from macro_routing.engine.prefix_tree import plan_prefix_tree
from macro_routing.models import apply_route
from macro_routing.models.find_decoder import get_decoder
from macro_routing.routes import Route, parse_route
from tests.engine.test_likelihood import _make_items
from tests.models.tiny import LAYERS, VARIANTS, tiny_model

ROUTES = [
    parse_route(text, LAYERS)
    for text in ("L0 RJ", "L0-L3 L1(+h-2) L2 RJ", "L0-L3 L1 RJ", "L0-L3 L1(-0.25h-1) L2 RJ", "L0-L4", "L0 L0 L2 RJ")
]
COMMON_PREFIX = tuple(range(10, 40))


def _score_route_by_route(model, items):
    return {route: score_choices(apply_route(model, route), items) for route in ROUTES}


def _assert_equal(actual, expected, tolerance=1e-4):
    assert list(actual) == list(expected)
    for route, rows in expected.items():
        for actual_row, expected_row in zip(actual[route], rows, strict=True):
            assert actual_row == pytest.approx(expected_row, abs=tolerance)


@pytest.mark.parametrize("name", VARIANTS)
def test_shared_scores_equal_scores_of_single_routes(name):
    model = tiny_model(name)
    expected = _score_route_by_route(model, _make_items())
    actual = score_choices_for_routes(model, ROUTES, _make_items())
    _assert_equal(actual, expected)


@pytest.mark.parametrize("name", VARIANTS)
def test_scores_are_bit_equal_whatever_other_routes_run_beside(name):
    """So a unit may be split between workers, or computed again route by route, in any way."""
    model, items = tiny_model(name), _make_items()
    together = score_choices_for_routes(model, ROUTES, items)
    some = score_choices_for_routes(model, ROUTES[3:0:-1], items)
    for route in ROUTES:
        assert score_choices_for_routes(model, [route], items)[route] == together[route]
        assert some.get(route, together[route]) == together[route]


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_are_computed_in_chunks_and_not_for_padding(name, monkeypatch):
    """The logits of a large vocabulary must never exist for all tokens at once, and padding needs none."""
    model, items, at_once = tiny_model(name), _make_items(), 3
    expected = _score_route_by_route(model, items)
    read, shapes = likelihood.apply_lm_head, []
    monkeypatch.setattr(likelihood, "apply_lm_head", lambda *args: shapes.append(args[1].shape[:2]) or read(*args))
    monkeypatch.setattr(likelihood, "MAX_LOGIT_BYTES", at_once * 4 * model.config.vocab_size)
    _assert_equal(score_choices_for_routes(model, ROUTES, items), expected)
    parts = [rows * tokens for rows, tokens in shapes]
    assert max(parts) == at_once < len(items)  # those after the prompts, too
    # One after each prompt, and one for each token of a choice after its first.
    needed = len(items) + sum(len(choice) - 1 for item in items for choice in item.choices)
    assert sum(parts) == len(ROUTES) * needed


@pytest.mark.parametrize("name", VARIANTS)
def test_a_common_prefix_is_computed_once_and_changes_no_score(name):
    model = tiny_model(name)
    items = [ChoiceItem((*COMMON_PREFIX, *item.prompt), item.choices) for item in _make_items()]
    seen = []
    handle = get_decoder(model).layers[0].register_forward_pre_hook(lambda _, args: seen.append(tuple(args[0].shape)))
    actual = score_choices_for_routes(model, ROUTES, items)
    handle.remove()
    once = any(shape[:2] == (1, len(COMMON_PREFIX)) for shape in seen)
    assert once == (getattr(model.config, "sliding_window", None) is None or "sliding" not in str(model.config))
    _assert_equal(actual, _score_route_by_route(model, items))


@pytest.mark.parametrize("bound", [1, 10**9])
def test_a_memory_limit_reduces_sharing_and_changes_no_score(bound):
    model = tiny_model("llama")
    calls = []
    handles = [layer.register_forward_hook(lambda *_: calls.append(1)) for layer in get_decoder(model).layers]
    actual = score_choices_for_routes(model, ROUTES, _make_items(count=1), hidden_state_bytes=bound)
    for handle in handles:
        handle.remove()
    _assert_equal(actual, _score_route_by_route(model, _make_items(count=1)))
    segments = 2  # the prompt, then the choices
    if bound == 10**9:
        assert len(calls) == segments * len(plan_prefix_tree(ROUTES).applications)
    else:
        assert len(calls) > segments * len(plan_prefix_tree(ROUTES).applications)


@pytest.mark.parametrize("max_tokens", [1, 60, 10**6])
def test_batches_of_one_equal_batches_of_many(max_tokens):
    model = tiny_model("qwen3")
    actual = score_choices_for_routes(model, ROUTES, _make_items(), max_tokens=max_tokens)
    _assert_equal(actual, _score_route_by_route(model, _make_items()))


def test_choices_of_one_token_need_no_second_pass():
    model = tiny_model("llama")
    items = [ChoiceItem((5, 6, 7), ((8,), (9,))), ChoiceItem((5, 6), ((8,), (10,)))]
    calls = []
    handle = get_decoder(model).layers[0].register_forward_hook(lambda *_: calls.append(1))
    standard = Route.standard(LAYERS)
    actual = score_choices_for_routes(model, [standard], items)
    handle.remove()
    assert len(calls) == 1
    _assert_equal(actual, {standard: score_choices(model, items)})
