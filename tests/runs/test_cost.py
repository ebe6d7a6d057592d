"""What a route costs is measured once, on training prompts, and said where it is not."""

import json
import time

import numpy as np
import pytest
import torch

from macro_routing.models.frozen import freeze_model
from macro_routing.routes.paper_notation import parse_program
from macro_routing.routes.route import Route
from macro_routing.runs import RunFolder, make_run_config, resume_run, route_cost, run_search
from macro_routing.runs import folder as files
from macro_routing.runs.prepare import prepare_run
from tests.models.tiny import tiny_model
from tests.runs.small import small_frozen, small_task, small_tokenizer

CONFIG = make_run_config(
    task="small",
    model="small",
    preset="quick",
    method="macro",
    seed=3,
    search={"iterations": 2, "draws": 4, "elite": 2, "k": 2, "epsilon_local": 0.4},
    data={"training": 20, "validation": 8, "test": 12},
)
LONGER = parse_program("L0-L5 L4 RJ").to_route(6)


@pytest.fixture(scope="module")
def frozen():
    return small_frozen()


def evaluator(frozen, tmp_path, **decoding):
    config = make_run_config(**{**CONFIG.to_toml_tables(), "decoding": decoding})
    return prepare_run(config, frozen=frozen, task=small_task(), store=tmp_path / "s.sqlite").evaluator


@pytest.mark.parametrize("mode", ["likelihood", "direct", "reasoning"])
def test_both_routes_are_measured_however_answers_are_obtained(frozen, tmp_path, mode):
    standard = Route.standard(6)
    examples = small_task().pools["train"]
    found = route_cost.measure_cost(evaluator(frozen, tmp_path, mode=mode), [standard, LONGER], examples)
    assert found["prompts"] == route_cost.PROMPTS
    first, second = (found["routes"][str(route)] for route in (standard, LONGER))
    assert (first["layers"], second["layers"]) == (6, LONGER.length)
    assert first["cache_bytes_per_token"] * second["layers"] == second["cache_bytes_per_token"] * first["layers"]
    for one in (first, second):
        assert one["prompt_seconds"] > 0
        assert one["token_seconds"] >= 0
        assert route_cost.MIN_TURNS <= one["turns"] <= route_cost.MAX_TURNS
        assert one["noise"] == first["noise"] >= 0
        assert one["peak_bytes"] is None  # no GPU here
    json.dumps(found)


def test_what_hinders_measuring_is_said_and_does_not_end_the_run(frozen, tmp_path, monkeypatch):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(route_cost, "generate_greedy", fail)
    routes, examples = [Route.standard(6), LONGER], small_task().pools["train"]
    found = route_cost.measure_cost(evaluator(frozen, tmp_path), routes, examples)
    assert found["not_measured"] == "memory ran out"
    assert found["routes"][str(LONGER)]["layers"] == LONGER.length

    def break_down(*_):
        raise RuntimeError("a kernel is missing")

    monkeypatch.setattr(route_cost, "generate_greedy", break_down)
    found = route_cost.measure_cost(evaluator(frozen, tmp_path), routes, examples)
    assert found["not_measured"] == "RuntimeError: a kernel is missing"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_memory_is_measured_where_the_device_counts_it(tmp_path):
    frozen = freeze_model(tiny_model("llama").to("cuda"), small_tokenizer(), name="small")
    routes = [Route.standard(6), LONGER]
    found = route_cost.measure_cost(evaluator(frozen, tmp_path), routes, small_task().pools["train"])
    assert all(found["routes"][str(route)]["peak_bytes"] > 0 for route in routes)


