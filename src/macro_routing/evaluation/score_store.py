"""The score store: an append-only table of (scope, route, example) → outcome, in one SQLite file.

SQLite in write-ahead mode survives a kill at any moment, lets several processes write, answers from an index at any
size, and needs no server. A scope names everything except route and example that decides a score (model numerics, task,
prompts, grader, decoding); a change of any of these starts a new scope, so no outdated score is found. Every outcome
has a checksum over its key and contents: rows that a disk has changed are deleted, never used.
"""

import dataclasses
import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from macro_routing.errors import MacroError
from macro_routing.evaluation.outcomes import ExampleOutcome
from macro_routing.models.cache_folder import get_macro_cache_folder
from macro_routing.routes.mixture import RouteOrMixture

_VERSION = 4
# Columns keep their first names (_cut for truncated, seal for the checksum).
_TABLES = """
CREATE TABLE IF NOT EXISTS scopes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, description TEXT NOT NULL UNIQUE, made TEXT DEFAULT CURRENT_TIMESTAMP
);
CREATE TABLE IF NOT EXISTS routes (
    id INTEGER PRIMARY KEY, layers INTEGER NOT NULL, text TEXT NOT NULL, UNIQUE (layers, text)
);
CREATE TABLE IF NOT EXISTS models (numerics TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (numerics, name));
CREATE TABLE IF NOT EXISTS outcomes (
    scope INTEGER NOT NULL, route INTEGER NOT NULL, example BLOB NOT NULL,
    correct INTEGER NOT NULL, prediction TEXT NOT NULL,
    reasoning_tokens INTEGER NOT NULL, answer_tokens INTEGER NOT NULL,
    reasoning_cut INTEGER NOT NULL, answer_cut INTEGER NOT NULL,
    reasoning TEXT NOT NULL, text TEXT NOT NULL, log_likelihoods TEXT NOT NULL, seal BLOB NOT NULL,
    PRIMARY KEY (scope, route, example)
) WITHOUT ROWID;
"""
_COLUMNS = (
    "correct, prediction, reasoning_tokens, answer_tokens, reasoning_cut, answer_cut, reasoning, text, log_likelihoods,"
    " seal"
)
_OUTCOME_FIELDS = tuple(field.name for field in dataclasses.fields(ExampleOutcome))
"""In the order of the columns."""
_MAX_PARAMETERS = 500
"""SQLite limits the parameters of one statement."""


def default_store_path() -> Path:
    """The store in the cache folder; a new layout begins a new file and leaves an older one alone."""
    return get_macro_cache_folder() / f"scores-{_VERSION}.sqlite"


class StoreError(MacroError):
    """The score store cannot be opened or is not one."""


@dataclass(frozen=True)
class StoredScopeSummary:
    """One scope and how much is stored under it."""

    description: Mapping[str, Any]
    made: str
    outcomes: int
    routes: int
    model: str
    """Name by which the model was loaded; empty where none was kept."""


