"""Read a GGUF file once, for every library function that wants to read it.

transformers opens a file five times through the gguf package, whose reader makes numpy views of each of the 150,000
tokens and merges: minutes for a file of half a gigabyte.
"""

import functools
import importlib
import os
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from macro_routing.errors import ModelError

_CHUNK_BYTES = 1 << 17
"""Quantized bytes that a thread de-quantizes at a time: the intermediate results stay in its cache."""


class FastGGUFReader(gguf.GGUFReader):
    """The gguf package's reader, with arrays parsed in one go."""

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list[Any], list[int], list[Any]]:
        """Parse one value; an array's parts are views of the file, as they are for the gguf package."""
        if raw_type != gguf.GGUFValueType.ARRAY or self.byte_order != "I":
            return super()._get_field_parts(orig_offs, raw_type)
        content: Any = self.data
        item_type, count = struct.unpack_from("<IQ", content, orig_offs)
        start = orig_offs + 12
        if item_type == gguf.GGUFValueType.STRING:
            items, end = _split_strings(memoryview(content), start, count)
        elif item_type in self.gguf_scalar_to_np:
            values = np.asarray(self._get(start, self.gguf_scalar_to_np[gguf.GGUFValueType(item_type)], count))
            items, end = list(values.reshape(-1, 1)), start + values.nbytes
        else:  # an array of arrays
            return super()._get_field_parts(orig_offs, raw_type)
        types = [gguf.GGUFValueType.ARRAY, gguf.GGUFValueType(item_type)][: 1 + bool(items)]
        return end - orig_offs, items, list(range(len(items))), types


def _split_strings(data: memoryview, start: int, count: int) -> tuple[list[Any], int]:
    """Split ``count`` strings, each behind its length, into views; also return where they end."""
    read_length = struct.Struct("<Q").unpack_from
    strings = []
    for _ in range(count):
        (length,) = read_length(data, start)
        start += 8 + length
        strings.append(data[start - length : start])
    return strings, start


def open_gguf(source: Path) -> FastGGUFReader:
    """Map a GGUF file into memory and parse its metadata."""
    try:
        return FastGGUFReader(source)
    except (ValueError, OSError, IndexError, KeyError, struct.error) as error:
        raise ModelError(f"{source} is not a valid GGUF file: {error}") from None


@contextmanager
def share_gguf_reader(reader: FastGGUFReader, report: Callable[[int], None]) -> Iterator[None]:
    """Within this context the gguf package opens every file as ``reader`` and de-quantizes in several threads.

    ``report`` is told the number of values of each tensor that is de-quantized.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool, ThreadPoolExecutor(1) as ahead, ExitStack() as stack:
        stack.enter_context(_replace(gguf, "GGUFReader", lambda *_: reader))
        stack.enter_context(_replace(gguf, "dequantize", _dequantize_ahead(reader, pool, ahead, report)))
        # transformers makes the table of all tensor names once per module, hundreds of times.
        names_of_tensors = functools.cache(gguf.get_tensor_name_map)
        stack.enter_context(_replace(gguf, "get_tensor_name_map", names_of_tensors))
        for module, name, wrap in _SLOW_FUNCTIONS:
            stack.enter_context(_wrap_if_present(module, name, wrap))
        yield


def _dequantize_ahead(
    reader: FastGGUFReader, pool: ThreadPoolExecutor, ahead: ThreadPoolExecutor, report: Callable[[int], None]
) -> Callable[[Any, Any], Any]:
    """Make a ``dequantize`` that works on the next tensor of the file while its caller works on this one."""
    tensors = reader.tensors
    indices = {id(tensor.data): index for index, tensor in enumerate(tensors)}
    started: dict[int, Future[Any]] = {}

    def start(index: int) -> None:
        if index < len(tensors) and index not in started:
            tensor = tensors[index]
            started[index] = ahead.submit(dequantize_in_threads, tensor.data, tensor.tensor_type, pool)

    def dequantize(data: Any, kind: gguf.GGMLQuantizationType) -> Any:
        index = indices.get(id(data))
        if index is None:
            values = dequantize_in_threads(data, kind, pool)
        else:
            start(index)
            start(index + 1)
            values = started.pop(index).result()
        report(values.size)
        return values

    return dequantize


@contextmanager
def _replace(module: Any, name: str, replacement: Any) -> Iterator[None]:
    original = getattr(module, name)
    setattr(module, name, replacement)
    try:
        yield
    finally:
        setattr(module, name, original)


@contextmanager
def _wrap_if_present(module_name: str, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Replace a function of transformers; where this version has none of that name, reading takes longer."""
    try:
        module = importlib.import_module(module_name)
        original = getattr(module, name)
    except (ImportError, AttributeError):
        yield
        return
    with _replace(module, name, wrap(original)):
        yield


