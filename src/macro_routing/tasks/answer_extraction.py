"""Where in its words a model says what the answer is; shared by all graders."""

from __future__ import annotations

import re

ANSWER_CUES = re.compile(
    r"(?:answer(?: to [^.\n]{1,60}?)?|(?:correct|right|best) (?:option|choice|letter|one))"
    r"\s*(?:is|:|=|[–—]|-(?=\s)|would be|should be|must be)[ \t]*:?(?!\s*(?:not|correct|right|wrong|incorrect)\b)"
    # "Wait, it is 6" takes back what was said before.
    r"|\b(?:wait|sorry|actually|correction|oops|no)\b[,.:;!—– -]{1,3}(?:actually,? )?"
    r"(?:it is|it['’]s|it should be|that is|that's|that should be|make that|i mean)\b"
    r"(?!\s*(?:not|correct|right|wrong)\b)"
    r"|\bI(?:'d|’d|'ll| would| will)? (?:choose|pick|select|go with|go for|answer)\b",
    re.IGNORECASE,
)
_INVENTED_QUESTION = re.compile(
    r"\n\s*(?:#+\s*)?(?:(?:Next|New) )?(?:Question|Problem|Q|Human|User)\s?\d{0,3}[:.]", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!\b[A-Z]\.)(?<!Mr\.)(?<!Mrs\.)(?<!Ms\.)(?<!Dr\.)(?<!Rs\.)\s+|\s*\n\s*")
_CONCLUDING_WORD = re.compile(
    r"\W*(?:so|therefore|thus|hence|this means|in total|in all|total|altogether|finally|final|answer|result)\b",
    re.IGNORECASE,
)
_ENDS_IN_RESULT = re.compile(r"=\s*[-−$]*[\d.,/]*\d(?:\\text\{[^{}]*|[^\w=])*$")
_ENDS_IN_STATEMENT = re.compile(r"(?:\b(?:is|are|was|were|has|have)|[=:])\s*[-−$]*[\d.,/]*\d(?:\s+[a-z]+){0,2}\W*$")
_MIN_TRUNCATED_LENGTH = 150
"""Characters from which on a text without a last stop is taken as cut by its budget, not as a short answer."""


def strip_reasoning(text: str) -> str:
    """What a model says to the user: without its thinking, emphasis, and questions it goes on to make up."""
    said = text.rpartition("</think>")[2]
    said = re.sub(r"\*\*|__", "", said)
    first, *others = _INVENTED_QUESTION.split(said.lstrip(), maxsplit=2)
    return first if first.strip() or not others else others[0]


def find_answer_statements(said: str) -> list[str]:
    """What follows the places where a text states its answer, the one that counts first; empty when it never does.

    A box counts most, then ``####``, then the last "the answer is" or what corrects it.
    """
    if boxed := extract_last_boxed(said):
        return [boxed]
    if "####" in said:
        return [said.rsplit("####", 1)[1]]
    last_cues = list(ANSWER_CUES.finditer(said))[-_MAX_CUES:]
    return [said[cue.end() : cue.end() + _MAX_STATEMENT_LENGTH] for cue in reversed(last_cues)]


_MAX_CUES, _MAX_STATEMENT_LENGTH = 20, 4000
"""Cues, and characters after each. A model in a loop repeats itself; the last ones tell enough."""


def extract_last_boxed(text: str) -> str | None:
    r"""What stands in the last ``\boxed{}``, also when the text breaks off within it."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    for place in range(start + 6, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start + 7 : place]
    return text[start + 7 :]


def extract_first_sentence(part: str) -> str:
    """The sentence that a statement makes; a line that ends in a colon goes on in the next."""
    pieces = [
        piece for piece in _SENTENCE_END.split(_remove_bullets(part[:2000]).lstrip(" \t\n:")) if _contains_word(piece)
    ]
    for place, piece in enumerate(pieces):
        if not piece.rstrip().endswith((":", "=")):
            return " ".join(pieces[: place + 1])
    return " ".join(pieces)


def split_sentences(said: str) -> list[str]:
    """The sentences and lines of a text."""
    return [piece.strip() for piece in _SENTENCE_END.split(_remove_bullets(said)) if _contains_word(piece)]


def list_concluding_sentences(said: str) -> list[str]:
    """The sentences that a text without a stated answer comes to, last first; none when it broke off before its end.

    A calculation carried out in the last words is an end, and so is one that "So, the total" was about to repeat.
    """
    found = split_sentences(said)
    if not found or len(said) < _MIN_TRUNCATED_LENGTH or not _is_truncated(said):
        return found[::-1]
    if said.count("```") % 2 == 1:  # within code
        return []
    last, before = found[-1], found[-2] if len(found) > 1 else ""
    in_formula = said.count("\\[") > said.count("\\]")
    if _ENDS_IN_RESULT.search(last) or (re.fullmatch(r"[-−$]*[\d.,]*\d", last) and not in_formula):
        return found[::-1]
    if _CONCLUDING_WORD.match(last) is None:
        return []
    if _ENDS_IN_STATEMENT.search(last):
        return found[::-1]
    return found[-2::-1] if _ENDS_IN_RESULT.search(before) else []


def _is_truncated(said: str) -> bool:
    return re.search(r"(?:[.!?][\"'”’)\]*$`\\]*|\\\]|\\\)|\$|```)\s*$", said[-40:]) is None


def _remove_bullets(text: str) -> str:
    """Without the dashes before a list's items, which are no signs."""
    return re.sub(r"\n[ \t]*[-*•][ \t]+", "\n", text)


def _contains_word(piece: str) -> bool:
    return re.search(r"\w", piece) is not None


COPULA = re.compile(
    r"(?:\b(?:is|are|was|were|be|being)|(?<=\w)['’]s)\b(?: (?:called|named|known as|to|at|in))?\s*:?\s+"
)


def extract_complements(sentence: str) -> list[str]:
    """What a sentence says that something is: "The colour of it is blue" → "blue"."""
    return [sentence[verb.end() :] for verb in COPULA.finditer(sentence[:2000])]
