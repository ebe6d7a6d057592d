"""The studies' commands: what a newcomer meets, a study of a run's own route, and all of them on a real model."""

import dataclasses
import json
import shutil
import sys
from pathlib import Path

import pytest
import typer.main
import typer.testing

from experiments import recorded_studies as recorded
from macro_routing.cli import study_command
from macro_routing.cli.main import make_cli_app
from macro_routing.cli.single_route_studies import read_search_settings_of_route, use_searched_answer_mode
from macro_routing.cli.study_command import StudyCommandInputs
from macro_routing.errors import MacroError
from macro_routing.routes import parse_route
from macro_routing.routes.route_file import RouteFile
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode
from tests.cli.runner import run
from tests.runs.small import small_folder, write_task_file

ROOT = Path(__file__).parents[2]
app = make_cli_app()
STUDIES = (
    *("main-table", "significance", "ablation", "sweep", "logit-lens", "transfer"),
    *("one-route", "composition", "cost", "side-effects", "depth-tradeoff"),
)
TINY = ("--iterations", "2", "--draws", "4", "--elite", "2", "--training", "16", "--validation", "8", "--test", "20")
PUBLISHED = ROOT / "tests" / "data" / "published_results.json"


def call(*arguments):
    """In this process: the libraries below are loaded once."""
    return typer.testing.CliRunner().invoke(app, [str(one) for one in arguments])


def rejection(*arguments):
    result = call(*arguments)
    assert isinstance(result.exception, MacroError), result.output
    return str(result.exception)


@pytest.mark.parametrize("command", [("explain",), *(("study", study) for study in STUDIES)])
def test_help_says_what_is_measured(command):
    result = call(*command, "--help")
    assert result.exit_code == 0
    assert "--out" in result.output


def test_the_papers_significance_by_the_command(tmp_path):
    done = call(
        *("study", "significance", PUBLISHED, "--baseline", "Baseline", "--method", "MACRO"), "--out", tmp_path / "s"
    )
    assert done.exit_code == 0, done.output
    text = (tmp_path / "s" / "table.md").read_text()
    assert "+12.68" in text
    assert (tmp_path / "s" / "figure.svg").read_text().startswith("<svg")


def test_mistakes_are_one_line(tmp_path):
    assert "cannot be read" in rejection("study", "significance", tmp_path / "none.json")
    assert "holds no finished run" in rejection("study", "composition", tmp_path)
    assert "each once" in rejection("study", "ablation", "--seeds", "1,1", "--out", tmp_path / "a")
    assert "every task once" in rejection("study", "transfer", "--tasks", "a,a", "--out", tmp_path / "a")
    sweep = rejection("study", "sweep", "--setting", "elit", "--values", "1", "--out", tmp_path / "a")
    assert "did you mean 'elite'" in sweep
    assert "no file" in rejection("explain", tmp_path / "route.json", "--out", tmp_path / "a")
    assert "method" in rejection("study", "main-table", "--methods", "macor", "--out", tmp_path / "a")
    assert "nothing to compare" in rejection("study", "main-table", "--methods", "cola", "--out", tmp_path / "a")
    assert "both called m" in rejection("study", "main-table", "--models", "a/m,b/m", "--out", tmp_path / "a")
    assert "is not a task" in rejection("study", "transfer", "--tasks", "category,catgory", "--out", tmp_path / "a")
    assert "has no choices" in rejection("study", "ablation", "--tasks", "counting:likelihood", "--out", tmp_path / "a")
    twice = rejection("study", "transfer", "--tasks", "category,category:likelihood", "--out", tmp_path / "a")
    assert "category and category:likelihood are the same task" in twice
    assert "--models names none" in rejection("study", "main-table", "--models", ",", "--out", tmp_path / "a")
    assert "no run's folder and no file" in rejection("explain", "runs/nope", "--out", tmp_path / "a")
    text = ("--text", tmp_path / "none.txt", "--tasks", "category", "--out", tmp_path / "a")
    assert "cannot read the text" in rejection("study", "side-effects", "L0-L4 L6 RJ", *text)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("study", [("study", "transfer"), ("explain", "L0 RJ")])
@pytest.mark.parametrize("minutes", ["nan", "inf", "-1", "0"])
def test_minutes_that_never_end_or_never_begin_are_rejected(tmp_path, study, minutes):
    told = rejection(*study, "--minutes", minutes, "--out", tmp_path / "a")
    assert told.startswith(f"--minutes = {float(minutes)} is not allowed: it must be a number above 0")
    assert not (tmp_path / "a").exists()


def test_a_folder_of_other_settings_is_rejected(tmp_path):
    call("study", "significance", PUBLISHED, "--baseline", "Baseline", "--out", tmp_path / "s")
    told = rejection("study", "significance", PUBLISHED, "--baseline", "Dr.LLM", "--out", tmp_path / "s")
    assert "other settings (baseline)" in told


