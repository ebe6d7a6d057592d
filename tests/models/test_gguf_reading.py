"""The fast reader of GGUF files against the gguf package's."""

import contextlib
import importlib
from concurrent.futures import ThreadPoolExecutor

import gguf
import numpy as np
import pytest
import torch

from macro_routing.errors import ModelError
from macro_routing.models import cache_folder, catalog, gguf_import, gguf_reading, identity
from macro_routing.models.frozen import load_model
from tests.models.gguf_writer import write_llama
from tests.models.tiny import tiny_model
from tests.oracles.gguf import load_gguf

QUANTIZED = sorted(gguf.quants._type_traits, key=lambda kind: kind.name)


@pytest.fixture(params=[gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.Q8_0], ids=lambda kind: kind.name)
def source(request, tmp_path):
    model = tiny_model("llama", vocab_size=64, intermediate_size=64)
    return write_llama(model, tmp_path / "own.gguf", kind=request.param)


def test_every_field_and_tensor_is_what_the_gguf_package_reads(source):
    fast, plain = gguf_reading.open_gguf(source), gguf.GGUFReader(source)
    assert {name: field.contents() for name, field in fast.fields.items()} == {
        name: field.contents() for name, field in plain.fields.items()
    }
    assert [field.types for field in fast.fields.values()] == [field.types for field in plain.fields.values()]
    assert [tensor.name for tensor in fast.tensors] == [tensor.name for tensor in plain.tensors]
    for mine, theirs in zip(fast.tensors, plain.tensors, strict=True):
        assert np.array_equal(mine.data, theirs.data)


@pytest.mark.parametrize("order", [gguf.GGUFEndian.LITTLE, gguf.GGUFEndian.BIG], ids=lambda order: order.name)
def test_arrays_of_every_kind_are_read_in_either_byte_order(tmp_path, order):
    writer = gguf.GGUFWriter(tmp_path / "arrays.gguf", "llama", endianess=order)
    arrays = {"texts": ["a", "bc", ""], "whole": [1, -2, 3], "real": [0.5, -1.0, 0.25], "flags": [True, False, True]}
    for name, values in arrays.items():
        writer.add_array(name, values)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    fast, plain = gguf_reading.open_gguf(tmp_path / "arrays.gguf"), gguf.GGUFReader(tmp_path / "arrays.gguf")
    for name, values in arrays.items():
        assert fast.fields[name].contents() == plain.fields[name].contents() == values
        assert fast.fields[name].types == plain.fields[name].types


def test_the_conversion_is_what_transformers_reads(source, tmp_path, monkeypatch):
    monkeypatch.setenv("MACRO_CACHE_DIR", str(tmp_path / "cache"))
    frozen = load_model(str(source))
    tensors, tokenizer = load_gguf(source)
    assert tensors.keys() == frozen.model.state_dict().keys()
    for name, value in frozen.model.state_dict().items():
        assert torch.equal(value, tensors[name])
    gguf_import._set_special_tokens(tokenizer, gguf_import.read_gguf_tokenizer_metadata(gguf_reading.open_gguf(source)))
    assert frozen.tokenizer.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()
    assert frozen.tokenizer.special_tokens_map == tokenizer.special_tokens_map


def test_the_file_is_parsed_once_and_progress_is_reported(source, tmp_path, monkeypatch):
    monkeypatch.setenv("MACRO_CACHE_DIR", str(tmp_path / "cache"))
    opened, messages = [], []
    parse = gguf.GGUFReader.__init__
    monkeypatch.setattr(gguf.GGUFReader, "__init__", lambda self, path: (opened.append(path), parse(self, path))[0])
    original = gguf.GGUFReader
    catalog.fetch_model_folder(str(source), report=messages.append)
    assert len(opened) == 1
    assert sum("de-quantized" in message for message in messages) >= 2
    assert messages[-1].startswith("writing own.gguf")
    assert gguf.GGUFReader is original


