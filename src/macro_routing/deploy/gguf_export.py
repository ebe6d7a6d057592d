"""``--format gguf``: one file for llama.cpp and programs based on it, with one block per step.

GGUF cannot share weights between blocks, so the file grows with the length of the route.
"""

import importlib.util
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from macro_routing.deploy.checkpoint_tensors import StoredTensor, list_copyable_tensors, unroll_tensors
from macro_routing.deploy.export_common import open_export_output, reject_unexportable
from macro_routing.errors import ExportError
from macro_routing.models.frozen import ModelMetadata, load_tokenizer
from macro_routing.models.load_options import LoadOptions
from macro_routing.models.pretokenizers import identify_pretokenizer
from macro_routing.routes.route import Route
from macro_routing.routes.route_file import RouteFile

ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
"""``model_type`` in transformers → architecture in llama.cpp."""


def write_gguf(base: ModelMetadata, route: Route, evidence: RouteFile | None, out: Path) -> None:
    """Write the model with its blocks in the route's order, in the precision its weights are stored in."""
    reject_unexportable(base, route, "gguf")
    _reject_models_unsupported_by_gguf(base)
    if importlib.util.find_spec("gguf") is None:
        raise ExportError("gguf is not installed; --format gguf needs it: pip install '.[models]' in the checkout")
    blocks = list(_list_tensors_to_export(base, route))
    tokenizer = load_tokenizer(base.folder, base.name, LoadOptions())
    with open_export_output(out, sum(block.size_bytes for block in blocks)) as path:
        writer = _write_gguf_metadata(base, route, evidence, path)
        _write_tokenizer_to_gguf(writer, tokenizer, base.config.vocab_size)
        _write_tensors(writer, blocks, base.config)


def _reject_models_unsupported_by_gguf(base: ModelMetadata) -> None:
    config = base.config
    rope = _get_rope_parameters(config)["rope_type"]
    reasons = {
        f"{config.model_type} is not among {', '.join(ARCHITECTURES)}": config.model_type not in ARCHITECTURES,
        "some of its layers use sliding-window attention": "sliding_attention"
        in (getattr(config, "layer_types", None) or [])
        or (config.model_type == "mistral" and config.sliding_window),
        f"its rotary scaling ({rope}) is not supported": rope not in {"default", "llama3"}
        or (rope == "llama3" and ARCHITECTURES.get(config.model_type) != "llama"),
    }
    for reason, applies in reasons.items():
        if applies:
            raise ExportError(
                f"{base.name} cannot be written by --format gguf: {reason};"
                " use --format hf, and llama.cpp's own converter on the result"
            )


# --- metadata ---------------------------------------------------------------------------


def _write_gguf_metadata(base: ModelMetadata, route: Route, evidence: RouteFile | None, path: Path) -> Any:
    import gguf

    config = base.config
    writer = gguf.GGUFWriter(path, ARCHITECTURES[config.model_type])
    fields = {
        "name": f"{Path(base.name).name} on the route {route}"[:200],
        "block_count": route.length,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "head_count": config.num_attention_heads,
        "head_count_kv": config.num_key_value_heads,
        "key_length": _get_head_size(config),
        "value_length": _get_head_size(config),
        "layer_norm_rms_eps": config.rms_norm_eps,
        "rope_freq_base": _get_rope_parameters(config)["rope_theta"],
        "rope_dimension_count": _get_head_size(config),
        "vocab_size": config.vocab_size,
    }
    for field, value in fields.items():
        getattr(writer, f"add_{field}")(value)
    writer.add_string("macro.route", str(route))
    writer.add_string("macro.weights_id", base.weights_id)
    if evidence is not None:
        writer.add_string("macro.route_file", evidence.to_json())
    return writer


def _get_head_size(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _get_rope_parameters(config: Any) -> dict[str, Any]:
    return {"rope_type": "default", **(getattr(config, "rope_parameters", None) or {})}


# --- tokenizer ----------------------------------------------------------------------------------------------------


def _write_tokenizer_to_gguf(writer: Any, tokenizer: Any, size: int) -> None:
    """Write the tokenizer's part of a GGUF file for an embedding with ``size`` rows."""
    stored = json.loads(tokenizer.backend_tokenizer.to_str())
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(get_llama_cpp_pretokenizer_name(stored))
    tokens, kinds = _list_vocabulary_tokens(tokenizer, size)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    merges = stored["model"]["merges"]
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    for name in ("bos", "eos", "pad"):
        if (token_id := getattr(tokenizer, f"{name}_token_id")) is not None:
            getattr(writer, f"add_{name}_token_id")(token_id)
    writer.add_add_bos_token(tokenizer("a").input_ids[0] == tokenizer.bos_token_id)
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)


