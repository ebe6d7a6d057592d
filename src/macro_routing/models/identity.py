"""Identities of a model: ``weights_id`` of its weights, ``numerics_id`` of its computation.

``weights_id`` covers architecture, shape, vocabulary and the source files, and is the same in whatever dtype the
weights are loaded. ``numerics_id`` adds what can change a result: how text becomes tokens, dtype, quantisation,
attention kernel, device type, engine versions.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from macro_routing.errors import ModelError, shorten_value
from macro_routing.models.cache_folder import checksum_file_cached, digest_file_cached
from macro_routing.models.gguf_import import CONVERSION_RECORD
from macro_routing.models.support import get_text_config

_INCIDENTAL_FIELDS = (
    "_name_or_path",
    "architectures",
    "auto_map",
    "dtype",
    "quantization_config",
    "torch_dtype",
    "transformers_version",
    "use_cache",
)
"""Fields of a configuration about files, versions and loading, not about the model."""

_TOKENIZER_PROBE = (
    "In  1987, it's 12,345.60 kg + 7×3 = 21;\n\n\tSHE'LL  pay €5.f(x); \n   3 – naïve 東京 x_1 <|im_end|>"
)
"""A text that tokenizers with the same vocabulary split differently: digits, spaces, capitals, special tokens."""


def compute_weights_id(config: Any, tokenizer: Any, sources: Mapping[str, Any]) -> str:
    """Compute the identity of architecture, vocabulary and source files."""
    text = get_text_config(config)
    return _digest_json(
        {
            "architecture": text.model_type,
            "layers": text.num_hidden_layers,
            # Independent of file format and library version.
            "vocabulary": None if tokenizer is None else _digest_json(sorted(tokenizer.get_vocab().items())),
            "sources": dict(sources),
        }
    )


def compute_numerics_id(weights: str, model: Any, tokenizer: Any, quantization: str | None) -> str:
    """Compute the identity of everything that affects the exact results."""
    import torch
    import transformers

    return _digest_json(
        {
            "weights": weights,
            "reading": None if tokenizer is None else tokenizer(_TOKENIZER_PROBE)["input_ids"],
            "dtype": str(model.dtype),
            "quantization": quantization,
            "attention": model.config._attn_implementation,  # noqa: SLF001 transformers has no public name for it
            "device": model.device.type,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }
    )


def digest_model_files(folder: Path) -> dict[str, Any]:
    """Digest weight files and configuration; a converted model is identified by its GGUF file."""
    files = sorted(folder.glob("*.safetensors"))
    _reject_undigested_indexed_files(folder, {path.name for path in files})
    record = _read_gguf_conversion_record(folder / CONVERSION_RECORD)
    if record is not None and record["checksums"] == {path.name: checksum_file_cached(path) for path in files}:
        return {"gguf": record["sha256"], "stored": record["stored"]}
    weights = {path.name: digest_file_cached(path) for path in files}
    configuration = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return {"weights": weights, "configuration": _drop_incidental_fields(configuration)}


def _reject_undigested_indexed_files(folder: Path, digested: Collection[str]) -> None:
    """Reject an index that names files that the identity does not cover."""
    for path in sorted(folder.glob("*.safetensors.index.json")):
        try:
            listed = set(json.loads(path.read_text(encoding="utf-8"))["weight_map"].values())
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise ModelError(f"{path} is damaged ({error}); fetch or convert the model again") from None
        if missing := sorted(str(name) for name in listed.difference(digested)):
            raise ModelError(
                f"{path} names {shorten_value(missing[0])}, which is not in that folder; download the model again"
            )


def _read_gguf_conversion_record(path: Path) -> dict[str, Any] | None:
    """Read the record of a conversion; None if it is missing or invalid."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return record if isinstance(record, dict) and {"sha256", "stored", "checksums"} <= set(record) else None
    except (OSError, ValueError):
        return None


def digest_loaded_weights(model: Any) -> dict[str, Any]:
    """Digest the weights of a model in memory, in float32 whatever their dtype, and its configuration."""
    import torch

    weights = {
        name: hashlib.sha256(value.detach().to("cpu", torch.float32).numpy().tobytes()).hexdigest()
        for name, value in sorted(model.state_dict().items())
        if isinstance(value, torch.Tensor)
    }
    return {"weights": weights, "configuration": _drop_incidental_fields(model.config.to_dict())}


def _drop_incidental_fields(configuration: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _drop_incidental_fields(value) if isinstance(value, Mapping) else value
        for name, value in configuration.items()
        if name not in _INCIDENTAL_FIELDS
    }


def _digest_json(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:32]
