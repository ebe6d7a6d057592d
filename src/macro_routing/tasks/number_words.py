"""Numbers in words: "twelve" → 12, "two hundred and five" → 205."""

import re

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