def test_a_second_question_needs_no_name_for_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for baseline, place in (("Baseline", "significance"), ("Dr.LLM", "significance.2"), ("Baseline", "significance")):
        done = call("study", "significance", PUBLISHED, "--baseline", baseline)
        assert str(Path("studies") / place) in done.stdout
    assert len(list((tmp_path / "studies").iterdir())) == 2


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A run on a user's own data with a tiny model."""
    home = tmp_path_factory.mktemp("own")
    model, data = small_folder(home / "model"), write_task_file(home / "mine.jsonl")
    columns = ("--question", "q", "--answer", "a", "--choices", "c")
    done = call(
        *("search", "--task", data, *columns, "--model", model, "--preset", "quick", "--method", "macro", *TINY),
        *("--mode", "likelihood", "--out", home / "run", "--store", home / "s.sqlite", "--seed", "4"),
    )
    assert done.exit_code == 0, done.output
    return home


def test_a_route_file_knows_only_the_name_of_ones_own_task(searched):
    told = rejection("explain", searched / "run" / "route.json", "--out", searched / "nowhere")
    assert "name its file with --task" in told
    assert not (searched / "nowhere").exists()


def test_a_damaged_run_is_told(searched, tmp_path):
    shutil.copytree(searched / "run", tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text("{")
    assert "run.json is damaged" in rejection("explain", tmp_path / "run", "--out", tmp_path / "e")


def test_minutes_that_are_over_are_no_error(searched):
    words = (
        "study",
        "transfer",
        "--tasks",
        "category,sequence",
        "--model",
        searched / "model",
        "--method",
        "macro",
        *TINY,
    )
    ended = run(*words, "--minutes", "0.00001", "--out", searched / "p", status=75)
    assert "continues where it was" in ended.stderr
    assert "error" not in ended.stderr


def test_a_study_of_a_run_knows_model_task_seed_and_columns(searched):
    out = searched / "explained"
    done = call("explain", searched / "run", "--out", out, "--store", searched / "s.sqlite", "--json")
    data = json.loads(done.stdout)
    assert data["settings"]["seed"] == 4
    assert data["settings"]["runs"]["data"]["question"] == "q"
    result = json.loads((searched / "run" / "result.json").read_text())
    whole = data["tables"]["table"]["rows"][0]
    assert whole["difference"] == pytest.approx(result["difference"])
    assert whole["n"] == result["comparison"]["n"]
    again = call("explain", searched / "run", "--out", out, "--store", searched / "s.sqlite", "--json")
    assert json.loads(again.stdout)["tables"] == data["tables"]
    assert "other settings (runs.data.test)" in rejection("explain", searched / "run", "--out", out, "--test", "10")


def test_the_routes_own_task_is_answered_as_it_was_searched():
    own = TaskWithAnswerMode("gsm8k", "reasoning")
    named = [TaskWithAnswerMode("gsm8k"), TaskWithAnswerMode("sciq"), TaskWithAnswerMode("gsm8k", "direct")]
    assert list(use_searched_answer_mode(named, own)) == [own, *named[1:]]
    with pytest.raises(MacroError, match="every task once"):
        use_searched_answer_mode([TaskWithAnswerMode("gsm8k"), own], own)


def test_what_a_route_file_brings_and_what_a_file_of_settings_changes(tmp_path):
    decoding = {"mode": "reasoning", "answer_budget": 9, "stop_loops": True, "of another version": 1}
    found = RouteFile(parse_route("L0 RJ", 3), "m", "w", "n", "gsm8k", decoding=decoding, found_by={"seed": 4})
    (tmp_path / "route.json").write_text(found.to_json())
    brought = read_search_settings_of_route(str(tmp_path / "route.json"))
    assert brought["decoding"] == {"mode": "reasoning", "answer_budget": 9, "stop_loops": True}
    (tmp_path / "c.toml").write_text("[decoding]\nanswer_budget = 7\n")
    study = StudyCommandInputs("explain", None, {}, tmp_path / "c.toml", None, None, None, as_json=False)
    base = study.make_shared_run_config({**brought, "preset": "quick"})
    assert base.given["decoding"] == {"mode": "reasoning", "answer_budget": 7, "stop_loops": True}


def test_side_effects_of_a_run_answer_its_task_its_way(searched, monkeypatch):
    """Only what would be run is looked at: the study itself is tested elsewhere."""
    asked = {}
    monkeypatch.setattr(
        study_command.StudyCommandInputs,
        "run",
        lambda _self, _base, settings, _make, tasks: asked.update(own=settings, tasks=tasks),
    )
    header = json.loads((searched / "run" / "run.json").read_text())
    header["config"]["given"]["decoding"] = {"mode": "direct"}
    shutil.copytree(searched / "run", searched / "moded")
    (searched / "moded" / "run.json").write_text(json.dumps(header))
    words = ("study", "side-effects", searched / "moded", "--tasks", f"{searched / 'mine.jsonl'},category")
    assert call(*words).exit_code == 0
    assert [one.mode for one in asked["tasks"]] == ["direct", None]
    assert asked["own"]["tasks"] == [f"{searched / 'mine.jsonl'}:direct", "category"]
    assert call(*words, "--mode", "likelihood").exit_code == 0
    assert [one.mode for one in asked["tasks"]] == [None, None]


def test_front_of_that_run(searched):
    out = searched / "depth-tradeoff"
    done = call(
        "study", "depth-tradeoff", searched / "run", "--depths", "1,1.5", "--out", out, "--store", searched / "s.sqlite"
    )
    assert done.exit_code == 0, done.output
    assert "layers" in (out / "table.md").read_text()
    assert "--depths" in rejection("study", "depth-tradeoff", searched / "run", "--depths", "deep", "--out", out)


def test_composition_of_that_run(searched):
    done = call("study", "composition", searched / "run", "--out", searched / "made", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads((searched / "made" / "data.json").read_text())["tables"]["table"]["rows"][0]["runs"] == 1


@pytest.mark.parametrize(
    "study", [*recorded.list_studies(), *recorded.list_small_studies()], ids=lambda study: study.name
)
def test_the_commands_that_are_recorded_are_understood(study, tmp_path):
    commands = typer.main.get_command(app).commands
    group = commands if study.name == "explain" else commands["study"].commands
    named = dataclasses.replace(
        study, words=study.words.replace(recorded.ROUTE, "'L0 RJ'").replace(recorded.RUN, "run")
    )
    name, *words = recorded.build_command(named, "smollm2-135m", tmp_path, tmp_path)
    assert name in (*STUDIES, "explain")
    common = ["--minutes", "1", "--store", str(tmp_path / "s.sqlite")] if study.searches else []
    group[name].make_context(name, [*words, "--out", str(tmp_path / "o"), *common])  # nothing runs


def test_the_studies_of_a_route_wait_for_one(tmp_path):
    (study,) = [one for one in recorded.list_studies() if one.name == "explain"]
    assert recorded.build_command(study, "m", tmp_path, None) is None
    home = tmp_path / "transfer"
    settings = {"settings": {"tasks": ["counting:direct", "sciq:likelihood"]}}
    for task, route in (("sciq_likelihood", "L0 L0 RJ"), ("counting_direct", "L0 RJ")):
        (home / "runs" / f"{task}-1").mkdir(parents=True)
        (home / "runs" / f"{task}-1" / "route.json").write_text(json.dumps({"route": route}))
    (home / "study.json").write_text(json.dumps(settings))
    (home / "data.json").write_text("{}")
    assert recorded.build_command(study, "m", tmp_path, None)[1] == str(home / "runs" / "sciq_likelihood-1")


def test_all_seeds_are_recorded(tmp_path):
    (study,) = [one for one in recorded.list_studies() if one.name == "ablation"]
    table = {"title": "t", "rows": [{"a": 1}], "shown": [{"a": "1"}], "notes": []}
    data = {"study": "ablation", "headline": "h", "comparisons": 1, "details": {}, "tables": {"table": table}}
    data |= {"environment": {}, "settings": {"seeds": [1, 2, 42], "runs": {"model": "m"}}}
    (tmp_path / "ablation").mkdir()
    (tmp_path / "ablation" / "data.json").write_text(json.dumps(data))
    recorded.collect_records(tmp_path, tmp_path / "docs", [study])
    record = json.loads((tmp_path / "docs" / "data" / "study_ablation.json").read_text())
    assert (record["seed"], record["config"]["seeds"]) == ("1, 2, 42", [1, 2, 42])


@pytest.mark.engines
def test_every_study_on_a_real_model(tmp_path, monkeypatch):
    """By the script that records them, at its tiny size: SmolLM2-135M, synthetic tasks."""
    command = ["experiments.recorded_studies", "smollm2-135m", "--small", "--minutes", "60"]
    runs, docs = tmp_path / "runs", tmp_path / "docs"
    monkeypatch.setattr(recorded, "run_macro", lambda words: run(*words, cwd=ROOT).returncode)
    monkeypatch.setattr(sys, "argv", [*command, "--runs", str(runs), "--write", str(docs)])
    recorded.main()
    names = {path.parent.name for path in runs.glob("*/data.json")}
    expected = {*STUDIES, "explain", "sweep-elite", "sweep-beta"} - {"sweep"}
    assert names == expected
    for name in names:
        files = {path.name for path in (runs / name).iterdir()}
        assert {"table.csv", "table.md", "table.tex", "figure.svg", "figure.png", "figure.pdf"} <= files, name
        record = json.loads((docs / "data" / f"study_{name.replace('-', '_')}.json").read_text())
        assert record["results"]
        assert (docs / "pictures" / f"study_{name.replace('-', '_')}.svg").is_file()
        assert str(tmp_path) not in json.dumps({**record, "command": ""}), name
