"""Extract the number that an answer gives. Hedges, ranges and lists do not count as an answer."""

import re
from fractions import Fraction
from itertools import pairwise

from macro_routing.tasks.answer_extraction import (
    clean_generated_answer,
    extract_first_answer_sentence,
    find_answer_statements,
    list_sentences_last_first,
)
from macro_routing.tasks.numbers import NumberInText, locate_numbers, normalize_numbers, words_to_digits

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
_BOUND_WORD = re.compile(r"\b(?:between|from|at least|at most|less than|more than|over|under)\s*$")
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


def extract_number(text: str, unit: str = "") -> NumberInText | None:
    """Extract the number of an answer: the one stated as the answer, else the one in its conclusion.

    ``unit`` is the unit of the correct answer, which "3 hours 30 minutes" needs.
    """
    response = clean_generated_answer(text)
    for part in find_answer_statements(response):
        statement = _convert_number_words(extract_first_answer_sentence(_clean_latex(part)))
        numbers = locate_numbers(statement)
        if numbers and not _is_descriptive_number(statement, numbers[0]):
            return _extract_stated_number(statement, unit)
    return _extract_concluding_number(response, unit)


def has_stated_number(text: str) -> bool:
    """Whether a number is stated as the answer, correct or not."""
    return any(
        locate_numbers(_convert_number_words(extract_first_answer_sentence(_clean_latex(part))))
        for part in find_answer_statements(clean_generated_answer(text))
    )


def _clean_latex(part: str) -> str:
    for pattern, replacement in _LATEX_REWRITES:
        part = pattern.sub(replacement, part)
    return normalize_numbers(part)


def _convert_number_words(statement: str) -> str:
    """Convert number words if there are no digits: "three of the 12" is about the 12."""
    return statement if re.search(r"\d", statement) else words_to_digits(statement)


def _is_descriptive_number(statement: str, first: NumberInText) -> bool:
    """Whether the number is part of a description, "the sum of the first 80", and not the result."""
    before = statement[: first.start]
    return re.match(r"\s*the\s+[a-z]", before) is not None and not re.search(r"(?:[=:]|\bis|\bof)\s*$", before)


def _extract_stated_number(statement: str, unit: str) -> NumberInText | None:
    """Extract the number of a statement, "18 eggs for 3 days" → 18; of a calculation its result."""
    remarked = re.sub(r"\((?=[A-Za-z])[^()]*\)?", "", statement)
    if locate_numbers(_REASON.sub("", remarked)):
        remarked = _REASON.sub("", remarked)
    if (compound := _extract_compound_quantity(remarked, unit)) is not None:
        return compound
    if "=" in remarked:
        return _extract_calculation_result(remarked)
    numbers = locate_numbers(remarked)
    if not numbers or _is_calculation(remarked, numbers) or _is_joined_to_next_number(remarked, numbers, 0):
        return None
    return None if _BOUND_WORD.search(remarked[: numbers[0].start]) else numbers[0]


def _extract_calculation_result(statement: str) -> NumberInText | None:
    """Extract the side that is a plain number: of "3 + 4 = 7", "x = 3 + 4 = 7" and "7 = 3 + 4"."""
    sides = [side for side in statement.split("=") if locate_numbers(side)]
    for side in sides:
        numbers = locate_numbers(side)
        if len(numbers) == 1 or not (_is_calculation(side, numbers) or side is not sides[-1]):
            return None if _is_joined_to_next_number(side, numbers, 0) else numbers[0]
    return None


def _is_calculation(statement: str, numbers: list[NumberInText]) -> bool:
    if len(numbers) < 2:
        return False
    between = statement[numbers[0].end : numbers[1].end]
    return re.match(r"[^.,;\d]{0,30}?(?:\s[-+*/x−]\s|[+*/])", between) is not None


def _is_joined_to_next_number(text: str, numbers: list[NumberInText], index: int) -> bool:
    """Whether another number follows on the same footing: "10 or 12", "1, 2, 3", "5 apples and 3 pears", "3-5"."""
    if index + 1 >= len(numbers):
        return False
    number, other = numbers[index], numbers[index + 1]
    gap = text[number.end : other.start] + (text[other.start] if text[other.start] in "-−–+ " else "")
    if _JOINED.fullmatch(gap) is None or number.value == other.value:
        return False
    return not (gap.strip() in {"-", "−"} and number.value >= other.value)  # a range ascends; "10-5" is a difference


def _extract_concluding_number(response: str, unit: str) -> NumberInText | None:
    """Extract the result of the last sentence that has a number."""
    concluding = list_sentences_last_first(_remove_list_numbers(_convert_number_words(_CODE.sub(" ", response))))
    for sentence in map(_clean_latex, concluding):
        if not locate_numbers(sentence):
            continue
        clause = _LEADING_CLAUSE.sub("", sentence)
        clause = clause if locate_numbers(clause) else sentence
        if (compound := _extract_compound_quantity(clause, unit)) is not None:
            return compound
        return _extract_last_result(clause, locate_numbers(clause))
    return None


def _extract_last_result(clause: str, numbers: list[NumberInText]) -> NumberInText | None:
    """Extract the last number after a verb or an equals sign, else the last number."""
    indices = [
        index
        for index, number in enumerate(numbers)
        if _RESULT_CUE.search(clause[max(0, number.start - 40) : number.start])
    ]
    index = indices[-1] if indices else len(numbers) - 1
    is_one_of_several = _is_joined_to_next_number(clause, numbers, index) or (
        index > 0 and _is_joined_to_next_number(clause, numbers, index - 1)
    )
    return None if is_one_of_several or _BOUND_WORD.search(clause[: numbers[index].start]) else numbers[index]


def _remove_list_numbers(text: str) -> str:
    """Remove the numbers of list items; a single one is not a list ("18. That is all")."""
    marker = re.compile(r"^[ \t#]*(\d{1,2})[.)][ \t]+(?=\D)", re.MULTILINE)
    numbers = {int(match[1]) for match in marker.finditer(text)}
    return marker.sub("", text) if {1, 2} <= numbers else text


def _extract_compound_quantity(statement: str, unit: str) -> NumberInText | None:
    """Convert a quantity in two units: "3 hours and 30 minutes" is 3.5 hours or 210 minutes, by ``unit``."""
    numbers = locate_numbers(statement)
    wanted_unit = _to_singular(unit)
    for major_number, minor_number in pairwise(numbers):
        words = re.fullmatch(r"\s*([a-zA-Z]+),?(?:\s+and)?\s*", statement[major_number.end : minor_number.start])
        minor_word = re.match(r"\s*([a-zA-Z]+)", statement[minor_number.end :])
        pair = (_to_singular(words[1]), _to_singular(minor_word[1])) if words and minor_word else ("", "")
        if pair in _UNIT_RATIOS and wanted_unit in pair:
            value = major_number.value + minor_number.value / Fraction(_UNIT_RATIOS[pair])
            value = value if wanted_unit == pair[0] else value * _UNIT_RATIOS[pair]
            return NumberInText(value, major_number.start, minor_number.end, is_percentage=False)
    return None


def _to_singular(word: str) -> str:
    word = word.lower()
    return _SINGULAR_UNITS.get(word, word.removesuffix("s"))
