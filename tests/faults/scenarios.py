"""Faults that are really done to a search with workers, and what is observed after each.

Every scenario runs the same small search as the reference's undisturbed run, does something to it, lets it come to its
end, and compares: what was decided, what the store holds, and how many outcomes were counted.
"""

import dataclasses
import json
import os
import platform
import random
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from macro_routing.errors import MacroError, redact_secrets
from macro_routing.runs import RunFolder, resume_run, run_search
from macro_routing.search import Score, ScoringFailure
from macro_routing.workers.dispatcher import WorkerEventCounts
from macro_routing.workers.worker_pool import WorkerPool
from macro_routing.workers.worker_settings import LOCAL, RAY, WorkerSettings
from tests.faults.fault_injection import FaultInjector, FaultResult, WorkerKiller
from tests.faults.reference_search import (
    WORKERS,
    ReferenceSearch,
    command_environment,
    count_lost_outcomes,
    read_decisions,
    read_outcomes,
    store_path,
)

HANG_SECONDS = 4.0
"""Units of the small search take milliseconds."""


def _run_with_fault(
    reference: ReferenceSearch,
    run_folder: Path,
    settings: WorkerSettings,
    injector: FaultInjector,
    happened: Callable[[WorkerEventCounts], bool],
) -> FaultResult:
    with reference.pool(settings, run_folder) as pool:
        injector.pool = pool
        run_search(reference.config, run_folder, store=store_path(run_folder), listener=injector, workers=pool)
    same = read_decisions(run_folder) == read_decisions(reference.undisturbed)
    return FaultResult(
        happened(pool.counts),
        same,
        count_lost_outcomes(reference, store_path(run_folder)),
        pool.twice,
        pool.counts.crashes,
    )


def _settings(backend: str = LOCAL) -> WorkerSettings:
    return WorkerSettings(backend, WORKERS, worker_timeout=HANG_SECONDS / 60, start_timeout=2)


def kill_worker(reference: ReferenceSearch, run_folder: Path, rng: random.Random, backend: str = LOCAL) -> FaultResult:
    """SIGKILL to one worker, at three moments."""
    return _run_with_kills(reference, run_folder, rng, backend, moments=3, workers=1)


def kill_all_workers(
    reference: ReferenceSearch, run_folder: Path, rng: random.Random, backend: str = LOCAL
) -> FaultResult:
    """SIGKILL to every worker at once, at two moments."""
    return _run_with_kills(reference, run_folder, rng, backend, moments=2, workers=WORKERS)


def _run_with_kills(
    reference: ReferenceSearch, run_folder: Path, rng: random.Random, backend: str, *, moments: int, workers: int
) -> FaultResult:
    injector = FaultInjector(set(rng.sample(range(2, 30), moments)), killer := WorkerKiller(rng, workers))

    def happened(counts: WorkerEventCounts) -> bool:
        return counts.crashes >= len(killer.killed) == moments * workers

    return _run_with_fault(reference, run_folder, _settings(backend), injector, happened)


def hang_worker(reference: ReferenceSearch, run_folder: Path, rng: random.Random, backend: str = LOCAL) -> FaultResult:
    """SIGSTOP to one worker: it no longer answers; the deadline is a few seconds."""

    def stop(pool: WorkerPool) -> bool:
        os.kill(pool.process_ids[0], signal.SIGSTOP)
        return True

    injector = FaultInjector({rng.randrange(2, 30)}, stop)
    return _run_with_fault(reference, run_folder, _settings(backend), injector, lambda counts: counts.hangs >= 1)


