"""Searched mixtures beside their controls on a tiny model: one comparison, from the settings to the page."""

import dataclasses
import json

import numpy as np
import pytest

from macro_routing.cli.comparison_result import describe_beyond_control
from macro_routing.engine.likelihood import score_choices
from macro_routing.errors import MacroError, RunError, SettingsError
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.mixture_weights import fit_weights
from macro_routing.evaluation.model_answers import answer_with_every_route, build_choice_items
from macro_routing.report import write_method_comparison, write_report
from macro_routing.routes.mixture import Mixture, parse_mixture
from macro_routing.routes.route_file import parse_route_file
from macro_routing.runs import Listener, RunFolder, make_run_config, run_search
from macro_routing.runs.compare_methods import compare_methods
from macro_routing.runs.control_comparison import compare_with_best_control
from macro_routing.runs.methods import METHODS
from macro_routing.runs.prepare import prepare_run, resume_run
from tests.models.tiny import LAYERS, tiny_folder
from tests.runs.small import small_folder, small_frozen, small_task

TARGET = parse_mixture("2.2 [L0 RJ] - 1.2 [L0 RJ | no question]", LAYERS)
METHOD_NAMES = ("guided", "pmi", "dola", "skip-layer-cd", "route-average", "readouts", "contrastive")
BASE = make_run_config(
    task="small",
    model="small",
    budget=3000,
    search={"iterations": 2, "draws": 10},
    decision={"max_cost": 3.0},
    data={"training": 100, "validation": 80, "test": 60},
)


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """A model, and questions whose correct choices are those of PMI."""
    frozen, plain = small_frozen(), small_task()

    def relabel(examples):
        outcomes = answer_with_every_route(frozen, [TARGET], plain, examples, DecodingSettings("likelihood"))[TARGET]
        return tuple(
            dataclasses.replace(example, answer=outcome.prediction)
            for example, outcome in zip(examples, outcomes, strict=True)
        )

    task = dataclasses.replace(plain, pools={name: relabel(examples) for name, examples in plain.pools.items()})
    return {"frozen": frozen, "task": task, "store": tmp_path_factory.mktemp("store") / "s.sqlite"}


@pytest.fixture(scope="module")
def amateur(tmp_path_factory):
    return str(small_folder(tmp_path_factory.mktemp("amateur") / "model"))


