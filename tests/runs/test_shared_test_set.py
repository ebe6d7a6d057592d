"""Seeds of preset ``paper`` share a test set, and whoever is given such a run takes its test set."""

import json

import pytest

from macro_routing.cli.single_route_studies import read_search_settings_of_route
from macro_routing.runs import RunFolder, make_run_config, resume_run, run_search
from macro_routing.runs import folder as files
from macro_routing.runs.prepare import load_configured_task, prepare_run, split_examples
from tests.cli.runner import run
from tests.runs.small import small_folder, small_frozen, write_task_file


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    small_folder(folder / "model")
    write_task_file(folder / "mine.jsonl")
    return folder


@pytest.fixture(scope="module")
def frozen():
    return small_frozen()


def paper_config(place, seed, **data):
    columns = {"question": "q", "answer": "a", "choices": "c", "kind": "choice"}
    return make_run_config(
        task=str(place / "mine.jsonl"),
        model=str(place / "model"),
        preset="paper",
        seed=seed,
        search={"iterations": 2, "draws": 4, "elite": 2, "k": 2},
        data={**columns, "training": 80, "validation": 30, **data},
        decoding={"mode": "likelihood"},
        space={"max_length": 8},
    )


def get_splits(config):
    return split_examples(config, load_configured_task(config), config.data)


def test_no_seed_searches_on_the_test_set_of_another(place):
    splits = [get_splits(paper_config(place, seed)) for seed in (1, 2, 42)]
    assert splits[0].test == splits[1].test == splits[2].test
    assert len({one.fingerprints["train"] for one in splits}) == 3
    test = {example.id for example in splits[0].test}
    assert all(test.isdisjoint(example.id for example in (*one.train, *one.validation)) for one in splits)
    by_seed = [get_splits(paper_config(place, seed, test_seed=None)) for seed in (1, 2)]
    assert by_seed[0].test != by_seed[1].test


def test_synthetic_tasks_are_made_from_the_seed_of_the_test_set():
    first, second = (get_splits(make_run_config("category", preset="paper", seed=seed)) for seed in (1, 2))
    assert first.test == second.test
    assert first.train != second.train


def test_a_route_of_such_a_run_is_evaluated_on_its_test_set(place, tmp_path):
    config, store = paper_config(place, 1), tmp_path / "scores.sqlite"
    run_search(config, tmp_path / "run", store=store)
    route_file = tmp_path / "run" / files.ROUTE
    found_by = json.loads(route_file.read_text())["found_by"]
    assert (found_by["seed"], found_by["test_seed"]) == (1, 0)
    for argument in (tmp_path / "run", route_file):
        assert read_search_settings_of_route(str(argument))["data"]["test_seed"] == 0
    columns = ["--question", "q", "--answer", "a", "--choices", "c", "--kind", "choice"]
    command = ["evaluate", "--model", place / "model", "--task", place / "mine.jsonl", *columns, "--store", store]
    command += ["--route", route_file, "--mode", "likelihood"]
    done = run(*command, "--json")
    report, result = json.loads(done.stdout), json.loads((tmp_path / "run" / files.RESULT).read_text())
    assert (report["seed"], report["test_seed"]) == (1, 0)
    assert report["route"]["n"] == report["route"]["from_store"] == result["comparison"]["n"]
    assert report["comparison"]["routed"] == result["comparison"]["routed"]
    assert "may have" not in done.stderr
    assert "warning: the route was searched with seed 1, test seed 0, and" in run(*command, "--test-seed", "5").stderr


def test_a_run_from_before_goes_on_with_its_own_test_set(place, tmp_path, frozen):
    old, new = paper_config(place, 2, test_seed=None), paper_config(place, 2)
    header = prepare_run(old, frozen=frozen, store=tmp_path / "s.sqlite").make_run_json_contents()
    header["config"]["given"]["data"].pop("test_seed")
    header["config"]["resolved"]["data"].pop("test_seed")
    assert header["config"]["given"] == json.loads(json.dumps(new.to_toml_tables()))
    (tmp_path / "s.sqlite").touch()
    RunFolder.create(tmp_path / "run").write_json(files.RUN, header)
    result = resume_run(tmp_path / "run", frozen=frozen, store=tmp_path / "s.sqlite")
    answers = json.loads((tmp_path / "run" / files.ANSWERS).read_text())["examples"]
    assert [example["id"] for example in answers] == [example.id for example in get_splits(old).test]
    assert result.comparison.n == len(answers)
    assert read_search_settings_of_route(str(tmp_path / "run"))["data"]["test_seed"] is None