def _parse_arrays_directly(parse: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Transformers makes a list of the bytes of each of 300,000 strings, and asks twice for the type of each value."""
    kinds = gguf.GGUFValueType
    array_of_strings, array_of_integers = [kinds.ARRAY, kinds.STRING], [kinds.ARRAY, kinds.INT32]

    def parse_value(value: Any, types: Any) -> Any:
        if types == array_of_strings:
            return str(value, "utf-8")
        return int(value[0]) if types == array_of_integers else parse(value, types)

    return parse_value


def _map_as_plain_array(open_map: Callable[[str], Any]) -> Callable[[str], Any]:
    """Slices of numpy's memory maps cost several times as much as those of arrays."""
    return lambda path: np.asarray(open_map(path))


def _read_metadata_once(read: Callable[..., Any]) -> Callable[..., Any]:
    """Transformers walks through all metadata of the file again for its configuration, tokenizer and tensors."""
    known: dict[tuple[str, frozenset[str]], Any] = {}

    def read_metadata(content: Any, path: str, string_arrays: Any = ()) -> Any:
        key = (path, frozenset(string_arrays))
        if key not in known:
            known[key] = read(content, path, string_arrays)
        metadata, *places = known[key]
        return (dict(metadata), *places)

    return read_metadata


_SLOW_FUNCTIONS = (
    ("transformers.modeling_gguf_pytorch_utils", "_gguf_parse_value", _parse_arrays_directly),
    ("transformers.integrations.gguf.reader", "_mapped", _map_as_plain_array),
    ("transformers.integrations.gguf.reader", "_read_metadata", _read_metadata_once),
)


def dequantize_in_threads(data: Any, kind: gguf.GGMLQuantizationType, pool: ThreadPoolExecutor) -> Any:
    """De-quantize a tensor; equal to ``gguf.dequantize``, which takes one thread."""
    data = np.asarray(data)  # slices of a memory map cost ten times as much
    if kind in {gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16}:
        return gguf.quants.dequantize(data, kind)
    rows = data.reshape(-1, data.shape[-1])
    step = max(1, _CHUNK_BYTES // max(1, rows.shape[-1]))
    parts = [rows[start : start + step] for start in range(0, len(rows), step)]
    first = _dequantize_rows(parts[0], kind)  # the gguf package builds the type's table, which threads share
    values = np.empty((len(rows), first.shape[-1]), np.float32)
    values[:step] = first

    def fill(number: int) -> None:
        values[number * step : (number + 1) * step] = _dequantize_rows(parts[number], kind)

    list(pool.map(fill, range(1, len(parts))))
    result = values.reshape(*data.shape[:-1], values.shape[-1]).view(_NewArray)
    result.is_unshared = True
    return result


class _NewArray(np.ndarray):
    """An array whose first ``numpy.copy``, which transformers makes of every tensor, is itself: nobody else has it."""

    is_unshared = False
    """Never set in arrays derived from it."""

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Call what numpy calls, but for the copy."""
        if func is np.copy and self.is_unshared and not kwargs and len(args) == 1:
            self.is_unshared = False
            return self.view(np.ndarray)
        return super().__array_function__(func, types, args, kwargs)


def _dequantize_rows(rows: Any, kind: gguf.GGMLQuantizationType) -> Any:
    """De-quantize whole rows, as one row: the gguf package takes every sixteen rows apart, which are few bytes."""
    return gguf.quants.dequantize(rows.reshape(1, -1), kind).reshape(len(rows), -1)
