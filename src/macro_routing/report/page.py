"""The page: verdict first, then what speaks for it, then how to repeat it."""

from __future__ import annotations

import shlex
from pathlib import Path

from macro_routing.errors import RunError
from macro_routing.report.answers import changed_answers
from macro_routing.report.chart import rounds_chart
from macro_routing.report.markup import Markup, element, joined
from macro_routing.report.outcome import comparison_tiles, variants_table
from macro_routing.report.repetition import repetition
from macro_routing.report.run_data import RunData, read_run
from macro_routing.report.search_tables import candidates_table, rounds_table
from macro_routing.report.style import CSS
from macro_routing.report.track import route_track
from macro_routing.routes.text import parse_program
from macro_routing.runs.folder import REPORT, RunFolder
from macro_routing.runs.result import LEVEL

_NOTHING_FOREIGN = "default-src 'none'; style-src 'unsafe-inline'"
"""No script, no picture and nothing from elsewhere, whatever a model wrote."""

_METHODS = {"macro": "MACRO's search", "random": "random search"}


def write_report(folder: str | Path, output: Path | None = None) -> Path:
    """Write a run's page into its folder, or to ``output``; an unfinished run's says how far it came."""
    place = RunFolder.existing(Path(folder))
    try:
        page = _page(read_run(place))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise RunError(
            f"{place.path} holds a file of another shape than this version writes ({type(error).__name__}: {error});"
            " it cannot be shown"
        ) from None
    if output is None:
        place.write_text(REPORT, page)
        return place.path / REPORT
    _write_elsewhere(output, page)
    return output


def _write_elsewhere(path: Path, page: str) -> None:
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        unfinished.write_text(page, encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}; name another file") from None


def _page(run: RunData) -> str:
    title = f"{run.header['model']['name']} on {run.header['scope'].get('task', run.given['task'])}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_NOTHING_FOREIGN}"/>'),
        element("title", f"{title} – MACRO"),
        element("style", Markup(CSS)),
    )
    body = element("body", element("main", _header(run, title), *_sections(run)))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _header(run: RunData, title: str) -> Markup:
    given = run.given
    facts = [
        _METHODS.get(given["method"], given["method"]),
        f"preset {given['preset']}",
        f"seed {given['seed']}",
        f"{run.mode} answers",
    ]
    line = " · ".join([*facts, f"{run.layers} layers", f"started {run.header['started']}"])
    return joined(element("h1", title), element("p", line, class_="soft"), _verdict(run), _unfinished(run), _ended(run))


def _verdict(run: RunData) -> Markup | None:
    if run.result is None:
        return None
    is_loss = run.result.comparison.difference < 0 and run.result.comparison.p_value < LEVEL
    worth = "better" if run.result.is_gain else "worse" if is_loss else ""
    return element("div", run.result.verdict, class_=f"verdict {worth}".strip())


def _unfinished(run: RunData) -> Markup | None:
    """How far a run came, and how to go on with it."""
    if run.is_finished:
        return None
    stages = [
        f"{len(run.rounds)} of {run.settings['iterations']} rounds are searched",
        "the candidates are not validated yet" if run.choice is None else "a route is chosen",
        "the test set has not been looked at" if run.result is None else "it is tested, only its closing is missing",
    ]
    go_on = element("code", f"macro resume {shlex.quote(str(run.path))}")
    told = element("p", "; ".join(stages), ". Go on with ", go_on)
    return element("div", "This run is not finished.", told, class_="verdict open")


def _ended(run: RunData) -> Markup | None:
    if run.ended is None:
        return None
    planned = run.settings["iterations"]
    reason = "its time was up (max_minutes)" if run.ended["reason"] == "max_minutes" else str(run.ended["reason"])
    return element("p", f"The search ended after {run.ended['rounds']} of {planned} rounds: {reason}.")


def _sections(run: RunData) -> list[Markup]:
    draws, planned = run.settings["draws"], run.settings["iterations"]
    sections = []
    if run.result is not None:
        sections.append(_section("The route against the standard pass", comparison_tiles(run.result)))
        sections.append(_section("All variants on the test set", variants_table(run.result, run.mode)))
    if run.choice is not None:
        sections.append(_section("The route", _route(run.choice["chosen"], run.layers)))
    sections.append(_section("Accuracy per round", rounds_chart(run.rounds, planned, draws)))
    if run.rounds:
        sections.append(rounds_table(run.rounds, draws))
    if run.choice is not None:
        sections.append(_section("Candidates", candidates_table(run.choice)))
    if run.result is not None and run.answers is not None:
        sections.append(_section("Answers that changed on the test set", changed_answers(run.answers, run.result)))
    return [*sections, _section("To repeat it", repetition(run))]


def _section(title: str, contents: Markup) -> Markup:
    return element("section", element("h2", title), contents)


def _route(text: str, layers: int) -> Markup:
    route = parse_program(text).expand(layers)
    length = f"{route.length} steps; the standard pass has {layers}."
    return joined(element("pre", text, class_="command"), element("p", length), route_track(route))
