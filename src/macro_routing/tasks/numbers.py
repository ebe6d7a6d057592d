"""Parse numbers in text: signs, thousands separators, decimals, fractions, percent, currency, units, words."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_NUMBER = re.compile(
    rf"""
    (?<![\w.])(?<!\d[:,])                      # not inside a word, a time or another number
    (?P<sign>[-−+])?\s?[$€£]?\s?(?P<sign2>[-−])?
    (?:
        (?P<whole>\d+)\s+(?P<mixed_top>\d+)/(?P<mixed_bottom>\d+)      # 1 1/2
      | (?P<top>{_DIGITS})\s?/\s?(?P<bottom>{_DIGITS})(?!\s?/)          # 3/4
      | \\[dt]?frac\{{(?P<latex_top>-?\d+)\}}\{{(?P<latex_bottom>\d+)\}}
      | (?P<plain>{_DIGITS}(?:\.\d+)?|\.\d+)(?:[eE](?P<exponent>[-+]?\d{{1,3}}))?
    )
    (?!\d|:\d|[xyz](?!\w)|,\d)               # all of its digits; not the hour of a time, nor 2x
    (?P<percent>\s?%)?
    """,
    re.VERBOSE,
)
_MAX_NUMBER_LENGTH = 60
"""Largest number of characters of a number."""


@dataclass(frozen=True)
class NumberInText:
    """A number in a text."""

    value: Fraction
    start: int
    end: int
    is_percentage: bool


def find_numbers(text: str) -> list[Fraction]:
    """Find all numbers of a text, in order, as exact fractions."""
    return [number.value for number in locate_numbers(normalize_numbers(text))]


def locate_numbers(text: str) -> list[NumberInText]:
    """Find the numbers of a normalized text, with their positions."""
    numbers = []
    for match in _NUMBER.finditer(text):
        if len(match[0]) > _MAX_NUMBER_LENGTH:  # a model in a loop; no answer is so long
            continue
        value = _parse_matched_number(match)
        if value is not None:
            signed = -value if _is_minus_a_sign(text, match) else value
            numbers.append(NumberInText(signed, match.start(), match.end(), match["percent"] is not None))
    return numbers


_FRACTIONS = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅛": "1/8"}
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}


def _evaluate_exponentiation(match: re.Match[str]) -> str:
    value = int(match[1]) ** int(match[2])
    return str(value) if value < 10**40 else match[0]


def _scale_word_to_exponent(match: re.Match[str]) -> str:
    return f"{match[1]}e{_SCALES[match[2].lower()]}"


_REWRITES: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(r"\\!|\\,"), ""),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\([$%])"), r"\1"),
    (re.compile("–"), "-"),
    (re.compile(r"\b(?:minus|negative)\s+(?=[$\d])", re.IGNORECASE), "-"),
    (re.compile(r"\b(?:USD|EUR|GBP|INR|Rs\.?)\s*(?=\d)"), "$"),
    (re.compile(r"(\d)\s*\\[dt]?frac\{(\d{1,9})\}\{(\d{1,9})\}"), r"\1 \2/\3"),
    (re.compile(r"\\[dt]?frac\s*(\d)\s*(\d)"), r"\1/\2"),
    (re.compile(r"(\d)\s*(?:×|x|\*|\\times)\s*10\^\{?(-?\d{1,2})\}?(?!\d)"), r"\1e\2"),
    (re.compile(r"(?<![\w.^])(\d{1,6})\^\{?(\d{1,2})\}?(?!\d)"), _evaluate_exponentiation),
    (re.compile(r"(\d)\s+(thousand|million|billion|trillion)\b", re.IGNORECASE), _scale_word_to_exponent),
    (re.compile(r"(\d)\s*(?:percent|per cent|pct)\b", re.IGNORECASE), r"\1%"),
]
"""Rewrites of notations that the pattern above does not match."""


def normalize_numbers(text: str) -> str:
    """Rewrite the numbers of a text in plain notation."""
    for sign, fraction in _FRACTIONS.items():
        text = re.sub(rf"(?<=\d)\s?{sign}", f" {fraction}", text).replace(sign, fraction)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    return text


def _is_minus_a_sign(text: str, match: re.Match[str]) -> bool:
    """Whether a minus is a sign; after another number it is a subtraction ("5-3" contains 5 and 3)."""
    if match["sign2"]:
        return True
    if match["sign"] not in ("-", "−"):
        return False
    if match[0][1:2] == " " and text[: match.start()].endswith("\n"):
        return False  # a list's bullet
    before = text[: match.start()].rstrip()
    return not (before and (before[-1].isdigit() or before[-1] in ")%"))


def _parse_matched_number(match: re.Match[str]) -> Fraction | None:
    def match_group_to_int(name: str) -> int:
        return int(match[name].replace(",", ""))

    for top, bottom in (("top", "bottom"), ("latex_top", "latex_bottom"), ("mixed_top", "mixed_bottom")):
        if match[top] is not None:
            if match_group_to_int(bottom) == 0:
                return None
            extra = match_group_to_int("whole") if top == "mixed_top" else 0
            return extra + Fraction(match_group_to_int(top), match_group_to_int(bottom))
    exponent = int(match["exponent"] or 0)
    return Fraction(match["plain"].replace(",", "")) * Fraction(10) ** exponent


def is_same_number(number: Fraction, answer: str, *, percent: bool = False) -> bool:
    """Whether ``number`` is the number that ``answer`` writes.

    Integers must match exactly. An answer with decimals was rounded, so a more precise value that rounds to it is the
    same; long decimals may differ by a millionth. A percentage may stand for its hundredth.
    """
    gold = find_numbers(answer)[0]
    candidates = [number, number / 100] if percent and "%" not in answer else [number]
    return any(_is_equal_or_rounds_to(value, gold, answer) for value in candidates)


def _is_equal_or_rounds_to(value: Fraction, gold: Fraction, answer: str) -> bool:
    if value == gold or gold.denominator == 1:
        return value == gold
    if abs(value - gold) <= abs(gold) / 10**6:
        return True
    decimals = re.search(r"\.(\d+)", answer)
    # A value that rounds to the answer is correct; a coarser one (4.3 for 4.33) is not.
    return decimals is not None and abs(value - gold) <= Fraction(1, 2) * Fraction(1, 10 ** len(decimals[1]))


# --- numbers in words: "twelve" → 12, "two hundred and five" → 205 ----------------------------------------------

# fmt: off
_ONES = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]
_TENS = [
    "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
]
# fmt: on
_VALUES = {word: value for value, word in enumerate(_ONES)} | {word: 10 * n for n, word in enumerate(_TENS, start=2)}
_FACTORS = {"hundred": 100, "thousand": 1000}
_WORD = "|".join(sorted([*_VALUES, *_FACTORS], key=len, reverse=True))
_PHRASE = re.compile(
    # "the one who", "each one" and "one of" count nothing
    rf"(?<![\w-])(?<!the )(?<!this )(?<!that )(?<!each )(?<!every )(?<!which )"
    rf"(?!one\s+of\b)(?:{_WORD})(?:(?:[\s-]|\s+and\s+){{1,2}}(?:{_WORD}))*(?![\w-])",
    re.IGNORECASE,
)


def words_to_digits(text: str) -> str:
    """Replace number words by digits; phrases that are not a number ("five six") stay."""
    return _PHRASE.sub(lambda match: _phrase_to_digits(match[0]), text)


def _phrase_to_digits(phrase: str) -> str:
    total, current, limit = 0, 0, 100  # limit: what may still be added, ones after tens, both after hundred
    for word in re.findall(_WORD, phrase.lower()):
        if word in _FACTORS:
            current, limit = max(current, 1) * _FACTORS[word], 100
        elif _VALUES[word] < limit:
            current, limit = current + _VALUES[word], 10 if _VALUES[word] >= 20 else 0
        else:
            return phrase
        if word == "thousand":
            total, current = total + current, 0
    return str(total + current)
