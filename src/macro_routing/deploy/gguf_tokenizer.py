"""Write a byte-level BPE tokenizer to GGUF: tokens, types, merges, special tokens, pre-tokenizer."""

import json
from typing import Any

from macro_routing.errors import ExportError
from macro_routing.models.pretokenizers import identify_pretokenizer


def write_tokenizer(writer: Any, tokenizer: Any, size: int) -> None:
    """Write the tokenizer's part of a GGUF file for an embedding with ``size`` rows."""
    stored = json.loads(tokenizer.backend_tokenizer.to_str())
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(require_known_pretokenizer(stored))
    tokens, kinds = _list_tokens(tokenizer, size)
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


def require_known_pretokenizer(stored: dict[str, Any]) -> str:
    """llama.cpp's name of the pre-tokenizer; reject unknown ones, which would change the tokens."""
    model, name = stored.get("model", {}), identify_pretokenizer(stored)
    if model.get("type") != "BPE" or model.get("byte_fallback") or name is None:
        raise ExportError(
            "--to gguf writes byte-level BPE tokenizers with the pre-tokenizer of GPT-2, SmolLM, Qwen2 or Llama 3 only;"
            " use --to hf, and llama.cpp's own converter on the result"
        )
    return name


def _list_tokens(tokenizer: Any, size: int) -> tuple[list[str], list[int]]:
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
