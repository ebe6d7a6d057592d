"""Convert a GGUF file to a folder of safetensors with a correct tokenizer.

transformers reads GGUF, but its tokenizer ignores what the file says about special tokens: for SmolLM2 it has a wrong
end of sequence and does not split numbers into digits, for Gemma it adds no beginning of sequence. The conversion
follows the file's own metadata.
"""

import json
from pathlib import Path
from typing import Any

from macro_routing.errors import ModelError
from macro_routing.files import digest_file
from macro_routing.models.pretokenizers import build_pretokenizer, identify_pretokenizer
from macro_routing.models.support import check_model_can_be_routed, check_weights_complete

CONVERSION_RECORD = "macro_source.json"
_MAX_FLOAT32_PARAMETERS = 500_000_000
"""Up to this number of parameters the exact values are stored as float32; larger models as bfloat16."""


def dequantize_gguf_to_checkpoint(source: Path, folder: Path, digest: str) -> None:
    """De-quantize ``source`` into ``folder``; ``digest`` is its SHA-256, which identifies the model."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    metadata = read_gguf_tokenizer_metadata(source)
    try:
        check_model_can_be_routed(AutoConfig.from_pretrained(source.parent, gguf_file=source.name), allow_untested=True)
        loader: Any = AutoModelForCausalLM
        model, loaded = loader.from_pretrained(
            source.parent, gguf_file=source.name, dtype=torch.float32, output_loading_info=True
        )
        tokenizer: Any = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    except ModelError:
        raise
    except Exception as error:  # noqa: BLE001 the readers below raise anything on files they do not know
        raise ModelError(f"transformers cannot read {source.name}: {error}") from None
    check_weights_complete(source.name, loaded)
    _set_special_tokens(tokenizer, metadata)
    _clear_quantization_marks(model)
    small = sum(parameter.numel() for parameter in model.parameters()) <= _MAX_FLOAT32_PARAMETERS
    if not small:
        model = model.to(torch.bfloat16)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    weights = {path.name: digest_file(path) for path in sorted(folder.glob("*.safetensors"))}
    record = {"file": source.name, "sha256": digest, "stored": "float32" if small else "bfloat16", "weights": weights}
    (folder / CONVERSION_RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def read_gguf_tokenizer_metadata(source: Path) -> dict[str, Any]:
    """Read the tokenizer metadata of a GGUF file."""
    import gguf

    try:
        fields = gguf.GGUFReader(source).fields
    except (ValueError, OSError, IndexError, KeyError) as error:
        raise ModelError(f"{source} is not a valid GGUF file: {error}") from None
    names = ("bos_token_id", "eos_token_id", "add_bos_token", "pre")
    metadata = {name: fields.get(f"tokenizer.ggml.{name}") for name in names}
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