@pytest.fixture(scope="module")
def compared(known, amateur, tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared") / "all"
    runs = compare_methods(BASE, METHOD_NAMES, [1], folder, search={"amateur": amateur}, **known)
    return folder, {run.method: run for run in runs}


def test_every_control_stays_within_the_budget_and_is_tested_once(compared):
    _, runs = compared
    for run in runs.values():
        assert 0 < run.asked <= 3000
        assert run.result.variants[-1].name == "standard"
    assert len({run.result.comparison.baseline for run in runs.values()}) == 1
    controls = [run for run in runs.values() if METHODS[run.method].kind == "control"]
    assert all(0 <= run.result.training_accuracy <= 1 for run in controls)
    assert runs["guided"].result.training_accuracy is None


def test_controls_learn_on_the_examples_of_the_mixture(compared, known):
    folder, _ = compared

    def prepare(method):
        header = json.loads((folder / f"{method}-1" / "run.json").read_text())
        return prepare_run(BASE.with_changes(**{"method": method, **pick(header["config"]["given"])}), **known).searcher

    def pick(given):
        return {name: given[name] for name in ("seed", "search", "decision", "budget")}

    examples = prepare("guided").searched_examples
    assert len(examples) > 10
    assert all(prepare(method).searched_examples == examples for method in METHOD_NAMES[1:])


def test_pmi_is_found_and_the_search_finds_it_too(compared):
    folder, runs = compared
    pmi, guided = (runs[name].result for name in ("pmi", "guided"))
    assert pmi.is_gain
    assert pmi.best_route.compares_choices_only
    assert isinstance(guided.best_route, Mixture)
    assert guided.best_route.compares_choices_only
    assert guided.is_gain
    assert guided.best_route.length <= 3 * LAYERS
    assert parse_route_file((folder / "pmi-1" / "route.json").read_text()).route == pmi.best_route
    cost = json.loads((folder / "guided-1" / "cost.json").read_text())
    assert "the result only compares choices" in cost["not_measured"]


def test_two_models_are_added_with_fitted_weights(compared, known, amateur):
    """The same model twice: whatever the weights, its choices."""
    _, runs = compared
    result = runs["contrastive"].result
    assert result.kind == "two models"
    assert result.comparison.difference == 0
    search = {**BASE.given["search"], "amateur": amateur}
    run = prepare_run(BASE.with_changes(method="contrastive", seed=1, search=search), **known)
    examples = [run.splits.train[index] for index in run.searcher.searched_examples]
    items = build_choice_items(known["frozen"], known["task"], examples, by_letter=False)
    sizes = [[len(choice.encode()) for choice in example.choices] for example in examples]
    scores = np.array(score_choices(known["frozen"].model, items)) / np.array(sizes)
    weights, _ = fit_weights(np.stack([scores, scores]), np.array([example.correct_choice for example in examples]))
    assert result.route.startswith(f"{weights[0]:.3g} small ")
    with pytest.raises(RunError, match="adds the predictions of two models"):
        _ = result.best_route


def test_what_mixtures_add_beyond_the_best_control(compared, tmp_path):
    folder, runs = compared
    (row,) = compare_with_best_control(list(runs.values()))
    controls = [run for run in runs.values() if METHODS[run.method].kind == "control"]
    best = max(controls, key=lambda run: run.result.training_accuracy)
    assert row.controls == (METHODS[best.method].title,)
    expected = runs["guided"].result.variants[0].accuracy - best.result.variants[0].accuracy
    assert row.difference == pytest.approx(expected)
    assert row.low <= row.difference <= row.high
    assert row.p_holm == row.p_value  # one comparison
    assert describe_beyond_control(row).startswith("MACRO, guided against the best control by training accuracy, ")
    page = write_method_comparison(list(runs.values()), tmp_path / "page.html").read_text()
    assert "Beyond the best control" in page
    assert "PMI (control)" in page
    assert compare_with_best_control([runs["guided"]]) == []
    for method in METHOD_NAMES:
        assert write_report(folder / f"{method}-1").exists()


def test_holm_corrects_for_all_methods_that_are_compared(compared):
    _, runs = compared
    twice = [
        *runs.values(),
        dataclasses.replace(
            runs["guided"],
            method="macro",
            right={
                "MACRO" if name == METHODS["guided"].title else name: right
                for name, right in runs["guided"].right.items()
            },
        ),
    ]
    rows = compare_with_best_control(twice)
    assert [row.name for row in rows] == ["MACRO, guided", "MACRO"]
    assert all(row.p_holm == pytest.approx(min(1, 2 * row.p_value)) for row in rows)


def test_a_control_goes_on_after_an_interruption(compared, known, tmp_path):
    class StopAtTest(Listener):
        def on_stage(self, name, _total):
            if name == "test":
                raise KeyboardInterrupt

    config = BASE.with_changes(method="readouts", seed=1)
    with pytest.raises(KeyboardInterrupt):
        run_search(config, tmp_path / "run", listener=StopAtTest(), **known)
    again = resume_run(tmp_path / "run", **known)
    _, runs = compared
    assert (again.route, again.training_accuracy) == (
        runs["readouts"].result.route,
        runs["readouts"].result.training_accuracy,
    )
    assert RunFolder.open(tmp_path / "run").is_finished


def test_where_text_is_written(known, tmp_path):
    direct = BASE.with_changes(
        decoding={"mode": "direct", "answer_budget": 2},
        decision={},
        data={"training": 20, "validation": 5, "test": 10},
        budget=1000,
        method="dola",
    )
    result = run_search(direct, tmp_path / "dola", **known)
    assert isinstance(result.best_route, Mixture)
    for method in ("pmi", "readouts", "contrastive"):
        search = {"amateur": "x"} if method == "contrastive" else {}
        with pytest.raises(SettingsError, match=f"method = {method} is not allowed with mode = direct: it compares"):
            run_search(direct.with_changes(method=method, search=search), tmp_path / method, **known)


def test_an_amateur_that_does_not_fit_is_told_before_anything_is_run(known, tmp_path):
    tiny_folder(tmp_path / "other", "llama")
    for name, message in (("other", "has another tokenizer"), ("nowhere", "there is no folder")):
        search = {"amateur": str(tmp_path / name)}
        with pytest.raises(MacroError, match=message):
            compare_methods(BASE, ["pmi", "contrastive"], [1], tmp_path / "run", search=search, **known)
        assert not (tmp_path / "run").exists()


def test_what_a_control_does_not_take(known, tmp_path):
    with pytest.raises(SettingsError, match="give it with --amateur MODEL"):
        run_search(BASE.with_changes(method="contrastive"), tmp_path / "a", **known)
    with pytest.raises(SettingsError, match="which is a control of mixtures"):
        BASE.with_changes(method="pmi", decision={"objective": "speed"})
    with pytest.raises(SettingsError, match="max_minutes is not allowed with method = pmi"):
        run_search(BASE.with_changes(method="pmi", max_minutes=1.0), tmp_path / "b", **known)
    with pytest.raises(SettingsError, match="price has no effect with method = pmi"):
        BASE.with_changes(method="pmi", decision={"price": 1.0})
