"""Commands that are asked to end (SIGTERM): real processes on a tiny model, ended at a known moment of a run."""

import json
import os
import shlex

import pytest

from macro_routing.runs import resume_run
from tests.cli.runner import run, run_script
from tests.faults.reference_search import ReferenceSearch, read_decisions, store_path

ENDED = 143
ASKED_AT = """
import json, os, signal, sys
from pathlib import Path
from macro_routing.cli.main import main
from macro_routing.runs.folder import RunFolder

rounds, arguments = int(sys.argv[1]), sys.argv[2:]
save = RunFolder.save_round

def save_and_end(place, state, report):
    save(place, state, report)
    if state.rounds == rounds:
        children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
        print(json.dumps(children), flush=True)
        os.kill(os.getpid(), signal.SIGTERM)

RunFolder.save_round = save_and_end
sys.argv = ["macro", *arguments]
main()
"""
"""Any ``macro`` command, sent SIGTERM after so many rounds; it prints the numbers of its workers before."""


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return ReferenceSearch.make(tmp_path_factory.mktemp("reference"))


def ended_at(rounds, command, tmp_path):
    """What was said, and the workers that there were."""
    script = tmp_path / "asked_at.py"
    script.write_text(ASKED_AT)
    done = run_script(script, rounds, *command, status=ENDED)
    assert "Traceback" not in done.stderr
    return done.stderr, [int(number) for number in json.loads(done.stdout.splitlines()[-1])]


def arguments_of(reference, place, workers):
    return reference.command(place, workers)[3:]


def assert_gone(workers):
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)


def test_a_search_that_is_asked_to_end_can_be_resumed(reference, tmp_path):
    place = tmp_path / "run"
    said, workers = ended_at(1, arguments_of(reference, place, 0), tmp_path)
    assert said.endswith(f"\nmacro: stopped; go on with: macro resume {place} --store {store_path(place)}\n")
    assert workers == []
    resume_run(place, store=store_path(place))  # the lock is free
    assert read_decisions(place) == read_decisions(reference.undisturbed)


@pytest.mark.engines
@pytest.mark.parametrize("more", ["--workers 2", "--backend ray --workers 2"])
def test_search_and_resume_with_workers_end_them_when_they_are_asked_to_end(reference, tmp_path, more):
    place = tmp_path / "run"
    for rounds in (1, 2):
        said, workers = ended_at(rounds, [*arguments_of(reference, place, 2)[:-2], *shlex.split(more)], tmp_path)
        assert said.endswith(f"\nmacro: stopped; go on with: macro resume {place} --store {store_path(place)}\n")
        assert len(workers) >= 2
        assert_gone(workers)
    resume_run(place, store=store_path(place))
    assert read_decisions(place) == read_decisions(reference.undisturbed)


@pytest.mark.engines
@pytest.mark.parametrize("workers", [0, 2])
def test_a_comparison_that_is_asked_to_end_goes_on_where_it_was(reference, tmp_path, workers):
    out = tmp_path / "all"
    command = [
        *("compare", "--config", str(reference.folder / "search.toml"), "--task", reference.config.task),
        *("--model", reference.config.model, "--preset", "quick", "--methods", "macro,random", "--seeds", "3"),
        *("--out", str(out), "--store", str(store_path(out)), "--workers", str(workers)),
    ]
    said, processes = ended_at(2, command, tmp_path)
    assert said.endswith("\nmacro: stopped; the same command continues where it was\n")
    assert len(processes) == workers
    assert_gone(processes)
    run(*command)
    assert (out / "compare.html").is_file()


def test_an_evaluation_that_is_asked_to_end_says_so(reference, tmp_path):
    """Here the signal comes with the first outcomes: there are no rounds."""
    code = """
import os, signal, sys
import macro_routing.evaluation.evaluator as evaluation
from macro_routing.cli.main import main

run = evaluation.Evaluator.run_routes_on_unit
evaluation.Evaluator.run_routes_on_unit = lambda *given: (run(*given), os.kill(os.getpid(), signal.SIGTERM))[0]
sys.argv = ["macro", *sys.argv[1:]]
main()
"""
    columns = ["--question", "q", "--answer", "a", "--choices", "c"]
    what = ["--task", reference.config.task, "--model", reference.config.model, "--mode", "likelihood", *columns]
    (tmp_path / "asked.py").write_text(code)
    arguments = ["evaluate", *what, "--route", "L0 L3 RJ", "--store", tmp_path / "s.sqlite"]
    done = run_script(tmp_path / "asked.py", *arguments, status=ENDED)
    assert done.stderr.endswith("macro: stopped; what was scored is kept, the same command continues from there\n")
