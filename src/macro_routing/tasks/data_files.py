"""Data files: rows of JSON lines, and of tables with commas or tabs. Errors name file, line and reason."""

import codecs
import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from macro_routing.errors import TaskError, shorten_value
from macro_routing.tasks.task import Example

Row = tuple[str, dict[str, Any]]
"""File and line of a row, for messages; and its columns."""
DATA_FILE_SUFFIXES = tuple(f"{kind}{packed}" for kind in (".jsonl", ".csv", ".tsv") for packed in ("", ".gz"))


def read_rows(path: Path) -> Iterator[Row]:
    """Read the rows of a file, whose suffix gives the format."""
    name = path.name.removesuffix(".gz")
    if not name.endswith((".jsonl", ".csv", ".tsv")):
        raise TaskError(f"{path}: data files are {', '.join(DATA_FILE_SUFFIXES)}")
    try:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if path.name.endswith(".gz") else raw
    except FileNotFoundError:
        raise TaskError(f"there is no file {path}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise TaskError(f"{path} cannot be read: {error}") from None
    text = _decode_utf8(path, raw)
    if name.endswith(".jsonl"):
        yield from _read_json_rows(path, text)
    else:
        yield from _read_csv_rows(path, text, "," if name.endswith(".csv") else "\t")


def _decode_utf8(path: Path, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        is_utf16 = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        line = raw[: error.start].count(b"\n") + 1
        reason = "it is UTF-16" if is_utf16 else f"line {line} has the byte 0x{raw[error.start]:02x}"
        raise TaskError(
            f"{path} is not UTF-8 ({reason}); save it as UTF-8, which spreadsheets call CSV UTF-8"
        ) from None


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


def _read_csv_rows(path: Path, text: str, delimiter: str) -> Iterator[Row]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)
    try:
        _check_separator(path, reader.fieldnames or (), delimiter)
        for row in reader:
            where = f"{path}, line {reader.line_num}"
            if None in row or None in row.values():
                raise TaskError(f"{where}: the row has {'more' if None in row else 'fewer'} fields than the header")
            yield where, dict(row)
    except csv.Error as error:
        raise TaskError(f"{path}, line {reader.line_num}: {error}") from None


def _check_separator(path: Path, columns: Sequence[str], delimiter: str) -> None:
    """Reject a header that another separator would divide."""
    for other, remedy in ((";", "save it with commas"), ("\t", "name it .tsv"), (",", "name it .csv")):
        if other != delimiter and len(columns) == 1 and other in columns[0]:
            names = {",": "commas", ";": "semicolons", "\t": "tabs"}
            raise TaskError(
                f"{path}: the header has one column, {shorten_value(columns[0])}; the columns seem to be separated by"
                f" {names[other]}, not {names[delimiter]}: {remedy}"
            )


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
