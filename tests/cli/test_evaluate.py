import json
import re

import pytest

from tests.cli.runner import run
from tests.datasets import FOLDER, needs_datasets


@pytest.fixture
def store(tmp_path):
    return str(tmp_path / "scores.sqlite")


@needs_datasets
def test_standard_against_route_on_a_benchmark_and_again_from_the_store(store):
    command = [
        "evaluate",
        "--model",
        "smollm2-135m",
        "--task",
        "sciq",
        "--data-dir",
        str(FOLDER),
        "--mode",
        "likelihood",
    ]
    command += ["--route", "L0-L17 L17-L29", "--split", "test", "--limit", "20", "--store", store]
    first, again = run(*command).stdout, run(*command).stdout
    assert re.search(r"standard +\d+ of 20 correct", first)
    assert re.search(r"difference +[+-][\d.]+ points, 95 % interval", first)
    assert "exact McNemar" in first
    assert "0 from the store" in first
    assert again.count("20 from the store") == 2
    info = json.loads(run("store", "info", "--store", store, "--json").stdout)
    assert info["scopes"][0]["outcomes"] == 40
    assert info["scopes"][0]["model"] == "smollm2-135m"
    assert "sciq likelihood, smollm2-135m (" in run("store", "info", "--store", store).stdout
    assert "give it alone" in run("store", "prune", "--all", "--task", "sciq", "--store", store, status=2).stderr
    assert "nothing there matches" in run("store", "prune", "--model", "smollm2", "--store", store).stdout
    assert "forgot 40 scores in" in run("store", "prune", "--model", "smollm2-135m", "--store", store).stdout


@needs_datasets
def test_tasks_that_share_questions_are_warned_of_by_name(store):
    command = ["evaluate", "--task", "multiarith", "--data-dir", str(FOLDER), "--route", "L0 RJ", "--limit", "1"]
    done = run(*command, "--answer-budget", "2", "--store", store)
    assert "multiarith shares questions with mawps" in done.stderr


def test_a_csv_of_ones_own(tmp_path, store):
    rows = [f'"The colour of grass number {n} is",green,red,A' for n in range(20)]
    (tmp_path / "mine.csv").write_text("\n".join(["ask,one,two,right", *rows]))
    done = run(
        *[
            "evaluate",
            "--task",
            str(tmp_path / "mine.csv"),
            "--question",
            "ask",
            "--answer",
            "right",
            "--choices",
            "one,two",
        ],
        *["--mode", "likelihood", "--route", "L0 RJ", "--store", store, "--json"],
    )
    report = json.loads(done.stdout)
    assert report["standard"]["n"] == 8
    assert report["comparison"]["difference"] == 0
    assert report["comparison"]["p_value"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "scq", "--route", "L0 RJ"], "did you mean 'sciq'"),
        (["--task", "category", "--route", "L0 L99 RJ", "--mode", "likelihood"], "step 2 applies layer 99"),
        (["--task", "counting", "--route", "L0 RJ", "--mode", "likelihood"], "has no choices"),
        (["--task", "nowhere.csv", "--route", "L0 RJ"], "there is no file nowhere.csv"),
        (
            ["--task", "category", "--route", "L0 RJ", "--mode", "guess"],
            "mode = 'guess' is not allowed: it must be one of",
        ),
        (["--task", "category", "--route", "L0 RJ", "--answer-budget", "0"], "answer_budget = 0"),
        (["--task", "sciq", "--route", "L0 RJ", "--data-dir", "nowhere"], "no .jsonl files"),
        (["--task", "category", "--route", "L0 RJ", "--seed", "-1"], "seed = -1"),
    ],
)
def test_mistakes(arguments, message, store):
    failed = run("evaluate", *arguments, "--limit", "2", "--store", store, status=2)
    assert message in " ".join(failed.stderr.split())
    assert "Traceback" not in failed.stderr


def test_tasks_are_listed():
    listed = run("tasks", fresh=True).stdout
    assert "gsm8k_plus" in listed
    assert "category" in listed
    assert "GSM8K-Hard is made from GSM8K's test questions" in listed
    assert json.loads(run("tasks", "--json").stdout)["benchmarks"]["sciq"]["test_size"] == 1000


def test_store_mistakes(tmp_path):
    assert "there is no score store" in run("store", "info", "--store", str(tmp_path / "no"), status=2).stderr
    (tmp_path / "junk").write_text("junk" * 1000)
    assert "cannot be used" in run("store", "info", "--store", str(tmp_path / "junk"), status=2).stderr
