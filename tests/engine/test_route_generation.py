"""Shared, staged generation against plain generation route by route."""

import pytest

from macro_routing.engine.generation import (
    DecodingStage,
    GenerationRequest,
    extend_looping_tokens_to_length,
    find_loop_period,
    generate_greedy,
    generate_reasoning_then_answer,
)
from macro_routing.engine.route_generation import generate_for_routes
from macro_routing.models import apply_route
from macro_routing.models.find_decoder import get_decoder
from tests.engine.test_generation import PROMPTS
from tests.engine.test_shared_likelihood import COMMON_PREFIX, ROUTES
from tests.models.tiny import VARIANTS, tiny_model

ENDS = set(range(3, 12))
FORCED = (50, 51)
TWO = (DecodingStage(ENDS, 6, FORCED), DecodingStage(ENDS, 4))


def _generate_plainly(model, route, prompts):
    return generate_reasoning_then_answer(apply_route(model, route), prompts, TWO)


@pytest.mark.parametrize("name", VARIANTS)
def test_one_stage_equals_plain_generation(name):
    model = tiny_model(name)
    actual = generate_for_routes(model, ROUTES, PROMPTS, GenerationRequest((DecodingStage(ENDS, 7),)))
    for route in ROUTES:
        assert [row for (row,) in actual[route]] == generate_greedy(apply_route(model, route), PROMPTS, ENDS, 7)
    lengths = [len(row.tokens) for rows in actual.values() for (row,) in rows]
    assert min(lengths) < 7 <= max(lengths)  # some rows left early, others ran to the budget


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("beginning", [(), COMMON_PREFIX], ids=["alone", "common beginning"])
def test_two_stages_in_one_loop_equal_two_generations(name, beginning):
    model = tiny_model(name)
    prompts = [(*beginning, *prompt) for prompt in PROMPTS]
    actual = generate_for_routes(model, ROUTES[:3], prompts, GenerationRequest(TWO))
    for route in ROUTES[:3]:
        assert actual[route] == _generate_plainly(model, route, prompts)


@pytest.mark.parametrize("max_tokens", [1, 40, 10**6])
def test_the_batch_size_changes_no_text(max_tokens):
    model = tiny_model("llama")
    actual = generate_for_routes(model, ROUTES[:2], PROMPTS, GenerationRequest(TWO, max_tokens))
    assert all(actual[route] == _generate_plainly(model, route, PROMPTS) for route in ROUTES[:2])


def test_prefixes_are_prefilled_once_and_finished_rows_leave():
    model = tiny_model("llama")
    shapes = []
    handle = get_decoder(model).layers[0].register_forward_pre_hook(lambda _, args: shapes.append(tuple(args[0].shape)))
    generate_for_routes(model, ROUTES[:3], PROMPTS, GenerationRequest((DecodingStage(ENDS, 30),)))
    handle.remove()
    longest = max(map(len, PROMPTS))
    assert sum(shape[1] == longest for shape in shapes) == 1  # three routes begin with layer 0
    rows = [shape[0] for shape in shapes if shape[1] == 1]
    assert min(rows) < len(PROMPTS)


def test_loops_are_detected_when_they_are_exact():
    assert find_loop_period([1, 2] * 30) == 2
    assert find_loop_period([9, 9, *[1, 2, 3] * 16]) == 3
    assert find_loop_period([7] * 48) == 1
    assert find_loop_period([7] * 47) is None  # too early to say
    assert find_loop_period([*[1, 2, 3] * 16, 4]) is None
    assert find_loop_period(list(range(20)) * 3) is None  # three repeats may be a list
    assert extend_looping_tokens_to_length([5, 1, 2, 1, 2], 2, 8) == (5, 1, 2, 1, 2, 1, 2, 1)


@pytest.mark.parametrize("stages", [(DecodingStage((), 72),), (DecodingStage((), 72, FORCED), DecodingStage((), 64))])
def test_stopped_loops_give_the_text_of_the_full_run(stages):
    """Without attention the next token depends on the last one alone, so every text ends in a loop and stays there."""
    model = tiny_model("llama")
    for layer in get_decoder(model).layers:
        layer.self_attn.o_proj.weight.data.zero_()
    full = generate_for_routes(model, ROUTES[:2], PROMPTS[:2], GenerationRequest(stages))
    calls = []
    handle = get_decoder(model).layers[0].register_forward_pre_hook(lambda _, args: calls.append(len(args[0])))
    stopped = generate_for_routes(model, ROUTES[:2], PROMPTS[:2], GenerationRequest(stages, stop_loops=True))
    handle.remove()
    assert stopped == full
    assert sum(calls) < sum(len(row) * 72 for rows in full.values() for row in rows)
