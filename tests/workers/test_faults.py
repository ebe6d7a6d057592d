"""Faults done for real, once each; ``make faults`` does them many times for docs/explanation/reliability.md."""

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from macro_routing.errors import MacroError, ModelError
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.scoring_settings import UnitSizes
from macro_routing.models import load_model
from macro_routing.routes import Route, parse_route
from macro_routing.runs import run_search
from macro_routing.workers.ray_backend import RayWorkerBackend
from macro_routing.workers.worker_messages import WorkerSetup
from macro_routing.workers.worker_pool import create_worker_pool, make_worker_environments
from macro_routing.workers.worker_settings import WorkerError, WorkerSettings
from tests.cli.runner import run, shell_status
from tests.faults.fault_injection import FaultInjector, FaultResult, WorkerKiller
from tests.faults.reference_search import (
    ReferenceSearch,
    command_environment,
    read_decisions,
    read_outcomes,
    store_path,
)
from tests.faults.scenarios import LOCAL_FAULTS, RAY_FAULTS
from tests.runs.small import small_frozen, small_task


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    return ReferenceSearch.make(tmp_path_factory.mktemp("reference"))


def test_two_workers_decide_what_one_process_decides(reference, tmp_path):
    place = tmp_path / "run"
    run_search(reference.config, place, store=store_path(place), workers=WorkerSettings(workers=2))
    assert read_decisions(place) == read_decisions(reference.undisturbed)
    found, known = read_outcomes(store_path(place)), read_outcomes(store_path(reference.undisturbed))
    assert known.items() <= found.items()  # workers that would be idle work ahead


@pytest.mark.engines
def test_pairs_of_route_and_example_are_dealt_out_too(reference):
    """What routers and oracles need: every example on a route of its own."""
    task, frozen = reference.setup.tasks[0].load_task(), load_model(reference.config.model)
    routes = [parse_route(text, 6) for text in ("L0 RJ", "L0 L2 RJ", "L0-L3 L3 RJ")]
    pairs = [(routes[number % 3], one) for number, one in enumerate(task.pools["all"][:20])]
    alone = Evaluator(frozen, task, DecodingSettings("likelihood"), None, UnitSizes(full=8))
    with reference.pool(WorkerSettings(workers=2), reference.folder / "pairs") as pool:
        spread = dataclasses.replace(alone, executor=pool).evaluate_pairs(pairs)
    assert spread == alone.evaluate_pairs(pairs)


@pytest.mark.engines
def test_a_driver_without_weights_decides_the_same(reference, tmp_path):
    """As where workers are on GPUs; only what the route costs is not measured then."""
    place = tmp_path / "run"
    light = WorkerSettings(workers=2, light_driver=True)
    run_search(reference.config, place, store=store_path(place), workers=light)
    assert read_decisions(place) == read_decisions(reference.undisturbed)
    headers = [json.loads((run / "run.json").read_text()) for run in (place, reference.undisturbed)]
    assert headers[0]["scope"] == headers[1]["scope"]
    assert headers[0]["model"] == headers[1]["model"]
    assert "loaded by the workers alone" in json.loads((place / "cost.json").read_text())["not_measured"]
    own = reference.config.with_changes(method="shortgpt", search={})
    with pytest.raises(ModelError, match="--workers 0"):
        run_search(own, tmp_path / "own", store=store_path(place), workers=light)


@pytest.mark.engines
def test_a_worker_with_another_model_than_the_driver_is_rejected(reference, tmp_path):
    """The configuration names one model, the dispatcher was handed another."""
    with pytest.raises(MacroError, match="other numerics"):
        run_search(
            reference.config,
            tmp_path / "run",
            frozen=small_frozen("qwen3"),
            store=tmp_path / "s.sqlite",
            workers=WorkerSettings(workers=1),
        )
    with pytest.raises(MacroError, match="does not know the task other"):
        run_search(
            reference.config,
            tmp_path / "again",
            task=small_task("other"),
            store=tmp_path / "s.sqlite",
            workers=WorkerSettings(workers=1),
        )


