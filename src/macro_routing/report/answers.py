"""The answers a route changed: which it mended, which it broke, and in what words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from macro_routing.report.markup import Markup, element, joined
from macro_routing.routes.route import Route
from macro_routing.runs.result import RunResult
from macro_routing.tasks.task import LETTERS

_MOST_SHOWN = 60
_MOST_BYTES = 900_000
"""Of each kind; with both, and everything else on it, the page stays under three megabytes."""
_MOST_CHARACTERS = 6_000
"""Of one text; reasoning that never ends says no more after that."""
_SUMMARY = 160

Answer = dict[str, Any]


def changed_answers(answers: dict[str, Any], result: RunResult) -> Markup:
    """Test examples that only one of the chosen route and the standard pass got right."""
    standard = str(Route.standard(result.layers))
    if result.route == standard:
        return element("p", "The standard pass was chosen, so no answer differs from it.")
    rows = list(zip(answers["examples"], answers["routes"][standard], answers["routes"][result.route], strict=True))
    fixed = [row for row in rows if row[2]["correct"] and not row[1]["correct"]]
    broken = [row for row in rows if row[1]["correct"] and not row[2]["correct"]]
    return joined(
        _group("Fixed", "only the route is right", fixed), _group("Broken", "only the standard pass is right", broken)
    )


def _group(title: str, meaning: str, rows: Sequence[tuple[Answer, Answer, Answer]]) -> Markup:
    shown: list[Markup] = []
    size = 0
    for example, standard, routed in rows[:_MOST_SHOWN]:
        one = _changed(example, standard, routed)
        size += len(one.encode())
        if size > _MOST_BYTES:
            break
        shown.append(one)
    rest = len(rows) - len(shown)
    more = element("p", f"{rest} more are in answers.json.", class_="note") if rest else None
    none = None if rows else element("p", "None.", class_="note")
    summary = element("summary", element("b", f"{title}: {len(rows)}"), element("small", meaning))
    return element("details", summary, *shown, more, none, class_="group")


def _changed(example: Answer, standard: Answer, routed: Answer) -> Markup:
    choices = example["choices"]
    right, before, after = (
        _named(one, choices) for one in (example["answer"], standard["prediction"], routed["prediction"])
    )
    summary = element(
        "summary",
        _cut(" ".join(example["question"].split()), _SUMMARY),
        element("small", f"right: {right} · standard: {before} · route: {after}"),
    )
    listed = [element("li", f"{letter}: {_cut(choice)}") for letter, choice in zip(LETTERS, choices, strict=False)]
    inside = element(
        "div",
        element("pre", _cut(example["question"]), class_="words"),
        element("ul", *listed) if listed else None,
        element("p", "Right answer: ", element("b", right), element("span", f" · {example['id']}", class_="soft")),
        element("div", _side("Standard pass", standard, before), _side("Route", routed, after), class_="sides"),
        class_="inside",
    )
    return element("details", summary, inside)


def _named(prediction: str, choices: Sequence[str]) -> str:
    """An answer; a letter with the choice it stands for."""
    place = LETTERS.find(prediction) if len(prediction) == 1 else -1
    named = f"{prediction} ({choices[place]})" if 0 <= place < len(choices) else prediction
    return _cut(named, _SUMMARY) or "no answer"


def _side(name: str, answer: Answer, prediction: str) -> Markup:
    """One route's answer, with its words where it wrote some."""
    verdict = ("right", "✓ right") if answer["correct"] else ("wrong", "✗ wrong")
    cut = " · cut off" if answer["reasoning_cut"] or answer["answer_cut"] else ""
    head = element("p", element("b", name), ": ", prediction, " ", element("span", verdict[1], class_=verdict[0]), cut)
    words = [(title, answer[part]) for title, part in (("Reasoning", "reasoning"), ("Answer", "text")) if answer[part]]
    written = [
        joined(element("p", title, class_="note"), element("pre", _cut(text), class_="words")) for title, text in words
    ]
    return element("div", head, *written)


def _cut(text: str, most: int = _MOST_CHARACTERS) -> str:
    left = len(text) - most
    if left <= 0:
        return text
    return f"{text[:most]}…" if most == _SUMMARY else f"{text[:most]}… ({left} more characters)"
