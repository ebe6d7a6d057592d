"""A route for every prompt: what pairs give equals what each route gives by itself."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from macro_routing.engine.flight import decoder as flight_decoder
from macro_routing.engine.flight import generation as flight_generation
from macro_routing.engine.flight.decoder import FlightDecoder
from macro_routing.engine.likelihood import ChoiceItem, choice_log_likelihoods
from macro_routing.engine.row_pass import turns
from macro_routing.engine.shared_generation import Generation, generate_of_pairs, generate_of_routes
from macro_routing.engine.shared_likelihood import choice_log_likelihoods_of_pairs
from macro_routing.engine.writing import Stage
from macro_routing.evaluation.decoding import Decoding
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.score_store import ScoreStore
from macro_routing.evaluation.units import UnitSizes
from macro_routing.models import apply_route
from macro_routing.routes import parse_route
from tests.engine.test_generation import PROMPTS
from tests.models.tiny import LAYERS, VARIANTS, tiny_model
from tests.runs.small import small_frozen, small_task
from tests.strategies import programs

ENDS = frozenset(range(3, 12))
STAGES = (Stage(ENDS, 3, (50, 51)), Stage(ENDS, 2))
ROUTES = [parse_route(text, LAYERS) for text in ("L0-L3 L1(+h-2) RJ", "L0 L2 RJ", "L0 RJ")]
PAIRS = [(ROUTES[place % len(ROUTES)], prompt) for place, prompt in enumerate(PROMPTS)]


def _one_by_one(model, pairs=PAIRS, stages=STAGES):
    return [generate_of_routes(model, [route], [prompt], Generation(stages))[route][0] for route, prompt in pairs]


def test_pairs_are_written_as_one_by_one():
    model = tiny_model("llama")
    assert generate_of_pairs(model, PAIRS, Generation(STAGES)) == _one_by_one(model)


def test_pairs_fly_as_they_are_written(monkeypatch):
    model = tiny_model("llama", head_dim=32)
    monkeypatch.setattr(flight_generation, "MOST_ROWS", 3)  # several groups
    decoder = FlightDecoder(model, graphs=False)
    pairs, stages = PAIRS, (Stage(ENDS, 2),)  # interpreted kernels take long
    with torch.no_grad():
        found = generate_of_pairs(model, pairs, Generation(stages), decoder)
        assert found == _one_by_one(model, pairs, stages)
        decoder.release()  # what it held is gone, and made anew when it is needed
        assert decoder.cache_bytes == 0
        assert generate_of_pairs(model, pairs, Generation(stages), decoder) == found
        assert decoder.cache_bytes > 0


def test_pairs_of_one_route_fly_alike_when_they_are_read_at_different_times(monkeypatch):
    """Lanes are as long as a route's longest prompt, also for prompts that are read without it."""
    model = tiny_model("llama", head_dim=32)
    longer, shorter = (*range(20, 29),), (*range(30, 34),)
    pairs = [(ROUTES[1], longer), (ROUTES[1], shorter), (ROUTES[2], longer)]
    monkeypatch.setattr(flight_decoder, "PROMPT_TOKENS", 18)  # two rows at once
    stages = (Stage(ENDS, 2),)
    with torch.no_grad():
        found = generate_of_pairs(model, pairs, Generation(stages), FlightDecoder(model, graphs=False))
    assert found == _one_by_one(model, pairs, stages)


@pytest.mark.parametrize(
    "decoding", [Decoding("likelihood"), Decoding("direct", answer_budget=3)], ids=lambda d: d.mode
)
def test_pairs_and_routes_are_scored_alike_and_known_to_each_other(decoding, tmp_path):
    frozen, task = small_frozen(), small_task()
    examples = task.pools["test"][:6]
    routes = [parse_route(text, frozen.layers) for text in ("L0 RJ", "L0 L2 RJ", "L0-L3 L1 RJ")]
    pairs = [(routes[place % 3], example) for place, example in enumerate(examples)]
    ran = []
    evaluator = Evaluator(frozen, task, decoding, ScoreStore(tmp_path / "s.sqlite"), on_outcomes=ran.append)
    found = evaluator.evaluate_pairs([*pairs, pairs[0]])
    assert sum(ran) == len(pairs)  # the one that came twice was run once
    assert found[-1] == found[0]
    alone = Evaluator(frozen, task, decoding)
    for (route, example), outcome in zip(pairs, found, strict=False):
        assert alone.evaluate([route], [example])[route].outcomes == (outcome,)
    ran.clear()
    evaluator.evaluate_pairs(pairs)
    assert not ran  # all of it is known now


