"""The answers that a route changed: which it fixed, which it broke, and their text."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from macro_routing.report.rendering import render_paragraphs, render_template
from macro_routing.report.token_stats import is_truncated
from macro_routing.routes.route import Route
from macro_routing.runs.result import RunResult
from macro_routing.tasks.task import LETTERS

_MAX_SHOWN = 60
_MAX_BYTES = 800_000
"""Of each kind; with both, and everything else on it, the page stays under three megabytes."""
_MAX_CHARACTERS = 6_000
"""Of one text."""
_MAX_SUMMARY = 160

Answer = dict[str, Any]
AnswerPair = tuple[Answer, Answer, Answer]
"""Example, standard pass, route."""


def render_changed_answers(answers: dict[str, Any], result: RunResult, *, generates: bool) -> Markup:
    """Test examples that only one of the chosen route and the standard pass has correct."""
    standard = str(Route.standard(result.layers))
    if result.route == standard:
        return render_paragraphs("The standard pass was chosen, so no answer differs from it.")
    pairs = list(zip(answers["examples"], answers["routes"][standard], answers["routes"][result.route], strict=True))
    changed = {
        "fixed": [pair for pair in pairs if pair[2]["correct"] and not pair[1]["correct"]],
        "broken": [pair for pair in pairs if pair[1]["correct"] and not pair[2]["correct"]],
    }
    if not any(changed.values()):
        return render_paragraphs("No answer changed from correct to wrong or from wrong to correct.")
    shown = {kind: _render_answers_within_limits(kind, group) for kind, group in changed.items()}
    notes = [
        f"{len(changed[kind]) - len(details)} more {kind} ones are in answers.json."
        for kind, details in shown.items()
        if len(details) < len(changed[kind])
    ]
    counts = {"all": sum(map(len, changed.values())), **{kind: len(group) for kind, group in changed.items()}}
    if generates:
        counts["truncated"] = sum(any(map(is_truncated, pair[1:])) for group in changed.values() for pair in group)
    return render_template("answers.html", counts=counts, shown=[*shown["fixed"], *shown["broken"]], notes=notes)


def _render_answers_within_limits(kind: str, group: Sequence[AnswerPair]) -> list[Markup]:
    rendered: list[Markup] = []
    size = 0
    for pair in group[:_MAX_SHOWN]:
        details = render_template("answer.html", kind=kind, pair=pair, letters=LETTERS, **_TEXT_FUNCTIONS)
        size += len(details.encode())
        if size > _MAX_BYTES:
            break
        rendered.append(details)
    return rendered


def _format_answer_with_choice(prediction: str, choices: Sequence[str]) -> str:
    """An answer; a letter with the choice it stands for."""
    index = LETTERS.find(prediction) if len(prediction) == 1 else -1
    named = f"{prediction} ({choices[index]})" if 0 <= index < len(choices) else prediction
    return _shorten_text(named, _MAX_SUMMARY) or "no answer"


def _shorten_text(text: str, maximum: int = _MAX_CHARACTERS) -> str:
    rest = len(text) - maximum
    if rest <= 0:
        return text
    return f"{text[:maximum]}…" if maximum == _MAX_SUMMARY else f"{text[:maximum]}… ({rest} more characters)"


def _shorten_question(text: str) -> str:
    return _shorten_text(" ".join(text.split()), _MAX_SUMMARY)


_TEXT_FUNCTIONS = {
    "is_truncated": is_truncated,
    "format_prediction": _format_answer_with_choice,
    "shorten": _shorten_text,
    "shorten_question": _shorten_question,
}
