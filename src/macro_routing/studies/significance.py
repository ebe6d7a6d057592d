"""Whether a method beats the baseline over benchmarks, model by model (paper, significance table; specification §6)."""

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from macro_routing.errors import RunError, shorten_value, suggest_name
from macro_routing.evaluation.statistics import bootstrap_gain_over_benchmarks, holm_correction
from macro_routing.report.figure import Figure
from macro_routing.report.formatting import format_number_of, format_p_value, format_signed
from macro_routing.report.interval_chart import GAIN, LOSS, OPEN, IntervalRow, draw_intervals
from macro_routing.runs.result import LEVEL
from macro_routing.studies.paired_comparisons import CORRECTED_MEANINGS
from macro_routing.studies.study_result import DATA, StudyResult
from macro_routing.studies.tables import Column, Table, make_text_column, number_column

STUDY = "significance"
_MIN_BENCHMARKS = 3
"""Benchmarks that an interval over them needs."""
AVERAGE = "Avg"
"""A column that is not a benchmark."""
_MAX_PERCENTAGE = 1e6
"""No percentage is larger; NaN, infinity and integers beyond floating point are not either."""
_EXPECTED = (
    "the folder of `macro study main-table`, or a list of"
    ' {"model": name, "method": name, "accuracy": {benchmark: [mean, deviation]}}'
)
Results = Sequence[Mapping[str, Any]]
"""Lines of a main table: model, method, and (mean, deviation) in percent by benchmark."""


def load_main_table_study_rows(path: Path) -> Results:
    """A main table's lines: a study's folder or data.json, or a JSON list of such lines."""
    file = path / DATA if path.is_dir() else path
    try:
        contents = json.loads(file.read_text(encoding="utf-8"))
        lines = contents["details"]["results"] if isinstance(contents, dict) else contents
        _check_accuracy_lines_format(lines)
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error.strerror}; name a main-table study or a JSON file") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = "its JSON is nested too deeply" if isinstance(error, RecursionError) else str(error)
        reason = f"there is no {reason}" if isinstance(error, KeyError) else reason
        raise RunError(f"{file} holds no main table ({reason}); it takes {_EXPECTED}") from None
    if not lines:
        raise RunError(f"{file} holds no results; it takes {_EXPECTED}")
    counts = Counter((line["model"], line["method"]) for line in lines)
    (model, method), most = counts.most_common(1)[0]
    if most > 1:  # neither is known to be the right one
        raise RunError(f"{file} has two lines of {model} with {method}; keep one of them")
    return list(lines)


def _check_accuracy_lines_format(lines: object) -> None:
    if not isinstance(lines, list):
        raise TypeError("it is not a list of lines")
    for number, line in enumerate(lines, 1):
        _check_result_line(line, number)


def _check_result_line(line: object, number: int) -> None:
    """Reject a line of another shape; the message says what is wrong."""
    if not isinstance(line, dict):
        raise TypeError(f"line {number} is {shorten_value(line)}, not an object")
    for name in ("model", "method"):
        if not isinstance(line.get(name), str):
            raise TypeError(f"the {name} of line {number} is {shorten_value(line.get(name))}, not a string")
    if not isinstance(line.get("accuracy"), dict):
        raise TypeError(f"the accuracy of line {number} is {shorten_value(line.get('accuracy'))}, not an object")
    for benchmark, value in line["accuracy"].items():
        mean = value[0] if isinstance(value, list) and value else value
        is_number = isinstance(mean, int | float) and not isinstance(mean, bool) and abs(mean) <= _MAX_PERCENTAGE
        if not isinstance(value, list) or not is_number:
            raise TypeError(
                f"{line['model']}, {line['method']}, {benchmark}: {shorten_value(value)} does not begin with a finite"
                " number"
            )


