"""What is wrong is said before a model is loaded, wherever the number of layers settles it."""

import json

import pytest

from macro_routing.errors import MacroError
from macro_routing.models.catalog import find_layer_count
from macro_routing.runs import Listener, make_run_config, prepare, resume_run, run_search
from tests.runs.small import small_folder, write_task_file

DATA = {"training": 30, "validation": 10, "test": 20, "question": "q", "answer": "a", "choices": "c"}


@pytest.fixture
def place(tmp_path):
    """A model folder and a data file."""
    write_task_file(tmp_path / "data.jsonl")
    small_folder(tmp_path / "model")
    return tmp_path


@pytest.fixture
def no_loading(monkeypatch):
    """Loading a model fails."""

    def fail(*_):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(prepare, "load_configured_model", fail)


def _config(place, **settings):
    settings = {"data": DATA, **settings}
    return make_run_config(str(place / "data.jsonl"), str(place / "model"), "quick", **settings)


@pytest.mark.usefixtures("no_loading")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"space": {"max_length": 5}}, "the standard pass of 6 layers must fit"),
        ({"budget": 3}, "budget = 3 is not allowed"),
        ({"method": "macro", "budget": 3}, "budget = 3 is not allowed"),
        ({"init_from": "L0-L99 RJ"}, "layer 6, but the model's 6 layers"),
        ({"init_from": "L0 RJ", "method": "rys"}, "only searches with a policy"),
        ({"data": {**DATA, "training": 2}}, "the guided search needs 3 or more"),
    ],
)
def test_settings_that_do_not_fit_are_told_first(place, settings, message):
    with pytest.raises(MacroError, match=message):
        run_search(_config(place, **settings), place / "run", store=place / "s.sqlite")
    assert not (place / "run").exists()


@pytest.mark.usefixtures("no_loading")
def test_a_folder_that_cannot_be_made_is_told_first(place):
    (place / "file").write_text("")
    with pytest.raises(MacroError, match=r"sub cannot be made, .*file is not a folder; name another with --out"):
        run_search(_config(place), place / "file" / "sub", store=place / "s.sqlite")


def test_data_that_changed_is_told_first(place, request):
    class Stop(Listener):
        def on_round(self, report):  # noqa: ARG002
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_search(_config(place), place / "run", listener=Stop(), store=place / "s.sqlite")
    request.getfixturevalue("no_loading")
    write_task_file(place / "data.jsonl", count=150)
    with pytest.raises(MacroError, match="the task's data are not those it began with"):
        resume_run(place / "run", store=place / "s.sqlite")


def test_layers_are_counted_without_loading(place, tmp_path):
    assert find_layer_count("smollm2-135m") == 30
    assert find_layer_count(str(place / "model")) == 6
    (tmp_path / "nested").mkdir()
    (tmp_path / "nested" / "config.json").write_text(json.dumps({"text_config": {"num_hidden_layers": 7}}))
    assert find_layer_count(str(tmp_path / "nested")) == 7
    (tmp_path / "nested" / "config.json").write_text("[]")
    assert find_layer_count(str(tmp_path / "nested")) is None
    assert find_layer_count("Qwen/Qwen3-1.7B") is None


def _tell(place, **settings):
    told = []

    class Told(Listener):
        def on_message(self, text):
            told.append(text)

    prepare.prepare_run(_config(place, **settings), store=place / "s.sqlite", listener=Told())
    return told


@pytest.mark.parametrize("method", ["guided", "random"])
def test_draws_that_a_budget_replaces_are_told(place, method):
    told = _tell(place, method=method, budget=900, search={"draws": 5})
    assert any("draws = 5 has no effect beside budget = 900" in text for text in told), told
    for settings in ({"budget": 900}, {"search": {"draws": 5}}):
        told = _tell(place, method=method, **settings)
        assert not any("no effect" in text for text in told), told


def test_few_validation_examples_are_told(place):
    told = _tell(place, data={**DATA, "training": 5000, "validation": 100})
    assert any("validation examples are left" in text and "5000 to 100" in text for text in told), told
