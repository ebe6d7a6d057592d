"""Routes in flight against the eager path: the same texts, token by token.

Without a GPU the kernels are interpreted, which is slow: few rows, few tokens, one layer order that has everything.
"""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from macro_routing.engine.decoders import EAGER, FLIGHT, flight_refusal
from macro_routing.engine.flight import boarding, machine
from macro_routing.engine.flight.boarding import Party, board
from macro_routing.engine.flight.decoder import FlightDecoder
from macro_routing.engine.flight.generation import generate_in_flight
from macro_routing.engine.flight.schedule import plan_ticks, quick_order, shared_order
from macro_routing.engine.flight.support import refusal
from macro_routing.engine.flight.tables import padded_rows, seat
from macro_routing.engine.flight.texts import MOST_TOKENS, fits
from macro_routing.engine.shared_generation import Generation, generate_of_routes
from macro_routing.engine.writing import Stage
from macro_routing.errors import ModelError
from macro_routing.routes import parse_route
from tests.engine.test_generation import PROMPTS
from tests.engine.test_shared_likelihood import BEGINNING
from tests.models.tiny import LAYERS, VARIANTS, tiny_model
from tests.strategies import programs

ENDS = frozenset(range(3, 12))
STAGES = (Stage(ENDS, 3, (50, 51)), Stage(ENDS, 2))
ROUTES = [parse_route(text, LAYERS) for text in ("L0-L3 L1(+h-2) L2(-0.25h-1) RJ", "L0 L2 RJ")]
HEADS = {"head_dim": 32}


def _equal(model, prompts, stages=STAGES, routes=ROUTES):
    expected = generate_of_routes(model, routes, prompts, Generation(stages))
    found = generate_in_flight(FlightDecoder(model, graphs=False), routes, prompts, stages)
    assert found == expected
    return expected


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_texts_equal_those_of_the_eager_path(name, monkeypatch):
    monkeypatch.setattr(machine, "_MOST_SPLITS", 1)
    texts = _equal(tiny_model(name, **HEADS), PROMPTS[:2])
    assert any(text.cut_off for rows in texts.values() for row in rows for text in row)


def test_a_common_beginning_several_batches_and_split_attention(monkeypatch):
    monkeypatch.setattr(machine, "_MOST_SPLITS", 2)
    monkeypatch.setattr(boarding, "PROMPT_TOKENS", 60)
    _equal(
        tiny_model("qwen2", **HEADS), [(*BEGINNING, *prompt) for prompt in PROMPTS[:3]], (Stage(ENDS, 2),), ROUTES[:1]
    )


def test_the_model_itself_is_unchanged_and_nothing_is_held_twice():
    model = tiny_model("qwen2", **HEADS)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    decoder = FlightDecoder(model, graphs=False)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    layer = model.model.layers[0]
    joined = decoder.weights.layers[0].gate_and_up.weight
    assert layer.mlp.gate_proj.weight.data_ptr() == joined.data_ptr()
    assert layer.mlp.up_proj.weight.untyped_storage().data_ptr() == joined.untyped_storage().data_ptr()


@given(st.lists(programs(LAYERS).map(lambda program: program.expand(LAYERS)), min_size=1, max_size=6), st.booleans())
@settings(deadline=None, max_examples=60)
def test_ticks_take_every_route_through_its_steps_and_adds(routes, are_many):
    if are_many:  # too many to look for the shortest order
        routes = routes * (48 // len(routes) + 1)
    schedule = plan_ticks(routes)
    done = [[] for _ in routes]
    shelves = [{} for _ in routes]
    for tick in schedule.ticks:
        for visit in tick.visits:
            step = routes[visit.route].steps[visit.step]
            assert step.layer == tick.layer
            assert visit.step == len(done[visit.route])
            if step.add:  # the state that is added is the one that was kept
                assert shelves[visit.route][visit.add_from] == visit.step - step.add.back - 1
                assert visit.coefficient == step.add.coefficient
            else:
                assert visit.add_from == -1
            done[visit.route].append(tick.layer)
            if visit.keep_at >= 0:
                assert visit.keep_at < schedule.kept
                shelves[visit.route][visit.keep_at] = visit.step
    assert done == [[step.layer for step in route.steps] for route in routes]


def test_routes_that_agree_share_their_ticks():
    routes = [parse_route(text, 12) for text in ("L0 RJ", "L0-L5 L3 RJ", "L0-L7 L3 RJ")]
    schedule = plan_ticks(routes)
    assert len(schedule.ticks) == 12 + 5  # the longer repeat contains the other
    assert schedule.sharing == (12 + 15 + 17) / 17


def test_many_routes_that_jump_back_share_the_next_sweep():
    layers = 28
    repeats = [[*range(end), *range(begin, layers)] for end in range(1, layers + 1) for begin in range(end)]
    found = quick_order(repeats)
    for order in repeats:  # each is what is left when some layers are left out
        rest = iter(found)
        assert all(layer in rest for layer in order)
    # Two sweeps hold all repeats of blocks, and of single layers, too.
    assert len(found) == 2 * layers
    # A single one is taken along at once.
    assert quick_order([[0, 1, 2, 1, 2, 3], [0, 1, 2, 3]]) == [0, 1, 2, 1, 2, 3]


@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=12), min_size=1, max_size=60))
@settings(deadline=None, max_examples=60)
def test_an_order_for_all_holds_each(orders):
    quick, short = quick_order(orders), shared_order(orders)
    # Nobody needs more sweeps through the layers than it goes back, or stays, itself.
    sweeps = max(1 + sum(after <= before for before, after in pairwise(order)) for order in orders)
    assert len(short) <= len(quick) <= min(sum(map(len, orders)), sweeps * (1 + max(map(max, orders))))
    for found in (quick, short):
        for order in orders:
            rest = iter(found)
            assert all(layer in rest for layer in order)


