"""Grade answers: a model's text is parsed to a value and compared; never by substring."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from macro_routing.tasks.answer_extraction import (
    clean_generated_answer,
    extract_first_answer_sentence,
    extract_texts_after_is,
    find_answer_statements,
    list_sentences_last_first,
    split_sentences,
)
from macro_routing.tasks.choice_answers import extract_choice_letter, normalize_text
from macro_routing.tasks.math_answers import extract_math_answer, extract_value_after_box, is_same_math
from macro_routing.tasks.number_answers import extract_number, has_stated_number
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
_NUMBER_WITH_UNIT = re.compile(r"\s*[$€£]?\s*-?[\d.,/ ]+(?:e[-+]?\d+)?%?\s*(?:\(.*\)|[a-zA-Z ]*)\s*")
_CONTRACTED_NOT = re.compile(r"n['’]t\b")
_TIME = re.compile(r"(?<![\d:])(\d{1,2})[:.](\d{2})(?![\d:])\s*(?:([ap])\.?\s?m\b\.?)?", re.IGNORECASE)


@dataclass(frozen=True)
class GradedAnswer:
    """The value read from an answer, and whether it is correct."""

    prediction: str
    """The value read from the text; empty if there is none."""
    correct: bool


@dataclass(frozen=True)
class Grader:
    """A named, versioned grading function; the version is part of a score's key."""

    name: str
    version: str
    grade: Callable[[str, str, tuple[str, ...]], GradedAnswer]
    """(model's text, correct answer, choices) → verdict."""

    def __call__(self, text: str, answer: str, choices: tuple[str, ...] = ()) -> GradedAnswer:
        """Grade the model's ``text``."""
        return self.grade(text, answer, choices)


def grade_number(text: str, answer: str, choices: tuple[str, ...]) -> GradedAnswer:
    """Grade numbers by value; other answers (names, times, ratios, "None") by their own rules."""
    if answer.strip().lower() == "none":
        return _grade_unanswerable(text)
    if (ratio := _RATIO.fullmatch(answer)) and int(ratio[2]):
        verdict = grade_short_text_answer(text, answer, choices)
        return verdict if verdict.correct else _grade_ratio(text, Fraction(int(ratio[1]), int(ratio[2])), verdict)
    if len(find_numbers(answer)) != 1 or not _NUMBER_WITH_UNIT.fullmatch(answer):
        return grade_short_text_answer(text, answer, choices)
    unit = re.search(r"[a-zA-Z]+", answer)
    number = extract_number(text, unit[0] if unit else "")
    if number is None:
        return GradedAnswer("", correct=False)
    return GradedAnswer(
        _format_number(number.value), is_same_number(number.value, answer, percent=number.is_percentage)
    )


def _grade_ratio(text: str, ratio: Fraction, otherwise: GradedAnswer) -> GradedAnswer:
    """Grade a ratio that is written as a fraction, 3/5 for 3:5."""
    number = extract_number(text)
    if number is None or number.value.denominator == 1 or number.value != ratio:
        return otherwise
    return GradedAnswer(str(number.value), correct=True)


def _grade_unanswerable(text: str) -> GradedAnswer:
    """Grade the answer to an unanswerable question: saying so is correct, any number is wrong."""
    response = _CONTRACTED_NOT.sub(" not", clean_generated_answer(text))
    number = extract_number(text)
    declines = [_UNANSWERABLE.search(sentence) is not None for sentence in split_sentences(response)]
    # "The price of the 3 apples is not given" names a number, but does not answer with it.
    if declines and (declines[0] or declines[-1]) and not has_stated_number(text) and "=" not in response:
        return GradedAnswer("None", correct=True)
    if number is not None or find_numbers(response):
        return GradedAnswer(_format_number(number.value) if number else "", correct=False)
    declined = any(declines) or _NO_ANSWER_WORDS.search(response) is not None
    return GradedAnswer("None" if declined else "", declined)


def _format_number(number: Fraction) -> str:
    if number.denominator == 1:
        return str(number.numerator)
    return f"{float(number):.12g}" if abs(number) < 10**300 else str(number)


def grade_generated_choice(text: str, answer: str, choices: tuple[str, ...]) -> GradedAnswer:
    """Grade a choice by its letter or its full text."""
    letter = extract_choice_letter(text, choices)
    return GradedAnswer(letter or "", letter == answer)


def grade_short_text_answer(text: str, answer: str, _choices: tuple[str, ...]) -> GradedAnswer:
    """Grade words, names, times and ratios; case, articles and punctuation are ignored."""
    response = clean_generated_answer(text)
    parts = find_answer_statements(response) or list_sentences_last_first(response)[:1]
    line = next((sentence for part in parts if (sentence := extract_first_answer_sentence(part).strip())), "")
    if _TIME.fullmatch(answer.strip()):
        return GradedAnswer(line, _states_correct_clock_time(line, answer))
    expected = normalize_text(answer)
    is_correct = expected != "" and any(
        normalize_text(candidate) == expected for candidate in [line, *extract_texts_after_is(line)]
    )
    return GradedAnswer(line, is_correct)


def _states_correct_clock_time(line: str, answer: str) -> bool:
    """Whether a line holds one time (or ratio), equal to the answer; a.m. and p.m. may be left out."""
    times = [match.groups() for match in _TIME.finditer(line)]
    expected = _TIME.fullmatch(answer.strip())
    if len(times) != 1 or expected is None:
        return False
    hour, minute, half = times[0]
    halves = {value.lower() for value in (half, expected[3]) if value}
    return (int(hour), minute) == (int(expected[1]), expected[2]) and len(halves) < 2


def grade_math(text: str, answer: str, _choices: tuple[str, ...]) -> GradedAnswer:
    """Grade mathematical expressions by value, with math-verify."""
    prediction = extract_math_answer(text)
    is_correct = is_same_math(prediction, answer) or is_same_math(extract_value_after_box(text, prediction), answer)
    return GradedAnswer(prediction, is_correct)


GRADERS = {
    grader.name: grader
    for grader in (
        Grader("number", "3", grade_number),
        Grader("letter", "3", grade_generated_choice),
        Grader("math", "3", grade_math),
        Grader("text", "3", grade_short_text_answer),
    )
}
