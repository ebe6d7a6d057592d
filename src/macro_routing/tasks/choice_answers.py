"""Extract the choice that an answer names, by its letter or its full text."""

import re

from macro_routing.tasks.answer_extraction import (
    clean_generated_answer,
    extract_texts_after_is,
    find_answer_statements,
    list_sentences_last_first,
    split_sentences,
)

_ADVERBS = re.compile(
    r"(?:(?:clearly|definitely|most likely|probably|obviously|likely|simply|surely|indeed|certainly|actually|therefore"
    r"|option|choice|letter)\b[\s,:]*)+",
    re.IGNORECASE,
)
_WRAPPERS = re.compile(r"\\[()\[\]]|[$`]|\\(?:text|textbf|mathrm|mathbf)\b")
_REJECTED = re.compile(r"(?:\bis|\bare|\bwould be|['’]s)\s+(?:not|wrong|incorrect|false)\b|\bcan(?:no|['’])t be\b")
_OPENING, _CLOSING = "([{*\"'_ \n\t:", ")]}.*\"'_ \n\t"


def extract_choice_letter(text: str, choices: tuple[str, ...]) -> str | None:
    """Extract the letter of the choice; None if the answer names none, or several."""
    if not choices:
        return None
    letters = "".join(chr(ord("A") + index) for index in range(len(choices)))
    response = _WRAPPERS.sub("", clean_generated_answer(text)).strip()
    for part in find_answer_statements(clean_generated_answer(text)):
        statement = _ADVERBS.sub("", _WRAPPERS.sub("", part).lstrip(_OPENING), count=1)
        if _names_several_letters(statement, letters):
            return None
        if letter := _extract_letter_from_part(statement, letters, choices, is_stated=True):
            return letter
    if _names_several_letters(response, letters):
        return None
    return _extract_letter_from_part(response, letters, choices, is_stated=False) or _extract_letter_from_context(
        response, letters, choices
    )


def _extract_letter_from_part(text: str, letters: str, choices: tuple[str, ...], *, is_stated: bool) -> str | None:
    bare = text.lstrip(_OPENING).rstrip(_CLOSING)
    if len(bare) == 1 and bare.upper() in letters:
        return bare.upper()
    if letter := _extract_leading_letter(text, letters, choices, is_stated=is_stated):
        return letter
    first = next(iter(split_sentences(text)), "") if is_stated else text
    return _match_choice_text(first, letters, choices) or _match_choice_text(text, letters, choices)


def _names_several_letters(text: str, letters: str) -> bool:
    """Whether a text begins with several letters: "A or B", "B, C", "both A and B"."""
    letter = rf"\(?[{letters}]\)?(?![\w'’])"
    start = rf"[\s(*]*(?:(?:either|both|options?|choices?)\s+)*{letter}"
    other = rf"(?:,?\s*(?:or|and)\s+|[,/&]\s*)(?:(?:option|choice)\s+)?{letter}"
    with_texts = rf"[.:]?\s[^.;\n]{{0,80}}?\b(?:or|and)\s+\(?[{letters}][).:]"  # "B) blue or C) green"
    return re.match(rf"{start}(?:\s*{other}|{with_texts})", text) is not None


def _extract_leading_letter(text: str, letters: str, choices: tuple[str, ...], *, is_stated: bool) -> str | None:
    """Extract a leading letter that names a choice: "B) blue", "B because …"; not "A dog …", "E. coli …", "B12"."""
    begun = _ADVERBS.sub("", text.lstrip(_OPENING), count=1).lstrip(_OPENING)
    match = re.match(rf"([{letters}{letters.lower()}])(?![\w'’-])(.*)", begun, re.DOTALL)
    if match is None:
        return None
    letter, line = match[1], match[2].split("\n")[0]
    if _REJECTED.match(line.lstrip(_CLOSING)):
        return None
    rest = line.lstrip(")].:,*\"'_}- ")
    punctuated = bool(line) and line[0] in ")].:,}"
    explains = re.match(r"(?:because|since|as|is|for|\(|-|—|not)\b", rest) is not None
    named = _begins_with_choice(rest, choices[letters.index(letter.upper())])
    if letter.islower():  # "a" and "i" are words, and other letters occur in formulas
        return letter.upper() if (punctuated and named) or (is_stated and explains and letter not in "ai") else None
    any_named = any(_begins_with_choice(rest, choice) for choice in choices)
    if not rest or explains or (punctuated and (any_named or is_stated)) or (is_stated and letter not in "AI"):
        return letter
    return None


def _extract_letter_from_context(response: str, letters: str, choices: tuple[str, ...]) -> str | None:
    """Extract a letter named within a text if all mentions agree; else what the first or last sentence states."""
    sentences = split_sentences(response)
    if not list_sentences_last_first(
        response
    ):  # it was truncated while comparing choices; only its beginning can be an answer
        sentences = sentences[:2]
    for named in (
        _find_letters_called_correct(sentences, letters),
        _find_letters_before_choice_text(sentences, letters, choices),
        set(re.findall(rf"\(([{letters}])\)", "\n".join(sentences))),
    ):
        if named:
            return named.pop() if len(named) == 1 else None
    complements = [text for sentence in sentences[:1] + sentences[-1:] for text in extract_texts_after_is(sentence)]
    named = {
        _extract_bare_letter(text, letters) or _match_choice_text(text, letters, choices) or "" for text in complements
    } - {""}
    return named.pop() if len(named) == 1 else None


def _extract_bare_letter(text: str, letters: str) -> str | None:
    bare = text.strip(_OPENING + _CLOSING)
    return bare if len(bare) == 1 and bare in letters else None


def _find_letters_called_correct(sentences: list[str], letters: str) -> set[str]:
    """Find letters called correct: "so C is the correct one"."""
    pattern = rf"(?<![\w'’])\(?([{letters}])\)?,?\s+is\s+(?:clearly |therefore |the |most |likely ){{0,4}}"
    return {
        match[1]
        for sentence in sentences
        for match in re.finditer(rf"{pattern}(?:correct|right|best|answer)\b", sentence)
    }


def _find_letters_before_choice_text(sentences: list[str], letters: str, choices: tuple[str, ...]) -> set[str]:
    """Find letters followed by their choice, "it is B. blue", in sentences without a negation."""
    labels = (
        (sentence, match)
        for sentence in sentences
        if not re.search(r"\b(?:not|wrong|incorrect)\b", sentence[:2000])
        for match in re.finditer(rf"(?<![\w'’])([{letters}])[).:]\)?\s*", sentence[:2000])
    )
    return {
        match[1]
        for sentence, match in labels
        if _begins_with_choice(sentence[match.end() :], choices[letters.index(match[1])])
    }


def _begins_with_choice(text: str, choice: str) -> bool:
    expected = normalize_text(choice)
    text = normalize_text(text[: 2 * len(choice) + 20])
    return bool(expected) and (text == expected or text.startswith(f"{expected} "))


def _match_choice_text(text: str, letters: str, choices: tuple[str, ...]) -> str | None:
    if len(text) > 2 * max(map(len, choices)) + 100:
        return None
    text = normalize_text(text)
    indices = [index for index, choice in enumerate(choices) if normalize_text(choice) == text]
    return letters[indices[0]] if len(indices) == 1 and text else None


def normalize_text(text: str) -> str:
    """Normalize a text: remove case, articles and punctuation without meaning."""
    words = re.sub(r"[^\w:/.%<>=+-]+", " ", text.casefold()).replace(". ", " ").strip(" .").split()
    return " ".join(word.strip(".") or word for word in words if word not in {"a", "an", "the"})