def test_a_model_that_no_worker_can_load_is_the_models_error(reference, tmp_path):
    setup = WorkerSetup(str(tmp_path / "nowhere"), reference.setup.loading, reference.setup.tasks)
    task = small_task()
    with (
        create_worker_pool(WorkerSettings(workers=1), setup) as pool,
        pytest.raises(ModelError, match="there is no folder"),
    ):
        Evaluator(small_frozen(), task, DecodingSettings("likelihood"), executor=pool).evaluate(
            [Route.standard(6)], task.pools["test"][:2]
        )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"backend": "slurm"}, "backend"),
        ({"workers": -1}, "workers"),
        ({"address": "auto"}, "add --backend ray or leave --address out"),
        ({"gpus_per_worker": 1}, "add --workers N or leave it out"),
        ({"gpus_per_worker": 1.5}, "gpus_per_worker"),
        ({"worker_timeout": 0}, "worker_timeout"),
        ({"attempts": 0}, "attempts"),
        ({"backend": "ray", "address": 5}, "address = 5 is not allowed: it must be HOST:PORT"),
        ({"backend": "ray", "address": ""}, "address = '' is not allowed: it must be HOST:PORT"),
        ({"backend": "ray", "address": "10.0.0.1"}, "address = '10.0.0.1' is not allowed"),
        ({"backend": "ray", "address": "http://10.0.0.1:6379"}, "address = 'http://10.0.0.1:6379' is not allowed"),
    ],
)
def test_impossible_settings_are_rejected(given, says):
    with pytest.raises(MacroError, match=says):
        WorkerSettings(**given)


@pytest.mark.parametrize("address", ["auto", "10.0.0.1:6379", "head.local:6379", "[::1]:6379", "ray://head:10001"])
def test_addresses_that_ray_knows_are_taken(address):
    assert WorkerSettings("ray", 2, address).address == address


def test_what_this_machine_does_not_have_is_rejected_with_a_way_out():
    with pytest.raises(WorkerError, match=r"no GPU here .* leave it out to work on CPU"):
        make_worker_environments(WorkerSettings(workers=2, gpus_per_worker=0.5), [], 8)
    with pytest.raises(WorkerError, match=r"1000 workers on 8 cores .*; use about 8"):
        make_worker_environments(WorkerSettings(workers=1000), [], 8)
    assert len(make_worker_environments(WorkerSettings(workers=64), [], 8)) == 64