class Dealt:
    """Workers that are this process: what matters is how the work is cut for them."""

    workers = 4

    def run(self, evaluator, asks):
        for ask in reversed(asks):
            yield ask, evaluator.run_work_item(ask)


def test_pairs_are_cut_alike_with_and_without_workers(tmp_path, monkeypatch):
    """The batches decide about last digits: also where a pair comes twice, or some are known already."""
    frozen, task = small_frozen(), small_task()
    routes = [parse_route(text, frozen.layers) for text in ("L0 RJ", "L0 L2 RJ", "L0-L3 L1 RJ")]
    pairs = [(routes[place % 3], one) for place, one in enumerate(task.pools["test"][:20])]
    asked = [*pairs[:7], *pairs[:3], *pairs[7:]]
    run, batches = Evaluator.run_pairs, []
    monkeypatch.setattr(Evaluator, "run_pairs", lambda self, some: batches.append(tuple(some)) or run(self, some))
    found, seen = [], []
    for number, executor in enumerate((None, Dealt())):
        store = ScoreStore(tmp_path / f"{number}.sqlite")
        evaluator = Evaluator(
            frozen, task, Decoding("likelihood"), store, UnitSizes(whole=6), executor=executor, on_outcomes=seen.append
        )
        evaluator.evaluate_pairs([pairs[2], pairs[9], pairs[10]])
        batches.clear()
        found.append((evaluator.evaluate_pairs(asked), set(batches)))
    assert found[0] == found[1]
    assert [len(part) for part in sorted(found[0][1], key=lambda part: part[0][1].id)] == [5, 4, 6, 2]
    assert sum(seen) == 2 * len(pairs)  # none twice


ITEMS = [
    ChoiceItem(prompt, tuple((30 + place, *range(40, 40 + length)) for length in range(3)))
    for place, prompt in enumerate(PROMPTS)
]


@pytest.mark.parametrize("name", VARIANTS)
def test_rows_on_routes_of_their_own_score_as_each_alone(name):
    """Skips, repeats, adds with two sources and coefficients, and an early exit, side by side."""
    texts = ("L0-L3 L1(+h-2) L2(-0.25h-1) RJ", "L0 L2 RJ", "L0 RJ", "L0-L2", "L0-L3 L3 L3 L1(+h-3) RJ")
    routes = [parse_route(text, LAYERS) for text in texts]
    model = tiny_model(name)
    pairs = [(routes[(place + shift) % 5], item) for shift in range(3) for place, item in enumerate(ITEMS)]
    found = choice_log_likelihoods_of_pairs(model, pairs, most_tokens=400)
    for (route, item), values in zip(pairs, found, strict=True):
        assert values == pytest.approx(choice_log_likelihoods(apply_route(model, route), [item])[0], rel=1e-4, abs=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_rows_on_routes_of_their_own_score_on_a_gpu_as_on_a_cpu():
    routes = [parse_route(text, LAYERS) for text in ("L0-L3 L1(+h-2) L2(-0.25h-1) RJ", "L0 L2 RJ", "L0-L2")]
    model = tiny_model("qwen2")
    pairs = [(route, item) for route in routes for item in ITEMS]
    expected = choice_log_likelihoods_of_pairs(model, pairs)
    found = choice_log_likelihoods_of_pairs(model.cuda(), pairs)
    assert [pytest.approx(values, rel=1e-3, abs=1e-3) for values in expected] == found


@given(st.lists(programs(), min_size=1, max_size=6))
def test_turns_take_every_row_through_its_route(drawn):
    layers = max(program.steps[place].layer for program in drawn for place in range(len(program.steps))) + 1
    routes = [program.expand(layers) for program in drawn]
    taken = [[] for _ in routes]
    for turn in turns(routes):
        for row, visit in zip(turn.rows, turn.visits, strict=True):
            assert (visit.route, visit.step) == (row, len(taken[row]))
            taken[row].append(turn.layer)
    assert taken == [[step.layer for step in route.steps] for route in routes]
