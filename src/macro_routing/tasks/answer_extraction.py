"""Find the final answer in a model's response; shared by all graders."""

import re

ANSWER_CUES = re.compile(
    r"(?:answer(?: to [^.\n]{1,60}?)?|(?:correct|right|best) (?:option|choice|letter|one))"
    r"\s*(?:is|:|=|[–—]|-(?=\s)|would be|should be|must be)[ \t]*:?(?!\s*(?:not|correct|right|wrong|incorrect)\b)"
    # "Wait, it is 6" corrects an earlier answer.
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
_FINAL_STOP = re.compile(r"(?:[.!?][\"'”’)\]*$`\\]*|\\\]|\\\)|\$|```)\s*$")
_WORD = re.compile(r"\w")
_BULLET = re.compile(r"\n[ \t]*[-*•][ \t]+")
"""The dash before a list item, which is not a minus sign."""
_MIN_TRUNCATED_LENGTH = 150
"""From this length on a text without a final stop counts as truncated, not as a short answer."""


def clean_generated_answer(text: str) -> str:
    """Remove reasoning, emphasis, and further questions that the model invents."""
    response = text.rpartition("</think>")[2]
    response = re.sub(r"\*\*|__", "", response)
    first, *others = _INVENTED_QUESTION.split(response.lstrip(), maxsplit=2)
    return first if first.strip() or not others else others[0]


def find_answer_statements(response: str) -> list[str]:
    """Find the parts of a response that state its answer, most relevant first; empty if there are none.

    A box comes first, then ``####``, then the last "the answer is" or its correction.
    """
    if boxed := extract_last_boxed(response):
        return [boxed]
    if "####" in response:
        return [response.rsplit("####", 1)[1]]
    last_cues = list(ANSWER_CUES.finditer(response))[-_MAX_CUES:]
    return [response[cue.end() : cue.end() + _MAX_STATEMENT_LENGTH] for cue in reversed(last_cues)]


_MAX_CUES, _MAX_STATEMENT_LENGTH = 20, 4000
"""Limits for the number of cues and the characters after each: a model in a loop repeats itself."""


def extract_last_boxed(text: str) -> str | None:
    r"""Extract the content of the last ``\boxed{}``, even if the text is truncated within it."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    for index in range(start + 6, len(text)):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if depth == 0:
            return text[start + 7 : index]
    return text[start + 7 :]


def extract_first_answer_sentence(part: str) -> str:
    """Extract the first sentence of a statement; a line that ends in a colon continues in the next."""
    pieces = [
        piece for piece in _SENTENCE_END.split(_BULLET.sub("\n", part[:2000]).lstrip(" \t\n:")) if _WORD.search(piece)
    ]
    for index, piece in enumerate(pieces):
        if not piece.rstrip().endswith((":", "=")):
            return " ".join(pieces[: index + 1])
    return " ".join(pieces)


def split_sentences(response: str) -> list[str]:
    """Split a text into sentences and lines."""
    return [piece.strip() for piece in _SENTENCE_END.split(_BULLET.sub("\n", response)) if _WORD.search(piece)]


def list_sentences_last_first(response: str) -> list[str]:
    """List the sentences of a text without a stated answer, last first; empty if it was truncated before its end.

    A finished calculation at the end counts as an end, also if a truncated "So, the total" follows it.
    """
    sentences = split_sentences(response)
    if not sentences or len(response) < _MIN_TRUNCATED_LENGTH or _FINAL_STOP.search(response[-40:]):
        return sentences[::-1]
    if response.count("```") % 2 == 1:  # within code
        return []
    last, before = sentences[-1], sentences[-2] if len(sentences) > 1 else ""
    in_formula = response.count("\\[") > response.count("\\]")
    if _ENDS_IN_RESULT.search(last) or (re.fullmatch(r"[-−$]*[\d.,]*\d", last) and not in_formula):
        return sentences[::-1]
    if _CONCLUDING_WORD.match(last) is None:
        return []
    if _ENDS_IN_STATEMENT.search(last):
        return sentences[::-1]
    return sentences[-2::-1] if _ENDS_IN_RESULT.search(before) else []


COPULA = re.compile(
    r"(?:\b(?:is|are|was|were|be|being)|(?<=\w)['’]s)\b(?: (?:called|named|known as|to|at|in))?\s*:?\s+"
)


def extract_texts_after_is(sentence: str) -> list[str]:
    """Extract what follows "is" and similar verbs: "The colour of it is blue" → "blue"."""
    return [sentence[verb.end() :] for verb in COPULA.finditer(sentence[:2000])]
