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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.fault_ground import WORKERS, Ground, decided, environment, lost, rows, store_beside
from macro_routing.errors import MacroError
from macro_routing.evaluation.score_store import ScoreStore
from macro_routing.runs import Listener, RunFolder, resume, search
from macro_routing.search import Failure, Score
from macro_routing.workers.pool import WorkerPool
from macro_routing.workers.settings import LOCAL, RAY, WorkerSettings

HANG_SECONDS = 4.0
"""Units of the small search take milliseconds."""


@dataclass(frozen=True)
class Observed:
    """How a disturbed run ended."""

    same: bool
    """Whether everything it decided is what the undisturbed run decided."""
    lost: int | None
    """Outcomes of the undisturbed run that its store lacks; None where that cannot be told."""
    twice: int | None
    """Routes on a unit that were answered and counted though they were known."""
    workers_lost: int | None = None
    note: str = ""

    @property
    def sound(self) -> bool:
        """Nothing lost, nothing twice, the same end."""
        return self.same and not self.lost and not self.twice


class Saboteur(Listener):
    """Does something to the workers after so many reports of outcomes: between two answers, while others work."""

    def __init__(self, moments: set[int], deed: Callable[[WorkerPool], None]) -> None:
        """``moments`` are numbers of reports."""
        self.pool: WorkerPool | None = None
        self._reports, self._moments, self._deed = 0, moments, deed

    def on_outcomes(self, count: int) -> None:  # noqa: ARG002
        """Is it time?"""
        self._reports += 1
        if self._reports in self._moments and self.pool is not None:
            self._deed(self.pool)


def _disturbed(ground: Ground, place: Path, settings: WorkerSettings, saboteur: Saboteur) -> Observed:
    with ground.pool(settings, place) as pool:
        saboteur.pool = pool
        search(ground.config, place, store=store_beside(place), listener=saboteur, workers=pool)
    same = decided(place) == decided(ground.quiet)
    return Observed(same, lost(ground, store_beside(place)), pool.twice, pool.counts.deaths)


def _signal(number: int, sent: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(number, sent)


def _settings(backend: str = LOCAL) -> WorkerSettings:
    return WorkerSettings(backend, WORKERS, unit_minutes=HANG_SECONDS / 60, start_minutes=2)


def worker_killed(ground: Ground, place: Path, rng: random.Random, backend: str = LOCAL) -> Observed:
    """SIGKILL to one worker, at three moments."""
    moments = set(rng.sample(range(2, 30), 3))
    saboteur = Saboteur(moments, lambda pool: _signal(rng.choice(pool.processes), signal.SIGKILL))
    return _disturbed(ground, place, _settings(backend), saboteur)


def all_workers_killed(ground: Ground, place: Path, rng: random.Random, backend: str = LOCAL) -> Observed:
    """SIGKILL to every worker at once, at two moments."""

    def kill_all(pool: WorkerPool) -> None:
        for number in pool.processes:
            _signal(number, signal.SIGKILL)

    return _disturbed(ground, place, _settings(backend), Saboteur(set(rng.sample(range(2, 30), 2)), kill_all))


def worker_hangs(ground: Ground, place: Path, rng: random.Random, backend: str = LOCAL) -> Observed:
    """SIGSTOP to one worker: it lives and says nothing; the deadline is a few seconds."""
    saboteur = Saboteur({rng.randrange(2, 30)}, lambda pool: _signal(pool.processes[0], signal.SIGSTOP))
    return _disturbed(ground, place, _settings(backend), saboteur)


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
    return Observed(same and len(reasons) == 1, missing, pool.twice, pool.counts.deaths, note)


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
    left_behind = 0
    total = len(rows(store_beside(ground.quiet)))
    for number in range(kills):
        goal = total * (number + rng.uniform(0.1, 0.9)) / (kills + 1)
        driver = subprocess.Popen(  # noqa: S603
            ground.command(place), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _until(lambda goal=goal, driver=driver: driver.poll() is not None or _stored(place) > goal)  # type: ignore[misc]
        workers = _children(driver.pid)
        driver.kill()
        driver.wait()
        left_behind += not _until(lambda workers=workers: not any(map(_is_running, workers)), 10)  # type: ignore[misc]
    before = len(rows(store_beside(place)))
    same, twice = _finish(ground, place)
    note = f"{before} outcomes stored when it was resumed" + (", workers were left behind" if left_behind else "")
    return Observed(same and not left_behind, lost(ground, store_beside(place)), twice, None, note)


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
    note = f"{size} kB, {before} outcomes stored; {said}"
    return Observed(same and clear, lost(ground, store_beside(place)), twice, None, note)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def corrupted_store(ground: Ground, place: Path, rng: random.Random) -> Observed:
    """Half of a run's store overwritten with noise in places, then resumed; with another store where it says so."""
    stop = Saboteur({rng.randrange(10, 30)}, _interrupt)
    with ground.pool(_settings(), place) as pool, suppress(KeyboardInterrupt):
        stop.pool = pool
        search(ground.config, place, store=store_beside(place), listener=stop, workers=pool)
    store = store_beside(place)
    ScoreStore(store).close()
    _damage(store, rng)
    try:
        resume(place, workers=_settings(), store=store)
        said = "the damage was in no score that was needed, or was mended"
    except MacroError as error:
        said = str(error)
        store = place.with_suffix(".new.sqlite")
        resume(place, workers=_settings(), store=store)
    same = decided(place) == decided(ground.quiet)
    # What was damaged cannot be told from what was lost; what counts is that nothing wrong was believed.
    return Observed(same, None, None, None, said)


def _interrupt(_pool: WorkerPool) -> None:
    raise KeyboardInterrupt


def _damage(store: Path, rng: random.Random) -> None:
    content = bytearray(store.read_bytes())
    for _ in range(40):
        start = rng.randrange(100, len(content) - 64)
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
    jumps = 0
    with subprocess.Popen(  # noqa: S603
        ground.command(place), env=faked, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as driver:
        while driver.poll() is None:
            time.sleep(rng.uniform(0.2, 0.5))
            clock.write_text(rng.choice(["+4000d\n", "-4000d\n", "+1h\n", "-1h\n", "+0d\n"]))
            jumps += 1
        assert driver.stderr is not None
        said = driver.stderr.read().strip()
    if driver.returncode != 0:
        return Observed(same=False, lost=None, twice=None, note=said[-300:])
    dates = {line[:4] for line in (place / "log.txt").read_text(encoding="utf-8").splitlines()}
    note = f"{jumps} jumps; years in the run's log: {', '.join(sorted(dates))}"
    return Observed(decided(place) == decided(ground.quiet), lost(ground, store_beside(place)), None, None, note)


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

    def change(_pool: WorkerPool) -> None:
        if nodes:
            cluster.remove_node(nodes.pop(), allow_graceful=False)
        else:
            cluster.add_node(**size)

    settings = dataclasses.replace(_settings(RAY), address=cluster.address, unit_minutes=1)
    try:
        return _disturbed(ground, place, settings, Saboteur(set(moments), change))
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
