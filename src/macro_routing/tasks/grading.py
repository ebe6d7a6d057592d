"""When an answer is right. The model's text is parsed to a value and compared; never a substring match."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from macro_routing.errors import SettingsError
from macro_routing.tasks.numbers import find_numbers, same_number

CUES = re.compile(
    r"(?:answer(?: to [^.\n]{1,60}?)?|(?:correct|right|best) (?:option|choice|letter|one))"
    r"\s*(?:is|:|=|would be|should be)[ \t]*:?(?!\s*(?:not|correct|right|wrong|incorrect)\b)",
    re.IGNORECASE,
)
_UNANSWERABLE = re.compile(
    r"\b(?:none|n/a"
    r"|(?:cannot|ca not|can not|could not) (?:be )?(?:determined?|answer(?:ed)?|calculated?|solved?|found|find)"
    r"|not (?:have |be )?enough (?:information|data)|insufficient (?:information|data)"
    r"|(?:impossible|not possible) to (?:determine|say|know|answer|calculate)|unknown|undetermined|indeterminate"
    r"|(?:does not|doesn't|not) (?:give|given|specify|specified|provide|provided|say|state)|missing information)\b",
    re.IGNORECASE,
)
_CONTRACTED = re.compile(r"n['’]t\b")


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


def spoken(text: str) -> str:
    """What a model says to the user: without its thinking, emphasis, and questions it goes on to make up."""
    said = text.rpartition("</think>")[2]
    said = re.sub(r"\*\*|__", "", said)
    return re.split(r"\n\s*(?:Question|Q):", said, maxsplit=1)[0]


def final_part(text: str) -> str:
    """The part of a text that states the answer: boxed, after ``####``, or after the last "answer is"."""
    text = spoken(text)
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
    stated = re.sub(r"\bnot\s+[-$]*\d[\d.,]*", "", final_part(text))  # what the answer is not
    numbers = find_numbers(stated)
    if not numbers:
        return None
    if stated != spoken(text):
        # "the answer is 3 + 4 = 7": what a calculation comes to stands after its equals sign.
        calculation = re.match(r"[^\d=]*[\d.,$ ]+[-+*/×÷x][^=\n]*=([^=\n]*)", stated.strip())
        result = find_numbers(calculation[1]) if calculation else []
        return result[0] if result else numbers[0]
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
    is_percentage = re.search(r"\d\s*\\?%", final_part(text)) is not None and len(find_numbers(final_part(text))) == 1
    return Verdict(_show(found), same_number(found, answer, percent=is_percentage))


def _is_number_with_unit(answer: str) -> bool:
    return re.fullmatch(r"\s*[$€£]?\s*-?[\d.,/ ]+(?:e[-+]?\d+)?%?\s*(?:\(.*\)|[a-zA-Z ]*)\s*", answer) is not None


def _judge_unanswerable(text: str) -> Verdict:
    """The question lacks a fact: saying so is right, any number is wrong."""
    stated = final_part(text)
    numbers = find_numbers(stated)
    if numbers:  # whatever else is said, a number was given
        return Verdict(_show(numbers[0]), correct=False)
    says_so = _UNANSWERABLE.search(_CONTRACTED.sub(" not", stated)) is not None
    return Verdict("None" if says_so else "", says_so)


def _show(number: Fraction) -> str:
    if number.denominator == 1:
        return str(number.numerator)
    return f"{float(number):.12g}" if abs(number) < 10**300 else str(number)


# --- letters ------------------------------------------------------------------------------------------------------


def judge_letter(text: str, answer: str, choices: tuple[str, ...]) -> Verdict:
    """A choice by its letter, or by its whole text."""
    letter = read_letter(text, choices)
    return Verdict(letter or "", letter == answer)


def read_letter(text: str, choices: tuple[str, ...]) -> str | None:
    """The letter an answer names: stated as the answer, alone, leading with a bracket or stop, or the choice's text."""
    if not choices:
        return None
    letters = "".join(chr(ord("A") + place) for place in range(len(choices)))
    said = spoken(text).strip()
    stated = re.sub(r"\\(?:text|textbf|mathrm)\{(.*?)\}", r"\1", final_part(text)).strip()
    for given in dict.fromkeys([stated, said]):
        bare = given.lstrip("([*\"'_ \n").rstrip(")].*\"'_ \n")
        if len(bare) == 1 and bare.upper() in letters:
            return bare.upper()
        if (letter := _leading_letter(given, letters, choices, is_stated=given != said)) is not None:
            return letter
        if (place := _whole_choice(given, choices)) is not None:
            return letters[place]
    marked = re.findall(rf"\(([{letters}])\)", said)
    return marked[0] if len(set(marked)) == 1 else None


def _leading_letter(given: str, letters: str, choices: tuple[str, ...], *, is_stated: bool) -> str | None:
    """A letter at the beginning that names a choice: "B) blue", "B because …"; not "A dog …", "E. coli …" or "B12"."""
    begun = re.sub(r"^(?:option|choice)\s+", "", given.lstrip("([*\"'_ \n"), flags=re.IGNORECASE)
    match = re.match(rf"([{letters}])(?![\w'’-])(.*)", begun, re.DOTALL)
    if match is None:
        return None
    line = match[2].split("\n")[0]
    rest = line.lstrip(")].:,*\"'_ ")
    punctuated = bool(line) and line[0] in ")].:,"
    explains = re.match(r"(?:because|since|as|is|for|\(|-|—|not)\b", rest) is not None
    named = any(_plain(rest).startswith(_plain(choice)) for choice in choices if _plain(choice))
    if not rest or explains or (punctuated and (named or is_stated)) or (is_stated and match[1] not in "AI"):
        return match[1]
    return None


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
    words = re.sub(r"[^\w:/.%<>=+-]+", " ", text.casefold()).replace(". ", " ").strip(" .").split()
    return " ".join(word for word in words if word not in {"a", "an", "the"})


def judge_math(text: str, answer: str, _choices: tuple[str, ...]) -> Verdict:
    """Mathematical expressions by value, with math-verify."""
    try:
        from math_verify import parse, verify
    except ImportError:
        raise SettingsError("grading MATH answers needs math-verify: pip install 'macro-routing[eval]'") from None
    gold = parse(f"\\boxed{{{answer}}}")
    stated = final_part(text).strip()
    line = stated.splitlines()[0].strip().rstrip(".").strip() if stated else ""
    inline = re.match(r"(?:\$+|\\\()(.+?)(?:\$+|\\\))", line)
    readings = [inline[1]] if inline else [line] if line else []
    attempts = (parse(given) for given in [*(f"\\boxed{{{reading}}}" for reading in readings), text])
    found: list[Any] = next((value for value in attempts if value), [])
    return Verdict(line, bool(found) and verify(gold, found))


GRADERS = {
    grader.name: grader
    for grader in (
        Grader("number", "2", judge_number),
        Grader("letter", "2", judge_letter),
        Grader("math", "2", judge_math),
        Grader("text", "2", judge_text),
    )
}
