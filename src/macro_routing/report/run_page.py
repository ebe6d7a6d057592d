"""The page of one run: verdict first, then what speaks for it, then how to repeat it."""

from __future__ import annotations

import shlex
from pathlib import Path

from macro_routing.report.answers import changed_answers
from macro_routing.report.block_map import block_map_figure
from macro_routing.report.cost import cost_table, search_cost
from macro_routing.report.document import contents_list, document, section, write_file
from macro_routing.report.formatting import format_count, format_percent
from macro_routing.report.markup import Markup, element, joined
from macro_routing.report.policy_map import policy_maps
from macro_routing.report.reproduce import repetition
from macro_routing.report.result_section import comparison_tiles, differences_to_standard, variants_table
from macro_routing.report.rounds_chart import rounds_chart
from macro_routing.report.route_chart import route_track
from macro_routing.report.run_data import RunData, open_run, shown_safely
from macro_routing.report.search_tables import candidates_table, rounds_table
from macro_routing.report.token_stats import writing
from macro_routing.routes.route import Route
from macro_routing.runs.folder import REPORT, RunFolder
from macro_routing.runs.result import LEVEL, RunResult


def write_report(folder: str | Path, output: Path | None = None) -> Path:
    """Write a run's page into its folder, or to ``output``; an unfinished run's says how far it came."""
    run = open_run(folder)
    with shown_safely(run.path):
        page = _page(run)
    if output is None:
        RunFolder(run.path).write_text(REPORT, page)
        return run.path / REPORT
    write_file(output, page)
    return output


def _page(run: RunData) -> str:
    sections = _sections(run)
    drawn = [section(title, contents) for title, contents in sections.items()]
    return document(run.title, _header(run, run.title), contents_list(list(sections)), *drawn)


def _header(run: RunData, title: str) -> Markup:
    given = run.given
    facts = [
        f"method {given['method']}",
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


def _sections(run: RunData) -> dict[str, Markup]:
    """Everything that the run has come to."""
    found: dict[str, Markup] = {}
    if run.result is not None:
        found["Result"] = joined(comparison_tiles(run.result), _variants(run, run.result))
    if run.chosen is not None:
        found["Route"] = _route(run.chosen)
        found["Cost"] = joined(cost_table(run.chosen, run.cost), search_cost(run.rounds))
    if run.result is not None and run.answers is not None:
        found["Cut-offs and tokens"] = writing(run.answers, run.result, writes=run.writes, resolved=run.resolved)
    if run.grows_trees:
        found["Tree searches"] = _trees(run)
    elif run.settings["iterations"]:  # the standard pass alone needs none
        found["Accuracy per round"] = _search(run)
    block_map = block_map_figure(run.draws, run.layers) if run.sweeps_blocks else None
    if block_map is not None:
        found["Repeated blocks"] = block_map.html()
    if run.policies:
        found["Policy per round"] = policy_maps(run.policies, run.chosen)
    if run.choice is not None:
        found["Candidates"] = candidates_table(run.choice)
    if run.result is not None and run.answers is not None:
        found["Answers"] = changed_answers(run.answers, run.result, writes=run.writes)
    return {**found, "To repeat it": repetition(run)}


def _variants(run: RunData, result: RunResult) -> Markup:
    seed = int(run.given["seed"])
    differences = {} if run.answers is None else differences_to_standard(run.answers, result, seed)
    return joined(
        element("h3", "All variants on the test set"),
        variants_table(result, writes=run.writes, differences=differences),
    )


def _search(run: RunData) -> Markup:
    planned, draws = run.settings["iterations"], run.settings["draws"]
    chart = rounds_chart(run.rounds, planned, run.settings, run.draws)
    return joined(chart, rounds_table(run.rounds, draws) if run.rounds else None)


def _trees(run: RunData) -> Markup:
    """What the searches over single examples came to."""
    if not run.rounds:
        return element("p", "The searches are not finished yet.")
    (one,) = run.rounds
    told = (
        f"{format_count(one.examples)} examples had a search of their own, {format_count(one.asked)} outcomes in all,"
        f" {format_count(one.different)} different routes. The standard pass gets {format_percent(one.standard)} of"
        f" these examples right; for {format_percent(one.best)} a route was found that does."
    )
    lines = [told]
    if run.oracle is not None:
        facts = run.oracle
        lines.append(
            f"Of {facts['already_right']} examples that the standard pass gets right, {facts['of_these_shorter']} have"
            f" a shorter path that does, too; of {facts['wrong']} that it gets wrong, {facts['of_these_fixed']} have"
            " one that gets them right. The answer was known to the search, so this is a bound and not a method."
        )
    return joined(*[element("p", line) for line in lines])


def _route(route: Route) -> Markup:
    length = f"{route.length} steps; the standard pass has {route.layers}."
    return joined(element("pre", str(route), class_="command"), element("p", length), route_track(route))
