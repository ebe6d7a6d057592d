"""Methods against each other on one page: what each found, what that cost, and what it would have found earlier."""

from collections.abc import Sequence
from pathlib import Path

from macro_routing.report.budget_chart import draw_budget_chart
from macro_routing.report.figure import Figure
from macro_routing.report.formatting import NO_VALUE, format_count, format_duration, format_p_value, format_percent
from macro_routing.report.interval_chart import GAIN, LOSS, OPEN, draw_intervals, make_difference_interval_row
from macro_routing.report.rendering import render_page, render_table, write_output_file
from macro_routing.report.result_section import make_difference_cell
from macro_routing.report.tables import ReportTable, Row, TableCell
from macro_routing.runs.comparison_results import MethodRow, MethodRun, summarize_methods
from macro_routing.runs.control_comparison import BeyondControl, compare_with_best_control, describe_controls
from macro_routing.runs.methods import METHODS
from macro_routing.runs.result import ORACLE, ROUTER, STANDARD, TWO_MODELS

_COLUMNS = ("method", "test", "difference", "asked", "layers × tokens", "search", "layers run")
_NOTE = (
    "Test: mean accuracy over seeds, ± sample standard deviation. Difference: to the standard pass on the same "
    "examples, with a 95 % bootstrap interval over test examples; seeds that share an example count as one. Asked: "
    "route × example outcomes requested by the search, known or not; layers × tokens: those of the answers it looked "
    "at, in millions; search: time on this machine, less for whoever comes later and finds scores in the store. "
    "Layers run: what the chosen route applies per token. Validation and test are the same for all and in no cost. "
    "Intervals are of one line each, not corrected for the number of methods; to take the best line of this table is "
    "to choose on test data. MACRO (top-1) and MACRO (no Vit.) are the paper's variants of a run of MACRO, the most "
    "probable program and the best draw, neither validated; they are not separate methods."
)
_CONTROLS_NOTE = (
    "A control combines predictions by a simple published rule and is confirmed by nothing. The best one has the "
    "highest accuracy on its training examples, for each seed. Difference: on the same test examples, with a 95 % "
    "bootstrap interval over examples; p is a sign-flip test, Holm's correction is for the lines of this table."
)
_MEANINGS = {GAIN: "its interval lies above 0", LOSS: "its interval lies below 0", OPEN: "its interval holds 0"}
_KINDS = {
    ROUTER: "a router: it decides for each prompt",
    ORACLE: "knows the answers: a bound, not a method",
    TWO_MODELS: "adds a second model",
}


def write_method_comparison(runs: Sequence[MethodRun], output: Path, about: str = "") -> Path:
    """Write the page that compares methods; ``about`` says what the runs have in common."""
    rows = summarize_methods(runs)
    methods, seeds = len({run.method for run in runs}), len({run.seed for run in runs})
    title = f"{methods} methods, {seeds} seeds" if seeds > 1 else f"{methods} methods, one seed"
    beyond = compare_with_best_control(runs)
    sections = {
        "Results": render_table(_make_methods_table(rows), [_NOTE], draw_method_gains(rows)),
        **({"Beyond the best control": render_table(_make_controls_table(beyond), [_CONTROLS_NOTE])} if beyond else {}),
        "Accuracy against budget": draw_budget_chart(runs).to_html(),
        "Every run": render_table(_make_runs_table(runs)),
    }
    write_output_file(output, render_page("method_comparison.html", title, sections, about=about))
    return output


def draw_method_gains(rows: Sequence[MethodRow]) -> Figure | None:
    """Difference of every line to the standard pass; None where there is no other line."""
    shown = [
        make_difference_interval_row(row.name, row, GAIN if row.low > 0 else LOSS if row.high < 0 else OPEN)
        for row in rows
        if row.name != STANDARD and row.kind != ORACLE
    ]
    if not shown:
        return None
    title = "Difference to the standard pass on the test set, with 95 % intervals"
    return draw_intervals("methods", title, "points", shown, 0.0, _MEANINGS)


def _make_methods_table(rows: Sequence[MethodRow]) -> ReportTable:
    max_seeds = max(row.seeds for row in rows)
    lines: list[Row] = [
        [
            TableCell(row.name, _KINDS.get(row.kind, ""), kind="bold"),
            _make_accuracy_cell(row, max_seeds),
            NO_VALUE if row.name == STANDARD else make_difference_cell(row),
            format_count(row.asked),
            f"{row.work / 1e6:.3g}",
            format_duration(row.seconds),
            f"{row.layers:.1f}",
        ]
        for row in rows
    ]
    return ReportTable(_COLUMNS, lines, numbers=_COLUMNS[1:])


def _make_controls_table(rows: Sequence[BeyondControl]) -> ReportTable:
    columns = ("method", "best control", "difference", "p")
    lines: list[Row] = [
        [
            TableCell(row.name, kind="bold"),
            describe_controls(row),
            make_difference_cell(row),
            TableCell(format_p_value(row.p_value), f"Holm {format_p_value(row.p_holm)}"),
        ]
        for row in rows
    ]
    return ReportTable(columns, lines, numbers=columns[2:])


def _make_accuracy_cell(row: MethodRow, max_seeds: int) -> TableCell:
    """With the number of seeds: a method with fewer has other test examples, and another baseline, too."""
    spread = [] if row.spread is None else [f"± {100 * row.spread:.1f}"]
    count = f"{row.seeds} of {max_seeds} seeds" if row.seeds < max_seeds else f"{max_seeds} seeds"
    return TableCell(format_percent(row.accuracy), ", ".join([*spread, *([count] if max_seeds > 1 else [])]))


def _make_runs_table(runs: Sequence[MethodRun]) -> ReportTable:
    columns = ("run", "route", "test", "evaluations")
    rows: list[Row] = [
        [
            TableCell(
                f"{METHODS[run.method].title}, seed {run.seed}",
                kind="link",
                href=f"{run.method}-{run.seed}/report.html",
            ),
            TableCell(run.result.variants[0].route, kind="code"),
            format_percent(run.result.variants[0].accuracy),
            format_count(run.asked),
        ]
        for run in runs
    ]
    return ReportTable(columns, rows, numbers=columns[2:])