def test_lanes_do_not_overlap_and_hold_prompt_and_text():
    parties = [Party(ROUTES, PROMPTS), Party(ROUTES[:1], PROMPTS[:2])]
    boarding_ = board(parties, room=7)
    seats = boarding_.seats
    taken = np.zeros(boarding_.tokens, dtype=int)
    for batch in boarding_.batches:
        for place, route in enumerate(batch.routes):
            sequences = range(*batch.sequences_of(place).indices(len(seats)))
            for sequence in sequences:
                for step in range(route.length):
                    begin = seats.base[sequence] + step * seats.stride[sequence]
                    taken[begin : begin + batch.size] += 1
    assert (taken == 1).all()
    assert boarding_.sequences == len(ROUTES) * len(PROMPTS) + 2
    assert [[len(rows) for rows in party] for party in boarding_.by_party(range(boarding_.sequences))] == [
        [len(PROMPTS)] * len(ROUTES),
        [2],
    ]


def test_seating_leaves_out_those_that_are_done():
    schedule, seats = plan_ticks(ROUTES), board([Party(ROUTES, PROMPTS)], 5).seats
    everybody = np.ones(len(seats), dtype=bool)
    assert seat(schedule, seats, everybody, 64).sequences == len(seats)
    first = seat(schedule, seats, seats.route == 1, 64)
    assert [tick.layer for tick in first.ticks] == [step.layer for step in ROUTES[1].steps]
    assert all(tick.hands_on for tick in first.ticks[:-1])  # one route alone sits in the same rows throughout
    assert set(first.live[: first.sequences]) == set(np.flatnonzero(seats.route == 1))
    assert [padded_rows(rows) for rows in (1, 17, 65, 145, 500, 1100)] == [16, 32, 96, 160, 512, 1280]


def _seated_one_by_one(schedule, seats, active, most_rows):
    """Visit after visit: what ``seat`` does for all of a tick's visits at once."""
    of_route = [np.flatnonzero(active & (seats.route == route)) for route in range(max(seats.route) + 1)]
    ticks = [tick for tick in schedule.ticks if any(len(of_route[visit.route]) for visit in tick.visits)]
    numbers = np.full((4, len(ticks), most_rows), -1, dtype=np.int32)
    coefficients = np.zeros((len(ticks), most_rows), dtype=np.float32)
    for number, tick in enumerate(ticks):
        row = 0
        for visit in tick.visits:
            for sequence in of_route[visit.route]:
                lane = seats.base[sequence] + visit.step * seats.stride[sequence]
                numbers[:, number, row] = sequence, lane, visit.add_from, visit.keep_at
                coefficients[number, row] = torch.tensor(visit.coefficient)
                row += 1
    return ticks, numbers, coefficients


@given(
    st.lists(programs(LAYERS).map(lambda program: program.expand(LAYERS)), min_size=1, max_size=5, unique=True),
    st.data(),
)
@settings(deadline=None, max_examples=60)
def test_all_visits_of_a_tick_are_seated_at_once_as_one_by_one(routes, data):
    parties = [Party(routes, PROMPTS), *(Party([route], PROMPTS[:2]) for route in routes)]
    flying = board(parties, 5)
    schedule, seats = plan_ticks(flying.routes), flying.seats
    active = np.array(data.draw(st.lists(st.booleans(), min_size=len(seats), max_size=len(seats))))
    most_rows = padded_rows(len(seats))
    found = seat(schedule, seats, active, most_rows)
    ticks, numbers, coefficients = _seated_one_by_one(schedule, seats, active, most_rows)
    assert [tick.layer for tick in found.ticks] == [tick.layer for tick in ticks]
    assert np.array_equal(found.numbers, numbers)
    assert np.array_equal(found.coefficients, coefficients)
    assert found.sequences == active.sum()


def test_stages_that_the_device_cannot_follow_are_written_eagerly():
    assert fits(STAGES)
    assert not fits((Stage(ENDS, 3), Stage(ENDS, 2)))  # nothing is dictated between the two
    assert not fits((Stage(frozenset(range(MOST_TOKENS + 1)), 3),))


@pytest.mark.parametrize("name", VARIANTS)
def test_other_architectures_are_refused_by_name(name):
    model = tiny_model(name, **HEADS)
    reason = refusal(model, interpreted=True)
    assert (reason is None) == (name in ("llama", "qwen2", "qwen3")), reason
    if reason is not None:
        with pytest.raises(ModelError, match="cannot decode in flight"):
            FlightDecoder(model, graphs=False)


def test_without_a_gpu_the_eager_path_is_taken():
    model = tiny_model("llama", **HEADS)
    assert "CUDA" in flight_refusal(model)
    assert flight_refusal(model, EAGER) is not None
    with pytest.raises(ModelError, match="decoder = flight cannot be used: it is not on a CUDA device"):
        flight_refusal(model, FLIGHT)
