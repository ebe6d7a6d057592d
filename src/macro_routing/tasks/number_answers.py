"""Which number an answer comes to, read as a fair examiner would: hedges, ranges and lists are no answer."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise

from macro_routing.tasks.answer_extraction import (
    extract_first_sentence,
    find_answer_statements,
    list_concluding_sentences,
    strip_reasoning,
)
from macro_routing.tasks.number_words import words_to_digits
from macro_routing.tasks.numbers import Number, locate_numbers, normalize_numbers

_LATEX_REWRITES: list[tuple[re.Pattern[str], str]] = [
    (re.compile(r"\\(?:text|textbf|mathrm|mathbf)\{([^{}]*)\}"), r"\1"),
    (re.compile(r"\\[()\[\]]|\\(?:left|right)\b|\\quad|\\ |~"), " "),
    (re.compile(r"\\(?:times|cdot)\b|×"), " * "),
    (re.compile(r"\\div\b|÷"), " / "),
    (re.compile(r"\bnot\s+[-$]*\d[\d.,]*"), ""),  # what the answer is not
    (re.compile(r"\bStep \d+", re.IGNORECASE), ""),
]
_CODE = re.compile(r"```python.*?```", re.DOTALL)
_REASON = re.compile(r"\b(?:because|since|as)\b.*", re.DOTALL)
_JOINED = re.compile(
    r"(?:\s+[^\W\d]+){0,2}\s*(?:,|,?\s*\b(?:or|and|to|through|versus|vs\.?)\b|[–/&~-])\s*"
    r"(?:(?:about|around|maybe|possibly|perhaps|even|a|an|the|another)\s+)?",
    re.IGNORECASE,
)
_RESULT_CUE = re.compile(
    r"(?:=|\b(?:is|are|was|were|be|has|have|had|costs?|equals?|gets?|makes?|made|needs?|takes?|took|spent|earned"
    r"|earns?|total of|pays?|paid|left)\b)\s*(?:(?:about|exactly|only|approximately|a total of|still|now)\s+)?$"
)
_LEADING_CLAUSE = re.compile(r"^\W*(?:since|as|if|after|because|when|with|out of|given)\b[^,=]*,", re.IGNORECASE)
_UNIT_RATIOS = {
    ("hour", "minute"): 60,
    ("minute", "second"): 60,
    ("day", "hour"): 24,
    ("week", "day"): 7,
    ("year", "month"): 12,
    ("foot", "inch"): 12,
    ("pound", "ounce"): 16,
    ("dollar", "cent"): 100,
}
_SINGULAR_UNITS = {"feet": "foot", "inches": "inch", "hrs": "hour", "hr": "hour", "mins": "minute", "min": "minute"}


def extract_number(text: str, unit: str = "") -> Number | None:
    """The number an answer comes to: the one stated as the answer, else the one its conclusion names.

    ``unit`` is the unit of the right answer; "3 hours 30 minutes" can be read only when it is known.
    """
    said = strip_reasoning(text)
    for part in find_answer_statements(said):
        stated = _convert_number_words(extract_first_sentence(_clean_latex(part)))
        numbers = locate_numbers(stated)
        if numbers and not _is_part_of_description(stated, numbers[0]):
            return _extract_stated_number(stated, unit)
    return _extract_concluding_number(said, unit)


def states_number(text: str) -> bool:
    """Whether a number is given as the answer, be it right or wrong."""
    return any(
        locate_numbers(_convert_number_words(extract_first_sentence(_clean_latex(part))))
        for part in find_answer_statements(strip_reasoning(text))
    )


def _clean_latex(part: str) -> str:
    for pattern, replacement in _LATEX_REWRITES:
        part = pattern.sub(replacement, part)
    return normalize_numbers(part)


def _convert_number_words(stated: str) -> str:
    """Words are read as numbers only where there are no digits: "three of the 12" is about the 12."""
    return stated if re.search(r"\d", stated) else words_to_digits(stated)


def _is_part_of_description(stated: str, first: Number) -> bool:
    """Whether the number belongs to a description, "the sum of the first 80", and is not yet what it comes to."""
    before = stated[: first.start]
    return re.match(r"\s*the\s+[a-z]", before) is not None and not re.search(r"(?:[=:]|\bis|\bof)\s*$", before)


def _extract_stated_number(stated: str, unit: str) -> Number | None:
    """The number of a statement, "18 eggs for 3 days" → 18; of a calculation what it comes to."""
    remarked = re.sub(r"\((?=[A-Za-z])[^()]*\)?", "", stated)
    if locate_numbers(_REASON.sub("", remarked)):
        remarked = _REASON.sub("", remarked)
    if (compound := _extract_compound_quantity(remarked, unit)) is not None:
        return compound
    if "=" in remarked:
        return _extract_calculation_result(remarked)
    numbers = locate_numbers(remarked)
    if not numbers or _is_calculation(remarked, numbers) or _is_joined_to_next(remarked, numbers, 0):
        return None
    return None if _is_a_bound(remarked, numbers[0]) else numbers[0]


def _extract_calculation_result(stated: str) -> Number | None:
    """Of "3 + 4 = 7" and "x = 3 + 4 = 7" the side that is a number by itself; of "7 = 3 + 4" too."""
    sides = [side for side in stated.split("=") if locate_numbers(side)]
    for side in sides:
        numbers = locate_numbers(side)
        if len(numbers) == 1 or not (_is_calculation(side, numbers) or side is not sides[-1]):
            return None if _is_joined_to_next(side, numbers, 0) else numbers[0]
    return None


def _is_calculation(stated: str, numbers: list[Number]) -> bool:
    if len(numbers) < 2:
        return False
    between = stated[numbers[0].end : numbers[1].end]
    return re.match(r"[^.,;\d]{0,30}?(?:\s[-+*/x−]\s|[+*/])", between) is not None


def _is_joined_to_next(text: str, numbers: list[Number], place: int) -> bool:
    """Whether another number follows on the same footing: "10 or 12", "1, 2, 3", "5 apples and 3 pears", "3-5"."""
    if place + 1 >= len(numbers):
        return False
    one, other = numbers[place], numbers[place + 1]
    gap = text[one.end : other.start] + (text[other.start] if text[other.start] in "-−–+ " else "")
    if _JOINED.fullmatch(gap) is None or one.value == other.value:
        return False
    return not (gap.strip() in {"-", "−"} and one.value >= other.value)  # a range ascends; "10-5" is a difference


def _is_a_bound(text: str, number: Number) -> bool:
    return (
        re.search(r"\b(?:between|from|at least|at most|less than|more than|over|under)\s*$", text[: number.start])
        is not None
    )


def _extract_concluding_number(said: str, unit: str) -> Number | None:
    """The number that the last sentence with one comes to."""
    told_in = list_concluding_sentences(_remove_list_numbers(_convert_number_words(_CODE.sub(" ", said))))
    for sentence in map(_clean_latex, told_in):
        if not locate_numbers(sentence):
            continue
        told = _LEADING_CLAUSE.sub("", sentence)
        told = told if locate_numbers(told) else sentence
        if (compound := _extract_compound_quantity(told, unit)) is not None:
            return compound
        return _extract_last_result(told, locate_numbers(told))
    return None


def _extract_last_result(told: str, numbers: list[Number]) -> Number | None:
    """The last number that a verb or an equals sign gives as a result, else the last of all."""
    places = [
        place
        for place, number in enumerate(numbers)
        if _RESULT_CUE.search(told[max(0, number.start - 40) : number.start])
    ]
    place = places[-1] if places else len(numbers) - 1
    is_one_of_several = _is_joined_to_next(told, numbers, place) or (
        place > 0 and _is_joined_to_next(told, numbers, place - 1)
    )
    return None if is_one_of_several or _is_a_bound(told, numbers[place]) else numbers[place]


def _remove_list_numbers(text: str) -> str:
    """Without the numbers of a list's items, which are no answers; one alone is no list ("18. That is all")."""
    marker = re.compile(r"^[ \t#]*(\d{1,2})[.)][ \t]+(?=\D)", re.MULTILINE)
    numbers = {int(match[1]) for match in marker.finditer(text)}
    return marker.sub("", text) if {1, 2} <= numbers else text


def _extract_compound_quantity(stated: str, unit: str) -> Number | None:
    """One quantity in two units: "3 hours and 30 minutes" is 3.5 hours, or 210 minutes, as ``unit`` asks for."""
    numbers = locate_numbers(stated)
    wanted = _to_singular(unit)
    for one, other in pairwise(numbers):
        words = re.fullmatch(r"\s*([a-zA-Z]+),?(?:\s+and)?\s*", stated[one.end : other.start])
        minor = re.match(r"\s*([a-zA-Z]+)", stated[other.end :])
        pair = (_to_singular(words[1]), _to_singular(minor[1])) if words and minor else ("", "")
        if pair in _UNIT_RATIOS and wanted in pair:
            value = one.value + other.value / Fraction(_UNIT_RATIOS[pair])
            value = value if wanted == pair[0] else value * _UNIT_RATIOS[pair]
            return Number(value, one.start, other.end, is_percentage=False)
    return None


def _to_singular(word: str) -> str:
    word = word.lower()
    return _SINGULAR_UNITS.get(word, word.removesuffix("s"))
