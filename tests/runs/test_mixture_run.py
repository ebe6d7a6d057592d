"""A search that returns a mixture, from the first round to the route file."""

import dataclasses
import json

import pytest

from macro_routing import apply_route, load_route
from macro_routing.errors import SettingsError
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.model_answers import answer_with_every_route
from macro_routing.routes.mixture import Mixture, parse_mixture
from macro_routing.routes.route_file import parse_route_file
from macro_routing.runs import Listener, RunFolder, make_run_config, resume_run, run_search
from macro_routing.runs import folder as files
from macro_routing.runs.prepare import prepare_run
from macro_routing.runs.result import read_result
from tests.models.tiny import LAYERS
from tests.runs.small import small_frozen, small_task

TARGET = parse_mixture("2.5 [L0 RJ] - 1.5 [L0 L2 RJ]", LAYERS)
CONFIG = make_run_config(
    task="small",
    model="small",
    method="guided",
    seed=3,
    budget=3000,
    search={"iterations": 3, "draws": 12},
    decision={"max_cost": 2.0},
    data={"training": 140, "validation": 60, "test": 60},
    units={"race": 4, "full": 64},
)


@pytest.fixture(scope="module")
def frozen():
    return small_frozen()


@pytest.fixture(scope="module")
def task(frozen):
    """Questions whose correct choices are those of a mixture."""
    plain = small_task()

    def relabel(examples):
        outcomes = answer_with_every_route(frozen, [TARGET], plain, examples, DecodingSettings("likelihood"))[TARGET]
        labelled = zip(examples, outcomes, strict=True)
        return tuple(dataclasses.replace(example, answer=outcome.prediction) for example, outcome in labelled)

    return dataclasses.replace(plain, pools={name: relabel(examples) for name, examples in plain.pools.items()})


@pytest.fixture(scope="module")
def run(frozen, task, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixture") / "run"
    run_search(CONFIG, folder, frozen=frozen, task=task, store=folder.parent / "s.sqlite")
    return folder


def test_the_mixture_is_found_tested_and_recommended(run):
    result = read_result(RunFolder.open(run))
    assert isinstance(result.best_route, Mixture)
    assert "L0 L2 RJ" in map(str, result.best_route.routes)
    assert result.best_route.length <= 2 * LAYERS
    assert result.is_gain
    assert result.recommended
    candidates = json.loads((run / files.CANDIDATES).read_text())["candidates"]
    chosen = next(one for one in candidates if one["route"] == result.route)
    assert chosen["length"] == result.best_route.length
    assert chosen["p_value"] <= 0.05
    assert sum(report["asked"] for report in RunFolder.open(run).read_round_reports()) <= 3000


def test_the_route_file_holds_it_and_runs(run, frozen):
    result = read_result(RunFolder.open(run))
    file = parse_route_file((run / files.ROUTE).read_text())
    assert file.route == result.best_route
    assert file.found_by["decision"]["max_cost"] == 2.0
    assert apply_route(frozen, load_route(run / files.ROUTE, frozen)).macro_route == result.best_route


def test_it_goes_on_after_an_interruption(run, frozen, task, tmp_path):
    class StopAtMembers(Listener):
        def on_round(self, report):
            if report.number == 4:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_search(
            CONFIG, tmp_path / "run", frozen=frozen, task=task, store=tmp_path / "s.sqlite", listener=StopAtMembers()
        )
    again = resume_run(tmp_path / "run", frozen=frozen, task=task, store=tmp_path / "s.sqlite")
    assert again.route == read_result(RunFolder.open(run)).route


def test_the_number_of_draws_is_kept_where_mixtures_are_searched(frozen, task, tmp_path):
    plain, mixing = (
        prepare_run(
            CONFIG.with_changes(budget=None, decision=decision),
            frozen=frozen,
            task=task,
            store=tmp_path / "s.sqlite",
        ).searcher
        for decision in ({}, {"max_cost": 2.0})
    )
    assert plain.draws_per_round == mixing.draws_per_round == 12
    assert mixing.n_member_candidates == 12


@pytest.mark.parametrize(
    ("mode", "max_cost", "mixtures"), [("likelihood", 2.0, True), ("likelihood", 1.0, False), ("direct", 2.0, False)]
)
def test_the_plan_names_mixtures_only_where_they_are_searched(frozen, task, tmp_path, mode, max_cost, mixtures):
    config = CONFIG.with_changes(decoding={"mode": mode}, decision={"max_cost": max_cost})
    run = prepare_run(config, frozen=frozen, task=task, store=tmp_path / "s.sqlite")
    assert ("mixtures of up to 3 routes" in run.plan.objective) is mixtures
    assert (run.decision.members == 3) is mixtures


def test_mixtures_need_choices_compared_by_likelihood(frozen, task, tmp_path):
    direct = CONFIG.with_changes(decoding={"mode": "direct"}, decision={"members": 2})
    with pytest.raises(SettingsError, match="members = 2 is not allowed with mode = direct"):
        run_search(direct, tmp_path / "run", frozen=frozen, task=task, store=tmp_path / "s.sqlite")
    with pytest.raises(SettingsError, match="members has no effect with method = macro"):
        CONFIG.with_changes(method="macro", decision={"members": 2}, search={})