def test_a_run_keeps_its_cost_and_asks_nothing_of_the_test_set_for_it(frozen, tmp_path, monkeypatch):
    asked, limits = [], []
    started = time.perf_counter()

    def note(evaluator, routes, examples, max_seconds):
        asked.append([example.id for example in examples])
        limits.append(max_seconds)
        return route_cost.measure_cost(evaluator, routes, examples, max_seconds)

    monkeypatch.setattr("macro_routing.runs.route_run.measure_cost", note)
    folder = tmp_path / "run"
    result = run_search(CONFIG, folder, frozen=frozen, task=small_task(), store=tmp_path / "s.sqlite")
    tested = {example["id"] for example in json.loads((folder / files.ANSWERS).read_text())["examples"]}
    assert asked
    assert 0 < limits[0] <= 0.1 * (time.perf_counter() - started)
    assert not tested & set(asked[0])
    kept = json.loads((folder / files.COST).read_text())
    assert set(kept["routes"]) == {"L0 RJ", result.route}
    assert files.COST in json.loads((folder / files.MANIFEST).read_text())["files"]
    # One that stopped before its manifest keeps what it has measured.
    (folder / files.MANIFEST).unlink()
    resume_run(folder, frozen=frozen, task=small_task(), store=folder.parent / "s.sqlite")
    assert len(asked) == 1
    assert json.loads((folder / files.COST).read_text()) == kept
    # One that stopped before its cost was measured has as much time for it as if it had never stopped.
    reports = list(folder.glob("rounds/*.json"))
    for path in reports:
        path.write_text(json.dumps({**json.loads(path.read_text()), "seconds": 40.0}))
    (folder / files.COST).unlink()
    (folder / files.MANIFEST).unlink()
    resume_run(folder, frozen=frozen, task=small_task(), store=folder.parent / "s.sqlite")
    assert limits[1] == pytest.approx(min(route_cost.MAX_SECONDS, 4.0 * len(reports)))


def test_sampled_states_are_spread_from_the_first_to_the_last(frozen, tmp_path):
    folder = tmp_path / "run"
    run_search(CONFIG, folder, frozen=frozen, task=small_task(), store=tmp_path / "s.sqlite")
    place = RunFolder.open(folder)
    assert [state.rounds for state in place.load_evenly_spaced_states(9)] == [0, 1, 2]
    assert [state.rounds for state in place.load_evenly_spaced_states(2)] == [0, 2]
    assert [state.rounds for state in place.load_evenly_spaced_states(1)] == [0]


def test_nothing_is_timed_for_the_standard_pass(frozen, tmp_path, monkeypatch):
    monkeypatch.setattr(route_cost, "generate_greedy", None)
    found = route_cost.measure_cost(evaluator(frozen, tmp_path), [Route.standard(6)], small_task().pools["train"])
    assert "nothing to compare" in found["not_measured"]
    assert found["routes"]["L0 RJ"]["layers"] == 6


def test_turns_go_on_until_the_ratio_is_known(frozen, tmp_path, monkeypatch):
    """What slows both of a turn down does not count; what slows one of them does."""
    routes, examples = [Route.standard(6), LONGER], small_task().pools["train"]
    clock = {"turn": 0}

    def time_repeat(busy):
        def repeat(model, prompts):  # noqa: ARG001
            clock["turn"] += 1
            seconds = 1 + busy(clock["turn"])
            return seconds, 2 * seconds, None

        return repeat

    def measure(busy):
        monkeypatch.setattr(route_cost, "_time_one_repeat", time_repeat(busy))
        clock["turn"] = 0
        return route_cost.measure_cost(evaluator(frozen, tmp_path), routes, examples)["routes"][str(LONGER)]

    together = measure(lambda number: (number - 1) // 2 % 3)  # pairs of calls are equally slow
    assert (together["turns"], together["noise"]) == (route_cost.MIN_TURNS, 0)
    alone = measure(lambda number: [0, 0, 0, 0.9, 0, 2, 0, 0.4][number % 8])
    assert alone["turns"] == route_cost.MAX_TURNS
    assert alone["noise"] > route_cost.USEFUL_NOISE


def test_a_few_turns_are_made_however_little_time_there_is(frozen, tmp_path):
    routes, examples = [Route.standard(6), LONGER], small_task().pools["train"]
    measured = route_cost.measure_cost(evaluator(frozen, tmp_path), routes, examples, max_seconds=0.0)
    assert measured["routes"][str(LONGER)]["turns"] == route_cost.MIN_TURNS


@pytest.mark.parametrize("spread", [0.02, 0.06, 0.2])
@pytest.mark.parametrize("max_turns", [route_cost.MIN_TURNS, route_cost.MAX_TURNS])
def test_the_interval_of_the_ratio_has_its_coverage(spread, max_turns):
    """Turns end early by the same rule as in a run, which must not make the interval too short."""
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(400):
        seconds = np.exp(spread / np.sqrt(2) * rng.standard_normal((2, max_turns)))
        rows = [[(value, 2 * value, None) for value in values] for values in seconds]
        for turns in range(route_cost.MIN_TURNS, max_turns + 1):
            noise = route_cost._uncertainty_of_ratio([row[:turns] for row in rows])
            if noise <= route_cost.USEFUL_NOISE:
                break
        covered.append(abs(np.log(seconds[1, :turns] / seconds[0, :turns]).mean()) <= np.log1p(noise))
    assert np.mean(covered) > 0.92