def get_llama_cpp_pretokenizer_name(stored: dict[str, Any]) -> str:
    """llama.cpp's name of the pre-tokenizer; reject unknown ones, which would change the tokens."""
    model, name = stored.get("model", {}), identify_pretokenizer(stored)
    if model.get("type") != "BPE" or model.get("byte_fallback") or name is None:
        raise ExportError(
            "--format gguf writes byte-level BPE tokenizers with the pre-tokenizer of GPT-2, SmolLM, Qwen2 or Llama 3"
            " only; use --format hf, and llama.cpp's own converter on the result"
        )
    return name


def _list_vocabulary_tokens(tokenizer: Any, size: int) -> tuple[list[str], list[int]]:
    """List every token with its type; unused rows of the embedding get a name too."""
    from gguf import TokenType

    by_number = {number: token for token, number in tokenizer.get_vocab().items()}
    if max(by_number) >= size:
        raise ExportError(f"the tokenizer has token {max(by_number)}, but the model's vocabulary only {size} rows")
    tokens = [by_number.get(number, f"[PAD{number}]") for number in range(size)]
    kinds = [TokenType.NORMAL if number in by_number else TokenType.UNUSED for number in range(size)]
    for number, token in tokenizer.added_tokens_decoder.items():
        kinds[number] = TokenType.CONTROL if token.special else TokenType.USER_DEFINED
    return tokens, [int(kind) for kind in kinds]


# --- tensors ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _GgufTensor:
    """A tensor under llama.cpp's name."""

    name: str
    tensor: StoredTensor

    @property
    def gguf_dtype(self) -> str:
        """Vectors are always float32, as llama.cpp requires."""
        return "F32" if len(self.tensor.shape) == 1 else self.tensor.dtype

    @property
    def size_bytes(self) -> int:
        return math.prod(self.tensor.shape, start=4 if self.gguf_dtype == "F32" else 2)


def _list_tensors_to_export(base: ModelMetadata, route: Route) -> Iterator[_GgufTensor]:
    import gguf

    architecture = next(
        key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == ARCHITECTURES[base.config.model_type]
    )
    names = gguf.get_tensor_name_map(architecture, route.length)
    for tensor in unroll_tensors(list_copyable_tensors(base.folder), route):
        if tensor.name == "lm_head.weight" and base.config.tie_word_embeddings:
            continue
        name = names.get_name(tensor.name, try_suffixes=(".weight", ".bias"))
        if name is None:
            raise ExportError(f"{base.name} has a tensor {tensor.name}, which llama.cpp does not know; use --format hf")
        yield _GgufTensor(name, tensor)


def _write_tensors(writer: Any, blocks: list[_GgufTensor], config: Any) -> None:
    """Write the info of all tensors, then their data one by one, so that only one is in memory."""
    import gguf
    import numpy as np

    kinds = gguf.GGMLQuantizationType
    file_types = {"F32": "ALL_F32", "F16": "MOSTLY_F16", "BF16": "MOSTLY_BF16"}
    precision = max(blocks, key=lambda block: block.size_bytes).gguf_dtype
    writer.add_file_type(int(gguf.LlamaFileType[file_types[precision]]))
    rope_factors = _compute_llama3_rope_factors(config)
    for factors in rope_factors:
        writer.add_tensor_info("rope_freqs.weight", factors.shape, factors.dtype, factors.nbytes, kinds.F32)
    for block in blocks:
        writer.add_tensor_info(
            block.name, block.tensor.shape, np.dtype(np.float32), block.size_bytes, kinds[block.gguf_dtype]
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for data in (*rope_factors, *(_convert_tensor_for_gguf(block, config) for block in blocks)):
        writer.write_tensor_data(data)
    writer.close()


def _convert_tensor_for_gguf(block: _GgufTensor, config: Any) -> Any:
    import torch

    values = block.tensor.load()
    heads = {".attn_q.": config.num_attention_heads, ".attn_k.": config.num_key_value_heads}
    for part, count in heads.items():
        if part in block.name and ARCHITECTURES[config.model_type] == "llama":
            # llama.cpp rotates neighbours, transformers rotates the two halves of a head.
            halves = values.reshape(count, 2, values.shape[0] // count // 2, *values.shape[1:])
            values = halves.transpose(1, 2).reshape(values.shape)
    if block.gguf_dtype == "F32":
        return values.float().contiguous().numpy()
    # numpy has no bfloat16; the raw bits are written.
    return values.contiguous().view(torch.int16).numpy()


def _compute_llama3_rope_factors(config: Any) -> list[Any]:
    """The factors by which Llama 3 scales each rotary frequency; none for unscaled positions."""
    import numpy as np

    if _get_rope_parameters(config)["rope_type"] != "llama3":
        return []
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    size = _get_head_size(config)
    unscaled = _get_rope_parameters(config)["rope_theta"] ** -(np.arange(0, size, 2, dtype=np.float64) / size)
    return [(unscaled / scaled.double().numpy()).astype(np.float32)]
