"""Pre-tokenizers of byte-level BPE tokenizers, by their names in GGUF files.

A wrong pre-tokenizer splits numbers differently, so the model gets token sequences it was not trained on.
"""

from typing import Any

_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2, _LLAMA3 = _SPLIT.replace("DIGITS", r"\p{N}"), _SPLIT.replace("DIGITS", r"\p{N}{1,3}")
_PRETOKENIZERS: dict[str, tuple[tuple[str, Any], ...]] = {
    "gpt-2": (("ByteLevel", True),),
    "smollm": (("Digits", True), ("ByteLevel", True)),
    "qwen2": (("Split", _QWEN2), ("ByteLevel", False)),
    "llama-bpe": (("Split", _LLAMA3), ("ByteLevel", False)),
}


def identify_pretokenizer(stored: dict[str, Any]) -> str | None:
    """The GGUF name of the pre-tokenizer in a tokenizer.json; None if it is unknown."""
    first = stored.get("pre_tokenizer") or {}
    parts = tuple(_parse_pretokenizer_part(part) for part in first.get("pretokenizers", [first]))
    return next((name for name, known in _PRETOKENIZERS.items() if known == parts), None)


def build_pretokenizer(name: str) -> Any:
    """Build the pre-tokenizer of that name; None if the name is unknown."""
    from tokenizers import pre_tokenizers

    known = _PRETOKENIZERS.get(name)
    return (
        None
        if known is None
        else pre_tokenizers.Sequence([_build_pretokenizer_part(kind, detail) for kind, detail in known])
    )


def _build_pretokenizer_part(kind: str, detail: Any) -> Any:
    from tokenizers import Regex, pre_tokenizers

    if kind == "ByteLevel":
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=detail)
    if kind == "Split":
        return pre_tokenizers.Split(Regex(detail), "isolated")
    return pre_tokenizers.Digits(individual_digits=detail)


def _parse_pretokenizer_part(part: dict[str, Any]) -> tuple[Any, Any]:
    kind = part.get("type")
    if kind == "ByteLevel":
        return kind, None if part.get("add_prefix_space") else part.get("use_regex", True)
    if kind == "Split":
        plain = part.get("behavior") == "Isolated" and not part.get("invert")
        return kind, part.get("pattern", {}).get("Regex") if plain else None
    return kind, part.get("individual_digits")
