"""The product as a person meets it: search to chat, with a tiny model and a file of one's own."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from macro_routing.cli.run_result import print_run_result
from macro_routing.errors import SettingsError
from macro_routing.runs.result import RunResult
from tests.cli.runner import ENVIRONMENT, run, shell_status
from tests.report.folders import result
from tests.runs.small import small_folder, write_task_file

SMALL = ["--iterations", "3", "--draws", "6", "--elite", "2", "--training", "40", "--validation", "10"]
COLUMNS = ["--question", "q", "--answer", "a", "--choices", "c"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model folder, a data file, and one finished run."""
    folder = tmp_path_factory.mktemp("search")
    small_folder(folder / "model")
    write_task_file(folder / "mine.jsonl")
    arguments = [
        "--model",
        folder / "model",
        "--task",
        folder / "mine.jsonl",
        *COLUMNS,
        *SMALL,
        "--preset",
        "quick",
        "--method",
        "macro",
    ]
    done = run("search", *arguments, "--out", folder / "run", "--store", folder / "s.sqlite")
    return folder, [str(argument) for argument in arguments], done


def test_a_file_of_ones_own_goes_through_to_the_end(place):
    folder, _, done = place
    assert "the data could have shown" in done.stdout or "points" in done.stdout
    assert "MACRO (top-1)" in done.stdout
    assert "report.html" in done.stdout
    assert (folder / "run" / "report.html").stat().st_size > 2000
    assert "round 1/3: best" in done.stderr
    assert "standard" in done.stderr


def test_finished_runs_are_printed_and_reported_again(place):
    folder, _, first = place
    again = run("resume", folder / "run")
    assert again.stdout == first.stdout
    as_json = json.loads(run("resume", folder / "run", "--json").stdout)
    assert as_json["variants"][0]["name"] == "MACRO"
    page = run("report", folder / "run", "--output", folder / "other.html")
    assert page.stdout.strip() == str(folder / "other.html")
    assert "<html" in (folder / "other.html").read_text()


def test_the_route_file_is_a_route_everywhere_and_rejected_elsewhere(place, tmp_path):
    folder, arguments, _ = place
    route = folder / "run" / "route.json"
    run("route", "show", route)
    # The file names the model; with the default one it would be rejected, as below.
    run("evaluate", *arguments[2:10], "--mode", "likelihood", "--route", route, "--limit", "5", "--no-store")
    other = json.loads(route.read_text())
    other["weights_id"] = "weights:other"
    (tmp_path / "other.json").write_text(json.dumps(other))
    refused = run("chat", folder / "model", "--route", tmp_path / "other.json", stdin="w1\n", status=2)
    assert "belongs to" in refused.stderr
    for command in (
        ("doctor", folder / "model", "--route", tmp_path / "other.json"),
        ("search", *arguments, "--init-from", tmp_path / "other.json", "--out", tmp_path / "no"),
    ):
        assert "other.json belongs to" in run(*command, status=2).stderr
    assert not (tmp_path / "no").exists()
    assert "all checks passed" in run("doctor", folder / "model", "--route", route).stdout
    (tmp_path / "new.json").write_text(json.dumps({**other, "format": "macro-route/9"}))
    assert "macro-route/9" in run("route", "show", tmp_path / "new.json", status=2).stderr


def test_a_dry_run_tells_and_writes_nothing(place, tmp_path):
    _, arguments, _ = place
    done = run("search", *arguments, "--dry-run", "--out", tmp_path / "no", "--store", tmp_path / "s.sqlite")
    assert "can show" in done.stdout
    assert "minutes" in done.stdout
    assert not (tmp_path / "no").exists()
    plan = json.loads(run("search", *arguments, "--dry-run", "--json", "--store", tmp_path / "s.sqlite").stdout)
    assert plan["training"] == 40


