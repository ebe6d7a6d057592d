"""Numbers in a model's words: signs, thousands separators, decimals, fractions, percent, currency, units behind."""

from __future__ import annotations

import re
from fractions import Fraction

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_NUMBER = re.compile(
    rf"""
    (?<![\w.])                                # not inside a word or another number
    (?P<sign>[-−+])?\s?[$€£]?\s?(?P<sign2>[-−])?
    (?:
        (?P<whole>\d+)\s+(?P<mixed_top>\d+)/(?P<mixed_bottom>\d+)      # 1 1/2
      | (?P<top>{_DIGITS})\s?/\s?(?P<bottom>{_DIGITS})(?!\s?/)          # 3/4
      | \\[dt]?frac\{{(?P<latex_top>-?\d+)\}}\{{(?P<latex_bottom>\d+)\}}
      | (?P<plain>{_DIGITS}(?:\.\d+)?|\.\d+)(?:[eE](?P<exponent>[-+]?\d{{1,3}}))?
    )
    (?!:\d)                                   # not the hour of a time
    """,
    re.VERBOSE,
)


_LONGEST = 60
"""Characters of a number that is still one."""


def find_numbers(text: str) -> list[Fraction]:
    """All numbers of a text, in order, as exact fractions."""
    found = []
    text = text.replace("\\!", "").replace("{,}", ",").replace("–", "-")
    for match in _NUMBER.finditer(text):
        if len(match[0]) > _LONGEST:  # a model in a loop; no answer is that long
            continue
        value = _value(match)
        if value is not None:
            found.append(-value if _is_negative(text, match) else value)
    return found


def _is_negative(text: str, match: re.Match[str]) -> bool:
    """A minus after another number is a subtraction, not a sign ("5-3" holds 5 and 3)."""
    if match["sign2"]:
        return True
    if match["sign"] not in ("-", "−"):
        return False
    before = text[: match.start()].rstrip()
    return not (before and (before[-1].isdigit() or before[-1] in ")%"))


def _value(match: re.Match[str]) -> Fraction | None:
    def whole(name: str) -> int:
        return int(match[name].replace(",", ""))

    for top, bottom in (("top", "bottom"), ("latex_top", "latex_bottom"), ("mixed_top", "mixed_bottom")):
        if match[top] is not None:
            if whole(bottom) == 0:
                return None
            extra = whole("whole") if top == "mixed_top" else 0
            return extra + Fraction(whole(top), whole(bottom))
    exponent = int(match["exponent"] or 0)
    return Fraction(match["plain"].replace(",", "")) * Fraction(10) ** exponent


def same_number(found: Fraction, answer: str, *, percent: bool = False) -> bool:
    """Whether ``found`` is the number that ``answer`` writes.

    Whole numbers must be met exactly. An answer written with decimals was rounded there, so a more precise value that
    rounds to it is the same, and very long decimals are met by a millionth. A percentage may be meant as its hundredth.
    """
    gold = find_numbers(answer)[0]
    candidates = [found, found / 100] if percent and "%" not in answer else [found]
    return any(_equal(value, gold, answer) for value in candidates)


def _equal(value: Fraction, gold: Fraction, answer: str) -> bool:
    if value == gold or gold.denominator == 1:
        return value == gold
    if abs(value - gold) <= abs(gold) / 10**6:
        return True
    decimals = re.search(r"\.(\d+)", answer)
    # A rounded answer is met by what rounds to it, but a coarser one (4.3 for 4.33) is not.
    return decimals is not None and abs(value - gold) <= Fraction(1, 2) * Fraction(1, 10 ** len(decimals[1]))
