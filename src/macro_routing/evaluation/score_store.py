"""Scores that are kept: an append-only table of (scope, route, example) → outcome, in one SQLite file.

SQLite in write-ahead mode because it survives a kill at any moment, lets several processes write, answers from an
index however large it grows, and needs no server. A scope names everything but route and example that decides a
score (model numerics, task, prompts, grader, decoding); what changes it starts a new scope, so nothing stale is found.
Every outcome carries a seal over its key and contents: bytes that a disk has changed are forgotten, never believed.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from macro_routing.errors import MacroError
from macro_routing.evaluation.outcome import ExampleOutcome
from macro_routing.models.catalog import cache_folder
from macro_routing.routes.route import Route

_VERSION = 3
_TABLES = """
CREATE TABLE IF NOT EXISTS scopes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, description TEXT NOT NULL UNIQUE, made TEXT DEFAULT CURRENT_TIMESTAMP
);
CREATE TABLE IF NOT EXISTS routes (
    id INTEGER PRIMARY KEY, layers INTEGER NOT NULL, text TEXT NOT NULL, UNIQUE (layers, text)
);
CREATE TABLE IF NOT EXISTS outcomes (
    scope INTEGER NOT NULL, route INTEGER NOT NULL, example BLOB NOT NULL,
    correct INTEGER NOT NULL, prediction TEXT NOT NULL,
    reasoning_tokens INTEGER NOT NULL, answer_tokens INTEGER NOT NULL,
    reasoning_cut INTEGER NOT NULL, answer_cut INTEGER NOT NULL,
    reasoning TEXT NOT NULL, text TEXT NOT NULL, seal BLOB NOT NULL,
    PRIMARY KEY (scope, route, example)
) WITHOUT ROWID;
"""
_FIELDS = "correct, prediction, reasoning_tokens, answer_tokens, reasoning_cut, answer_cut, reasoning, text, seal"
_AT_ONCE = 500
"""SQLite limits the parameters of one statement."""


def default_store_path() -> Path:
    """The store in the cache folder; a new layout begins a new file and leaves an older one alone."""
    return cache_folder() / f"scores-{_VERSION}.sqlite"


class StoreError(MacroError):
    """The score store cannot be opened or is not one."""


@dataclass(frozen=True)
class ScopeInfo:
    """One scope and how much is stored under it."""

    description: Mapping[str, Any]
    made: str
    outcomes: int
    routes: int


class ScoreStore:
    """One file of scores; safe for several processes, each with a store of its own on it."""

    def __init__(self, path: Path) -> None:
        """Open or create the store at ``path``."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=60, isolation_level=None)
            self._connection.text_factory = lambda text: text.decode(errors="replace")  # damage shows by the seal
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._check_version()
            self._connection.executescript(_TABLES)
        except (sqlite3.Error, OSError, ValueError) as error:  # damaged texts cannot even be decoded
            raise _unusable(path, error) from None

    def _check_version(self) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        tables = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if version == 0 and tables == 0:
            self._connection.execute(f"PRAGMA user_version = {_VERSION}")
        elif version != _VERSION:
            raise StoreError(
                f"{self.path} is not a score store of version {_VERSION}; remove it or name another with --store"
            )

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

    def find(self, scope: Mapping[str, Any], route: Route, examples: Sequence[str]) -> dict[str, ExampleOutcome]:
        """What is known of these examples (by key) under a scope and route."""
        with self._reported():
            found, damaged = self._found(scope, route, examples)
        if damaged:
            self._forget(scope, route, damaged)
        return found

    def _forget(self, scope: Mapping[str, Any], route: Route, damaged: Sequence[bytes]) -> None:
        """Remove outcomes whose seal is broken, so that they are worked out and kept again."""
        with self._transaction() as cursor:
            keys = self._keys(scope, route)
            cursor.executemany(
                "DELETE FROM outcomes WHERE scope = ? AND route = ? AND example = ?",
                ((*(keys or (0, 0)), example) for example in damaged),
            )

    def _found(
        self, scope: Mapping[str, Any], route: Route, examples: Sequence[str]
    ) -> tuple[dict[str, ExampleOutcome], list[bytes]]:
        """What is known, and which of it is damaged."""
        keys = self._keys(scope, route)
        if keys is None:
            return {}, []
        found: dict[str, ExampleOutcome] = {}
        damaged: list[bytes] = []
        sealed = _Seal(scope, route)
        names = {_digest(example): example for example in examples}
        digests = list(names)
        for start in range(0, len(digests), _AT_ONCE):
            part = digests[start : start + _AT_ONCE]
            marks = ",".join("?" * len(part))
            query = f"SELECT example, {_FIELDS} FROM outcomes WHERE scope = ? AND route = ? AND example IN ({marks})"  # noqa: S608
            for example, *values, seal in self._connection.execute(query, (*keys, *part)):
                if seal == sealed.of(example, values):
                    found[names[example]] = _outcome(values)
                else:
                    damaged.append(example)
        return found, damaged

    def add(self, scope: Mapping[str, Any], route: Route, outcomes: Mapping[str, ExampleOutcome]) -> None:
        """Keep outcomes by example key, all of them or none; those that are known already stay as they are."""
        self.add_all(scope, {route: outcomes})

    def add_all(self, scope: Mapping[str, Any], outcomes: Mapping[Route, Mapping[str, ExampleOutcome]]) -> None:
        """Keep the outcomes of several routes, all of them or none."""
        with self._transaction() as cursor:
            for route, by_example in outcomes.items():
                keys, sealed = self._made_keys(cursor, scope, route), _Seal(scope, route)
                cursor.executemany(
                    "INSERT OR IGNORE INTO outcomes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (_row(keys, sealed, example, outcome) for example, outcome in by_example.items()),
                )

    def _keys(self, scope: Mapping[str, Any], route: Route) -> tuple[int, int] | None:
        query = "SELECT scopes.id, routes.id FROM scopes, routes WHERE description = ? AND layers = ? AND text = ?"
        found = self._connection.execute(query, (_canonical(scope), route.layers, str(route))).fetchone()
        return None if found is None else (found[0], found[1])

    def _made_keys(self, cursor: sqlite3.Cursor, scope: Mapping[str, Any], route: Route) -> tuple[int, int]:
        cursor.execute("INSERT OR IGNORE INTO scopes (description) VALUES (?)", (_canonical(scope),))
        cursor.execute("INSERT OR IGNORE INTO routes (layers, text) VALUES (?, ?)", (route.layers, str(route)))
        keys = self._keys(scope, route)
        assert keys is not None
        return keys

    def scopes(self) -> list[ScopeInfo]:
        """All scopes, oldest first."""
        query = (
            "SELECT description, made, (SELECT count(*) FROM outcomes WHERE scope = scopes.id),"
            " (SELECT count(DISTINCT route) FROM outcomes WHERE scope = scopes.id) FROM scopes ORDER BY id"
        )
        with self._reported():
            return [ScopeInfo(json.loads(row[0]), *row[1:]) for row in self._connection.execute(query)]

    def prune(self, matches: Callable[[Mapping[str, Any]], bool]) -> int:
        """Forget the scopes that match, and give the room back; says how many outcomes went."""
        with self._transaction() as cursor:
            known = cursor.execute("SELECT id, description FROM scopes").fetchall()
            gone = [number for number, description in known if matches(json.loads(description))]
            removed = 0
            for number in gone:
                removed += cursor.execute("DELETE FROM outcomes WHERE scope = ?", (number,)).rowcount
                cursor.execute("DELETE FROM scopes WHERE id = ?", (number,))
        with self._reported():
            self._connection.execute("VACUUM")
        return removed

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Turn what the database raises into this project's own error."""
        try:
            yield
        except (sqlite3.Error, ValueError, TypeError) as error:  # a description that is no JSON is damage, too
            raise _unusable(self.path, error) from None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        """All of it or nothing, with no other writer in between."""
        with self._reported(), closing(self._connection.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk has ended it already
                    cursor.execute("ROLLBACK")
                raise


def _unusable(path: Path, error: Exception) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # what is above the first byte only says more
    if code == sqlite3.SQLITE_FULL:
        return StoreError(f"the score store {path} cannot be used: the disk is full; make room and resume")
    if code == sqlite3.SQLITE_BUSY:
        return StoreError(f"the score store {path} cannot be used: another process is writing to it; wait and resume")
    return StoreError(f"the score store {path} cannot be used: {error}; name another with --store")


def _canonical(scope: Mapping[str, Any]) -> str:
    return json.dumps(scope, sort_keys=True, ensure_ascii=False)


def _digest(example: str) -> bytes:
    return hashlib.sha256(example.encode()).digest()[:16]


def _outcome(values: Sequence[Any]) -> ExampleOutcome:
    correct, prediction, reasoning_tokens, answer_tokens, reasoning_cut, answer_cut, reasoning, text = values
    return ExampleOutcome(
        bool(correct),
        prediction,
        reasoning_tokens,
        answer_tokens,
        bool(reasoning_cut),
        bool(answer_cut),
        reasoning,
        text,
    )


class _Seal:
    """A digest of an outcome with everything that it belongs to."""

    def __init__(self, scope: Mapping[str, Any], route: Route) -> None:
        self._begun = hashlib.sha256(f"{_canonical(scope)}\0{route.layers}\0{route}\0".encode())

    def of(self, example: bytes, values: Sequence[Any]) -> bytes:
        """Values as they are kept: texts, and numbers for yes and no."""
        digest = self._begun.copy()
        digest.update(example)
        digest.update(repr([int(value) if isinstance(value, bool) else value for value in values]).encode())
        return digest.digest()[:8]


def _row(keys: tuple[int, int], sealed: _Seal, example: str, outcome: ExampleOutcome) -> tuple[Any, ...]:
    values = (
        outcome.correct,
        outcome.prediction,
        outcome.reasoning_tokens,
        outcome.answer_tokens,
        outcome.reasoning_cut,
        outcome.answer_cut,
        outcome.reasoning,
        outcome.text,
    )
    digest = _digest(example)
    return (*keys, digest, *values, sealed.of(digest, values))