def test_answers_side_by_side_and_a_chat(place):
    folder, _, _ = place
    both = run("compare-answers", "--run", folder / "run", "--only", "all", "--limit", "2", "--json")
    found = json.loads(both.stdout)
    assert found["shown"] == 2
    assert {"standard", "routed", "question"} <= set(found["answers"][0])
    run("compare-answers", "--model", folder / "model", "--prompt", "w1 w2", "--route", "L0 L2 RJ", "--max-tokens", "4")
    talk = run("chat", folder / "model", "--route", "L0 L2 RJ", "--max-tokens", "4", stdin="w1 w2\n/reset\nw3\n")
    assert len(talk.stdout.strip().splitlines()) == 2
    assert "give either" in run("compare-answers", status=2).stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "needs a task"),
        (["--task", "sciqq"], "did you mean 'sciq'"),
        (["--task", "nothere.csv"], "nothere.csv"),
        (["--task", "category", "--model", "nomodel"], "nomodel"),
        (["--task", "category", "--config", "nothere.toml"], "nothere.toml"),
        (["--task", "category", "--log-to", "paper"], "log_to"),
        (["--task", "category", "--elite", "9", "--draws", "3"], "elite"),
        (["--task", "category", "--max-error-probability", "2"], "max_error_probability = 2.0 is not allowed"),
        (
            ["--task", "category", "--max-error-probability", "0.03", "--method", "macro"],
            "max_error_probability has no effect with method = macro and objective = accuracy",
        ),
        (["--task", "category", "--price", "-1"], "price = -1.0 is not allowed"),
        (["--task", "category", "--margin", "nan"], "margin = nan is not allowed"),
        (["--task", "category", "--margin", "2"], "margin has no effect with method = guided and objective = accuracy"),
        (["--task", "category", "--objective", "size"], "size"),
        (
            ["--task", "category", "--objective", "speed", "--method", "drllm"],
            "objective = speed is not allowed with method = drllm",
        ),
        (
            ["--task", "category", "--objective", "speed", "--method", "cola"],
            "objective = speed is not allowed with method = cola",
        ),
    ],
)
def test_mistakes_are_one_line(arguments, says, tmp_path):
    done = run("search", *arguments, cwd=tmp_path, status=2)
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_ctrl_c_says_how_to_go_on(place, tmp_path):
    _, arguments, _ = place
    # A random search never settles, so it is still running when it is stopped.
    sizes = ["--iterations", "5", "--draws", "40", "--training", "80", "--validation", "10"]
    long = [*arguments[:10], *sizes, "--method", "random", "--out", "run"]
    command = [sys.executable, "-m", "macro_routing.cli.main", "search", *long, "--store", "s.sqlite"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
        # A suite that was started in the background ignores Ctrl-C, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    deadline = time.monotonic() + 300
    while not list(tmp_path.glob("run/states/001.npz")) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=300)
    assert shell_status(process.returncode) == 130, stderr
    assert "macro resume run --store s.sqlite" in stderr
    assert "Traceback" not in stderr
    run("resume", "run", "--store", "s.sqlite", cwd=tmp_path)


def test_tensorboard_hears_the_rounds(place, tmp_path):
    _, arguments, _ = place
    run("search", *arguments, "--out", tmp_path / "run", "--log-to", "tensorboard", "--store", tmp_path / "s.sqlite")
    assert list((tmp_path / "run" / "tensorboard").iterdir())


def test_trackers_are_told_by_three_calls(monkeypatch, tmp_path):
    """wandb and trackio are stood in for by a recorder here: neither can be reached from a test machine."""
    from types import SimpleNamespace

    from macro_routing.cli import progress
    from macro_routing.runs.progress import RoundReport

    said = []
    module = SimpleNamespace(
        init=lambda **settings: said.append(settings),
        log=said.append,
        finish=lambda: said.append("finished"),
    )
    monkeypatch.setitem(sys.modules, "wandb", module)
    logger = progress.make_run_logger("wandb", tmp_path / "run")
    logger.on_round(RoundReport(1, 2, 10, 0.5, None, 3, 4, 0.4, 0.2, 0.6, 30, 10, 0.0, 1.0))
    logger.on_result(SimpleNamespace(comparison=SimpleNamespace(difference=0.1, p_value=0.2)))
    assert said[0] == {"project": "macro", "name": "run"}
    assert said[1]["search/best"] == 0.5
    assert "search/median" not in said[1]  # none was complete
    assert said[-1] == "finished"
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(SettingsError, match="pip install trackio"):
        progress.make_run_logger("trackio", tmp_path)


@pytest.mark.engines
@pytest.mark.alone
def test_the_demo_takes_minutes_and_runs_offline_again(tmp_path):
    two = {**ENVIRONMENT, "OMP_NUM_THREADS": "2"}
    start = time.monotonic()
    done = run("demo", cwd=tmp_path, environment=two)
    # Five minutes of searching on two quiet cores; fetching the model and busy neighbours come on top.
    assert time.monotonic() - start < 540
    assert (tmp_path / "runs" / "demo" / "report.html").is_file()
    assert "macro search --model" in done.stdout
    again = run("demo", cwd=tmp_path, environment={**two, "HF_HUB_OFFLINE": "1", "PIP_NO_INDEX": "1"})
    assert again.stdout.splitlines()[0] == done.stdout.splitlines()[0]  # the same verdict, from the store


def test_the_last_words_name_what_to_do_next(capsys):
    found = {**result(), "folder": "my runs/first"}
    print_run_result(RunResult.from_json(found), Path("page.html"), as_json=False)
    said = capsys.readouterr().out
    assert "macro compare-answers --run 'my runs/first'" in said
    assert "macro serve 'my runs/first'" in said
    assert "macro export 'my runs/first' --format routed" in said
    print_run_result(RunResult.from_json({**found, "recommended": False}), Path("page.html"), as_json=False)
    said = capsys.readouterr().out
    assert "macro compare-answers" in said
    assert "macro serve" not in said
    print_run_result(RunResult.from_json({**found, **result("L0 RJ")}), Path("page.html"), as_json=False)
    assert "macro " not in capsys.readouterr().out.replace("macro-", "")
