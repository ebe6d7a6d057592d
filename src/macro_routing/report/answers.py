"""The answers a route changed: which it mended, which it broke, and in what words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from macro_routing.report.markup import Markup, element, joined
from macro_routing.report.token_stats import is_cut
from macro_routing.routes.route import Route
from macro_routing.runs.result import RunResult
from macro_routing.tasks.task import LETTERS

_MOST_SHOWN = 60
_MOST_BYTES = 800_000
"""Of each kind; with both, and everything else on it, the page stays under three megabytes."""
_MOST_CHARACTERS = 6_000
"""Of one text; reasoning that never ends says no more after that."""
_SUMMARY = 160

Answer = dict[str, Any]
Row = tuple[Answer, Answer, Answer]
"""Example, standard pass, route."""


def changed_answers(answers: dict[str, Any], result: RunResult, *, writes: bool) -> Markup:
    """Test examples that only one of the chosen route and the standard pass got right."""
    standard = str(Route.standard(result.layers))
    if result.route == standard:
        return element("p", "The standard pass was chosen, so no answer differs from it.")
    rows = list(zip(answers["examples"], answers["routes"][standard], answers["routes"][result.route], strict=True))
    kinds = {
        "fixed": [row for row in rows if row[2]["correct"] and not row[1]["correct"]],
        "broken": [row for row in rows if row[1]["correct"] and not row[2]["correct"]],
    }
    if not any(kinds.values()):
        return element("p", "No answer changed from right to wrong or from wrong to right.")
    shown = {kind: _as_many_as_fit(kind, changed) for kind, changed in kinds.items()}
    told = "Fixed: only the route is right. Broken: only the standard pass is right."
    rest = [
        f"{len(kinds[kind]) - len(items)} more {kind} ones are in answers.json."
        for kind, items in shown.items()
        if len(items) < len(kinds[kind])
    ]
    listed = element("div", *shown["fixed"], *shown["broken"], class_="list", tabindex=0)
    return joined(
        element("p", told),
        element("div", *_filters(kinds, with_cuts=writes), listed, class_="answers"),
        *[element("p", note, class_="note") for note in rest],
    )


def _filters(kinds: dict[str, list[Row]], *, with_cuts: bool) -> list[Markup]:
    """Buttons for the kinds, and a field for words that the page's script brings to life."""
    names = {"all": f"All: {sum(map(len, kinds.values()))}"}
    names |= {kind: f"{kind.capitalize()}: {len(rows)}" for kind, rows in kinds.items()}
    if with_cuts:
        cut = sum(is_cut(row[1]) or is_cut(row[2]) for rows in kinds.values() for row in rows)
        names["cut"] = f"Cut off: {cut}"
    buttons: list[Markup] = []
    for kind, name in names.items():
        checked = "" if kind == "all" else None
        buttons.append(element("input", type="radio", name="kind", id=f"kind-{kind}", checked=checked))
        buttons.append(element("label", name, for_=f"kind-{kind}"))
    field = element("input", type="search", placeholder="words to find", aria_label="Show answers with these words")
    return [*buttons, element("span", field, element("output"), class_="find", hidden="")]


def _as_many_as_fit(kind: str, rows: Sequence[Row]) -> list[Markup]:
    shown: list[Markup] = []
    size = 0
    for row in rows[:_MOST_SHOWN]:
        one = _changed(kind, row)
        size += len(one.encode())
        if size > _MOST_BYTES:
            break
        shown.append(one)
    return shown


def _changed(kind: str, row: Row) -> Markup:
    example, standard, routed = row
    choices = example["choices"]
    right, before, after = (
        _named(one, choices) for one in (example["answer"], standard["prediction"], routed["prediction"])
    )
    summary = element(
        "summary",
        element("span", kind, class_="tag"),
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
    marks = f"answer {kind} cut" if is_cut(standard) or is_cut(routed) else f"answer {kind}"
    return element("details", summary, inside, class_=marks)


def _named(prediction: str, choices: Sequence[str]) -> str:
    """An answer; a letter with the choice it stands for."""
    place = LETTERS.find(prediction) if len(prediction) == 1 else -1
    named = f"{prediction} ({choices[place]})" if 0 <= place < len(choices) else prediction
    return _cut(named, _SUMMARY) or "no answer"


def _side(name: str, answer: Answer, prediction: str) -> Markup:
    """One route's answer, with its words where it wrote some."""
    verdict = ("right", "✓ right") if answer["correct"] else ("wrong", "✗ wrong")
    cut = " · cut off" if is_cut(answer) else ""
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
