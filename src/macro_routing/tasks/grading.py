"""When an answer is right. The model's text is parsed to a value and compared; never a substring match."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from macro_routing.tasks.answer_extraction import (
    extract_complements,
    extract_first_sentence,
    find_answer_statements,
    list_concluding_sentences,
    split_sentences,
    strip_reasoning,
)
from macro_routing.tasks.choice_answers import extract_choice_letter, normalize_text
from macro_routing.tasks.math_answers import extract_chained_value, extract_math_answer, is_same_math
from macro_routing.tasks.number_answers import extract_number, states_number
from macro_routing.tasks.numbers import find_numbers, is_same_number

_UNANSWERABLE = re.compile(
    r"\b(?:(?:cannot|ca not|can not|could not) (?:be )?(?:determined?|answer(?:ed)?|calculated?|solved?|found|find)"
    r"|not (?:have |be )?enough (?:information|data)|insufficient (?:information|data)"
    r"|(?:impossible|not possible) to (?:determine|say|know|answer|calculate)"
    r"|(?:does not|doesn't|not) (?:give|given|specify|specified|provide|provided|say|state)|missing information)\b",
    re.IGNORECASE,
)
_NO_ANSWER_WORDS = re.compile(r"\b(?:none|n/a|unknown|undetermined|indeterminate)\b", re.IGNORECASE)
_RATIO = re.compile(r"\s*(\d{1,9})\s*:\s*(\d{1,9})\s*")
_CONTRACTED_NOT = re.compile(r"n['’]t\b")
_TIME = re.compile(r"(?<![\d:])(\d{1,2})[:.](\d{2})(?![\d:])\s*(?:([ap])\.?\s?m\b\.?)?", re.IGNORECASE)


@dataclass(frozen=True)
class Verdict:
    """What was understood of an answer, and whether it is right."""

    prediction: str
    """The value read from the text; empty when none could be read."""
    correct: bool


@dataclass(frozen=True)
class Grader:
    """A named, versioned judge of answers; the version is part of a score's key."""

    name: str
    version: str
    judge: Callable[[str, str, tuple[str, ...]], Verdict]
    """(model's text, right answer, choices) → verdict."""

    def __call__(self, text: str, answer: str, choices: tuple[str, ...] = ()) -> Verdict:
        """Judge the model's ``text``."""
        return self.judge(text, answer, choices)


def grade_number(text: str, answer: str, choices: tuple[str, ...]) -> Verdict:
    """Numbers by value; answers that are no number (names, times, "None") by their own rules."""
    if answer.strip().lower() == "none":
        return _grade_unanswerable(text)
    if (ratio := _RATIO.fullmatch(answer)) and int(ratio[2]):
        verdict = grade_text(text, answer, choices)
        return verdict if verdict.correct else _grade_ratio(text, Fraction(int(ratio[1]), int(ratio[2])), verdict)
    if len(find_numbers(answer)) != 1 or not _is_number_with_unit(answer):
        return grade_text(text, answer, choices)
    unit = re.search(r"[a-zA-Z]+", answer)
    found = extract_number(text, unit[0] if unit else "")
    if found is None:
        return Verdict("", correct=False)
    return Verdict(_format_number(found.value), is_same_number(found.value, answer, percent=found.is_percentage))


def _grade_ratio(text: str, wanted: Fraction, otherwise: Verdict) -> Verdict:
    """A ratio may be written as a fraction, 3/5 for 3:5."""
    found = extract_number(text)
    if found is None or found.value.denominator == 1 or found.value != wanted:
        return otherwise
    return Verdict(str(found.value), correct=True)


def _is_number_with_unit(answer: str) -> bool:
    return re.fullmatch(r"\s*[$€£]?\s*-?[\d.,/ ]+(?:e[-+]?\d+)?%?\s*(?:\(.*\)|[a-zA-Z ]*)\s*", answer) is not None


def _grade_unanswerable(text: str) -> Verdict:
    """The question lacks a fact: saying so is right, any number given as the answer is wrong."""
    said = _CONTRACTED_NOT.sub(" not", strip_reasoning(text))
    found = extract_number(text)
    says_so = [_UNANSWERABLE.search(sentence) is not None for sentence in split_sentences(said)]
    # "The price of the 3 apples is not given" names a number, but does not answer with it.
    if says_so and (says_so[0] or says_so[-1]) and not states_number(text) and "=" not in said:
        return Verdict("None", correct=True)
    if found is not None or find_numbers(said):
        return Verdict(_format_number(found.value) if found else "", correct=False)
    lacks = any(says_so) or _NO_ANSWER_WORDS.search(said) is not None
    return Verdict("None" if lacks else "", lacks)


def _format_number(number: Fraction) -> str:
    if number.denominator == 1:
        return str(number.numerator)
    return f"{float(number):.12g}" if abs(number) < 10**300 else str(number)


def grade_letter(text: str, answer: str, choices: tuple[str, ...]) -> Verdict:
    """A choice by its letter, or by its whole text."""
    letter = extract_choice_letter(text, choices)
    return Verdict(letter or "", letter == answer)


def grade_text(text: str, answer: str, _choices: tuple[str, ...]) -> Verdict:
    """Words, names, times and ratios, compared whole but for case, articles and punctuation."""
    said = strip_reasoning(text)
    parts = find_answer_statements(said) or list_concluding_sentences(said)[:1]
    line = next((stated for part in parts if (stated := extract_first_sentence(part).strip())), "")
    if _TIME.fullmatch(answer.strip()):
        return Verdict(line, _is_same_time(line, answer))
    wanted = normalize_text(answer)
    is_right = wanted != "" and any(normalize_text(given) == wanted for given in [line, *extract_complements(line)])
    return Verdict(line, is_right)


def _is_same_time(line: str, answer: str) -> bool:
    """A time of day, or a ratio: the only one of the line. Who leaves out a.m. or p.m. means the one asked for."""
    found = [match.groups() for match in _TIME.finditer(line)]
    wanted = _TIME.fullmatch(answer.strip())
    if len(found) != 1 or wanted is None:
        return False
    hour, minute, half = found[0]
    halves = {value.lower() for value in (half, wanted[3]) if value}
    return (int(hour), minute) == (int(wanted[1]), wanted[2]) and len(halves) < 2


def grade_math(text: str, answer: str, _choices: tuple[str, ...]) -> Verdict:
    """Mathematical expressions by value, with math-verify."""
    stated = extract_math_answer(text)
    is_right = is_same_math(stated, answer) or is_same_math(extract_chained_value(text, stated), answer)
    return Verdict(stated, is_right)


GRADERS = {
    grader.name: grader
    for grader in (
        Grader("number", "3", grade_number),
        Grader("letter", "3", grade_letter),
        Grader("math", "3", grade_math),
        Grader("text", "3", grade_text),
    )
}
