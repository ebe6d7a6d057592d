"""`macro compare`, with tiny budgets: methods and controls on a real model, and on mistakes."""

import json

import pytest

from tests.cli.runner import ENVIRONMENT, run
from tests.runs.small import small_folder, write_task_file

METHODS = "guided,macro,macro-restarts,random,rys,shortgpt,early-exit,drllm,drllm-ext,cola,standard"
SMALL = (
    *("--task", "category", "--preset", "quick", "--seeds", "1", "--budget", "140", "--max-span", "1"),
    *("--iterations", "2", "--draws", "4", "--elite", "2", "--training", "16", "--validation", "4", "--test", "8"),
)


@pytest.mark.engines
def test_the_whole_table_on_a_real_model(tmp_path):
    command = ["compare", *SMALL, "--methods", METHODS, "--out", tmp_path / "all", "--store", tmp_path / "s.sqlite"]
    found = json.loads(run(*command, "--json").stdout)
    names = [row["name"] for row in found["rows"]]
    assert names[-2:] == ["standard", "CoLA (oracle)"]
    assert {
        "MACRO, guided",
        "MACRO",
        "MACRO (top-1)",
        "MACRO (no Vit.)",
        "random search",
        "RYS",
        "Dr.LLM",
        "Dr.LLM+Ext.",
    } <= set(names)
    assert all(row["asked"] <= 140 for row in found["rows"])
    assert (tmp_path / "all" / "compare.html").stat().st_size < 3_000_000
    for name in METHODS.split(","):
        assert (tmp_path / "all" / f"{name}-1" / "report.html").is_file()
    again = run(*command, environment={**ENVIRONMENT, "COLUMNS": "80"})  # all of it is there already
    assert "An oracle knows the answers" in again.stdout
    assert max(map(len, again.stdout.splitlines()[:14])) <= 80


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_folder(tmp_path_factory.mktemp("tiny") / "model")


def write_sums(path):
    rows = [f"{one} plus {one + 2} is,{2 * one + 2},{2 * one + 3},{2 * one}" for one in range(40)]
    path.write_text("\n".join(["asked,right,wrong,worse", *rows, rows[0].upper()]))  # and one of them again
    return path


def test_a_file_of_ones_own(model, tmp_path):
    columns = ("--question", "asked", "--answer", "right", "--choices", "right,wrong,worse")
    given = (
        "--task",
        write_sums(tmp_path / "sums.csv"),
        *columns,
        *SMALL[2:],
        "--model",
        model,
        "--methods",
        "early-exit",
    )
    command = ("compare", *given, "--out", tmp_path / "all", "--store", tmp_path / "s.sqlite")
    planned = json.loads(run(*command, "--dry-run", "--json").stdout)
    assert [(one["method"], one["seed"], one["finished"]) for one in planned["runs"]] == [("early-exit", 1, False)]
    assert not (tmp_path / "all").exists()
    done = run(*command, "--json")
    assert "with another answer or other choices: 1;" in done.stderr
    assert "run 1 of 1: early-exit, seed 1" in done.stderr
    found = json.loads(done.stdout)
    rows = [(row["name"], row["method"]) for row in found["rows"]]
    assert rows == [("early exit", "early-exit"), ("standard", "standard")]
    assert {variant["n"] for one in found["runs"] for variant in one["result"]["variants"]} == {8}
    faster = (*command[:-4], "--out", tmp_path / "faster", "--store", tmp_path / "s.sqlite")
    run(*faster, "--objective", "speed", "--margin", "20")
    file = json.loads((tmp_path / "faster" / "early-exit-1" / "route.json").read_text())
    assert file["found_by"]["decision"] == {"objective": "speed", "max_error_probability": 0.05, "margin": 20.0}
    assert "other settings (decision)" in run(*faster, "--objective", "speed", "--margin", "10", status=2).stderr
    left = run(*command, "--methods", "early-exit,standard", "--dry-run").stdout
    assert "2, of which 1 there already; seeds 1" in left
    assert not (tmp_path / "all" / "standard-1").exists()
    wrong = run("compare", *given, "--answer", "rihgt", "--out", tmp_path / "no", status=2)
    assert "there is no column 'rihgt'; the columns are asked, right, wrong, worse" in wrong.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--methods", "maccro"), "did you mean 'macro'"),
        (("--methods", "macro", "--seeds", "one"), "integers separated by commas"),
        (("--methods", "macro,macro"), "once"),
        (("--methods", "macro", "--task", "nonsense"), "nonsense"),
    ],
)
def test_mistakes_are_named_before_a_model_is_loaded(arguments, words, tmp_path):
    found = run("compare", "--task", "category", *arguments, "--out", str(tmp_path / "no"), status=2)
    assert words in found.stderr
    assert "Traceback" not in found.stderr
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    "command",
    [["compare", "--task", "category", "--methods", "maccro"], ["search", "--task", "category", "--draws", "0"]],
)
def test_a_mistake_in_the_flags_is_told_without_waiting_for_torch(command):
    code = f"""
import sys
sys.argv = {["macro", *command]!r}
from macro_routing.cli.main import main
try:
    main()
finally:
    assert not {{"torch", "transformers"}} & set(sys.modules)
"""
    assert "macro: error:" in run(code=code, status=2).stderr


def test_controls_are_named_and_compared_with(model, tmp_path):
    columns = ("--question", "q", "--answer", "a", "--choices", "c")
    given = (
        "--task",
        write_task_file(tmp_path / "own.jsonl", 120),
        *columns,
        *SMALL[2:],
        "--model",
        model,
        "--max-cost",
        "3",
    )
    methods = ("--methods", "early-exit,pmi,contrastive")
    done = run("compare", *given, *methods, "--out", tmp_path / "all", "--store", tmp_path / "s.sqlite")
    assert "contrastive is left out: method contrastive needs a smaller model" in done.stderr
    assert "PMI (control)" in done.stdout
    assert "early exit against the best control by training accuracy, PMI (control):" in done.stdout.replace("\n", " ")
    assert "| no question]" in json.loads((tmp_path / "all" / "pmi-1" / "result.json").read_text())["route"]
