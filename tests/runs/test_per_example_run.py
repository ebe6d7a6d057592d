"""Runs whose result is no route: routers and the oracle, on a tiny model."""

import json
from itertools import product

import pytest

from macro_routing.cli.route_argument import read_route_text
from macro_routing.engine import decoders
from macro_routing.errors import NotationError, RunError, SettingsError
from macro_routing.peers.layer_router import LayerRouters
from macro_routing.peers.per_example_search import PerExampleSearch
from macro_routing.peers.per_example_settings import ColaSettings, DrLLMSettings
from macro_routing.report import write_report
from macro_routing.routes import Route, RouteSpace
from macro_routing.runs import Listener, RunFolder, per_example_run, resume_run, run_search
from macro_routing.runs.compare_methods import compare_methods
from macro_routing.runs.comparison_results import summarize_methods
from macro_routing.runs.result import ORACLE, ROUTER
from macro_routing.search import ScoringFailure
from macro_routing.workers.backend import MessageFromWorker, WorkerExited
from macro_routing.workers.worker import build_worker_evaluator
from macro_routing.workers.worker_messages import encode_worker_results, work_item_from_json
from macro_routing.workers.worker_pool import WorkerPool
from macro_routing.workers.worker_settings import WorkerError, WorkerSettings
from tests.runs.small import small_frozen, small_task
from tests.runs.test_run import CONFIG

BASE = CONFIG.with_changes(budget=240, data={"training": 40, "validation": 10, "test": 20}, search={})
SMALL = {"simulations": 5, "epochs": 3}


@pytest.fixture(scope="module")
def frozen():
    return small_frozen()


def _run(frozen, folder, method, **more):
    settings = {} if method == "cola" else SMALL
    config = BASE.with_changes(**{"method": method, "search": settings, **more})
    return run_search(config, folder, frozen=frozen, task=small_task(), store=folder.parent / "s.sqlite")


@pytest.mark.parametrize("method", ["drllm", "drllm-ext", "cola"])
def test_a_run_stays_within_its_budget_and_says_what_it_is(frozen, tmp_path, method):
    folder = tmp_path / "run"
    result = _run(frozen, folder, method)
    assert result.kind == (ORACLE if method == "cola" else ROUTER)
    report = json.loads((folder / "rounds/001.json").read_text())
    assert 0 < report["asked"] <= 240
    assert not (folder / "route.json").exists()
    with pytest.raises(RunError, match="holds no route"):
        _ = result.best_route
    with pytest.raises(NotationError, match="only routes are exported"):
        read_route_text(str(folder))
    with pytest.raises(NotationError, match="only routes are exported"):
        read_route_text(str(folder / "route.json"))
    answers = json.loads((folder / "answers.json").read_text())
    assert len(answers["decided"]) == 20
    page = write_report(folder).read_text()
    assert result.variants[0].name in page
    assert "had a search of their own" in page
    assert ("this is a bound and not a method" in page) == (method == "cola")
    again = resume_run(folder, frozen=frozen, task=small_task(), store=folder.parent / "s.sqlite")
    assert again == result


@pytest.mark.parametrize("method", ["drllm", "drllm-ext"])
def test_what_writes_answers_gives_its_memory_back_before_routers_are_trained(tmp_path, monkeypatch, method):
    """On a GPU it holds most of the memory. None is there in the tests, so what is told to give back is a stand-in."""
    happened = []
    frozen, trained = small_frozen(), "train_layer_routers" if method == "drllm" else "train_program_routers"

    class Decoder:
        def release_memory(self):
            happened.append("given back")

    monkeypatch.setitem(decoders._FUSED_DECODERS, frozen, Decoder())
    train = getattr(per_example_run, trained)
    monkeypatch.setattr(per_example_run, trained, lambda *given: happened.append("trained") or train(*given))
    _run(frozen, tmp_path / "run", method)
    assert happened == ["given back", "trained"]


