"""A drawing with its legend: on a page, or as a file of its own."""

import textwrap
from dataclasses import dataclass

from markupsafe import Markup

from macro_routing.report.markup import join_markup, svg_element, trust_markup
from macro_routing.report.rendering import render_template
from macro_routing.report.style import LIGHT, figure_css

LegendKey = tuple[Markup, str]
"""Shapes within 28 × 12 pixels, and their meaning."""

_SWATCH, _ROW, _TITLE, _MARGIN = 28.0, 20.0, 36.0, 16.0
_CHARACTER = 6.9
"""Approximate width of a letter in a legend; files are laid out without knowing the font."""
_TITLE_CHARACTER = 8.2
"""Approximate width in a title, which is larger and bold."""
_FONT = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif"


@dataclass(frozen=True)
class Figure:
    """Shapes on a canvas."""

    name: str
    """Name of its file, without suffix."""
    title: str
    label: str
    """Description for screen readers."""
    width: float
    height: float
    shapes: Markup
    legend: tuple[LegendKey, ...] = ()
    caption: str = ""

    def to_html(self) -> Markup:
        """The drawing in a box that scrolls by itself, its legend and its caption."""
        return render_template("figure.html", figure=self)

    def to_svg(self) -> str:
        """The drawing as a file that needs no page: title above, legend below, light colours."""
        rows = self._legend_rows()
        titles = textwrap.wrap(self.title, int(self.width / _TITLE_CHARACTER), break_on_hyphens=False) or [""]
        above = _TITLE + _ROW * (len(titles) - 1)
        width = self.width + 2 * _MARGIN
        height = above + self.height + _ROW * len(rows) + 2 * _MARGIN
        below = above + self.height + _MARGIN
        legend = [
            svg_element(
                "g", shapes, svg_element("text", text, x=_SWATCH + 6, y=10), transform=f"translate({x:.1f} {y:.1f})"
            )
            for number, row in enumerate(rows)
            for x, (shapes, text) in row
            for y in [below + _ROW * number]
        ]
        return svg_element(
            "svg",
            svg_element("title", self.title),
            svg_element("style", trust_markup(figure_css())),
            svg_element("rect", width=width, height=height, fill=LIGHT["card"]),
            *[
                svg_element("text", text, x=_MARGIN, y=28 + _ROW * index, class_="strong", font_size=15)
                for index, text in enumerate(titles)
            ],
            svg_element("g", self.shapes, transform=f"translate({_MARGIN:.0f} {above:.0f})"),
            join_markup(*legend),
            xmlns="http://www.w3.org/2000/svg",
            width=width,
            height=height,
            viewBox=f"0 0 {width:.0f} {height:.0f}",
            font_family=_FONT,
        )

    def _legend_rows(self) -> list[list[tuple[float, LegendKey]]]:
        """Positions of the keys, row by row."""
        rows: list[list[tuple[float, LegendKey]]] = []
        x = _MARGIN
        for key in self.legend:
            needed = _SWATCH + 6 + _CHARACTER * len(key[1]) + 20
            if not rows or x + needed > self.width + _MARGIN:
                rows.append([])
                x = _MARGIN
            rows[-1].append((x, key))
            x += needed
        return rows
