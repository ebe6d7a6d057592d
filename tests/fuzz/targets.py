"""What is fuzzed: everything that reads what a user, a disk or another program wrote.

A target takes an input and a folder of its own. It gives a result or raises an error of this project; anything else
that comes out of it is a defect.
"""

import json
import shutil
import tomllib
from collections import Counter
from contextlib import suppress
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from macro_routing.cli.console import read_toml
from macro_routing.cli.route_argument import read_route_text
from macro_routing.errors import MacroError
from macro_routing.evaluation.outcomes import ExampleOutcome
from macro_routing.evaluation.score_store import ScoreStore
from macro_routing.models.catalog import fetch_model_folder
from macro_routing.routes import Route, parse_route
from macro_routing.routes.route_file import RouteFile, parse_route_file
from macro_routing.runs import RunConfig, RunFolder, run_search
from macro_routing.runs import folder as files_of_run
from macro_routing.runs.final_selection import FinalSelection
from macro_routing.runs.result import read_result
from macro_routing.tasks import make_splits
from macro_routing.tasks.catalog import load_task
from tests.fuzz.inputs import damaged, files, mistaken, values
from tests.fuzz.unfinished_runs import unfinished_runs
from tests.runs.small import small_frozen, small_task
from tests.runs.test_run import CONFIG

_SCOPE = {"numerics": "n", "task": "t"}
_STANDARD = Route.standard(6)


def good_run(folder):
    """A finished run, once; its files are what is damaged."""
    place = Path(folder) / "good"
    if not (place / files_of_run.MANIFEST).is_file():
        shutil.rmtree(place, ignore_errors=True)
        run_search(CONFIG, place, frozen=small_frozen(), task=small_task(), store=Path(folder) / "s.sqlite")
    return place


# --- routes ----------------------------------------------------------------------------------------------------------

_NOTATIONS = [
    b"L0-L7 L3(+h-2) L4-L9 RJ",
    b"L0 L1(-0.25h-1) L2 RJ",
    b'{"layers": 6, "steps": [{"layer": 0}, {"layer": 1}]}',
    b"0-3,2-6",
    b"slices:\n- sources:\n  - model: m\n    layer_range: [0, 4]\n",
]


def route_texts(_folder):
    """Routes in every notation."""
    kinds = [damaged(good) for good in _NOTATIONS]
    texts = st.one_of(*kinds, st.binary(max_size=60)).map(lambda raw: raw.decode("utf-8", errors="surrogateescape"))

    def read(text, _place):
        return str(parse_route(text, 28))

    return texts, read


def route_files(_folder):
    """Route files."""
    good = RouteFile(_STANDARD, "m", "w", "n", "t", scores={"test": {"n": 3}}).to_json().encode()

    def read(raw, place):
        file = place / "route.json"
        file.write_bytes(raw)
        return parse_route_file(read_route_text(str(file)))

    return files(good), read


# --- configurations and tasks ----------------------------------------------------------------------------------------

_CONFIG = b"""task = "category"
model = "smollm2-135m"
preset = "quick"
method = "macro"
seed = 1
[search]
draws = 8
elite = 2
[data]
training = 30
[space]
max_length = 10
[decoding]
mode = "direct"
[guard]
tasks = ["sciq"]
[loading]
dtype = "float32"
"""
_TASK = b"""file = "data.jsonl"
kind = "choice"
question = "q"
answer = "a"
choices = "c"
test_size = 2
[prompts]
direct = "{question}?"
"""
_ROWS = b"".join(b'{"q": "what is %d?", "a": "%c", "c": ["x%d", "y"]}\n' % (n, b"AB"[n % 2], n) for n in range(12))
_CSV = b'q,a,b\nwhat is it?,1,2\n"a, b",3,4\nlast,5,6\n'


def configurations(_folder):
    """Configuration files."""

    def read(given, place):
        if isinstance(given, dict):
            return RunConfig.from_toml_tables(given, "a file").to_toml_tables()
        file = place / "search.toml"
        file.write_bytes(given)
        return RunConfig.from_toml_tables(read_toml(file), str(file)).to_toml_tables()

    document = tomllib.loads(_CONFIG.decode())
    return st.one_of(
        damaged(_CONFIG), mistaken(document), st.dictionaries(st.sampled_from(list(document)), values)
    ), read


def task_files(_folder):
    """Task descriptions, with their data."""
    pairs = st.one_of(
        st.tuples(damaged(_TASK), st.just(_ROWS)),
        st.tuples(st.just(_TASK), files(_ROWS)),
        st.tuples(
            st.just(_TASK), mistaken(json.loads(_ROWS.split(b"\n")[0])).map(lambda row: json.dumps(row).encode())
        ),
    )

    def read(pair, place):
        (place / "task.toml").write_bytes(pair[0])
        (place / "data.jsonl").write_bytes(pair[1])
        found = load_task(str(place / "task.toml"))
        return make_splits(found, seed=0, training=2, validation=1)

    return pairs, read