def test_routers_are_kept_and_decide_the_same_again(frozen, tmp_path):
    from macro_routing.evaluation.decoding_settings import DecodingSettings
    from macro_routing.evaluation.model_answers import encode_prompts

    _run(frozen, tmp_path / "run", "drllm")
    routers = LayerRouters.load(tmp_path / "run" / "routers", frozen)
    answers = json.loads((tmp_path / "run" / "answers.json").read_text())
    task = small_task()
    test = [example for example in task.pools["test"] if example.id in {one["id"] for one in answers["examples"]}]
    order = {example.id: example for example in test}
    examples = [order[one["id"]] for one in answers["examples"]]
    decided = routers.decide_routes(frozen, encode_prompts(frozen, task, examples, DecodingSettings("likelihood")))
    assert [str(route) for route in decided] == answers["decided"]


def test_an_interrupted_run_ends_as_one_that_was_not(frozen, tmp_path):
    whole = _run(frozen, tmp_path / "whole", "drllm")

    class Stop(Listener):
        def on_message(self, text):
            if "have a label" in text:
                raise KeyboardInterrupt

    config = BASE.with_changes(method="drllm", search=SMALL)
    known = {"frozen": frozen, "task": small_task(), "store": tmp_path / "other.sqlite"}
    with pytest.raises(KeyboardInterrupt):
        run_search(config, tmp_path / "part", listener=Stop(), **known)
    report = tmp_path / "part" / "rounds" / "001.json"
    report.write_text(json.dumps({**json.loads(report.read_text()), "seconds": 7200.0}))
    found = resume_run(tmp_path / "part", frozen=frozen, task=small_task(), store=tmp_path / "s.sqlite")
    # Labels are read from the store in a moment; what they took stays.
    assert json.loads(report.read_text())["seconds"] == 7200
    assert found.variants == whole.variants
    read = [json.loads((tmp_path / name / "answers.json").read_text())["decided"] for name in ("whole", "part")]
    assert read[0] == read[1]


class CursedCrew:
    """One worker in this process, with the real model and the real driver; only its deaths are played."""

    def __init__(self, frozen, is_deadly):
        self.frozen, self.is_deadly, self.events = frozen, is_deadly, []

    def start_worker(self, slot):
        self.events.append(MessageFromWorker(slot, json.dumps({"ready": 1})))

    def send_message(self, slot, text):
        spec, ask = work_item_from_json(text)
        pairs = zip(ask.routes, ask.unit, strict=True) if ask.paired else product(ask.routes, ask.unit)
        if any(self.is_deadly(*pair) for pair in pairs):
            self.events.append(WorkerExited(slot, "killed by SIGSEGV"))
            return
        answers = build_worker_evaluator(spec, self.frozen, small_task(), print).run_work_item(ask)
        self.events.append(MessageFromWorker(slot, json.dumps({"results": encode_worker_results(answers)})))

    def wait_for_events(self, _seconds):
        events, self.events = self.events, []
        return events

    def kill_worker(self, _slot):
        raise AssertionError("nothing hangs here")

    def close(self):
        pass


def _cursed(frozen, folder, method, is_deadly):
    config = BASE.with_changes(method=method, search={} if method == "cola" else SMALL)
    known = {"frozen": frozen, "task": small_task(), "store": folder.with_suffix(".sqlite")}
    with WorkerPool(CursedCrew(frozen, is_deadly), WorkerSettings(workers=1)) as pool:
        return run_search(config, folder, workers=pool, **known)


def _decided(folder):
    return json.loads((folder / "answers.json").read_text())["decided"]


def _draws(folder):
    return {str(draw.proposal.route): draw.outcome for draw in RunFolder.open(folder).load_last_state().draws}


