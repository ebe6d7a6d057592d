"""The result of a study as files: data for programs, tables for papers, figures for people."""

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from macro_routing.files import replace_non_finite
from macro_routing.models.environment import describe_environment
from macro_routing.report.figure import Figure
from macro_routing.report.figure_files import save_figures
from macro_routing.report.formatting import shorten_model_name
from macro_routing.report.rendering import write_output_file
from macro_routing.studies.folder import FORMAT, StudyFolder
from macro_routing.studies.tables import Table

DATA, TABLE, FIGURE = "data.json", "table", "figure"
_FIGURE_SUFFIXES = {".svg", ".png", ".pdf"}
_PRIVATE_FACTS = ("cache folder", "built-in models")
"""Of this machine only."""


@dataclass(frozen=True)
class StudyResult:
    """What a study found: a sentence, tables and figures."""

    study: str
    headline: str
    """The result in a sentence."""
    table: Table
    """The study's main table."""
    figures: Sequence[Figure] = ()
    """The first is called ``figure``, the others by their own names."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Values that the rows do not hold."""
    other_tables: Mapping[str, Table] = field(default_factory=dict)
    """By file name."""
    untabled_comparisons: int = 0
    """Comparisons without a p-value in the main table."""

    @property
    def tables(self) -> dict[str, Table]:
        """All tables by file name, the main one first."""
        return {TABLE: self.table, **self.other_tables}

    @property
    def comparison_count(self) -> int:
        """How many comparisons were made: of twenty tests one is significant by chance."""
        return self.untabled_comparisons + sum(row.get("p_holm") is not None for row in self.table.rows)


def write_study_result(
    folder: StudyFolder,
    result: StudyResult,
    settings: Mapping[str, Any],
    command: str,
    report: Callable[[str], None],
) -> dict[str, Any]:
    """Write the result into the study's folder; returns the contents of data.json."""
    from macro_routing.version import __version__

    tables = {name: _add_model_to_table_title(table, settings) for name, table in result.tables.items()}
    data: dict[str, Any] = {
        "format": FORMAT,
        "study": result.study,
        "headline": result.headline,
        "command": command,
        "macro": __version__,
        "written": time.strftime("%Y-%m-%d %H:%M:%S"),
        "settings": dict(settings),
        "environment": {
            fact.topic: fact.finding for fact in describe_environment() if fact.topic not in _PRIVATE_FACTS
        },
        "comparisons": result.comparison_count,
        "tables": {
            name: {
                "title": table.title,
                "rows": list(table.rows),
                "shown": table.to_formatted_records(),
                "notes": list(table.notes),
            }
            for name, table in tables.items()
        },
        "details": dict(result.details),
    }
    for name, table in tables.items():
        write_output_file(folder.path / f"{name}.csv", table.to_csv())
        write_output_file(folder.path / f"{name}.md", table.to_markdown())
        write_output_file(folder.path / f"{name}.tex", table.to_latex())
    figures = [
        dataclasses.replace(figure, name=FIGURE if index == 0 else figure.name)
        for index, figure in enumerate(result.figures)
    ]
    previous = _list_previous_figures(folder)
    data["pictures"] = [path.name for path in save_figures(figures, folder.path, report)]
    for name in previous - set(data["pictures"]):  # of earlier settings
        (folder.path / name).unlink(missing_ok=True)
    data = replace_non_finite(data)
    write_output_file(folder.path / DATA, json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return data


def _list_previous_figures(folder: StudyFolder) -> set[str]:
    """Names of the figures that an earlier run of the study has drawn in this folder."""
    try:
        kept = json.loads((folder.path / DATA).read_text(encoding="utf-8"))["pictures"]
        return {
            str(name)
            for name in kept
            if Path(str(name)).suffix in _FIGURE_SUFFIXES and Path(str(name)).name == str(name)
        }
    except (OSError, ValueError, TypeError, KeyError):
        return set()


def _add_model_to_table_title(table: Table, settings: Mapping[str, Any]) -> Table:
    """The table with the model in its title, unless a column names it."""
    runs = settings.get("runs")
    if not isinstance(runs, Mapping) or any("model" in row for row in table.rows):
        return table
    return dataclasses.replace(table, title=f"{table.title} ({shorten_model_name(str(runs['model']))})")