def compute_differences_by_model(results: Results, baseline: str, method: str) -> dict[str, list[float]]:
    """By model that has both: one difference in points per benchmark that has both."""
    differences: dict[str, list[float]] = {}
    for model in dict.fromkeys(line["model"] for line in results):
        arms = {line["method"]: line["accuracy"] for line in results if line["model"] == model}
        if baseline in arms and method in arms:
            names = [name for name in arms[baseline] if name in arms[method] and name != AVERAGE]
            if not names:
                raise RunError(
                    f"{baseline} and {method} of {model} have no benchmark in common; add one, or name the other"
                    " models with --models"
                )
            differences[model] = [arms[method][name][0] - arms[baseline][name][0] for name in names]
    if not differences:
        methods = ", ".join(dict.fromkeys(line["method"] for line in results))
        raise RunError(f"no model has both {baseline} and {method}; there are {methods}")
    return differences


def test_significance_by_model(differences: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    """A line per model; p-values are corrected over the models."""
    tests = {model: bootstrap_gain_over_benchmarks(values) for model, values in differences.items()}
    corrected = holm_correction([test.p_value for test in tests.values()])
    return [
        {"model": model, **dataclasses.asdict(test), "p_holm": p, "benchmarks": len(differences[model])}
        for (model, test), p in zip(tests.items(), corrected, strict=True)
    ]


def make_significance_table(rows: Sequence[Mapping[str, Any]], method: str, baseline: str) -> Table:
    """The paper's columns: mean difference, interval, wins/ties/losses, corrected p-value."""
    notes = (
        (
            f"Differences of {method} to {baseline}, one per benchmark, averaged over seeds. The interval resamples"
            " benchmarks (cluster bootstrap, 95 % percentiles, 10^5 resamples); p is a one-sided exact Wilcoxon"
            f" signed-rank test, corrected by Holm over {format_number_of(len(rows), 'model')}. With fewer than five"
            f" benchmarks no p can fall below 0.05, and with fewer than {_MIN_BENCHMARKS} there is no interval."
        ),
    )
    columns = [
        make_text_column("model", "model"),
        number_column("mean difference, points", "mean", lambda mean: format_signed(mean, 2)),
        Column("95 % interval", _format_interval),
        Column("W/T/L", lambda row: f"{row['wins']}/{row['ties']}/{row['losses']}"),
        number_column("p, Holm", "p_holm", format_p_value),
        number_column("benchmarks", "benchmarks"),
    ]
    return Table(f"{method} against {baseline} over benchmarks", columns, rows, notes)


def _format_interval(row: Mapping[str, Any]) -> str:
    return (
        f"{format_signed(row['low'], 2)} to {format_signed(row['high'], 2)}"
        if row["benchmarks"] >= _MIN_BENCHMARKS
        else ""
    )


def draw_significance(rows: Sequence[Mapping[str, Any]], method: str, baseline: str) -> Figure:
    """Every model's mean difference with its interval."""
    shown = []
    for row in rows:
        kind = OPEN if row["p_holm"] >= LEVEL else GAIN if row["mean"] > 0 else LOSS
        shown.append(IntervalRow(row["model"], row["low"], row["mean"], row["high"], kind))
    counts = sorted({row["benchmarks"] for row in rows})
    benchmarks = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    title = f"{method} minus {baseline}, mean over {benchmarks} benchmarks with 95 % intervals"
    return draw_intervals(STUDY, title, "points of accuracy", shown, 0.0, CORRECTED_MEANINGS)


def run_significance_study(results: Results, baseline: str, method: str, models: Sequence[str] = ()) -> StudyResult:
    """The whole study from a main table; ``models`` are those that p-values are corrected over, all if empty."""
    known = list(dict.fromkeys(line["model"] for line in results))
    for model in models:
        if model not in known:
            raise RunError(f"{model} is not in the table; it has {', '.join(known)}{suggest_name(model, known)}")
    kept = [line for line in results if not models or line["model"] in models]
    rows = test_significance_by_model(compute_differences_by_model(kept, baseline, method))
    better = [row["model"] for row in rows if row["p_holm"] < LEVEL]
    headline = f"{method} is better than {baseline} on {len(better)} of {len(rows)} models (p < 0.05, corrected)."
    table = make_significance_table(rows, method, baseline)
    return StudyResult(STUDY, headline, table, [draw_significance(rows, method, baseline)])
