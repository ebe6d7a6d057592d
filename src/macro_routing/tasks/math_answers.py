"""Compare mathematical expressions with math-verify, if it can decide quickly.

Its own time limit uses signals, which work in the main thread only, so it is switched off. Expressions that could take
long (nested powers, deep nesting, long texts) are rejected before.
"""

import logging
import math
import re
from itertools import accumulate
from typing import Any

from macro_routing.errors import SettingsError
from macro_routing.tasks.answer_extraction import (
    clean_generated_answer,
    extract_first_answer_sentence,
    extract_texts_after_is,
    find_answer_statements,
    list_sentences_last_first,
)
from macro_routing.tasks.numbers import find_numbers

_MAX_LENGTH, _MAX_DEPTH, _MAX_FUNCTIONS, _MAX_TERMS, _MAX_SYMBOLS, _MAX_FRACTIONS = 250, 6, 6, 400, 6, 8
_MAX_POWER, _MAX_SYMBOL_POWER = 10_000, 100
_INLINE = re.compile(r"\\\((.+?)\\\)|\\\[(.+?)\\\]|\$+([^$]+)\$+", re.DOTALL)
_REMARK = re.compile(r"\b(?:because|since|as|when|which|where)\b.*|,\s+(?:not|and|so)\b.*", re.DOTALL)
_NUMBER = re.compile(r"\s*-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?\s*|\s*-?\\[dt]?frac\{\d+\}\{\d+\}\s*|\s*-?\d+/\d+\s*")
_FUNCTION = re.compile(r"\\(?:a?r?c?(?:sin|cos|tan|cot|sec|csc)|log|ln|exp)\b")
_HUGE = re.compile(
    r"\\(?:sum|prod|int|iint|oint|lim)\b"  # an unevaluated expression is not an answer
    r"|\d{60}|\\[dt]?binom\s*\{?\d{4}|\d{3,}\s*[)}]*\s*!|[!)}]\s*!"
    r"|(?:\^|\*\*)\s*[({]*\s*-?[\d.]+\s*[)}]*\s*(?:\^|\*\*)"  # a tower
)
_EXPONENT = re.compile(r"(?P<base>[)}\]]?)\s*(?:\^|\*\*)\s*[{(]*\s*-?(?P<power>\d+)")


def extract_math_answer(text: str) -> str:
    """Extract the expression that an answer states: boxed, after "the answer is", or in the last sentence."""
    response = clean_generated_answer(text)
    for part in find_answer_statements(response):
        line = extract_first_answer_sentence(part)
        if line.strip(" ."):
            inline = _find_inline_math(line)
            return _unwrap_boxed_expression(inline[0] if inline else _REMARK.sub("", line))
    line = next(iter(list_sentences_last_first(response)), "")
    last = (_find_inline_math(line) or extract_texts_after_is(line) or [line])[-1]
    return _unwrap_boxed_expression(last)


def _find_inline_math(line: str) -> list[str]:
    return [next(filter(None, match.groups())) for match in _INLINE.finditer(line)]


def _unwrap_boxed_expression(expression: str) -> str:
    bare = expression.strip().rstrip(".").strip()
    return re.sub(r"^\\boxed\{(.*)\}$", r"\1", bare)


def extract_value_after_box(text: str, stated: str) -> str:
    r"""Extract the last side of an equation after the box, ``\boxed{10/2} = 5``; empty if there is none."""
    after = clean_generated_answer(text).rpartition(f"\\boxed{{{stated}}}")[2].splitlines()[:1]
    match = re.match(r"\s*=(.*)", after[0]) if after else None
    sides = [side.strip(" .$\\)]") for side in match[1].split("=")] if match else []
    last = sides[-1] if sides else ""
    surplus = last.count("}") - last.count("{")
    return last[:-surplus] if surplus > 0 and last.endswith("}" * surplus) else last


def is_same_math(stated: str, answer: str) -> bool:
    """Whether ``stated`` has the value of ``answer``; False if deciding would take long."""
    if not stated:
        return False
    if re.sub(r"\s", "", stated) == re.sub(r"\s", "", answer):
        return True
    if _NUMBER.fullmatch(stated) and _NUMBER.fullmatch(answer):
        return find_numbers(stated) == find_numbers(answer)
    if not (is_expression_cheap_to_verify(stated) and is_expression_cheap_to_verify(answer)):
        return False
    parse, verify = _import_math_verify()
    gold = parse(f"\\boxed{{{answer}}}", parsing_timeout=None)
    parsed: list[Any] = parse(f"\\boxed{{{stated}}}", parsing_timeout=None)
    return bool(parsed) and bool(verify(gold, parsed, timeout_seconds=None))


def is_expression_cheap_to_verify(expression: str) -> bool:
    """Whether math-verify can decide an expression in about a second: short, flat, low powers."""
    if len(expression) > _MAX_LENGTH or _compute_max_bracket_depth(expression) > _MAX_DEPTH:
        return False
    functions = len(_FUNCTION.findall(expression)) + expression.count("|") // 2
    return functions <= _MAX_FUNCTIONS and _HUGE.search(expression) is None and _is_math_expression_cheap(expression)


def _is_math_expression_cheap(expression: str) -> bool:
    """Limit the digits of numeric powers and the terms of expanded symbolic expressions."""
    powers = [(match["base"] != "", int(match["power"][:6]) or 1) for match in _EXPONENT.finditer(expression)]
    total_power = math.prod(power for _, power in powers)
    symbols = set(re.findall(r"(?<![\\a-zA-Z])[a-zA-Z]|(?<=[\W\d])[a-zA-Z](?![a-zA-Z])", expression))
    if not symbols:
        return total_power <= _MAX_POWER
    if len(symbols) > _MAX_SYMBOLS or expression.count("frac") > _MAX_FRACTIONS:
        return False
    sum_power = math.prod(power for is_of_sum, power in powers if is_of_sum)
    highest = max((power for _, power in powers), default=1)
    terms = math.comb(min(sum_power, 1000) + len(symbols), len(symbols))
    return highest <= _MAX_SYMBOL_POWER and (sum_power == 1 or terms <= _MAX_TERMS)


def _compute_max_bracket_depth(expression: str) -> int:
    changes = ((sign in "({[") - (sign in ")}]") for sign in expression)
    return max(accumulate(changes, initial=0))


def _import_math_verify() -> tuple[Any, Any]:
    try:
        from math_verify import parse, verify
    except ImportError:
        raise SettingsError("grading MATH answers needs math-verify: pip install '.[eval]' in the checkout") from None
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its time limit is off, which is intended
    return parse, verify
