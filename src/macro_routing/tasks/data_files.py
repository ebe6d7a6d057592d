"""Read data files: JSON lines and CSV, gzipped or not; errors name file, line and reason."""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from macro_routing.errors import TaskError
from macro_routing.tasks.task import Example

Row = tuple[str, dict[str, Any]]
"""File and line of a row, for messages; and its columns."""
DATA_FILE_SUFFIXES = (".jsonl", ".jsonl.gz", ".csv", ".csv.gz")


def read_rows(path: Path) -> Iterator[Row]:
    """Read the rows of a file, whose suffix gives the format."""
    name = path.name.removesuffix(".gz")
    if not name.endswith((".jsonl", ".csv")):
        raise TaskError(f"{path}: data files are {', '.join(DATA_FILE_SUFFIXES)}")
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.name.endswith(".gz") else raw).decode("utf-8-sig")
    except FileNotFoundError:
        raise TaskError(f"there is no file {path}") from None
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise TaskError(f"{path} cannot be read: {error}") from None
    yield from _read_csv_rows(path, text) if name.endswith(".csv") else _read_json_rows(path, text)


def _read_json_rows(path: Path, text: str) -> Iterator[Row]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            value = json.loads(line)
            json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is not valid text
        except (ValueError, RecursionError) as error:
            raise TaskError(f"{where}: not JSON: {error}") from None
        if not isinstance(value, dict):
            raise TaskError(f"{where}: a row must be a JSON object, not {type(value).__name__}")
        yield where, value


def _read_csv_rows(path: Path, text: str) -> Iterator[Row]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            where = f"{path}, line {reader.line_num}"
            if None in row or None in row.values():
                raise TaskError(f"{where}: the row has {'more' if None in row else 'fewer'} fields than the header")
            yield where, dict(row)
    except csv.Error as error:
        raise TaskError(f"{path}, line {reader.line_num}: {error}") from None


def rows_to_examples(
    rows: Iterable[Row], make_example: Callable[[Mapping[str, Any], str], Example], source: str, first_number: int
) -> tuple[Example, ...]:
    """Make an example of every row and its id, ``source/number``; errors name the file and the line."""
    examples = []
    for number, (where, row) in enumerate(rows, first_number):
        try:
            examples.append(make_example(row, f"{source}/{number}"))
        except TaskError as error:
            raise TaskError(f"{where}: {error}") from None
    return tuple(examples)
