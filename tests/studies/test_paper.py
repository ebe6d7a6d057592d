"""The paper from one configuration, on a tiny model and two tiny tasks: parts, merging, what cannot be run."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from macro_routing.cli import paper_study
from macro_routing.cli.console import read_toml
from macro_routing.errors import SettingsError
from macro_routing.runs.comparison_results import read_method_runs
from macro_routing.studies.paper import PaperSession
from macro_routing.studies.paper_config import list_units, read_paper_config
from macro_routing.studies.paper_estimate import divide_units, estimate_hours
from macro_routing.tasks.benchmarks import BENCHMARKS
from tests.cli.runner import run
from tests.runs.small import small_folder, small_frozen, write_task_file

ROOT = Path(__file__).parents[2]
PAPER, AVAILABLE = ROOT / "examples" / "paper.toml", ROOT / "examples" / "paper_available_models.toml"
CONFIG = """
tasks = ["{0}/first.jsonl", "{0}/second.jsonl"]
seeds = [1]

[runs]
search = {{ iterations = 2, draws = 4, elite = 2, k = 2 }}
data = {{ question = "q", answer = "a", choices = "c", kind = "choice", training = 12, validation = 6, test = 8 }}
decoding = {{ mode = "direct", answer_budget = 1 }}
space = {{ max_length = 8 }}

[models]
tiny = {{ parameters = 1 }}
{1}

[throughput]
seconds_per_evaluation = 0.36
parameters = 0.5

[items.main-table]
shows = "Main table"
methods = ["macro", "drllm"]

[items.ablation]
models = ["tiny"]
tasks = ["{0}/first.jsonl"]

[items.sweep-elite]
study = "sweep"
models = ["tiny"]
tasks = ["{0}/first.jsonl"]
setting = "elite"
values = [1]

[items.one-route]
models = ["tiny"]
tasks = ["{0}/first.jsonl"]
out_of_domain = ["{0}/second.jsonl"]

[items.transfer]
models = ["tiny"]

[items.logit-lens]
models = ["tiny"]
tasks = ["{0}/first.jsonl"]
items = 4
routes_of = "main-table"

[items.cost]
models = ["tiny"]
tasks = ["{0}/first.jsonl"]
items = 4
repeats = 1
routes_of = "main-table"

[items.composition]
routes_of = "main-table"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paper")
    small_folder(folder / "models" / "tiny")
    for name, count in (("first", 120), ("second", 90)):
        write_task_file(folder / f"{name}.jsonl", count)
    (folder / "paper.toml").write_text(CONFIG.format(folder, ""))
    return folder


def make_session(place, out, **changes):
    """One with a model that is in memory already."""
    config = read_paper_config(read_toml(place / "paper.toml"), place / "models")
    return PaperSession(config, out, load=lambda *_: small_frozen(), **changes)


def test_two_machines_fill_the_paper_and_one_gathers_it(place, tmp_path):
    sessions = [make_session(place, tmp_path / name) for name in ("one", "two")]
    units = list_units(sessions[0].config)
    assert len(units) == len({unit.name for unit in units}) == 10
    for index, session in enumerate(sessions):
        assert session.run_units(units[index::2])
        # What needs a route of the other machine waits for it.
        assert all("has no route for it yet" in reason for reason in session.failures.values())
    for session in sessions:
        shutil.copytree(session.out, tmp_path / "all", dirs_exist_ok=True)
    whole = make_session(place, tmp_path / "all")
    before = {unit.name: whole.read_seconds(unit) for unit in units if whole.is_finished(unit)}
    assert len(before) >= 8
    assert whole.run_units(units)
    assert not whole.failures
    assert all(whole.read_seconds(unit) == before[unit.name] for unit in units if unit.name in before)
    result = whole.gather()
    assert result.headline == "10 of 10 units are done."
    rows = {row["item"]: row for row in result.table.rows}
    assert (rows["main-table"]["units"], rows["main-table"]["evaluations"], rows["cost"]["done"]) == (4, 0, 1)
    assert rows["main-table"]["hours"] > 0
    table = json.loads((tmp_path / "all" / "main-table" / "data.json").read_text())["tables"]
    assert {"table", "significance", "search_time", "best_routes"} <= set(table)
    assert {row["method"] for row in table["table"]["rows"]} >= {"standard pass", "MACRO", "MACRO (top-1)", "Dr.LLM"}
    for name in ("composition", "transfer/transfer--tiny--1", "logit-lens/logit-lens--tiny--first.jsonl--1"):
        assert (tmp_path / "all" / name / "table.tex").is_file()
    # Every other item has one table of its units.
    one_route = json.loads((tmp_path / "all" / "one-route" / "data.json").read_text())
    assert [(row["domain"], row["task"], row["seeds"]) for row in one_route["tables"]["table"]["rows"]] == [
        ("in domain", "first.jsonl", 1),
        ("out of domain", "second.jsonl", 1),
        ("in domain", "mean", 1),
        ("out of domain", "mean", 1),
    ]
    assert one_route["headline"].startswith("tiny: ")
    assert "in domain" in one_route["headline"]
    cost = json.loads((tmp_path / "all" / "cost" / "data.json").read_text())
    assert [row["task"] for row in cost["tables"]["table"]["rows"]] == ["first.jsonl", "mean"]
    assert "% time per item" in cost["headline"]
    ablation = json.loads((tmp_path / "all" / "ablation" / "data.json").read_text())
    (unit,) = [one for one in units if one.item.name == "ablation"]
    assert (
        ablation["headline"] == json.loads((whole.out / "ablation" / unit.name / "data.json").read_text())["headline"]
    )
    # Dr.LLM has its published sizes: all 12 examples, ten simulations and the standard pass each.
    (labels,) = [
        found
        for found in read_method_runs(next((tmp_path / "all" / "main-table" / "runs").glob("tiny--first.jsonl")))
        if found.method == "drllm"
    ]
    assert labels.asked <= 12 * 11
    # An item alone may use the routes of a table that is not run again.
    shutil.rmtree(tmp_path / "all" / "cost")
    alone = make_session(place, tmp_path / "all")
    alone.config = alone.config.select_items(["cost"])
    assert alone.run_units(list_units(alone.config))
    assert alone.gather().headline == "1 of 1 units are done."