@pytest.mark.parametrize(("method", "cursed"), [("cola", "L0 L3 RJ"), ("drllm", "L0-L2 L4 RJ")])
def test_a_route_that_was_given_up_is_not_to_be_had_and_not_wrong(frozen, tmp_path, method, cursed):
    _run(frozen, tmp_path / "whole", method)
    before = _draws(tmp_path / "whole")[cursed]
    assert before.correct > 0
    _cursed(frozen, tmp_path / "run", method, lambda route, _example: str(route) == cursed)
    given_up = _draws(tmp_path / "run")[cursed]
    assert given_up == ScoringFailure("crashed its worker 3 times: killed by SIGSEGV")
    if method == "cola":
        assert cursed in _decided(tmp_path / "whole")
        assert cursed not in _decided(tmp_path / "run")
    reports = [json.loads((tmp_path / name / "rounds/001.json").read_text()) for name in ("whole", "run")]
    assert reports[1]["run"] < reports[1]["asked"]
    assert reports[0]["run"] == reports[0]["asked"]


def test_a_router_whose_choice_cannot_be_run_has_no_result(frozen, tmp_path):
    whole = _run(frozen, tmp_path / "whole", "drllm")
    chosen = next(route for route in _decided(tmp_path / "whole") if route != "L0 RJ")
    test = set(small_task().pools["test"])
    with pytest.raises(WorkerError, match=f"{chosen} could not be tested: it crashed its worker 3 times"):
        _cursed(frozen, tmp_path / "run", "drllm", lambda route, one: str(route) == chosen and one in test)
    assert not (tmp_path / "run" / "result.json").exists()
    resumed = resume_run(tmp_path / "run", frozen=frozen, task=small_task(), store=tmp_path / "s.sqlite")
    assert resumed.variants == whole.variants


def test_the_oracle_is_a_bound_and_stands_apart(frozen, tmp_path):
    known = {"frozen": frozen, "task": small_task(), "store": tmp_path / "s.sqlite"}
    arms = compare_methods(BASE, ["drllm", "cola"], [3], tmp_path / "all", search={"epochs": 2}, **known)
    rows = summarize_methods(arms)
    assert [row.name for row in rows] == ["Dr.LLM", "standard", "CoLA (oracle)"]
    assert rows[2].accuracy >= rows[1].accuracy
    facts = json.loads((tmp_path / "all" / "cola-3" / "oracle.json").read_text())
    assert facts["already_right"] + facts["wrong"] == 20
    assert rows[2].accuracy == pytest.approx((facts["already_right"] + facts["of_these_fixed"]) / 20)
    assert facts["most_children"] > 1  # the tree branches
    assert not arms[1].curve


def test_budgets_buy_examples_first_then_simulations():
    space = RouteSpace(6)
    published = PerExampleSearch(space, 500, DrLLMSettings())
    assert (len(published.searched_example_indices), published.simulations) == (100, 10)
    few = PerExampleSearch(space, 500, DrLLMSettings(), budget=330)
    assert (len(few.searched_example_indices), few.simulations) == (30, 10)
    many = PerExampleSearch(space, 50, DrLLMSettings(), budget=5000)
    assert (len(many.searched_example_indices), many.simulations) == (50, 99)
    oracle = PerExampleSearch(space, 40, ColaSettings(), budget=400, every_example=True)
    assert (len(oracle.searched_example_indices), oracle.simulations) == (40, 9)
    for labels in (published, few, many, oracle):
        assert labels.budget is None or labels.max_evaluations() <= labels.budget


def test_every_reward_is_asked_of_its_own_example():
    space = RouteSpace(6)
    asked = []

    def score(pairs):
        asked.extend(pairs)
        return [0.0] * len(pairs)

    labels = PerExampleSearch(space, 30, ColaSettings(simulations=3), budget=120, every_example=True)
    labels.run_searches(score)
    standard = Route.standard(6)
    assert [place for place, route in asked if route == standard] == list(range(30))
    assert len(asked) <= labels.max_evaluations()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"budget": 5}, "tree searches need"),
        ({"max_minutes": 1.0}, "max_minutes"),
        ({"init_from": "L0 RJ"}, "init_from"),
        ({"guard": {"tasks": ["category"]}}, "guard"),
    ],
)
def test_what_routers_cannot_do_is_rejected(frozen, tmp_path, change, words):
    with pytest.raises(SettingsError, match=words):
        _run(frozen, tmp_path / "run", "drllm", **change)
    assert not (tmp_path / "run").exists()