class ScoreStore:
    """One file of scores; several processes may use it at once, each with its own store object."""

    def __init__(self, path: Path) -> None:
        """Open or create the store at ``path``."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=60, isolation_level=None)
            # Damaged text must not raise here: the checksum reveals it.
            self._connection.text_factory = lambda text: text.decode(errors="replace")
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if version != _VERSION and (version or tables):  # somebody else's: nothing of it is changed
                self.close()
                raise StoreError(
                    f"{path} is not a score store of version {_VERSION}; remove it or name another with --store"
                )
            self._connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;")
            if version == 0:
                self._connection.execute(f"PRAGMA user_version = {_VERSION}")
            self._connection.executescript(_TABLES)
        except (sqlite3.Error, OSError, ValueError) as error:  # damaged texts cannot even be decoded
            raise _make_store_error(path, error) from None

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

    def find_outcomes(
        self, scope: Mapping[str, Any], route: RouteOrMixture, examples: Sequence[str]
    ) -> dict[str, ExampleOutcome]:
        """Stored outcomes of these examples (by key) under a scope and route."""
        with self._wrap_database_errors():
            ids = self._find_scope_and_route_ids(scope, route)
            outcomes, damaged = (
                self._read_sound_outcomes(ids, _begin_outcome_checksum(scope, route), examples) if ids else ({}, [])
            )
        if damaged:  # they are computed and stored again
            with self._transaction() as cursor:
                cursor.executemany(
                    "DELETE FROM outcomes WHERE scope = ? AND route = ? AND example = ?",
                    ((*ids, example) for example in damaged),  # type: ignore[misc]
                )
        return outcomes

    def _read_sound_outcomes(
        self, ids: tuple[int, int], prefix: "hashlib._Hash", examples: Sequence[str]
    ) -> tuple[dict[str, ExampleOutcome], list[bytes]]:
        """Sound outcomes by example key, and digests of the examples whose outcome is damaged."""
        outcomes: dict[str, ExampleOutcome] = {}
        damaged: list[bytes] = []
        keys = {_digest_example_key(example): example for example in examples}
        digests = list(keys)
        for start in range(0, len(digests), _MAX_PARAMETERS):
            part = digests[start : start + _MAX_PARAMETERS]
            marks = ",".join("?" * len(part))
            query = f"SELECT example, {_COLUMNS} FROM outcomes WHERE scope = ? AND route = ? AND example IN ({marks})"  # noqa: S608
            for example, *values, stored in self._connection.execute(query, (*ids, *part)):
                if stored == _compute_row_checksum(prefix, example, values):
                    outcomes[keys[example]] = _outcome_from_row(values)
                else:
                    damaged.append(example)
        return outcomes, damaged

    def store_outcomes(
        self,
        scope: Mapping[str, Any],
        outcomes: Mapping[RouteOrMixture, Mapping[str, ExampleOutcome]],
        model: str = "",
    ) -> None:
        """Store outcomes by route and example key, all or none; outcomes that are stored already stay unchanged.

        ``model`` names the model for people; scores are found by the scope's identity of its numerics.
        """
        with self._transaction() as cursor:
            if model:
                cursor.execute("INSERT OR IGNORE INTO models VALUES (?, ?)", (str(scope.get("numerics", "")), model))
            for route, by_example in outcomes.items():
                ids = self._insert_scope_and_route_rows(cursor, scope, route)
                prefix = _begin_outcome_checksum(scope, route)
                cursor.executemany(
                    "INSERT OR IGNORE INTO outcomes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (_outcome_to_row(ids, prefix, example, outcome) for example, outcome in by_example.items()),
                )

    def _find_scope_and_route_ids(self, scope: Mapping[str, Any], route: RouteOrMixture) -> tuple[int, int] | None:
        """Row ids of the scope and the route."""
        query = "SELECT scopes.id, routes.id FROM scopes, routes WHERE description = ? AND layers = ? AND text = ?"
        row = self._connection.execute(query, (_scope_to_json(scope), route.layers, str(route))).fetchone()
        return None if row is None else (row[0], row[1])

    def _insert_scope_and_route_rows(
        self, cursor: sqlite3.Cursor, scope: Mapping[str, Any], route: RouteOrMixture
    ) -> tuple[int, int]:
        cursor.execute("INSERT OR IGNORE INTO scopes (description) VALUES (?)", (_scope_to_json(scope),))
        cursor.execute("INSERT OR IGNORE INTO routes (layers, text) VALUES (?, ?)", (route.layers, str(route)))
        ids = self._find_scope_and_route_ids(scope, route)
        assert ids is not None
        return ids

    def list_score_scopes(self) -> list[StoredScopeSummary]:
        """All scopes, oldest first."""
        query = (
            "SELECT description, made, (SELECT count(*) FROM outcomes WHERE scope = scopes.id),"
            " (SELECT count(DISTINCT route) FROM outcomes WHERE scope = scopes.id) FROM scopes ORDER BY id"
        )
        with self._wrap_database_errors():
            names = dict(self._connection.execute("SELECT numerics, min(name) FROM models GROUP BY numerics"))
            return [
                StoredScopeSummary(scope, made, outcomes, routes, names.get(str(scope.get("numerics", "")), ""))
                for scope, made, outcomes, routes in (
                    (json.loads(text), *counted) for text, *counted in self._connection.execute(query)
                )
            ]

    def delete_scopes(self, matches: Callable[[Mapping[str, Any]], bool]) -> int:
        """Delete the scopes that match and shrink the file; returns the number of deleted outcomes."""
        with self._transaction() as cursor:
            scopes = cursor.execute("SELECT id, description FROM scopes").fetchall()
            removed = 0
            for number in [number for number, description in scopes if matches(json.loads(description))]:
                removed += cursor.execute("DELETE FROM outcomes WHERE scope = ?", (number,)).rowcount
                cursor.execute("DELETE FROM scopes WHERE id = ?", (number,))
        with self._wrap_database_errors():
            self._connection.execute("VACUUM")
        return removed

    @contextmanager
    def _wrap_database_errors(self) -> Iterator[None]:
        """Turn database errors into a StoreError."""
        try:
            yield
        except (sqlite3.Error, ValueError, TypeError) as error:  # a description that is not JSON is damage, too
            raise _make_store_error(self.path, error) from None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        """All or nothing, without other writers in between."""
        with self._wrap_database_errors(), closing(self._connection.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk has ended it already
                    cursor.execute("ROLLBACK")
                raise


def _make_store_error(path: Path, error: Exception) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the higher bytes only add detail
    messages = {
        sqlite3.SQLITE_FULL: f"the score store {path} cannot be used: the disk is full; make room and resume",
        sqlite3.SQLITE_BUSY: f"the score store {path} cannot be used: another process is writing to it;"
        " wait and resume",
        sqlite3.SQLITE_CORRUPT: f"the score store {path} cannot be used: {error}; delete it, then its scores are"
        " computed again where they are needed, or name another with --store",
    }
    return StoreError(messages.get(code, f"the score store {path} cannot be used: {error}; name another with --store"))


def _scope_to_json(scope: Mapping[str, Any]) -> str:
    return json.dumps(scope, sort_keys=True, ensure_ascii=False)


def _digest_example_key(example: str) -> bytes:
    return hashlib.sha256(example.encode()).digest()[:16]


def _begin_outcome_checksum(scope: Mapping[str, Any], route: RouteOrMixture) -> "hashlib._Hash":
    """The beginning of all checksums of a scope and route."""
    return hashlib.sha256(f"{_scope_to_json(scope)}\0{route.layers}\0{route}\0".encode())


def _compute_row_checksum(prefix: "hashlib._Hash", example: bytes, values: Sequence[Any]) -> bytes:
    """The checksum of values as they are stored: strings, and integers for booleans."""
    digest = prefix.copy()
    digest.update(example + repr([int(value) if isinstance(value, bool) else value for value in values]).encode())
    return digest.digest()[:8]


def _outcome_from_row(values: Sequence[Any]) -> ExampleOutcome:
    *plain, log_likelihoods = values
    # Booleans are stored as integers.
    fields: Any = zip(dataclasses.fields(ExampleOutcome), plain, strict=False)
    named = {field.name: field.type(value) for field, value in fields}
    return ExampleOutcome(**named, log_likelihoods=tuple(map(float, log_likelihoods.split())))


def _outcome_to_row(
    ids: tuple[int, int], prefix: "hashlib._Hash", example: str, outcome: ExampleOutcome
) -> tuple[Any, ...]:
    *plain, log_likelihoods = (getattr(outcome, name) for name in _OUTCOME_FIELDS)
    values = [*plain, " ".join(map(repr, log_likelihoods))]
    digest = _digest_example_key(example)
    return (*ids, digest, *values, _compute_row_checksum(prefix, digest, values))