def test_without_ray_it_is_said_what_to_install(monkeypatch):
    """An environment without Ray is played: this one has it."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(WorkerError, match=r"pip install '\.\[ray\]' in the checkout; without it --backend local"):
        RayWorkerBackend("{}", WorkerSettings("ray", 2))


def test_nobody_at_the_address_is_said_with_a_way_out():
    with pytest.raises(WorkerError, match=r"127.0.0.1:1 cannot be used: .*refused; start one .* leave --address out"):
        RayWorkerBackend("{}", WorkerSettings("ray", 2, "127.0.0.1:1"))


def test_gpus_and_cores_are_dealt(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert make_worker_environments(WorkerSettings(workers=2), [], 8) == [{"OMP_NUM_THREADS": "4"}] * 2
    gpus = ["0", "1", "2", "3"]

    def seen(workers, each):
        found = make_worker_environments(WorkerSettings(workers=workers, gpus_per_worker=each), gpus, 8)
        return [one["CUDA_VISIBLE_DEVICES"] for one in found]

    assert seen(4, None) == gpus
    assert seen(2, 2) == ["0,1", "2,3"]
    assert seen(8, 0.5) == ["0", "0", "1", "1", "2", "2", "3", "3"]
    with pytest.raises(WorkerError, match="4 are visible"):
        seen(5, None)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert (
        make_worker_environments(WorkerSettings(workers=3, gpus_per_worker=0), gpus, 8)
        == [{"OMP_NUM_THREADS": "1"}] * 3
    )


def test_a_fault_that_did_not_happen_shows_nothing():
    undisturbed = FaultResult(happened=False, same=True, lost=0, twice=0)
    assert not undisturbed.sound
    assert dataclasses.replace(undisturbed, happened=True).sound
    assert not dataclasses.replace(undisturbed, happened=True, lost=1).sound


def test_workers_are_killed_together_when_all_are_ready():
    workers = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) for _ in range(2)]
    pool = SimpleNamespace(process_ids=[workers[0].pid])  # the other still loads
    injector = FaultInjector({1}, killer := WorkerKiller(random.Random(0), 2))  # noqa: S311
    injector.pool = pool
    injector.on_outcomes(1)
    assert killer.killed == set()
    pool.process_ids = [one.pid for one in workers]
    injector.on_outcomes(1)
    assert killer.killed == set(pool.process_ids)
    assert [one.wait(20) for one in workers] == [-signal.SIGKILL] * 2
    injector.on_outcomes(1)  # it is done once


@pytest.mark.engines
@pytest.mark.parametrize("fault", LOCAL_FAULTS)
def test_a_run_survives(reference, tmp_path, fault):
    observed = LOCAL_FAULTS[fault](reference, tmp_path / "run", random.Random(5))  # noqa: S311
    assert observed.sound, observed
    if observed.workers_lost:
        assert "a worker exited: " in (tmp_path / "run" / "log.txt").read_text(encoding="utf-8")


@pytest.mark.engines
@pytest.mark.filterwarnings("ignore")  # Ray leaves sockets and processes to be collected
@pytest.mark.parametrize("fault", RAY_FAULTS)
def test_a_run_on_ray_survives(reference, tmp_path, fault):
    observed = RAY_FAULTS[fault](reference, tmp_path / "run", random.Random(5))  # noqa: S311
    assert observed.sound, observed


@pytest.mark.engines
@pytest.mark.filterwarnings("ignore")  # Ray leaves sockets and processes to be collected
def test_a_crew_that_ray_has_no_room_for_leaves_no_ray_behind():
    import ray

    for _ in range(2):  # one that were left would refuse the second for another reason
        with pytest.raises(WorkerError, match="the Ray cluster has 0"):
            RayWorkerBackend("{}", WorkerSettings("ray", 2, gpus_per_worker=2))
        assert not ray.is_initialized()
    with pytest.raises(WorkerError, match="would wait for each other"):
        RayWorkerBackend("{}", WorkerSettings("ray", 5000))
    assert not ray.is_initialized()


@pytest.mark.engines
def test_a_ray_that_does_not_start_is_explained(monkeypatch):
    import ray

    def time_out(**_):
        raise Exception("The current node timed out during startup.")  # noqa: TRY002 as Ray raises it

    monkeypatch.setattr(ray, "init", time_out)
    with pytest.raises(WorkerError, match=r"node timed out during startup; --backend local works without Ray"):
        RayWorkerBackend("{}", WorkerSettings("ray", 2))


@pytest.mark.engines
def test_the_commands_take_workers(reference):
    columns = ["--question", "q", "--answer", "a", "--choices", "c"]
    what = ["--task", reference.config.task, "--model", reference.config.model, "--mode", "likelihood", *columns]
    command = ["evaluate", *what, "--route", "L0 L3 RJ", "--limit", 20, "--json", "--no-store"]
    plain = run(*command)
    for more in (["--workers", 2], ["--backend", "ray", "--workers", 2]):
        assert run(*command, *more).stdout == plain.stdout
    refused = run(*command, "--backend", "ray", "--address", "127.0.0.1:1", "--workers", 2, status=2)
    assert "cannot be used" in refused.stderr
    assert "Traceback" not in refused.stderr
    crowded = run(*command, "--backend", "ray", "--workers", 2, "--gpus-per-worker", 2, status=2)
    assert "the Ray cluster has 0" in crowded.stderr


@pytest.mark.engines
def test_ctrl_c_ends_the_workers_and_says_how_to_go_on(reference, tmp_path):
    place = tmp_path / "run"
    dispatcher = subprocess.Popen(
        reference.command(place),
        env=command_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # A suite that runs in the background ignores Ctrl-C, and its children would, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    children = Path(f"/proc/{dispatcher.pid}/task/{dispatcher.pid}/children")
    end = time.monotonic() + 300
    while not (place / "run.json").exists() and time.monotonic() < end:
        time.sleep(0.05)
    while len(children.read_text().split()) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    workers = [int(one) for one in children.read_text().split()]
    dispatcher.send_signal(signal.SIGINT)
    _, said = dispatcher.communicate(timeout=300)
    assert shell_status(dispatcher.returncode) == 130, said
    assert f"macro resume {place}" in said
    assert len(workers) == 2
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)
