"""Figures as files: SVG from the same drawings as the page, PNG and PDF from the SVG.

One drawing serves the page and all files, so they cannot differ. The extra ``plot`` converts SVG to PNG and to PDF,
for papers; SVG alone needs nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from macro_routing.errors import RunError
from macro_routing.report.block_map import draw_block_map
from macro_routing.report.figure import Figure
from macro_routing.report.interval_chart import draw_test_accuracy_chart
from macro_routing.report.policy_map import draw_policy_map
from macro_routing.report.rendering import write_output_file
from macro_routing.report.rounds_chart import draw_rounds_chart
from macro_routing.report.route_chart import draw_route_charts
from macro_routing.report.run_comparison_page import draw_run_gains
from macro_routing.report.run_data import RunData, explain_unreadable_run, load_run_for_report

_SCALE = 2.0
"""Pixels per unit: sharp on a slide."""
_TEST_SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40">{}</svg>'

NO_PLOT_EXTRA = (
    "PNG and PDF files need the extra plot (pip install '.[plot]' in the checkout); the SVG files are written"
)
NO_FONTS = (
    "PNG and PDF files would have no text, since this machine has no fonts; install some; the SVG files are written"
)


def write_figures(folders: Sequence[str | Path], output: Path, report: Callable[[str], None]) -> list[Path]:
    """Every figure of a run, or what compares several, as SVG, PNG and PDF; ``report`` hears why there is SVG alone."""
    runs = [load_run_for_report(folder) for folder in folders]
    with explain_unreadable_run(runs[0].path):
        figures = draw_run_figures(runs[0]) if len(runs) == 1 else [draw_run_gains(runs)]
    return save_figures([figure for figure in figures if figure is not None], output, report)


def save_figures(figures: Sequence[Figure], output: Path, report: Callable[[str], None]) -> list[Path]:
    """Drawings as SVG, PNG and PDF under their own names; ``report`` hears why there is SVG alone."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{output} cannot be made: {error.strerror or error}; name another folder") from None
    converters = _find_converters(report) if figures else {}
    files: dict[Path, str | bytes] = {}
    for figure in figures:
        files[output / f"{figure.name}.svg"] = svg = figure.to_svg()
        for kind, convert in converters.items():
            files[output / f"{figure.name}.{kind}"] = convert(svg)
    for path, contents in files.items():
        write_output_file(path, contents)
    return list(files)


def draw_run_figures(run: RunData) -> list[Figure]:
    """What a run has to show, as far as it came."""
    chosen, settings = run.chosen_route, run.search_settings
    figures = [
        None if run.result is None else draw_test_accuracy_chart(run.result),
        *([] if chosen is None else draw_route_charts(chosen)),
        draw_rounds_chart(run.rounds, settings["iterations"], settings, run.draws),
        draw_block_map(run.draws, run.layers) if run.sweeps_blocks else None,
        draw_policy_map(run.policies[-1], run.chosen_single_route) if run.policies else None,
    ]
    return [replace(figure, title=f"{run.title} · {figure.title}") for figure in figures if figure is not None]


def _find_converters(report: Callable[[str], None]) -> Mapping[str, Callable[[str], bytes]]:
    """Functions that turn SVG into other kinds of files, by suffix."""
    try:
        from vl_convert import svg_to_pdf, svg_to_png
    except ImportError:
        report(NO_PLOT_EXTRA)
        return {}

    def convert_to_png(svg: str) -> bytes:
        return bytes(svg_to_png(svg, scale=_SCALE))

    # Text is dropped without a word where there is no font; a letter that leaves no trace tells.
    if convert_to_png(_TEST_SVG.format('<text y="30" font-family="sans-serif">M</text>')) == convert_to_png(
        _TEST_SVG.format("")
    ):
        report(NO_FONTS)
        return {}
    return {"png": convert_to_png, "pdf": lambda svg: bytes(svg_to_pdf(svg))}
