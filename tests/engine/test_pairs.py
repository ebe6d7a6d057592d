"""Pairs of route and prompt: the results equal those of each route alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from macro_routing.engine.fused import batch_plan, prefill
from macro_routing.engine.fused.decoder import FusedDecoder
from macro_routing.engine.generation import DecodingStage, GenerationRequest
from macro_routing.engine.layer_schedule import merge_layer_orders_fast, schedule_layer_calls
from macro_routing.engine.likelihood import ChoiceItem, score_choices, score_choices_for_pairs
from macro_routing.engine.route_generation import generate_for_pairs, generate_for_routes
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.score_store import ScoreStore
from macro_routing.evaluation.scoring_settings import UnitSizes
from macro_routing.models import apply_route
from macro_routing.routes import parse_route
from tests.engine.test_generation import PROMPTS
from tests.models.tiny import LAYERS, VARIANTS, tiny_model
from tests.runs.small import small_frozen, small_task
from tests.strategies import programs

ENDS = frozenset(range(3, 12))
STAGES = (DecodingStage(ENDS, 3, (50, 51)), DecodingStage(ENDS, 2))
ROUTES = [parse_route(text, LAYERS) for text in ("L0-L3 L1(+h-2) RJ", "L0 L2 RJ", "L0 RJ")]
PAIRS = [(ROUTES[index % len(ROUTES)], prompt) for index, prompt in enumerate(PROMPTS)]


def _generate_one_by_one(model, pairs=PAIRS, stages=STAGES):
    return [
        generate_for_routes(model, [route], [prompt], GenerationRequest(stages))[route][0] for route, prompt in pairs
    ]


def test_pairs_are_generated_as_one_by_one():
    model = tiny_model("llama")
    assert generate_for_pairs(model, PAIRS, GenerationRequest(STAGES)) == _generate_one_by_one(model)


def test_fused_pairs_equal_eager_pairs(monkeypatch):
    model = tiny_model("llama", head_dim=32, num_hidden_layers=3)  # interpreted kernels take long
    monkeypatch.setattr(batch_plan, "MAX_SEQUENCES", 3)  # several groups
    decoder = FusedDecoder(model, graphs=False)
    routes = [parse_route(text, 3) for text in ("L0-L2 L1(+h-2) RJ", "L0 L2 RJ", "L0 RJ")]
    pairs = [(routes[index % len(routes)], prompt) for index, prompt in enumerate(PROMPTS)]
    stages = (DecodingStage(ENDS, 2),)
    with torch.no_grad():
        actual = generate_for_pairs(model, pairs, GenerationRequest(stages), decoder)
        assert actual == _generate_one_by_one(model, pairs, stages)
        decoder.release_memory()  # what it held is gone, and made anew when it is needed
        assert decoder.allocated_cache_bytes == 0
        assert generate_for_pairs(model, pairs, GenerationRequest(stages), decoder) == actual
        assert decoder.allocated_cache_bytes > 0


def test_fused_pairs_of_one_route_do_not_depend_on_the_prefill_batch(monkeypatch):
    """Cache regions are as long as a route's longest prompt, also for prompts that are prefilled without it."""
    model = tiny_model("llama", head_dim=32)
    longer, shorter = (*range(20, 29),), (*range(30, 34),)
    pairs = [(ROUTES[1], longer), (ROUTES[1], shorter), (ROUTES[2], longer)]
    monkeypatch.setattr(prefill, "MAX_PREFILL_TOKENS", 18)  # two rows at once
    stages = (DecodingStage(ENDS, 2),)
    with torch.no_grad():
        actual = generate_for_pairs(model, pairs, GenerationRequest(stages), FusedDecoder(model, graphs=False))
    assert actual == _generate_one_by_one(model, pairs, stages)


@pytest.mark.parametrize(
    "decoding", [DecodingSettings("likelihood"), DecodingSettings("direct", answer_budget=3)], ids=lambda d: d.mode
)
def test_pairs_and_routes_get_the_same_scores_and_share_the_store(decoding, tmp_path):
    frozen, task = small_frozen(), small_task()
    examples = task.pools["test"][:6]
    routes = [parse_route(text, frozen.layers) for text in ("L0 RJ", "L0 L2 RJ", "L0-L3 L1 RJ")]
    pairs = [(routes[index % 3], example) for index, example in enumerate(examples)]
    ran = []
    evaluator = Evaluator(frozen, task, decoding, ScoreStore(tmp_path / "s.sqlite"), on_outcomes=ran.append)
    actual = evaluator.evaluate_pairs([*pairs, pairs[0]])
    assert sum(ran) == len(pairs)  # the one that came twice was run once
    assert actual[-1] == actual[0]
    alone = Evaluator(frozen, task, decoding)
    for (route, example), outcome in zip(pairs, actual, strict=False):
        assert alone.evaluate([route], [example])[route].outcomes == (outcome,)
    ran.clear()
    evaluator.evaluate_pairs(pairs)
    assert not ran  # all of it is known now


