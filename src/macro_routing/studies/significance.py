"""Whether a method beats the baseline over benchmarks, model by model (paper, significance table; specification §6)."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from macro_routing.errors import RunError, shorten, suggestion
from macro_routing.evaluation.statistics import benchmark_significance, holm_correction
from macro_routing.report.figure import Figure
from macro_routing.report.formatting import format_p_value, format_signed
from macro_routing.report.interval_chart import GAIN, LOSS, OPEN, IntervalRow
from macro_routing.runs.result import LEVEL
from macro_routing.studies.paired_comparisons import draw_judged_intervals
from macro_routing.studies.settings import SignificanceSettings
from macro_routing.studies.study_result import DATA, StudyResult
from macro_routing.studies.tables import Column, Table, number_column, text_column

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


def read_results(path: Path) -> Results:
    """A main table's lines: a study's folder or data.json, or a JSON list of such lines."""
    file = path / DATA if path.is_dir() else path
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        lines = found["details"]["results"] if isinstance(found, dict) else found
        _check_lines(lines)
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error.strerror}; name a main-table study or a JSON file") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = "its JSON is nested too deeply" if isinstance(error, RecursionError) else str(error)
        reason = f"there is no {reason}" if isinstance(error, KeyError) else reason
        raise RunError(f"{file} holds no main table ({reason}); it takes {_EXPECTED}") from None
    if not lines:
        raise RunError(f"{file} holds no results; it takes {_EXPECTED}")
    _check_duplicates(file, lines)
    return list(lines)


def _check_lines(lines: object) -> None:
    if not isinstance(lines, list):
        raise TypeError("it is not a list of lines")
    for place, line in enumerate(lines):
        _check_line(line, place + 1)


def _check_line(line: object, number: int) -> None:
    """Refuse a line that is none, in words; what it holds is a stranger's."""
    if not isinstance(line, dict):
        raise TypeError(f"line {number} is {shorten(line)}, not an object")
    for name in ("model", "method"):
        if not isinstance(line.get(name), str):
            raise TypeError(f"the {name} of line {number} is {shorten(line.get(name))}, not a string")
    if not isinstance(line.get("accuracy"), dict):
        raise TypeError(f"the accuracy of line {number} is {shorten(line.get('accuracy'))}, not an object")
    for benchmark, value in line["accuracy"].items():
        mean = value[0] if isinstance(value, list) and value else value
        is_number = isinstance(mean, int | float) and not isinstance(mean, bool) and abs(mean) <= _MAX_PERCENTAGE
        if not isinstance(value, list) or not is_number:
            raise TypeError(
                f"{line['model']}, {line['method']}, {benchmark}: {shorten(value)} does not begin with a finite number"
            )


def _check_duplicates(file: Path, lines: Results) -> None:
    """Refuse two lines of one model and method: neither is known to be the right one."""
    known = set()
    for line in lines:
        pair = line["model"], line["method"]
        if pair in known:
            raise RunError(f"{file} has two lines of {pair[0]} with {pair[1]}; keep one of them")
        known.add(pair)


def differences_by_model(results: Results, baseline: str, method: str) -> dict[str, list[float]]:
    """By model that has both: one difference in points per benchmark that has both."""
    found: dict[str, list[float]] = {}
    for model in dict.fromkeys(line["model"] for line in results):
        arms = {line["method"]: line["accuracy"] for line in results if line["model"] == model}
        if baseline in arms and method in arms:
            names = [name for name in arms[baseline] if name in arms[method] and name != AVERAGE]
            if not names:
                raise RunError(
                    f"{baseline} and {method} of {model} have no benchmark in common; add one, or name the other"
                    " models with --models"
                )
            found[model] = [arms[method][name][0] - arms[baseline][name][0] for name in names]
    if not found:
        methods = ", ".join(dict.fromkeys(line["method"] for line in results))
        raise RunError(f"no model has both {baseline} and {method}; there are {methods}")
    return found


def test_significance_by_model(differences: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    """A line per model; p-values are corrected over the models."""
    found = {model: benchmark_significance(values) for model, values in differences.items()}
    corrected = holm_correction([one.p_value for one in found.values()])
    return [
        {"model": model, **dataclasses.asdict(one), "p_holm": p, "benchmarks": len(differences[model])}
        for (model, one), p in zip(found.items(), corrected, strict=True)
    ]


def make_significance_table(rows: Sequence[Mapping[str, Any]], method: str, baseline: str) -> Table:
    """The paper's columns: mean difference, interval, wins/ties/losses, corrected p-value."""
    notes = (
        (
            f"Differences of {method} to {baseline}, one per benchmark, averaged over seeds. The interval resamples"
            " benchmarks (cluster bootstrap, 95 % percentiles, 10^5 resamples); p is a one-sided exact Wilcoxon"
            f" signed-rank test, corrected by Holm over {len(rows)} model(s). With fewer than five benchmarks no p"
            f" can fall below 0.05, and with fewer than {_MIN_BENCHMARKS} there is no interval."
        ),
    )
    columns = [
        text_column("model", "model"),
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

    def classify_row(row: Mapping[str, Any]) -> str:
        return OPEN if row["p_holm"] >= LEVEL else GAIN if row["mean"] > 0 else LOSS

    shown = [IntervalRow(row["model"], row["low"], row["mean"], row["high"], classify_row(row)) for row in rows]
    counts = sorted({row["benchmarks"] for row in rows})
    told = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    title = f"{method} minus {baseline}, mean over {told} benchmark(s) with 95 % intervals"
    return draw_judged_intervals(STUDY, title, "points of accuracy", shown)


def run_significance(results: Results, settings: SignificanceSettings) -> StudyResult:
    """The whole study from a main table."""
    baseline, method, models = settings.baseline, settings.method, settings.models
    known = [line["model"] for line in results]
    for model in models:
        if model not in known:
            told = ", ".join(dict.fromkeys(known))
            raise RunError(f"{model} is not in the table; it has {told}{suggestion(model, known)}")
    kept = [line for line in results if not models or line["model"] in models]
    rows = test_significance_by_model(differences_by_model(kept, baseline, method))
    better = [row["model"] for row in rows if row["p_holm"] < LEVEL]
    headline = f"{method} is better than {baseline} on {len(better)} of {len(rows)} models (p < 0.05, corrected)."
    table = make_significance_table(rows, method, baseline)
    return StudyResult(STUDY, headline, table, [draw_significance(rows, method, baseline)])
