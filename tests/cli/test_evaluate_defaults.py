"""What `macro evaluate` takes from a route's file where nothing is said."""

import pytest

from macro_routing.cli.evaluate import (
    _override_decoding_with_flags,
    _read_search_seeds,
    _SearchSeeds,
    _warn_of_seen_examples,
)
from macro_routing.routes.route import Route
from macro_routing.routes.route_file import RouteFile
from macro_routing.tasks import load_task, make_splits


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
