"""What `macro evaluate` takes from a route's file where nothing is said."""

import json

import pytest

from macro_routing.cli.evaluate import (
    _override_decoding_with_flags,
    _read_search_seeds,
    _SearchSeeds,
    _warn_of_seen_examples,
)
from macro_routing.cli.main import make_cli_app
from macro_routing.models import frozen
from macro_routing.routes.route import Route
from macro_routing.routes.route_file import RouteFile
from macro_routing.tasks import load_task, make_splits
from tests.runs.small import small_folder, write_task_file


def route_file(task="category", decoding=None, **found_by):
    return RouteFile(Route.standard(30), "smollm2-135m", "", "", task, decoding=decoding or {}, found_by=found_by)


NINE = route_file(decoding={"mode": "direct", "answer_budget": 9})


@pytest.mark.parametrize(
    ("task", "file", "mode", "given", "expected"),
    [
        ("category", None, None, {}, ("likelihood", 128)),
        ("counting", None, None, {}, ("direct", 128)),
        ("counting", None, "auto", {}, ("direct", 128)),
        ("category", NINE, None, {}, ("direct", 9)),
        (
            "category",
            NINE,
            None,
            {"answer_budget": 7},
            ("direct", 7),
        ),
        ("category", NINE, "auto", {}, ("likelihood", 128)),
        ("counting", route_file(decoding={"mode": "likelihood"}), None, {}, ("direct", 128)),  # of another task
    ],
)
def test_flags_go_before_the_file_before_the_task(task, file, mode, given, expected):
    found = _override_decoding_with_flags(file, load_task(task), given if mode is None else {**given, "mode": mode})
    assert (found.mode, found.answer_budget) == expected


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (None, (None, None)),
        (route_file(), (None, None)),
        (route_file(seed=3), (3, None)),
        (route_file(seed=3, test_seed=None), (3, None)),
        (route_file(seed=3, test_seed=0), (3, 0)),
    ],
)
def test_seeds(file, expected):
    seeds = _read_search_seeds(file)
    assert (seeds.seed, seeds.test_seed) == expected


@pytest.mark.parametrize("searched", [_SearchSeeds(3), _SearchSeeds(3, 0)])
def test_examples_that_a_route_was_searched_on_are_counted(searched, capsys):
    task = load_task("category", seed=3)
    splits = make_splits(task, seed=3, test_seed=searched.test_seed)
    _warn_of_seen_examples(splits.test, task, searched)
    assert not capsys.readouterr().err
    _warn_of_seen_examples([*splits.test[:5], *splits.train[:2]], task, searched)
    assert "2 of these 7 examples may have been among" in capsys.readouterr().err


def test_no_weights_are_loaded_where_the_store_has_all_scores(tmp_path, monkeypatch, capsys):
    write_task_file(tmp_path / "data.jsonl")
    model = str(small_folder(tmp_path / "model"))
    flags = ["--task", str(tmp_path / "data.jsonl"), "--question", "q", "--answer", "a", "--choices", "c"]
    where = ["--model", model, "--store", str(tmp_path / "s.sqlite"), "--json"]

    def evaluate(*more, route="L0-L3 L2 RJ"):
        monkeypatch.setattr("sys.argv", ["macro", "evaluate", *flags, *where, "--route", route, *more])
        make_cli_app(["evaluate"])(standalone_mode=False)
        return json.loads(capsys.readouterr().out)

    first = evaluate("--limit", "30")
    monkeypatch.setattr(frozen, "_load_weights", None)
    again = evaluate("--limit", "30")
    assert again["scope"] == first["scope"]
    assert again["route"]["correct"] == first["route"]["correct"]
    assert again["route"]["from_store"] == 30
    with pytest.raises(TypeError):  # the weights are needed, and here is nothing that loads them
        evaluate("--limit", "30", route="L0-L4 L1 RJ")