class Dealt:
    """Workers that run in this process; the test checks how the work is split for them."""

    worker_count = 4

    def __init__(self, evaluator):
        self.evaluator = evaluator

    def run_work_items(self, _spec, items):
        for item in reversed(items):
            yield item, self.evaluator.run_work_item(item)


def test_pairs_have_the_same_batches_with_and_without_workers(tmp_path, monkeypatch):
    """Batches change the last digits, so they must be equal, also with repeated pairs and pairs in the store."""
    frozen, task = small_frozen(), small_task()
    routes = [parse_route(text, frozen.layers) for text in ("L0 RJ", "L0 L2 RJ", "L0-L3 L1 RJ")]
    pairs = [(routes[index % 3], example) for index, example in enumerate(task.pools["test"][:20])]
    asked = [*pairs[:7], *pairs[:3], *pairs[7:]]
    run, batches = Evaluator.run_pairs, []
    monkeypatch.setattr(Evaluator, "run_pairs", lambda self, some: batches.append(tuple(some)) or run(self, some))
    actual, seen = [], []
    alone = Evaluator(frozen, task, DecodingSettings("likelihood"))
    for number, executor in enumerate((None, Dealt(alone))):
        store = ScoreStore(tmp_path / f"{number}.sqlite")
        evaluator = Evaluator(
            frozen,
            task,
            DecodingSettings("likelihood"),
            store,
            UnitSizes(full=6),
            executor=executor,
            on_outcomes=seen.append,
        )
        evaluator.evaluate_pairs([pairs[2], pairs[9], pairs[10]])
        batches.clear()
        actual.append((evaluator.evaluate_pairs(asked), set(batches)))
    assert actual[0] == actual[1]
    assert [len(part) for part in sorted(actual[0][1], key=lambda part: part[0][1].id)] == [5, 4, 6, 2]
    assert sum(seen) == 2 * len(pairs)  # none twice


ITEMS = [
    ChoiceItem(prompt, tuple((30 + index, *range(40, 40 + length)) for length in range(3)))
    for index, prompt in enumerate(PROMPTS)
]


@pytest.mark.parametrize("name", VARIANTS)
def test_rows_with_different_routes_score_as_each_alone(name):
    """Skips, repeats, adds with two sources and coefficients, and an early exit, side by side."""
    texts = ("L0-L3 L1(+h-2) L2(-0.25h-1) RJ", "L0 L2 RJ", "L0 RJ", "L0-L2", "L0-L3 L3 L3 L1(+h-3) RJ")
    routes = [parse_route(text, LAYERS) for text in texts]
    model = tiny_model(name)
    pairs = [(routes[(index + shift) % 5], item) for shift in range(3) for index, item in enumerate(ITEMS)]
    actual = score_choices_for_pairs(model, pairs, max_tokens=400)
    for (route, item), values in zip(pairs, actual, strict=True):
        assert values == pytest.approx(score_choices(apply_route(model, route), [item])[0], rel=1e-4, abs=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_rows_with_different_routes_score_on_a_gpu_as_on_a_cpu():
    routes = [parse_route(text, LAYERS) for text in ("L0-L3 L1(+h-2) L2(-0.25h-1) RJ", "L0 L2 RJ", "L0-L2")]
    model = tiny_model("qwen2")
    pairs = [(route, item) for route in routes for item in ITEMS]
    expected = score_choices_for_pairs(model, pairs)
    actual = score_choices_for_pairs(model.cuda(), pairs)
    assert [pytest.approx(values, rel=1e-3, abs=1e-3) for values in expected] == actual


@given(st.lists(programs(), min_size=1, max_size=6))
def test_layer_calls_take_every_row_through_its_route(drawn):
    layers = max(program.steps[index].layer for program in drawn for index in range(len(program.steps))) + 1
    routes = [program.to_route(layers) for program in drawn]
    taken = [[] for _ in routes]
    for call in schedule_layer_calls(routes, merge_layer_orders_fast).calls:
        assert [route_step.route for route_step in call.steps] == sorted(route_step.route for route_step in call.steps)
        for route_step in call.steps:
            assert route_step.step == len(taken[route_step.route])
            taken[route_step.route].append(call.layer)
    assert taken == [[step.layer for step in route.steps] for route in routes]
