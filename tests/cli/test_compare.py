"""`macro compare`, on a real model with tiny budgets, and on mistakes."""

import json

import pytest

from tests.cli.runner import ENVIRONMENT, run

METHODS = "guided,macro,macro-restarts,random,rys,shortgpt,early-exit,drllm,drllm-ext,cola,standard"
SMALL = (
    *("--task", "category", "--preset", "quick", "--seeds", "1", "--budget", "140", "--max-span", "1"),
    *("--iterations", "2", "--draws", "4", "--elite", "2", "--training", "16", "--validation", "6", "--test", "12"),
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--methods", "maccro"), "did you mean 'macro'"),
        (("--methods", "macro", "--seeds", "one"), "whole numbers with commas"),
        (("--methods", "macro,macro"), "once"),
        (("--methods", "macro", "--task", "nonsense"), "nonsense"),
    ],
)
def test_mistakes_are_named_before_a_model_is_loaded(arguments, words, tmp_path):
    found = run("compare", "--task", "category", *arguments, "--out", str(tmp_path / "no"), status=2)
    assert words in found.stderr
    assert "Traceback" not in found.stderr
    assert not (tmp_path / "no").exists()
