"""The page of one run: the verdict first, then its evidence, then how to reproduce it."""

import shlex
from pathlib import Path

from markupsafe import Markup

from macro_routing.report.answers import render_changed_answers
from macro_routing.report.block_map import draw_block_map
from macro_routing.report.cost import render_route_cost_section
from macro_routing.report.policy_map import render_policy_maps
from macro_routing.report.rendering import render_page, render_template, write_output_file
from macro_routing.report.reproduce import render_reproduction
from macro_routing.report.result_section import render_result
from macro_routing.report.rounds_chart import render_rounds_chart
from macro_routing.report.route_chart import render_route
from macro_routing.report.run_data import RunData, explain_unreadable_run, load_run_for_report
from macro_routing.report.search_tables import render_candidates_table, render_rounds_table
from macro_routing.report.token_stats import render_token_stats
from macro_routing.runs.folder import REPORT, RunFolder
from macro_routing.runs.result import LEVEL
from macro_routing.search.decision_settings import DecisionSettings


def write_report(folder: str | Path, output: Path | None = None) -> Path:
    """Write a run's page into its folder, or to ``output``; the page of an unfinished run says how far it came."""
    run = load_run_for_report(folder)
    with explain_unreadable_run(run.path):
        page = render_page(
            "run.html",
            run.title,
            _render_sections(run),
            run=run,
            outcome=_get_verdict_class(run),
            planned_rounds=run.search_settings["iterations"],
            resume_command=f"macro resume {shlex.quote(str(run.path))}",
        )
    if output is None:
        RunFolder(run.path).write_text(REPORT, page)
        return run.path / REPORT
    write_output_file(output, page)
    return output


def _get_verdict_class(run: RunData) -> str:
    if run.result is None:
        return ""
    if run.result.is_gain:
        return "better"
    is_loss = run.result.comparison.difference < 0 and run.result.comparison.p_value < LEVEL
    return "worse" if is_loss else ""


def _render_sections(run: RunData) -> dict[str, Markup]:
    """Every section that the run has data for, by title."""
    sections: dict[str, Markup] = {}
    generates = run.generates_text
    if run.result is not None:
        seed = int(run.given_config["seed"])
        sections["Result"] = render_result(
            run.result, run.answers, generates=generates, seed=seed, chosen_by=run.chosen_by
        )
    if run.chosen_route is not None:
        sections["Route"] = render_route(run.chosen_route)
        sections["Cost"] = render_route_cost_section(run.chosen_route, run.cost, run.rounds)
    if run.result is not None and run.answers is not None:
        stats = render_token_stats(run.answers, run.result, generates=generates, resolved=run.resolved_config)
        sections["Truncation and tokens"] = stats
    sections |= _render_search_sections(run)
    if run.choice is not None:
        level = run.given_config.get("decision", {}).get(
            "max_error_probability", DecisionSettings().max_error_probability
        )
        sections["Candidates"] = render_candidates_table(run.choice, level)
    if run.result is not None and run.answers is not None:
        sections["Answers"] = render_changed_answers(run.answers, run.result, generates=generates)
    return {**sections, "To reproduce it": render_reproduction(run)}


def _render_search_sections(run: RunData) -> dict[str, Markup]:
    """The sections about the search itself."""
    sections: dict[str, Markup] = {}
    planned, draws = run.search_settings["iterations"], run.search_settings["draws"]
    if run.has_search_per_example:
        sections["Tree searches"] = render_template("tree_searches.html", rounds=run.rounds, oracle=run.oracle)
    elif planned:  # the standard pass alone needs none
        chart = render_rounds_chart(run.rounds, planned, run.search_settings, run.draws)
        sections["Accuracy per round"] = chart + (render_rounds_table(run.rounds, draws) if run.rounds else "")
    block_map = draw_block_map(run.draws, run.layers) if run.sweeps_blocks else None
    if block_map is not None:
        sections["Repeated blocks"] = block_map.to_html()
    if run.policies:
        sections["Policy per round"] = render_policy_maps(run.policies, run.chosen_single_route)
    return sections
