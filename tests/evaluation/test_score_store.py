import multiprocessing
import os
import signal
import sqlite3
import time

import pytest

from macro_routing.evaluation.outcomes import ExampleOutcome
from macro_routing.evaluation.score_store import ScoreStore, StoreError
from macro_routing.routes import Route, parse_route

SCOPE = {"numerics": "abc", "task": "t", "decoding": {"mode": "direct"}}
STANDARD = Route.standard(4)
RIGHT = ExampleOutcome(True, "7", 3, 2, reasoning_truncated=True)


@pytest.fixture
def store(tmp_path):
    return ScoreStore(tmp_path / "scores.sqlite")


def test_what_is_added_is_found_again(store):
    store.store_outcomes(SCOPE, {STANDARD: {"a": RIGHT, "b": ExampleOutcome(False, "")}})
    again = ScoreStore(store.path)
    assert again.find_outcomes(SCOPE, STANDARD, ["a", "b", "c"]) == {"a": RIGHT, "b": ExampleOutcome(False, "")}


def test_everything_that_differs_is_another_score(store):
    store.store_outcomes(SCOPE, {STANDARD: {"a": RIGHT}})
    assert store.find_outcomes({**SCOPE, "numerics": "x"}, STANDARD, ["a"]) == {}
    assert store.find_outcomes({**SCOPE, "decoding": {"mode": "likelihood"}}, STANDARD, ["a"]) == {}
    assert store.find_outcomes(SCOPE, parse_route("L0 L0 RJ", 4), ["a"]) == {}
    assert store.find_outcomes(SCOPE, Route.standard(5), ["a"]) == {}
    assert store.find_outcomes(dict(reversed(SCOPE.items())), parse_route("L0-L2 RJ", 4), ["a"]) == {"a": RIGHT}


def test_more_examples_than_one_statement_takes(store):
    outcomes = {f"e{number}": RIGHT for number in range(1700)}
    store.store_outcomes(SCOPE, {STANDARD: outcomes})
    assert store.find_outcomes(SCOPE, STANDARD, list(outcomes)) == outcomes


def test_what_is_known_stays(store):
    store.store_outcomes(SCOPE, {STANDARD: {"a": RIGHT}})
    store.store_outcomes(SCOPE, {STANDARD: {"a": ExampleOutcome(False, "other")}})
    assert store.find_outcomes(SCOPE, STANDARD, ["a"]) == {"a": RIGHT}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("correct", 0),
        ("prediction", "8"),
        ("text", b"\xff\xfe"),
        ("answer_tokens", None),
        ("correct", 1.0),
        ("seal", b""),
    ],
)
def test_bytes_that_a_disk_has_changed_are_forgotten_and_kept_anew(store, column, value):
    store.store_outcomes(SCOPE, {STANDARD: {"a": RIGHT, "b": RIGHT}})
    # The way past the store's own checks that a failing disk takes.
    store._connection.execute("PRAGMA ignore_check_constraints = ON")
    where = "WHERE example = (SELECT min(example) FROM outcomes)"
    if value is None:
        store._connection.execute(f"UPDATE outcomes SET {column} = 99 {where}")  # noqa: S608
    else:
        store._connection.execute(f"UPDATE outcomes SET {column} = ? {where}", [value])  # noqa: S608
    found = store.find_outcomes(SCOPE, STANDARD, ["a", "b"])
    if value == 1.0:  # an integer column gives it back as it was
        assert len(found) == 2
        return
    assert list(found.values()) == [RIGHT]
    store.store_outcomes(SCOPE, {STANDARD: {"a": RIGHT, "b": RIGHT}})
    assert store.find_outcomes(SCOPE, STANDARD, ["a", "b"]) == {"a": RIGHT, "b": RIGHT}


def test_an_outcome_under_another_key_is_not_believed(store):
    store.store_outcomes(SCOPE, {STANDARD: {"a": RIGHT}})
    store._connection.execute("UPDATE routes SET text = 'L0 L0 RJ'")
    assert store.find_outcomes(SCOPE, parse_route("L0 L0 RJ", 4), ["a"]) == {}
    store._connection.execute("UPDATE scopes SET description = 'noise'")
    with pytest.raises(StoreError, match="cannot be used"):
        store.list_score_scopes()


def test_scopes_and_pruning(store):
    other = {**SCOPE, "task": "u"}
    store.store_outcomes(SCOPE, {STANDARD: {"a": RIGHT, "b": RIGHT}})
    store.store_outcomes(other, {STANDARD: {"a": RIGHT}})
    assert [(scope.description["task"], scope.outcomes) for scope in store.list_score_scopes()] == [("t", 2), ("u", 1)]
    assert store.delete_scopes(lambda scope: scope["task"] == "t") == 2
    store.store_outcomes({**SCOPE, "task": "new"}, {STANDARD: {"z": RIGHT}})
    assert store.find_outcomes({**SCOPE, "task": "new"}, STANDARD, ["a"]) == {}
    assert store.find_outcomes(SCOPE, STANDARD, ["a"]) == {}
    assert store.find_outcomes(other, STANDARD, ["a"]) == {"a": RIGHT}


