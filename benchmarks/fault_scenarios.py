"""Faults that are really done to a search with workers, and what is observed after each.

Every scenario runs the same small search as the ground's undisturbed run, does something to it, lets it come to its
end, and compares: what was decided, what the store holds, and how many outcomes were counted.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.fault_ground import WORKERS, Ground, decided, environment, lost, rows, store_beside
from benchmarks.fault_saboteur import Killer, Observed, Saboteur
from macro_routing.errors import MacroError, without_secrets
from macro_routing.runs import RunFolder, resume, search
from macro_routing.search import Failure, Score
from macro_routing.workers.dispatch_state import DispatchCounts
from macro_routing.workers.pool import WorkerPool
from macro_routing.workers.settings import LOCAL, RAY, WorkerSettings

HANG_SECONDS = 4.0
"""Units of the small search take milliseconds."""


def _disturbed(
    ground: Ground,
    place: Path,
    settings: WorkerSettings,
    saboteur: Saboteur,
    happened: Callable[[DispatchCounts], bool],
) -> Observed:
    with ground.pool(settings, place) as pool:
        saboteur.pool = pool
        search(ground.config, place, store=store_beside(place), listener=saboteur, workers=pool)
    same = decided(place) == decided(ground.quiet)
    return Observed(happened(pool.counts), same, lost(ground, store_beside(place)), pool.twice, pool.counts.deaths)


def _settings(backend: str = LOCAL) -> WorkerSettings:
    return WorkerSettings(backend, WORKERS, worker_timeout=HANG_SECONDS / 60, start_timeout=2)


def worker_killed(ground: Ground, place: Path, rng: random.Random, backend: str = LOCAL) -> Observed:
    """SIGKILL to one worker, at three moments."""
    return _killed(ground, place, rng, backend, moments=3, workers=1)


def all_workers_killed(ground: Ground, place: Path, rng: random.Random, backend: str = LOCAL) -> Observed:
    """SIGKILL to every worker at once, at two moments."""
    return _killed(ground, place, rng, backend, moments=2, workers=WORKERS)


def _killed(  # noqa: PLR0913
    ground: Ground, place: Path, rng: random.Random, backend: str, *, moments: int, workers: int
) -> Observed:
    saboteur = Saboteur(set(rng.sample(range(2, 30), moments)), killer := Killer(rng, workers))

    def happened(counts: DispatchCounts) -> bool:
        return counts.deaths >= len(killer.killed) == moments * workers

    return _disturbed(ground, place, _settings(backend), saboteur, happened)


def worker_hangs(ground: Ground, place: Path, rng: random.Random, backend: str = LOCAL) -> Observed:
    """SIGSTOP to one worker: it lives and says nothing; the deadline is a few seconds."""

    def stop(pool: WorkerPool) -> bool:
        os.kill(pool.processes[0], signal.SIGSTOP)
        return True

    saboteur = Saboteur({rng.randrange(2, 30)}, stop)
    return _disturbed(ground, place, _settings(backend), saboteur, lambda counts: counts.hangs >= 1)


def route_that_kills(ground: Ground, place: Path, rng: random.Random) -> Observed:
    """A route that takes its worker down every time; one that decides nothing, so that the end must be the same."""
    cursed = rng.choice(_harmless(ground))
    os.environ["MACRO_CURSED_ROUTE"] = cursed
    with ground.pool(_settings(), place, "benchmarks.cursed_worker") as pool:
        search(ground.config, place, store=store_beside(place), workers=pool)
    now, before = decided(place), decided(ground.quiet)
    reasons = {outcome.reason for route, outcome in now[3] if route == cursed and isinstance(outcome, Failure)}
    # Draws that were stopped may have been stopped elsewhere; scores are what they were.
    scores = [one for one in zip(now[3], before[3], strict=True) if all(isinstance(o, Score) for _, o in one)]
    same = now[:3] == before[:3] and now[4] == before[4] and all(one == other for one, other in scores)
    found, scored = rows(store_beside(place)), {route for (route, _), _ in scores}
    missing = sum(key[2] in scored and key not in found for key in rows(store_beside(ground.quiet)))
    note = f"{cursed}: {'; '.join(reasons)}"
    happened = len(reasons) == 1 and pool.counts.deaths >= _settings().attempts
    return Observed(happened, same, missing, pool.twice, pool.counts.deaths, note)


def _harmless(ground: Ground) -> list[str]:
    """Routes that were drawn, stopped wherever they were, and no candidates in the end."""
    state = RunFolder.existing(ground.quiet).last_state()
    assert state is not None
    candidates = json.loads((ground.quiet / "candidates.json").read_text(encoding="utf-8"))["candidates"]
    scored = {one["route"] for one in candidates}
    scored |= {str(draw.proposal.route) for draw in state.draws if isinstance(draw.outcome, Score)}
    drawn = {str(draw.proposal.route) for draw in state.draws}
    return sorted(drawn - scored)


# --- the driver, as a command --------------------------------------------------------------------------------------


def _children(number: int) -> list[int]:
    found = Path(f"/proc/{number}/task/{number}/children")
    return [int(child) for child in found.read_text().split()] if found.exists() else []


def _is_running(number: int) -> bool:
    status = Path(f"/proc/{number}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def _until(condition: Callable[[], bool], seconds: float = 120.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def _finish(ground: Ground, place: Path) -> tuple[bool, int]:
    """Go on to the end; whether it is the right one, and how much was counted that was known."""
    with ground.pool(_settings(), place) as pool:
        resume(place, workers=pool, store=store_beside(place))
    return decided(place) == decided(ground.quiet), pool.twice


def driver_killed(ground: Ground, place: Path, rng: random.Random, kills: int = 2) -> Observed:
    """SIGKILL to the search itself, twice; its workers must end with it, and resuming must end the same."""
    left_behind, happened = 0, True
    total = len(rows(store_beside(ground.quiet)))
    for number in range(kills):
        goal = total * (number + rng.uniform(0.1, 0.9)) / (kills + 1)
        driver = subprocess.Popen(  # noqa: S603
            ground.command(place), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _until(lambda goal=goal, driver=driver: driver.poll() is not None or _stored(place) > goal)  # type: ignore[misc]
        workers = _children(driver.pid)
        happened &= driver.poll() is None and len(workers) >= WORKERS
        driver.kill()
        driver.wait()
        left_behind += not _until(lambda workers=workers: not any(map(_is_running, workers)), 10)  # type: ignore[misc]
    before = len(rows(store_beside(place)))
    same, twice = _finish(ground, place)
    note = f"{before} outcomes stored when it was resumed" + (", workers were left behind" if left_behind else "")
    return Observed(happened, same and not left_behind, lost(ground, store_beside(place)), twice, None, note)


def _stored(place: Path) -> int:
    """Outcomes so far; nothing while the store is being made."""
    try:
        return len(rows(store_beside(place)))
    except Exception:  # noqa: BLE001 its tables may not be there yet
        return 0


def full_disk(ground: Ground, place: Path, rng: random.Random) -> Observed:
    """A file system of a few hundred kilobytes under the run and its store, in a namespace of its own."""
    size, kept = rng.randrange(180, 360, 20), place.with_name(f"{place.name}-kept")
    small = place.with_name(f"{place.name}-small")
    small.mkdir(parents=True)
    command = " ".join(map(_quoted, ground.command(small / place.name)))
    script = (
        f"mount -t tmpfs -o size={size}k none {_quoted(str(small))} && {command}; status=$?;"
        f" cp -r {_quoted(str(small))} {_quoted(str(kept))}; exit $status"
    )
    done = subprocess.run(  # noqa: S603
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],  # noqa: S607
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""
    clear = done.returncode == 2 and said.startswith("macro: error:") and "Traceback" not in done.stderr
    for entry in kept.iterdir():
        shutil.move(entry, place.parent / entry.name)
    before = len(rows(store_beside(place)))
    same, twice = _finish(ground, place) if (place / "run.json").is_file() else (True, 0)
    said = said.replace(f"{small}{os.sep}", "")  # a folder of this machine, in what is recorded
    note = f"{size} kB, {before} outcomes stored; {said}"
    return Observed("disk is full" in said, same and clear, lost(ground, store_beside(place)), twice, None, note)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def corrupted_store(ground: Ground, place: Path, rng: random.Random) -> Observed:
    """Half of a run's store overwritten with noise in places, then resumed; with another store where it says so."""
    stop = Saboteur({rng.randrange(10, 30)}, _interrupt)
    with ground.pool(_settings(), place) as pool, suppress(KeyboardInterrupt):
        stop.pool = pool
        search(ground.config, place, store=store_beside(place), listener=stop, workers=pool)
    unfinished = not RunFolder.existing(place).is_finished
    store, again = store_beside(place), place.with_name(f"{place.name}-again")
    _damage(store, rng)
    ends = [place]
    try:
        resume(place, workers=_settings(), store=store)
        with ground.pool(_settings(), again) as pool:  # which asks for everything that the store should know by now
            search(ground.config, again, store=store, workers=pool)
        ends.append(again)
        noticed = pool.counts.answered > 0
        said = f"{pool.counts.answered} asks with damaged outcomes were answered again"
    except MacroError as error:
        noticed, said = True, str(error).replace(f"{store.parent}{os.sep}", "")
        resume(place, workers=_settings(), store=place.with_suffix(".new.sqlite"))
    same = all(decided(end) == decided(ground.quiet) for end in ends)
    # What was damaged cannot be told from what was lost; what counts is that nothing wrong was believed.
    return Observed(unfinished and noticed, same, None, None, None, said)