def test_stopped_and_gone_on(place, tmp_path):
    session = make_session(place, tmp_path / "out", minutes=0.0)
    units = list_units(session.config)[:1]
    assert not session.run_units(units)
    assert not session.is_finished(units[0])
    again = make_session(place, tmp_path / "out")
    assert again.run_units(units)
    assert again.is_finished(units[0])
    # Tables are of what is there; nothing else was begun.
    (tmp_path / "out" / "one-route").mkdir()  # an item that was begun and has nothing yet
    again.config = dataclasses.replace(
        again.config,
        items=tuple(
            dataclasses.replace(item, routes_of=("main-table", "one-route")) if item.study == "composition" else item
            for item in again.config.items
        ),
    )
    assert again.gather().headline == "1 of 10 units are done."
    assert (tmp_path / "out" / "composition" / "table.md").is_file()
    assert (tmp_path / "out" / "main-table" / "table.md").is_file()


def test_the_command(place, tmp_path):
    (place / "two.toml").write_text(CONFIG.format(place, "missing = { parameters = 2 }"))
    command = ["study", "paper", place / "two.toml", "--model-dir", place / "models", "--out", tmp_path / "out"]
    planned = json.loads(run(*command, "--dry-run", "--json").stdout)
    assert not (tmp_path / "out").exists()
    (table,) = [row for row in planned["items"] if row["item"] == "main-table"]
    assert (table["units"], table["done"]) == (8, 0)
    # 12 training examples in two rounds: 6, then 6 and a replayed one; 0.36 s for 0.5 billion parameters.
    macro, drllm = 4 * (6 + 7) + 2 * 6 + 4 * 8, 12 * 11 + 2 * 8
    assert table["evaluations"] == 4 * (macro + drllm)
    assert table["expected_hours"] == pytest.approx(2 * (macro + drllm) * 0.72 * (1 + 2) / 3600)
    done = run(*command, "--items", "main-table", "--part", "3/4", "--json", status=1)
    (table,) = json.loads(done.stdout)["items"]
    assert (table["item"], table["units"], table["done"]) == ("main-table", 8, 1)
    assert "missing" in done.stderr
    assert "must be I/N" in run(*command, "--part", "3/2", status=2).stderr


@pytest.mark.parametrize("parts", [1, 2, 4, 7])
def test_parts_take_about_the_same_time(parts):
    config = read_paper_config(read_toml(PAPER))
    units = list_units(config)
    divided = divide_units(config, units, parts)
    assert sorted(unit.name for part in divided for unit in part) == sorted(unit.name for unit in units)
    assert all(part == [unit for unit in units if unit in part] for part in divided)
    hours = [estimate_hours(config, part) for part in divided]
    assert max(hours) - min(hours) < 0.01 * max(hours)


def test_more_parts_than_units_leave_some_empty(place):
    config = read_paper_config(read_toml(place / "paper.toml"), place / "models")
    assert sorted(map(len, divide_units(config, list_units(config), 12))) == [0, 0, *([1] * 10)]


def test_without_a_file_it_is_the_papers():
    done = run("study", "paper", "--dry-run")
    for text in (
        "main-table: Mixtral-8x7B-Instruct-v0.1, Qwen3-14B",
        "mmlu_pro",
        "seeds 1, 2, 42",
        "GPU-hours left, about:",
    ):
        assert text in done.stdout
    assert "at most: " not in done.stdout
    planned = json.loads(run("study", "paper", "--dry-run", "--json").stdout)["items"]
    (table,) = [row for row in planned if row["item"] == "main-table"]
    assert (table["models"], table["benchmarks"], table["seeds_of_item"]) == (6, 13, [1, 2, 42])
    assert table["units"] == 6 * 13 * 3 * 3
    (routes,) = [row for row in planned if row["item"] == "composition"]
    assert (routes["models"], routes["benchmarks"], routes["units"]) == (7, 13, 0)  # Llama, too