def crash_on_route(reference: ReferenceSearch, run_folder: Path, rng: random.Random) -> FaultResult:
    """A route that crashes its worker every time; one that decides nothing, so that the end must be the same."""
    crashing = rng.choice(_find_undecisive_routes(reference))
    os.environ["MACRO_CRASHING_ROUTE"] = crashing
    with reference.pool(_settings(), run_folder, "tests.faults.crashing_worker") as pool:
        run_search(reference.config, run_folder, store=store_path(run_folder), workers=pool)
    now, before = read_decisions(run_folder), read_decisions(reference.undisturbed)
    reasons = {outcome.reason for route, outcome in now[3] if route == crashing and isinstance(outcome, ScoringFailure)}
    # Draws that were stopped may have been stopped elsewhere; scores are what they were.
    scores = [one for one in zip(now[3], before[3], strict=True) if all(isinstance(o, Score) for _, o in one)]
    same = now[:3] == before[:3] and now[4] == before[4] and all(one == other for one, other in scores)
    found, scored = read_outcomes(store_path(run_folder)), {route for (route, _), _ in scores}
    missing = sum(key[2] in scored and key not in found for key in read_outcomes(store_path(reference.undisturbed)))
    note = f"{crashing}: {'; '.join(reasons)}"
    happened = len(reasons) == 1 and pool.counts.crashes >= _settings().attempts
    return FaultResult(happened, same, missing, pool.twice, pool.counts.crashes, note)


def _find_undecisive_routes(reference: ReferenceSearch) -> list[str]:
    """Routes that were drawn, stopped wherever they were, and no candidates in the end."""
    state = RunFolder.open(reference.undisturbed).load_last_state()
    assert state is not None
    candidates = json.loads((reference.undisturbed / "candidates.json").read_text(encoding="utf-8"))["candidates"]
    scored = {one["route"] for one in candidates}
    scored |= {str(draw.proposal.route) for draw in state.draws if isinstance(draw.outcome, Score)}
    drawn = {str(draw.proposal.route) for draw in state.draws}
    return sorted(drawn - scored)


# --- the driver, as a command --------------------------------------------------------------------------------------


def _child_processes(number: int) -> list[int]:
    found = Path(f"/proc/{number}/task/{number}/children")
    return [int(child) for child in found.read_text().split()] if found.exists() else []


