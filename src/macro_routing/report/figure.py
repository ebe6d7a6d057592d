"""A drawing with its legend: on a page, or as a file of its own."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from macro_routing.report.rendering import mark_safe, render_template
from macro_routing.report.style import LIGHT, make_standalone_svg_css

_SYMBOL_WIDTH, _ROW, _TITLE, _MARGIN = 34.0, 20.0, 36.0, 16.0
_CHARACTER = 6.9
"""Approximate width of a letter in a legend; files are laid out without knowing the font."""
_TITLE_CHARACTER = 8.2
"""Approximate width in a title, which is larger and bold."""


@dataclass(frozen=True)
class LegendKey:
    """A symbol of the legend and its meaning."""

    symbol: str
    """A shape that ``legend_symbol`` in shapes.svg draws."""
    class_: str
    meaning: str


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
    legend: Sequence[LegendKey] = ()
    caption: str = ""

    def to_html(self) -> Markup:
        """The drawing in a box that scrolls by itself, its legend and its caption."""
        return render_template("figure.html", figure=self)

    def to_svg(self) -> str:
        """The drawing as a file that needs no page: title above, legend below, light colours."""
        titles = textwrap.wrap(self.title, int(self.width / _TITLE_CHARACTER), break_on_hyphens=False) or [""]
        top = _TITLE + _ROW * (len(titles) - 1)
        legend = self._arrange_legend_in_rows(top + self.height + _MARGIN)
        return render_template(
            "figure.svg",
            figure=self,
            titles=titles,
            top=top,
            margin=_MARGIN,
            row=_ROW,
            legend=legend,
            symbol_width=_SYMBOL_WIDTH,
            width=self.width + 2 * _MARGIN,
            height=max((y + _ROW for _, y, _ in legend), default=top + self.height + _MARGIN) + _MARGIN,
            css=mark_safe(make_standalone_svg_css()),
            background=LIGHT["card"],
        )

    def _arrange_legend_in_rows(self, top: float) -> list[tuple[float, float, LegendKey]]:
        """The keys with their positions, in as many rows as they need."""
        placed: list[tuple[float, float, LegendKey]] = []
        x = _MARGIN
        y = top
        for key in self.legend:
            width = _SYMBOL_WIDTH + _CHARACTER * len(key.meaning) + 20
            if placed and x + width > self.width + _MARGIN:
                x = _MARGIN
                y += _ROW
            placed.append((x, y, key))
            x += width
        return placed
