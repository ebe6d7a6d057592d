"""Figures as files: SVG from the same drawings as the page, PNG from the SVG.

One drawing serves the page, the SVG and the PNG, so they cannot differ. A rasterizer of one and a half megabytes
(extra ``plot``) turns SVG into PNG; SVG alone needs nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from macro_routing.errors import RunError
from macro_routing.report.block_map import block_map_figure
from macro_routing.report.figure import Figure
from macro_routing.report.interval_chart import variants_figure
from macro_routing.report.policy_map import policy_figure
from macro_routing.report.rendering import write_output
from macro_routing.report.rounds_chart import rounds_figure
from macro_routing.report.route_chart import route_figure
from macro_routing.report.run_comparison_page import differences_figure
from macro_routing.report.run_data import RunData, explain_unreadable, open_run

_SCALE = 2.0
"""Pixels per unit: sharp on a slide."""
_TEST_SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40">{}</svg>'

NO_PLOT_EXTRA = "PNG files need the extra plot (pip install 'macro-routing[plot]'); the SVG files are written"
NO_FONTS = "PNG files would have no text, since this machine has no fonts; install some; the SVG files are written"


def write_figures(folders: Sequence[str | Path], output: Path, report: Callable[[str], None]) -> list[Path]:
    """Every figure of a run, or what compares several, as SVG and PNG; ``report`` hears why there is no PNG."""
    runs = [open_run(folder) for folder in folders]
    with explain_unreadable(runs[0].path):
        figures = run_figures(runs[0]) if len(runs) == 1 else comparison_figures(runs)
    return save_figures(figures, output, report)


def save_figures(figures: Sequence[Figure], output: Path, report: Callable[[str], None]) -> list[Path]:
    """Drawings as SVG and PNG under their own names; ``report`` hears why there is no PNG."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{output} cannot be made: {error.strerror or error}; name another folder") from None
    rasterize = _find_rasterizer(report) if figures else None
    written = []
    for figure in figures:
        svg = figure.to_svg()
        files: dict[str, str | bytes] = {f"{figure.name}.svg": svg}
        if rasterize is not None:
            files[f"{figure.name}.png"] = rasterize(svg)
        for name, contents in files.items():
            write_output(output / name, contents)
            written.append(output / name)
    return written


def run_figures(run: RunData) -> list[Figure]:
    """What a run has to show, as far as it came."""
    chosen = run.chosen_route
    figures: list[Figure | None] = []
    if run.result is not None:
        figures.append(variants_figure(run.result))
    if chosen is not None:
        figures.append(route_figure(chosen, str(chosen)))
    figures.append(rounds_figure(run.rounds, run.search_settings["iterations"], run.search_settings, run.draws))
    figures.append(block_map_figure(run.draws, run.layers) if run.sweeps_blocks else None)
    if run.policies:
        figures.append(policy_figure(run.policies[-1], chosen))
    return [replace(one, title=f"{run.title} · {one.title}") for one in figures if one is not None]


def comparison_figures(runs: Sequence[RunData]) -> list[Figure]:
    """What several runs show together."""
    figure = differences_figure(runs)
    return [] if figure is None else [figure]


def _find_rasterizer(report: Callable[[str], None]) -> Callable[[str], bytes] | None:
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        report(NO_PLOT_EXTRA)
        return None

    def rasterize(svg: str) -> bytes:
        return bytes(svg_to_bytes(svg_string=svg, zoom=_SCALE))

    # Text is dropped without a word where there is no font; a letter that leaves no trace tells.
    if rasterize(_TEST_SVG.format('<text x="5" y="30">M</text>')) == rasterize(_TEST_SVG.format("")):
        report(NO_FONTS)
        return None
    return rasterize
