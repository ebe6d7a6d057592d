"""What a study came to, as files: data for programs, tables for papers, pictures for people."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from macro_routing.models.environment import describe_environment
from macro_routing.report.figure import Figure
from macro_routing.report.figure_files import save_figures
from macro_routing.report.formatting import shorten_model_name
from macro_routing.report.rendering import write_output
from macro_routing.studies.folder import FORMAT, StudyFolder
from macro_routing.studies.tables import Table

DATA, TABLE, FIGURE = "data.json", "table", "figure"
_DRAWN = {".svg", ".png"}
_PRIVATE = ("cache folder", "built-in models")
"""Of this machine only."""


@dataclass(frozen=True)
class StudyResult:
    """A study's result."""

    study: str
    headline: str
    """The result in a sentence."""
    tables: Mapping[str, Table]
    """By file name; the first is the study's own and called ``table``."""
    figures: Sequence[Figure]
    """The first is called ``figure``, the others by their own names."""
    comparisons: int = 0
    """How many pairs of things were compared: of twenty tests one shows something by chance."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What the rows do not hold."""

    @property
    def table(self) -> Table:
        """The study's own table."""
        return next(iter(self.tables.values()))


def write_study_result(
    folder: StudyFolder,
    findings: StudyResult,
    settings: Mapping[str, Any],
    command: str,
    report: Callable[[str], None],
) -> dict[str, Any]:
    """Write everything beside the parts it was made of; gives what data.json holds."""
    from macro_routing.version import __version__

    tables = {name: _of_model(table, settings) for name, table in findings.tables.items()}
    data: dict[str, Any] = {
        "format": FORMAT,
        "study": findings.study,
        "headline": findings.headline,
        "command": command,
        "macro": __version__,
        "written": time.strftime("%Y-%m-%d %H:%M:%S"),
        "settings": dict(settings),
        "environment": {fact.topic: fact.finding for fact in describe_environment() if fact.topic not in _PRIVATE},
        "comparisons": findings.comparisons,
        "tables": {
            name: {"title": table.title, "rows": list(table.rows), "shown": table.shown(), "notes": list(table.notes)}
            for name, table in tables.items()
        },
        "details": dict(findings.details),
    }
    for name, table in tables.items():
        write_output(folder.path / f"{name}.csv", table.csv())
        write_output(folder.path / f"{name}.md", table.markdown())
        write_output(folder.path / f"{name}.tex", table.latex())
    drawings = [
        dataclasses.replace(figure, name=FIGURE if place == 0 else figure.name)
        for place, figure in enumerate(findings.figures)
    ]
    before = _pictures(folder)
    data["pictures"] = [path.name for path in save_figures(drawings, folder.path, report)]
    for name in before - set(data["pictures"]):  # of another number of models or kinds of search
        (folder.path / name).unlink(missing_ok=True)
    data = finite(data)
    write_output(folder.path / DATA, json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return data


def _pictures(folder: StudyFolder) -> set[str]:
    """Pictures that the study has drawn before; names only, of this folder."""
    try:
        kept = json.loads((folder.path / DATA).read_text(encoding="utf-8"))["pictures"]
        return {str(name) for name in kept if Path(str(name)).suffix in _DRAWN and Path(str(name)).name == str(name)}
    except (OSError, ValueError, TypeError, KeyError):
        return set()


def _of_model(table: Table, settings: Mapping[str, Any]) -> Table:
    """A table that stands alone: its title names the model where no column does."""
    runs = settings.get("runs")
    if not isinstance(runs, Mapping) or any("model" in row for row in table.rows):
        return table
    return dataclasses.replace(table, title=f"{table.title} ({shorten_model_name(str(runs['model']))})")


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinity; they become null."""
    if isinstance(value, Mapping):
        return {str(key): finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
