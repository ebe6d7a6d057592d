"""Who a model is: ``weights_id`` for what it knows, ``numerics_id`` for how it computes.

``weights_id`` covers architecture, shape, vocabulary and the source files, and is the same in whatever dtype the
weights are loaded. ``numerics_id`` adds what can change a result: dtype, quantisation, attention kernel, device type,
engine versions.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from macro_routing.models.catalog import cache_folder, file_digest
from macro_routing.models.gguf_file import SOURCE_FILE
from macro_routing.models.support import text_config

_SHAPE = (
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "layer_types",
    "sliding_window",
    "num_experts",
    "num_local_experts",
    "num_experts_per_tok",
    "tie_word_embeddings",
)


def weights_id(config: Any, tokenizer: Any, sources: dict[str, str]) -> str:
    """Identity of architecture, shape, vocabulary and source files (name → digest)."""
    text = text_config(config)
    return _digest(
        {
            "architecture": text.model_type,
            "shape": {name: getattr(text, name, None) for name in _SHAPE},
            "vocabulary": vocabulary_digest(tokenizer),
            "sources": sources,
        }
    )


def numerics_id(weights: str, model: Any, quantization: str | None) -> str:
    """Identity of everything that decides the exact numbers that come out."""
    import torch
    import transformers

    return _digest(
        {
            "weights": weights,
            "dtype": str(model.dtype),
            "quantization": quantization,
            "attention": model.config._attn_implementation,  # noqa: SLF001 transformers has no public name for it
            "device": model.device.type,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }
    )


def source_digests(folder: Path) -> dict[str, str]:
    """Digests of the files that hold a model's weights; a converted model is known by the file it was made from."""
    record = folder / SOURCE_FILE
    if record.is_file():
        source = json.loads(record.read_text(encoding="utf-8"))
        return {"gguf": source["sha256"], "stored": source["stored"]}
    return {path.name: _known_digest(path) for path in sorted(folder.glob("*.safetensors"))}


def tensor_digests(model: Any) -> dict[str, str]:
    """Digests of the weights of a model that came from no file, independent of the dtype they are in."""
    import torch

    return {
        name: hashlib.sha256(value.detach().to("cpu", torch.float32).numpy().tobytes()).hexdigest()
        for name, value in sorted(model.state_dict().items())
        if isinstance(value, torch.Tensor)
    }


def vocabulary_digest(tokenizer: Any) -> str | None:
    """Digest of the vocabulary itself, whatever file format and library version it was read with."""
    return None if tokenizer is None else _digest(sorted(tokenizer.get_vocab().items()))


def _known_digest(path: Path) -> str:
    """A file's digest, remembered by place, size and time of change, since weights are large and seldom change."""
    real = path.resolve()
    if re.fullmatch(r"[0-9a-f]{64}", real.name):  # the hub's cache names a file by its own digest
        return real.name
    facts = real.stat()
    memory = cache_folder() / "digests" / _digest([str(real), facts.st_size, facts.st_mtime_ns])
    if memory.is_file():
        return memory.read_text(encoding="utf-8")
    digest = file_digest(real)
    try:
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_text(digest, encoding="utf-8")
    except OSError:  # a read-only cache only costs the time to hash again
        pass
    return digest


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:32]