def test_a_large_model_is_stored_in_bfloat16(source, tmp_path, monkeypatch):
    monkeypatch.setenv("MACRO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(gguf_import, "_MAX_FLOAT32_PARAMETERS", 0)
    frozen = load_model(str(source))
    tensors, _ = load_gguf(source)
    for name, value in frozen.model.state_dict().items():
        assert torch.equal(value, tensors[name].to(torch.bfloat16).float())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # random scales are infinite at times
@pytest.mark.parametrize("kind", QUANTIZED, ids=lambda kind: kind.name)
def test_every_format_is_dequantized_as_the_gguf_package_does(kind, monkeypatch):
    """IQ2_XXS among them, in chunks that do not fit the rows."""
    _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    monkeypatch.setattr(gguf_reading, "_CHUNK_BYTES", 5 * 3 * block_bytes + 1)
    data = np.random.default_rng(0).integers(0, 256, (2, 19, 3 * block_bytes), dtype=np.uint8)
    with ThreadPoolExecutor(2) as pool:
        values = gguf_reading.dequantize_in_threads(data, kind, pool)
        assert np.array_equal(values, gguf.quants.dequantize(data, kind), equal_nan=True)


def test_a_file_cut_short_is_rejected(source, tmp_path):
    content = source.read_bytes()
    short = tmp_path / "short.gguf"
    for length in (3, 20, 100, 500, 1000, len(content) // 2):
        short.write_bytes(content[:length])
        with pytest.raises(ModelError, match="not a valid GGUF file"):
            gguf_reading.open_gguf(short)
    with contextlib.suppress(ModelError):  # a count of 2^64 tokens ends at the end of the file
        place = content.index(b"tokenizer.ggml.tokens") + len("tokenizer.ggml.tokens") + 8
        short.write_bytes(content[:place] + b"\xff" * 8 + content[place + 8 :])
        gguf_reading.open_gguf(short)
        raise AssertionError


def test_a_converted_model_is_not_hashed_again(source, tmp_path, monkeypatch):
    monkeypatch.setenv("MACRO_CACHE_DIR", str(tmp_path / "cache"))
    folder = catalog.fetch_model_folder(str(source))
    for name in ("digest_file", "checksum_file"):
        monkeypatch.setattr(cache_folder, name, lambda path: pytest.fail(f"{path} was read"))
    assert catalog.fetch_model_folder(str(source)) == folder
    assert "gguf" in identity.digest_model_files(folder)


def test_strings_and_maps_are_read_the_fast_way(source):
    """The functions of transformers that are replaced are there, and are put back."""
    before = [getattr(importlib.import_module(module), name) for module, name, _ in gguf_reading._SLOW_FUNCTIONS]
    reader = gguf_reading.open_gguf(source)
    parse = before[0]
    with gguf_reading.share_gguf_reader(reader, lambda _: None):
        fast = importlib.import_module(gguf_reading._SLOW_FUNCTIONS[0][0])._gguf_parse_value
        assert fast is not parse
        for field in reader.fields.values():
            for index in field.data:
                assert fast(field.parts[index], field.types) == parse(field.parts[index], field.types)
    assert before == [
        getattr(importlib.import_module(module), name) for module, name, _ in gguf_reading._SLOW_FUNCTIONS
    ]


def test_the_metadata_is_walked_through_once_and_nobody_shares_what_was_read(source, monkeypatch):
    reading = pytest.importorskip("transformers.integrations.gguf.reader")
    walk, walks = reading._read_metadata, []
    monkeypatch.setattr(reading, "_read_metadata", lambda *args: walks.append(args[1]) or walk(*args))
    plain = reading.read_gguf_metadata(str(source))
    walks.clear()
    with gguf_reading.share_gguf_reader(gguf_reading.open_gguf(source), lambda _: None):
        first = reading.read_gguf_metadata(str(source))
        first[0].clear()
        assert reading.read_gguf_metadata(str(source)) == plain
    assert walks == [str(source)]


def test_a_version_of_transformers_without_the_slow_functions_is_read_as_well(source, tmp_path, monkeypatch):
    monkeypatch.setenv("MACRO_CACHE_DIR", str(tmp_path / "cache"))
    missing = ("transformers.modeling_gguf_pytorch_utils", "no_such_function", None)
    monkeypatch.setattr(gguf_reading, "_SLOW_FUNCTIONS", (missing, ("transformers.no_such_module", "any", None)))
    assert (catalog.fetch_model_folder(str(source)) / "config.json").is_file()


def test_the_next_tensor_is_dequantized_ahead_and_others_at_once(source):
    reader, told = gguf_reading.open_gguf(source), []
    with gguf_reading.share_gguf_reader(reader, told.append):
        ahead = [gguf.dequantize(tensor.data, tensor.tensor_type) for tensor in reader.tensors]
        again = gguf.dequantize(reader.tensors[0].data, reader.tensors[0].tensor_type)
        copied = gguf.dequantize(np.array(reader.tensors[1].data), reader.tensors[1].tensor_type)
    for tensor, values in zip(reader.tensors, ahead, strict=True):
        assert np.array_equal(values, gguf.dequantize(tensor.data, tensor.tensor_type))
    assert np.array_equal(again, ahead[0])
    assert np.array_equal(copied, ahead[1])
    assert told == [*(tensor.n_elements for tensor in reader.tensors), again.size, copied.size]


def test_only_the_first_copy_of_a_dequantized_tensor_is_itself():
    data = np.random.default_rng(0).integers(0, 256, (4, 34), dtype=np.uint8)
    with ThreadPoolExecutor(2) as pool:
        values = gguf_reading.dequantize_in_threads(data, gguf.GGMLQuantizationType.Q8_0, pool)
    before = np.array(values)
    derived = np.copy(values[1:])
    first, second = np.copy(values), np.copy(values)
    assert type(first) is np.ndarray
    assert np.shares_memory(first, values)
    for copied, expected in ((first, before), (second, before), (derived, before[1:]), (values - 1, before - 1)):
        assert np.array_equal(copied, expected, equal_nan=True)
    assert not np.shares_memory(derived, values)
    assert not np.shares_memory(second, values)