def _is_running(number: int) -> bool:
    status = Path(f"/proc/{number}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def _wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def _resume_to_end(reference: ReferenceSearch, run_folder: Path) -> tuple[bool, int]:
    """Go on to the end; whether it is the right one, and how much was counted that was known."""
    with reference.pool(_settings(), run_folder) as pool:
        resume_run(run_folder, workers=pool, store=store_path(run_folder))
    return read_decisions(run_folder) == read_decisions(reference.undisturbed), pool.twice


def kill_driver(reference: ReferenceSearch, run_folder: Path, rng: random.Random, kills: int = 2) -> FaultResult:
    """SIGKILL to the search itself, twice; its workers must end with it, and resuming must end the same."""
    left_behind, happened = 0, True
    total = len(read_outcomes(store_path(reference.undisturbed)))
    for number in range(kills):
        goal = total * (number + rng.uniform(0.1, 0.9)) / (kills + 1)
        driver = subprocess.Popen(
            reference.command(run_folder),
            env=command_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _wait_until(lambda goal=goal, driver=driver: driver.poll() is not None or _count_stored(run_folder) > goal)  # type: ignore[misc]
        workers = _child_processes(driver.pid)
        happened &= driver.poll() is None and len(workers) >= WORKERS
        driver.kill()
        driver.wait()
        left_behind += not _wait_until(lambda workers=workers: not any(map(_is_running, workers)), 10)  # type: ignore[misc]
    before = len(read_outcomes(store_path(run_folder)))
    same, twice = _resume_to_end(reference, run_folder)
    note = f"{before} outcomes stored when it was resumed" + (", workers were left behind" if left_behind else "")
    return FaultResult(
        happened, same and not left_behind, count_lost_outcomes(reference, store_path(run_folder)), twice, None, note
    )


def _count_stored(run_folder: Path) -> int:
    """Outcomes so far; nothing while the store is being made."""
    try:
        return len(read_outcomes(store_path(run_folder)))
    except Exception:  # noqa: BLE001 its tables may not be there yet
        return 0


def fill_disk(reference: ReferenceSearch, run_folder: Path, rng: random.Random) -> FaultResult:
    """A file system of a few hundred kilobytes under the run and its store, in a namespace of its own."""
    size, kept = rng.randrange(180, 360, 20), run_folder.with_name(f"{run_folder.name}-kept")
    small = run_folder.with_name(f"{run_folder.name}-small")
    small.mkdir(parents=True)
    command = " ".join(map(shlex.quote, reference.command(small / run_folder.name)))
    script = (
        f"mount -t tmpfs -o size={size}k none {shlex.quote(str(small))} && {command}; status=$?;"
        f" cp -r {shlex.quote(str(small))} {shlex.quote(str(kept))}; exit $status"
    )
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
        env=command_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""
    clear = done.returncode == 2 and said.startswith("macro: error:") and "Traceback" not in done.stderr
    for entry in kept.iterdir():
        shutil.move(entry, run_folder.parent / entry.name)
    before = len(read_outcomes(store_path(run_folder)))
    same, twice = _resume_to_end(reference, run_folder) if (run_folder / "run.json").is_file() else (True, 0)
    said = said.replace(f"{small}{os.sep}", "")  # a folder of this machine, in what is recorded
    note = f"{size} kB, {before} outcomes stored; {said}"
    return FaultResult(
        "disk is full" in said,
        same and clear,
        count_lost_outcomes(reference, store_path(run_folder)),
        twice,
        None,
        note,
    )


def corrupt_store(reference: ReferenceSearch, run_folder: Path, rng: random.Random) -> FaultResult:
    """Half of a run's store overwritten with noise in places, then resumed; with another store where it says so."""
    stop = FaultInjector({rng.randrange(10, 30)}, _interrupt)
    with reference.pool(_settings(), run_folder) as pool, suppress(KeyboardInterrupt):
        stop.pool = pool
        run_search(reference.config, run_folder, store=store_path(run_folder), listener=stop, workers=pool)
    unfinished = not RunFolder.open(run_folder).is_finished
    store, again = store_path(run_folder), run_folder.with_name(f"{run_folder.name}-again")
    _overwrite_with_noise(store, rng)
    ends = [run_folder]
    try:
        resume_run(run_folder, workers=_settings(), store=store)
        with reference.pool(_settings(), again) as pool:  # which asks for everything that the store should know by now
            run_search(reference.config, again, store=store, workers=pool)
        ends.append(again)
        noticed = pool.counts.finished > 0
        said = f"{pool.counts.finished} asks with damaged outcomes were answered again"
    except MacroError as error:
        noticed, said = True, str(error).replace(f"{store.parent}{os.sep}", "")
        resume_run(run_folder, workers=_settings(), store=run_folder.with_suffix(".new.sqlite"))
    same = all(read_decisions(end) == read_decisions(reference.undisturbed) for end in ends)
    # What was damaged cannot be told from what was lost; what counts is that nothing wrong was believed.
    return FaultResult(unfinished and noticed, same, None, None, None, said)


def _interrupt(_pool: WorkerPool) -> bool:
    raise KeyboardInterrupt


def _overwrite_with_noise(store: Path, rng: random.Random) -> None:
    content = bytearray(store.read_bytes())
    used = [index for index in range(100, len(content) - 64) if content[index]]  # not what is empty anyway
    for start in rng.sample(used, 40):
        content[start : start + 8] = rng.randbytes(8)
    store.write_bytes(content)
    for extra in ("-wal", "-shm"):
        store.with_name(store.name + extra).unlink(missing_ok=True)


def jump_clock(reference: ReferenceSearch, run_folder: Path, rng: random.Random) -> FaultResult:
    """The clock of the driver and its workers set forwards by years and back again while they run (libfaketime)."""
    clock = run_folder.with_suffix(".clock")
    clock.parent.mkdir(parents=True, exist_ok=True)
    library = _faketime_library(run_folder.with_suffix(".faketime"))
    clock.write_text("+0d\n")
    faked = command_environment(
        LD_PRELOAD=str(library),
        FAKETIME_TIMESTAMP_FILE=str(clock),
        FAKETIME_NO_CACHE="1",
        DONT_FAKE_MONOTONIC="1",
        FAKETIME_DONT_FAKE_MONOTONIC="1",
    )
    jumps, start = 0, datetime.now() - timedelta(minutes=1)  # noqa: DTZ005 the log's times have no zone either
    with subprocess.Popen(
        reference.command(run_folder), env=faked, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as driver:
        while driver.poll() is None:
            time.sleep(rng.uniform(0.2, 0.5))
            new = clock.with_suffix(".new")  # in one step: a file that is read half written sets no clock
            new.write_text(rng.choice(["+4000d\n", "-4000d\n", "+1h\n", "-1h\n", "+0d\n"]))
            new.replace(clock)
            jumps += 1
        assert driver.stderr is not None
        said = driver.stderr.read().strip()
    if driver.returncode != 0:
        return FaultResult(happened=jumps > 0, same=False, lost=None, twice=None, note=redact_secrets(said)[-300:])
    lines = (run_folder / "log.txt").read_text(encoding="utf-8").splitlines()
    times = [datetime.fromisoformat(line[:19]) for line in lines]
    wrong = sum(not start < one < datetime.now() + timedelta(minutes=1) for one in times)  # noqa: DTZ005
    note = f"{jumps} jumps; {wrong} of {len(times)} lines of the run's log were written at a time that was none"
    same = read_decisions(run_folder) == read_decisions(reference.undisturbed)
    return FaultResult(wrong > 0, same, count_lost_outcomes(reference, store_path(run_folder)), None, None, note)


def _faketime_library(build_folder: Path) -> Path:
    """The library that fakes the clock; the package ships it for x86-64 and its sources for other machines."""
    import libfaketime

    sources = Path(libfaketime.__file__).parent / "vendor" / "libfaketime" / "src"
    name = "libfaketime.so.1"
    if platform.machine() == "x86_64":
        return sources / name
    shutil.copytree(sources, build_folder, ignore=shutil.ignore_patterns(name))
    makefile = build_folder / "Makefile"
    makefile.write_text(makefile.read_text().replace("-DFAKE_SLEEP", ""))  # a faked sleep fails with EINVAL here
    subprocess.run(["make", "-C", build_folder, name], check=True, capture_output=True)
    return build_folder / name


def kill_ray_worker(reference: ReferenceSearch, run_folder: Path, rng: random.Random) -> FaultResult:
    """SIGKILL to one Ray actor's process, at three moments."""
    return kill_worker(reference, run_folder, rng, RAY)


def kill_all_ray_workers(reference: ReferenceSearch, run_folder: Path, rng: random.Random) -> FaultResult:
    """SIGKILL to all Ray actors' processes."""
    return kill_all_workers(reference, run_folder, rng, RAY)


def hang_ray_worker(reference: ReferenceSearch, run_folder: Path, rng: random.Random) -> FaultResult:
    """SIGSTOP to one Ray actor's process."""
    return hang_worker(reference, run_folder, rng, RAY)


def remove_ray_machine(reference: ReferenceSearch, run_folder: Path, rng: random.Random) -> FaultResult:
    """Two Ray nodes on this machine, a worker on each; one node goes, and later another comes."""
    from ray.cluster_utils import Cluster

    size: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 100_000_000}
    cluster: Any = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    nodes = [cluster.add_node(**size)]
    moments = sorted(rng.sample(range(3, 25), 2))

    def change(pool: WorkerPool) -> bool:
        if nodes:
            if len(pool.counts.finished_by_slot) < WORKERS:
                return False  # a machine whose worker has not begun yet would not be missed
            cluster.remove_node(nodes.pop(), allow_graceful=False)
        else:
            cluster.add_node(**size)
        return True

    settings = dataclasses.replace(_settings(RAY), address=cluster.address, worker_timeout=1)
    try:
        return _run_with_fault(
            reference, run_folder, settings, FaultInjector(set(moments), change), lambda counts: counts.crashes >= 1
        )
    finally:
        cluster.shutdown()


Scenario = Callable[[ReferenceSearch, Path, random.Random], FaultResult]
LOCAL_FAULTS: dict[str, Scenario] = {
    "a worker killed": kill_worker,
    "all workers killed": kill_all_workers,
    "a worker hangs": hang_worker,
    "a route that crashes its worker": crash_on_route,
    "the driver killed": kill_driver,
    "a full disk": fill_disk,
    "a corrupted store": corrupt_store,
    "clock jumps": jump_clock,
}
RAY_FAULTS: dict[str, Scenario] = {
    "Ray: a worker killed": kill_ray_worker,
    "Ray: all workers killed": kill_all_ray_workers,
    "Ray: a worker hangs": hang_ray_worker,
    "Ray: one of two machines lost": remove_ray_machine,
}
