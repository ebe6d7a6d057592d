"""Convert a GGUF file to a folder of safetensors with a correct tokenizer.

transformers reads GGUF, but its tokenizer ignores what the file says about special tokens: for SmolLM2 it has a wrong
end of sequence and does not split numbers into digits, for Gemma it adds no beginning of sequence. The conversion
follows the file's own metadata.
"""

import json
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from macro_routing.errors import ModelError
from macro_routing.files import checksum_file
from macro_routing.models.pretokenizers import build_pretokenizer, identify_pretokenizer
from macro_routing.models.support import check_model_can_be_routed, check_weights_complete

CONVERSION_RECORD = "macro_source.json"
_SHARD_SIZE = "1GB"
"""Checksums of files are computed beside each other."""
_MAX_FLOAT32_PARAMETERS = 500_000_000
"""Up to this number of parameters the exact values are stored as float32; larger models as bfloat16."""


def dequantize_gguf_to_checkpoint(
    source: Path, folder: Path, digest: str, report: Callable[[str], None]
) -> dict[str, str]:
    """De-quantize ``source`` into ``folder``; ``digest`` is its SHA-256, which identifies the model.

    Returns the checksums of the written files of weights.
    """
    import torch

    from macro_routing.models.gguf_reading import open_gguf, share_gguf_reader

    reader = open_gguf(source)
    with share_gguf_reader(reader, _report_share_of_values(reader, report)), ThreadPoolExecutor(1) as background:
        model = _load_gguf_model(source)
        _clear_quantization_marks(model)
        small = _is_small(model)
        if not small:
            model = model.to(torch.bfloat16)
        report(f"writing {source.name} as safetensors")
        model.save_pretrained(folder, max_shard_size=_SHARD_SIZE)
        weights = background.submit(_checksum_weights, folder)
        tokenizer = _load_gguf_tokenizer(source)
        _set_special_tokens(tokenizer, read_gguf_tokenizer_metadata(reader))
        tokenizer.save_pretrained(folder)
        model.generation_config.eos_token_id = tokenizer.eos_token_id
        model.generation_config.pad_token_id = tokenizer.pad_token_id
        model.generation_config.save_pretrained(folder)
    stored = "float32" if small else "bfloat16"
    record = {"file": source.name, "sha256": digest, "stored": stored, "checksums": weights.result()}
    (folder / CONVERSION_RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return weights.result()


def _checksum_weights(folder: Path) -> dict[str, str]:
    files = sorted(folder.glob("*.safetensors"))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip([file.name for file in files], pool.map(checksum_file, files), strict=True))


def _load_gguf_model(source: Path) -> Any:
    """Load the model of a GGUF file in the dtype it is stored in."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    # It advises to load in float32, which is for models that stay quantized.
    logging.getLogger("transformers.quantizers.quantizer_gguf").setLevel(logging.ERROR)
    loader: Any = AutoModelForCausalLM
    with _explain_read_errors(source):
        config = AutoConfig.from_pretrained(source.parent, gguf_file=source.name)
        check_model_can_be_routed(config, allow_untested=True)
        with torch.device("meta"):
            dtype = torch.float32 if _is_small(loader.from_config(config)) else torch.bfloat16
        model, loaded = loader.from_pretrained(
            source.parent, gguf_file=source.name, config=config, dtype=dtype, output_loading_info=True
        )
    check_weights_complete(source.name, loaded)
    return model


def _load_gguf_tokenizer(source: Path) -> Any:
    from transformers import AutoTokenizer

    tokenizers: Any = AutoTokenizer
    with _explain_read_errors(source):
        return tokenizers.from_pretrained(source.parent, gguf_file=source.name)


@contextmanager
def _explain_read_errors(source: Path) -> Iterator[None]:
    """Explain whatever transformers raises on a file that it does not know."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # noqa: BLE001 its readers raise anything
        raise ModelError(f"transformers cannot read {source.name}: {error}") from None


def _is_small(model: Any) -> bool:
    return bool(sum(parameter.numel() for parameter in model.parameters()) <= _MAX_FLOAT32_PARAMETERS)


def _report_share_of_values(reader: Any, report: Callable[[str], None]) -> Callable[[int], None]:
    """Report every quarter of the values that is de-quantized."""
    total = sum(tensor.n_elements for tensor in reader.tensors)
    done = 0

    def count(values: int) -> None:
        nonlocal done
        before, done = 4 * done // total, done + values
        if 4 * done // total > before:
            report(f"de-quantized {100 * done // total} % of {total / 1e6:,.0f} million weights")

    return count


def read_gguf_tokenizer_metadata(reader: Any) -> dict[str, Any]:
    """Read the tokenizer metadata of an open GGUF file."""
    names = ("bos_token_id", "eos_token_id", "add_bos_token", "pre")
    metadata = {name: reader.fields.get(f"tokenizer.ggml.{name}") for name in names}
    return {name: field.contents() for name, field in metadata.items() if field is not None}


def _set_special_tokens(tokenizer: Any, metadata: dict[str, Any]) -> None:
    for kind in ("bos", "eos"):
        number = metadata.get(f"{kind}_token_id")
        if number is not None:
            setattr(tokenizer, f"{kind}_token", tokenizer.convert_ids_to_tokens(int(number)))
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.add_bos_token = bool(metadata.get("add_bos_token", False))
    backend = tokenizer.backend_tokenizer
    cut = build_pretokenizer(str(metadata.get("pre")))
    if cut is not None and identify_pretokenizer(json.loads(backend.to_str())) != metadata["pre"]:
        backend.pre_tokenizer = cut


def _clear_quantization_marks(model: Any) -> None:
    """Remove the marks of quantized weights: transformers would not save the model with them."""
    model.hf_quantizer = None
    model.is_quantized = False
    for name in ("quantization_method", "is_loaded_in_4bit", "is_loaded_in_8bit"):
        if name in model.__dict__:
            delattr(model, name)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