def data_files(_folder):
    """Data files of a user's own, JSON lines and CSV."""
    kinds = st.one_of(
        *(
            st.tuples(st.just(name), damaged(good))
            for name, good in (("d.csv", _CSV), ("d.jsonl", _ROWS), ("d.csv.gz", _CSV))
        )
    )

    def read(pair, place):
        file = place / pair[0]
        file.write_bytes(pair[1])
        columns = {"question": "q", "answer": "a", "choices": "" if "csv" in pair[0] else "c"}
        return load_task(str(file), kind="number" if "csv" in pair[0] else "choice", **columns)

    return kinds, read


def model_names(_folder):
    """Names of models; no name reaches the network, since none is of a hub id's form."""
    names = st.one_of(st.text(max_size=30), damaged(b"smollm2-135x").map(lambda raw: raw.decode(errors="replace")))

    def read(name, _place):
        return fetch_model_folder(name)

    return names.filter(lambda name: "/" not in name and name != "smollm2-135m"), read


# --- what a run leaves -----------------------------------------------------------------------------------------------

_FILES = [
    *(files_of_run.RUN, files_of_run.CANDIDATES, files_of_run.RESULT, files_of_run.MANIFEST, files_of_run.COST),
    *("rounds/001.json", "states/004.npz"),
]


def run_folders(folder):
    """The files of a finished run."""
    good = good_run(folder)
    kinds = st.one_of(*(st.tuples(st.just(name), files((good / name).read_bytes())) for name in _FILES))

    def read(pair, place):
        name, raw = pair
        run_copy = place / "run"
        if not run_copy.is_dir():
            shutil.copytree(good, run_copy)
        (run_copy / name).write_bytes(raw)
        try:
            return _read_run(run_copy)
        finally:
            shutil.copy(good / name, run_copy / name)

    return kinds, read


def _read_run(path):
    run = RunFolder.open(path)
    found = [run.is_finished, run.load_last_state(), run.read_round_reports(), read_result(run)]
    with run.explain_damaged_files(files_of_run.CANDIDATES):
        found.append(FinalSelection.from_json(run.read_json(files_of_run.CANDIDATES), 6))
    config = run.read_json(files_of_run.RUN)
    with run.explain_damaged_files(files_of_run.RUN):
        found.append(RunConfig.from_toml_tables(config["config"]["given"], "run.json"))
    return found


def score_stores(folder):
    """A score store's file with bytes changed: what it gives back is what was put in, or nothing, or an error."""
    path = Path(folder) / "good.sqlite"
    kept = {f"e{number}": ExampleOutcome(number % 2 == 0, str(number)) for number in range(40)}
    path.unlink(missing_ok=True)
    store = ScoreStore(path)
    store.store_outcomes(_SCOPE, {_STANDARD: kept})
    store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()
    good = path.read_bytes()

    @st.composite
    def flipped(draw):
        found = bytearray(good)
        for _ in range(draw(st.integers(1, 6))):
            start = draw(st.integers(0, len(found) - 1))
            piece = draw(st.binary(min_size=1, max_size=16))
            found[start : start + len(piece)] = piece
        return bytes(found[: draw(st.sampled_from([len(found), len(found), len(found) // 2, 4096, 100, 0]))])

    def read(raw, place):
        file = place / "s.sqlite"
        for extra in ("", "-wal", "-shm"):
            (place / f"s.sqlite{extra}").unlink(missing_ok=True)
        file.write_bytes(raw)
        damaged_store = ScoreStore(file)
        try:
            found = damaged_store.find_outcomes(_SCOPE, _STANDARD, list(kept))
            damaged_store.list_score_scopes()
        finally:
            damaged_store.close()
        assert found.items() <= kept.items(), "a damaged score was believed"
        return found

    return flipped(), read


TARGETS = {
    "routes": route_texts,
    "route files": route_files,
    "configurations": configurations,
    "task files": task_files,
    "data files": data_files,
    "model names": model_names,
    "run folders": run_folders,
    "score stores": score_stores,
    "unfinished runs": unfinished_runs,
}
SLOWER = {"unfinished runs": 5}
"""How many times fewer inputs a target gets: these runs go on."""


def drive(name, folder, count, number=0):
    """Try so many inputs; how many were read, and how many refused."""
    folder = Path(folder)
    place = folder / name.replace(" ", "-")
    place.mkdir(parents=True, exist_ok=True)
    inputs, read = TARGETS[name](folder)
    counts = Counter()

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs)
    def attempt(one):
        try:
            read(one, place)
        except MacroError as error:
            str(error).encode("utf-8", errors="replace")  # as it is printed
            counts["refused"] += 1
        else:
            counts["read"] += 1

    with suppress(KeyboardInterrupt):
        attempt()
    return counts
