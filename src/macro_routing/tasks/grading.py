"""When an answer is right. The model's text is parsed to a value and compared; never a substring match."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from macro_routing.errors import SettingsError
from macro_routing.tasks.numbers import find_numbers, same_number

CUES = re.compile(r"(?:final answer|answer|result)\s*(?:is|:|=|would be)\s*:?", re.IGNORECASE)
_UNANSWERABLE = re.compile(
    r"\b(?:none|cannot be (?:determined|answered|calculated|solved)|can't be (?:determined|answered|calculated)"
    r"|not enough information|insufficient information|impossible to (?:determine|say|know)|unknown|undetermined"
    r"|not (?:given|specified|provided)|missing information)\b",
    re.IGNORECASE,
)


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


# --- numbers ------------------------------------------------------------------------------------------------------


def final_part(text: str) -> str:
    """The part of a text that states the answer: boxed, after ``####``, or after the last "answer is"."""
    if boxed := _last_boxed(text):
        return boxed
    if "####" in text:
        return text.rsplit("####", 1)[1]
    cues = list(CUES.finditer(text))
    return text[cues[-1].end() :] if cues else text


def _last_boxed(text: str) -> str | None:
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    for place in range(start + 6, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start + 7 : place]
    return None


def read_number(text: str) -> Fraction | None:
    """The number an answer comes to: the first one stated as the answer, else the last one of the text."""
    stated = final_part(text)
    numbers = find_numbers(stated)
    if not numbers:
        return None
    if stated is not text:
        # "the answer is 3 + 4 = 7": what an equation comes to stands after its last equals sign on that line.
        line = stated.strip().splitlines()[0]
        after_equals = find_numbers(line.rsplit("=", 1)[1]) if "=" in line else []
        return after_equals[0] if after_equals else numbers[0]
    return numbers[-1]


def judge_number(text: str, answer: str, _choices: tuple[str, ...]) -> Verdict:
    """Numbers by value; answers that are no number (names, times, "None") by their own rules."""
    gold = find_numbers(answer)
    if answer.strip().lower() == "none":
        return _judge_unanswerable(text)
    if len(gold) != 1 or not _is_number_with_unit(answer):
        return judge_text(text, answer, _choices)
    found = read_number(text)
    if found is None:
        return Verdict("", correct=False)
    return Verdict(_show(found), same_number(found, answer, percent="%" in final_part(text)))


def _is_number_with_unit(answer: str) -> bool:
    return re.fullmatch(r"\s*[$€£]?\s*-?[\d.,/ ]+%?\s*(\(.*\))?\s*", answer) is not None


def _judge_unanswerable(text: str) -> Verdict:
    """The question lacks a fact: saying so is right, any number is wrong."""
    stated = final_part(text)
    says_so = _UNANSWERABLE.search(stated) is not None
    numbers = find_numbers(_UNANSWERABLE.sub("", stated)) if not says_so else []
    return Verdict("None" if says_so else _show(numbers[0]) if numbers else "", says_so)


def _show(number: Fraction) -> str:
    return str(number.numerator) if number.denominator == 1 else f"{float(number):.12g}"


# --- letters ------------------------------------------------------------------------------------------------------


def judge_letter(text: str, answer: str, choices: tuple[str, ...]) -> Verdict:
    """A choice by its letter, or by its whole text."""
    letter = read_letter(text, choices)
    return Verdict(letter or "", letter == answer)


def read_letter(text: str, choices: tuple[str, ...]) -> str | None:
    """The letter an answer names: stated as the answer, alone, leading with a bracket or stop, or the choice's text."""
    letters = "".join(chr(ord("A") + place) for place in range(len(choices)))
    stated = final_part(text).strip()
    if len(alone := stated.strip("().*[] ")) == 1 and alone.upper() in letters:
        return alone.upper()
    for given in dict.fromkeys([stated, text.strip()]):
        leading = re.match(rf"\W*(?:option|choice)?\s*[(\[*\"']*([{letters}])(?![A-Za-z'’])", given)
        if leading and not _is_an_article(given, leading):
            return leading[1]
        if (place := _whole_choice(given, choices)) is not None:
            return letters[place]
    marked = re.findall(rf"\(([{letters}])\)|\b([{letters}])[).:]", text)
    return (marked[-1][0] or marked[-1][1]) if marked else None


def _is_an_article(text: str, match: re.Match[str]) -> bool:
    """Whether "A …" or "I …" begins a sentence rather than naming a choice."""
    return match[1] in "AI" and re.match(r"\s+[a-z]", text[match.end(1) :]) is not None


def _whole_choice(text: str, choices: tuple[str, ...]) -> int | None:
    plain = _plain(text)
    places = [place for place, choice in enumerate(choices) if _plain(choice) == plain]
    return places[0] if len(places) == 1 else None


# --- other texts --------------------------------------------------------------------------------------------------


def judge_text(text: str, answer: str, _choices: tuple[str, ...]) -> Verdict:
    """Words, names, times and ratios, compared whole but for case, articles and punctuation."""
    stated = final_part(text).strip()
    line = stated.splitlines()[0] if stated else ""
    return Verdict(line.strip(), _plain(line) != "" and _plain(line) == _plain(answer))


def _plain(text: str) -> str:
    words = re.sub(r"[^\w:/.]+", " ", text.casefold()).replace(". ", " ").strip(" .").split()
    return " ".join(word for word in words if word not in {"a", "an", "the"})


def judge_math(text: str, answer: str, _choices: tuple[str, ...]) -> Verdict:
    """Mathematical expressions by value, with math-verify."""
    try:
        from math_verify import parse, verify
    except ImportError:
        raise SettingsError("grading MATH answers needs math-verify: pip install 'macro-routing[eval]'") from None
    gold = parse(f"\\boxed{{{answer}}}")
    stated = final_part(text).strip()
    found = parse(f"\\boxed{{{stated}}}") or parse(text)
    return Verdict(stated.splitlines()[0] if stated else "", bool(found) and verify(gold, found))


GRADERS = {
    grader.name: grader
    for grader in (
        Grader("number", "1", judge_number),
        Grader("letter", "1", judge_letter),
        Grader("math", "1", judge_math),
        Grader("text", "1", judge_text),
    )
}
