"""One GGUF file → one folder of safetensors with a tokenizer that tells the truth.

transformers reads GGUF but its tokenizer forgets what the file says about special tokens: SmolLM2's reports a wrong
end of sequence and no longer cuts numbers into digits, Gemma's adds no beginning. The file's own metadata is the
authority here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from macro_routing.errors import ModelError
from macro_routing.models.digests import file_digest
from macro_routing.models.support import check_complete, check_supported
from macro_routing.models.text_cuts import cut_name, named_cut

SOURCE_FILE = "macro_source.json"
_FLOAT32_UP_TO = 500_000_000
"""Parameters up to which the exact de-quantised values are kept; larger models are stored as bfloat16."""


def convert(source: Path, folder: Path, digest: str) -> None:
    """De-quantise ``source`` into ``folder``; ``digest`` is its SHA-256, which stays the model's identity."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    metadata = read_metadata(source)
    try:
        config = AutoConfig.from_pretrained(source.parent, gguf_file=source.name)
    except Exception as error:  # noqa: BLE001 the readers below raise anything on files they do not know
        raise ModelError(f"transformers cannot read {source.name}: {error}") from None
    check_supported(config, allow_untested=True)
    try:
        loader: Any = AutoModelForCausalLM
        model, loaded = loader.from_pretrained(
            source.parent, gguf_file=source.name, dtype=torch.float32, output_loading_info=True
        )
        tokenizer: Any = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    except Exception as error:  # noqa: BLE001 the readers below raise anything on files they do not know
        raise ModelError(f"transformers cannot read {source.name}: {error}") from None
    check_complete(source.name, loaded)
    _mend_tokenizer(tokenizer, metadata)
    _forget_quantisation(model)
    small = sum(parameter.numel() for parameter in model.parameters()) <= _FLOAT32_UP_TO
    if not small:
        model = model.to(torch.bfloat16)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    weights = {path.name: file_digest(path) for path in sorted(folder.glob("*.safetensors"))}
    record = {"file": source.name, "sha256": digest, "stored": "float32" if small else "bfloat16", "weights": weights}
    (folder / SOURCE_FILE).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def read_metadata(source: Path) -> dict[str, Any]:
    """The tokenizer facts of a GGUF file."""
    import gguf

    try:
        fields = gguf.GGUFReader(source).fields
    except (ValueError, OSError, IndexError, KeyError) as error:
        raise ModelError(f"{source} is not a sound GGUF file: {error}") from None
    names = ("bos_token_id", "eos_token_id", "add_bos_token", "pre")
    found = {name: fields.get(f"tokenizer.ggml.{name}") for name in names}
    return {name: field.contents() for name, field in found.items() if field is not None}


def _mend_tokenizer(tokenizer: Any, metadata: dict[str, Any]) -> None:
    for kind in ("bos", "eos"):
        number = metadata.get(f"{kind}_token_id")
        if number is not None:
            setattr(tokenizer, f"{kind}_token", tokenizer.convert_ids_to_tokens(int(number)))
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.add_bos_token = bool(metadata.get("add_bos_token", False))
    backend = tokenizer.backend_tokenizer
    cut = named_cut(str(metadata.get("pre")))
    if cut is not None and cut_name(json.loads(backend.to_str())) != metadata["pre"]:
        backend.pre_tokenizer = cut


def _forget_quantisation(model: Any) -> None:
    """The weights are plain numbers now; transformers refuses to save them while these marks are left."""
    model.hf_quantizer = None
    model.is_quantized = False
    for name in ("quantization_method", "is_loaded_in_4bit", "is_loaded_in_8bit"):
        if name in model.__dict__:
            delattr(model, name)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