def test_an_installation_without_the_file_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(paper_study, "__file__", str(tmp_path / "a" / "b" / "c" / "paper_study.py"))
    with pytest.raises(SettingsError, match="name a file, such as"):
        paper_study.find_own_config()


def test_some_items_alone(place, tmp_path):
    command = ["study", "paper", place / "paper.toml", "--model-dir", place / "models", "--out", tmp_path / "out"]
    listed = json.loads(run(*command, "--items", "ablation, main-table", "--dry-run", "--json").stdout)["items"]
    assert [row["item"] for row in listed] == ["main-table", "ablation"]
    message = run(*command, "--items", "main_table", "--dry-run", status=2).stderr
    assert "--items = 'main_table' is not allowed: it must be one of main-table, ablation, sweep-elite" in message
    assert "did you mean 'main-table'" in message
    assert "--items names no item" in run(*command, "--items", ",", "--dry-run", status=2).stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"items": {"main-table": {"methods": ["macro"], "model": ["tiny"]}}}, "unknown key 'model'"),
        ({"items": {"cost": {"routes_of": "nothing"}}}, "routes_of of cost = 'nothing'"),
        ({"items": {"cost": {"routes_of": ["main-table", "llama"]}}}, "routes_of of cost = '(main-table|llama)'"),
        ({"items": {"composition": {}}}, "routes_of of composition = ''"),
        ({"items": {"table": {"study": "tables"}}}, "study of table = 'tables' is not allowed"),
        ({"items": {"main-table": {"methods": ["mcro"]}}}, "did you mean 'macro'"),
        ({"models": {"tiny": {}}}, "parameters of tiny"),
        ({"item": {}}, "did you mean 'items'"),
        ({"throughput": {"seconds_per_evaluation": 0, "parameters": 1}}, "seconds_per_evaluation = 0"),
        ({"items": {"main-table": {"methods": ["macro"], "models": ["other"]}}}, "models of main-table = 'other'"),
        ({"runs": {"sed": 1}}, "unknown key 'sed'"),
        ({"seeds": "1,2"}, "seeds of main-table = '1,2' is not allowed: write a list"),
        ({"seeds": ["1"]}, "seeds of main-table"),
        ({"tasks": ["sciqq"]}, "did you mean 'sciq'"),
        ({"items": {"main-table": {"method": ["macro"]}}}, "unknown key 'method'"),
        ({"items": {"main-table": {"methods": ["macro", "contrastive"]}}}, "contrastive needs a smaller model"),
    ],
)
def test_mistakes_are_named(change, message):
    items = {"main-table": {"methods": ["macro"]}}
    values = {"tasks": ["category"], "seeds": [1], "models": {"tiny": {"parameters": 1}}, "items": items}
    read_paper_config(values)
    with pytest.raises(SettingsError, match=message):
        read_paper_config({**values, **change})


@pytest.mark.parametrize("path", [PAPER, AVAILABLE])
def test_the_examples_are_the_papers(path):
    config = read_paper_config(read_toml(path))
    (table,) = [item for item in config.items if item.name == "main-table"]
    assert table.seeds == (1, 2, 42)
    titles = [BENCHMARKS[task].title for task in table.settings.tasks]
    published = json.loads((ROOT / "tests" / "data" / "published_results.json").read_text())
    assert titles == [name for name in published[0]["accuracy"] if name != "Avg"]
    run_config = config.make_run_config(table.models[0], "gsm8k")
    assert (run_config.preset, run_config.method, run_config.budget) == ("paper", "macro", None)
    # The speed is that of a recorded search's first round.
    first = json.loads((ROOT / "docs" / "data" / "search_time.json").read_text())["results"][0]
    evaluations = int(first["detail"].split("; ")[1].split()[0])
    assert config.throughput.seconds_per_evaluation == pytest.approx(first["seconds"] / evaluations, rel=0.01)


def test_the_papers_configuration_has_its_models_and_all_it_shows():
    config = read_paper_config(read_toml(PAPER))
    published = json.loads((ROOT / "tests" / "data" / "published_results.json").read_text())
    names = {row["model"].rsplit("/", 1)[-1].removesuffix(" (4-bit)") for row in published}
    assert {name.rsplit("/", 1)[-1] for name in config.models} == names
    assert {name: item.routes_of for item in config.items if (name := item.name) in {"composition", "cost"}} == {
        "composition": ("main-table", "llama"),
        "cost": ("main-table",),
    }
    four_bits = {name for name, values in config.models.items() if values.get("quantization") == "4bit"}
    assert four_bits == {"mistralai/Mixtral-8x7B-Instruct-v0.1", "Qwen/Qwen3-14B"}
    assert {item.study for item in config.items} == {
        *("main-table", "ablation", "sweep", "logit-lens", "one-route", "transfer", "composition", "cost")
    }
