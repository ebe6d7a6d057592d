"""Decide whether two texts ask the same question, which splits must not share.

Case, spaces and punctuation do not matter, calculations do. So the ends of numbers stay, and signs between numbers or
single letters: ``36 - 32`` differs from ``36 + 32``, and ``1 + 13`` from ``11 + 3``, but ``half-time`` equals ``half
time``.
"""

import re
from collections.abc import Sequence

_TOKENS = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+|[-+*/^=<>%×÷−·√]")


def normalize_question(text: str) -> str:
    """Normalize a question for comparison; in a text without letters all signs stay."""
    folded = text.casefold()
    if not re.search(r"[a-z]", folded):
        return re.sub(r"\s+", "", re.sub(r"(?<=\d)\s+(?=\d)", "_", folded))
    tokens = list(_TOKENS.finditer(folded))
    parts: list[str] = []
    for index, token in enumerate(tokens):
        before = tokens[index - 1].group() if index else ""
        if _is_number(token.group()):
            parts.append(("_" if _is_number(before) else "") + token.group().replace(",", ""))
        elif token.group().isalpha() or _is_arithmetic_sign(token, before, tokens[index + 1 : index + 2]):
            parts.append(token.group())
    return "".join(parts)


def _is_arithmetic_sign(sign: re.Match[str], before: str, after: Sequence[re.Match[str]]) -> bool:
    """Whether a sign belongs to a calculation and does not join words."""
    if sign.group() == "%":
        return _is_number(before)
    if not after:
        return False
    operand = after[0]
    touches = operand.start() == sign.end() and not sign.string[: sign.start()][-1:].isalnum()
    is_negative = sign.group() in "-−" and touches and _is_number(operand.group())
    return sign.group() == "√" or is_negative or (_is_operand(before) and _is_operand(operand.group()))


def _is_number(token: str) -> bool:
    return token[:1].isdigit()


def _is_operand(token: str) -> bool:
    return _is_number(token) or (len(token) == 1 and token.isalpha())
