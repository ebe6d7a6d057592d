"""Figures as files: SVG from the same drawings as the page, PNG from the SVG.

One drawing serves the page, the SVG and the PNG, so they cannot differ. A rasteriser of one and a half megabytes
(extra ``plot``) turns SVG into PNG; SVG alone needs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from macro_routing.errors import RunError
from macro_routing.report.block_map import block_map_figure
from macro_routing.report.document import write_file
from macro_routing.report.figure import Figure
from macro_routing.report.interval_chart import variants_figure
from macro_routing.report.policy_map import policy_figure
from macro_routing.report.rounds_chart import rounds_figure
from macro_routing.report.route_chart import track_figure
from macro_routing.report.run_comparison_page import differences_figure
from macro_routing.report.run_data import RunData, open_run, shown_safely

_SCALE = 2.0
"""Pixels per unit: sharp on a slide."""
_TRIAL = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40">{}</svg>'

MISSING = "PNG files need the extra plot (pip install 'macro-routing[plot]'); the SVG files are written"
NO_FONT = "PNG files would have no text, since this machine has no fonts; install some; the SVG files are written"


def write_figures(folders: Sequence[str | Path], output: Path, report: Callable[[str], None]) -> list[Path]:
    """Every figure of a run, or what compares several, as SVG and PNG; ``report`` hears why there is no PNG."""
    runs = [open_run(folder) for folder in folders]
    with shown_safely(runs[0].path):
        figures = run_figures(runs[0]) if len(runs) == 1 else compare_figures(runs)
    return write_drawings(figures, output, report)


def write_drawings(figures: Sequence[Figure], output: Path, report: Callable[[str], None]) -> list[Path]:
    """Drawings as SVG and PNG under their own names; ``report`` hears why there is no PNG."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{output} cannot be made: {error.strerror or error}; name another folder") from None
    rasterise = _rasteriser(report) if figures else None
    written = []
    for figure in figures:
        svg = figure.svg()
        files: dict[str, str | bytes] = {f"{figure.name}.svg": svg}
        if rasterise is not None:
            files[f"{figure.name}.png"] = rasterise(svg)
        for name, contents in files.items():
            write_file(output / name, contents)
            written.append(output / name)
    return written


def run_figures(run: RunData) -> list[Figure]:
    """What a run has to show, as far as it came."""
    chosen = run.chosen
    found: list[Figure | None] = []
    if run.result is not None:
        found.append(variants_figure(run.result))
    if chosen is not None:
        found.append(track_figure(chosen, str(chosen)))
    found.append(rounds_figure(run.rounds, run.settings["iterations"], run.settings, run.draws))
    found.append(block_map_figure(run.draws, run.layers) if run.sweeps_blocks else None)
    if run.policies:
        found.append(policy_figure(run.policies[-1], chosen))
    return [replace(one, title=f"{run.title} · {one.title}") for one in found if one is not None]


def compare_figures(runs: Sequence[RunData]) -> list[Figure]:
    """What several runs show together."""
    figure = differences_figure(runs)
    return [] if figure is None else [figure]


def _rasteriser(report: Callable[[str], None]) -> Callable[[str], bytes] | None:
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        report(MISSING)
        return None

    def rasterise(svg: str) -> bytes:
        return bytes(svg_to_bytes(svg_string=svg, zoom=_SCALE))

    # Text is dropped without a word where there is no font; a letter that leaves no trace tells.
    if rasterise(_TRIAL.format('<text x="5" y="30">M</text>')) == rasterise(_TRIAL.format("")):
        report(NO_FONT)
        return None
    return rasterise