def _interrupt(_pool: WorkerPool) -> bool:
    raise KeyboardInterrupt


def _damage(store: Path, rng: random.Random) -> None:
    content = bytearray(store.read_bytes())
    used = [place for place in range(100, len(content) - 64) if content[place]]  # not what is empty anyway
    for start in rng.sample(used, 40):
        content[start : start + 8] = rng.randbytes(8)
    store.write_bytes(content)
    for extra in ("-wal", "-shm"):
        store.with_name(store.name + extra).unlink(missing_ok=True)


def clock_jumps(ground: Ground, place: Path, rng: random.Random) -> Observed:
    """The clock of the driver and its workers set forwards by years and back again while they run (libfaketime)."""
    import libfaketime

    library = Path(libfaketime.__file__).parent / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"
    clock = place.with_suffix(".clock")
    clock.parent.mkdir(parents=True, exist_ok=True)
    clock.write_text("+0d\n")
    faked = environment(
        LD_PRELOAD=str(library),
        FAKETIME_TIMESTAMP_FILE=str(clock),
        FAKETIME_NO_CACHE="1",
        DONT_FAKE_MONOTONIC="1",
        FAKETIME_DONT_FAKE_MONOTONIC="1",
    )
    jumps, start = 0, datetime.now() - timedelta(minutes=1)  # noqa: DTZ005 the log's times have no zone either
    with subprocess.Popen(  # noqa: S603
        ground.command(place), env=faked, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
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
        return Observed(happened=jumps > 0, same=False, lost=None, twice=None, note=without_secrets(said)[-300:])
    lines = (place / "log.txt").read_text(encoding="utf-8").splitlines()
    times = [datetime.fromisoformat(line[:19]) for line in lines]
    wrong = sum(not start < one < datetime.now() + timedelta(minutes=1) for one in times)  # noqa: DTZ005
    note = f"{jumps} jumps; {wrong} of {len(times)} lines of the run's log were written at a time that was none"
    same = decided(place) == decided(ground.quiet)
    return Observed(wrong > 0, same, lost(ground, store_beside(place)), None, None, note)


def ray_worker_killed(ground: Ground, place: Path, rng: random.Random) -> Observed:
    """SIGKILL to one Ray actor's process, at three moments."""
    return worker_killed(ground, place, rng, RAY)


def ray_all_workers_killed(ground: Ground, place: Path, rng: random.Random) -> Observed:
    """SIGKILL to all Ray actors' processes."""
    return all_workers_killed(ground, place, rng, RAY)


def ray_worker_hangs(ground: Ground, place: Path, rng: random.Random) -> Observed:
    """SIGSTOP to one Ray actor's process."""
    return worker_hangs(ground, place, rng, RAY)


def ray_machine_lost(ground: Ground, place: Path, rng: random.Random) -> Observed:
    """Two Ray nodes on this machine, a worker on each; one node goes, and later another comes."""
    from ray.cluster_utils import Cluster

    size: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 100_000_000}
    cluster: Any = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    nodes = [cluster.add_node(**size)]
    moments = sorted(rng.sample(range(3, 25), 2))

    def change(pool: WorkerPool) -> bool:
        if nodes:
            if len(pool.counts.by_slot) < WORKERS:
                return False  # a machine whose worker has not begun yet would not be missed
            cluster.remove_node(nodes.pop(), allow_graceful=False)
        else:
            cluster.add_node(**size)
        return True

    settings = dataclasses.replace(_settings(RAY), address=cluster.address, worker_timeout=1)
    try:
        return _disturbed(ground, place, settings, Saboteur(set(moments), change), lambda counts: counts.deaths >= 1)
    finally:
        cluster.shutdown()


Scenario = Callable[[Ground, Path, random.Random], Observed]
LOCAL_FAULTS: dict[str, Scenario] = {
    "a worker killed": worker_killed,
    "all workers killed": all_workers_killed,
    "a worker hangs": worker_hangs,
    "a route that kills its worker": route_that_kills,
    "the driver killed": driver_killed,
    "a full disk": full_disk,
    "a corrupted store": corrupted_store,
    "clock jumps": clock_jumps,
}
RAY_FAULTS: dict[str, Scenario] = {
    "Ray: a worker killed": ray_worker_killed,
    "Ray: all workers killed": ray_all_workers_killed,
    "Ray: a worker hangs": ray_worker_hangs,
    "Ray: one of two machines lost": ray_machine_lost,
}