def test_scopes_have_the_names_of_their_models(store):
    store.store_outcomes(SCOPE, {STANDARD: {"a": RIGHT}})
    assert [scope.model for scope in store.list_score_scopes()] == [""]  # as earlier versions stored them
    for name in ("tiny", "tiny", "zoo/tiny"):
        store.store_outcomes(SCOPE, {STANDARD: {"b": RIGHT}}, name)
    store.store_outcomes({**SCOPE, "task": "u"}, {STANDARD: {"b": RIGHT}})
    assert [(scope.model, scope.outcomes) for scope in store.list_score_scopes()] == [("tiny", 2), ("tiny", 1)]
    assert ScoreStore(store.path).find_outcomes(SCOPE, STANDARD, ["a", "b"]) == {"a": RIGHT, "b": RIGHT}


def test_other_files_are_rejected(tmp_path):
    (tmp_path / "text").write_text("not a store at all, but long enough to look like one" * 20)
    with pytest.raises(StoreError, match="--store"):
        ScoreStore(tmp_path / "text")
    sqlite3.connect(tmp_path / "foreign").execute("CREATE TABLE t (x)").connection.close()
    before = (tmp_path / "foreign").read_bytes()
    with pytest.raises(StoreError, match="not a score store"):
        ScoreStore(tmp_path / "foreign")
    assert (tmp_path / "foreign").read_bytes() == before  # not even its journal mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["foreign", "text"]


def _read_all(path):
    store = ScoreStore(path)
    store.find_outcomes(SCOPE, STANDARD, ["e1"])
    store.list_score_scopes()


def test_pages_damaged_later_are_this_projects_error(store):
    store.store_outcomes(SCOPE, {STANDARD: {f"e{number}": RIGHT for number in range(3000)}})
    store.close()
    with store.path.open("r+b") as file:
        file.seek(4096)
        file.write(b"damage" * 20_000)
    with pytest.raises(StoreError, match="delete it, then its scores are computed again"):
        _read_all(store.path)


def test_a_full_disk_is_named_and_what_was_kept_is_still_there(store):
    store.store_outcomes(SCOPE, {STANDARD: {"a": RIGHT}})
    (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
    store._connection.execute(f"PRAGMA max_page_count = {pages + 2}")  # to SQLite the same as a full disk
    many = {f"e{number}": RIGHT for number in range(3000)}
    with pytest.raises(StoreError, match=r"scores.sqlite cannot be used: the disk is full; make room and resume$"):
        store.store_outcomes(SCOPE, {STANDARD: many})
    store._connection.execute(f"PRAGMA max_page_count = {pages + 2000}")
    assert store.find_outcomes(SCOPE, STANDARD, ["a", "e1"]) == {"a": RIGHT}
    store.store_outcomes(SCOPE, {STANDARD: many})
    assert len(store.find_outcomes(SCOPE, STANDARD, list(many))) == len(many)


def test_another_writer_that_holds_on_is_named(store):
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store._connection.execute("PRAGMA busy_timeout = 10")
    with pytest.raises(StoreError, match=r"another process is writing to it; wait and resume$"):
        store.store_outcomes(SCOPE, {STANDARD: {"a": RIGHT}})
    other.execute("ROLLBACK")
    other.close()
    store.store_outcomes(SCOPE, {STANDARD: {"a": RIGHT}})
    assert store.find_outcomes(SCOPE, STANDARD, ["a"]) == {"a": RIGHT}


def _write_for_ever(path, name):
    store = ScoreStore(path)
    for number in range(100_000):
        store.store_outcomes(SCOPE, {STANDARD: {f"{name}/{number}/{part}": RIGHT for part in range(20)}})


def _has_begun(path, name):
    return len(ScoreStore(path).find_outcomes(SCOPE, STANDARD, [f"{name}/9/0"])) == 1


def test_two_writers_and_a_kill_leave_only_whole_batches(tmp_path):
    path = tmp_path / "scores.sqlite"
    ScoreStore(path)
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_for_ever, args=(path, name)) for name in "ab"]
    for writer in writers:
        writer.start()
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and not all(_has_begun(path, name) for name in "ab"):
        time.sleep(0.2)
    for writer in writers:
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
    survivor = ScoreStore(path)
    (scope,) = survivor.list_score_scopes()
    assert scope.outcomes % 20 == 0
    for name in "ab":
        assert len(survivor.find_outcomes(SCOPE, STANDARD, [f"{name}/0/{part}" for part in range(20)])) == 20
    survivor.store_outcomes(SCOPE, {STANDARD: {"after": RIGHT}})
