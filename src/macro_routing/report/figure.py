"""A drawing with its legend: on a page, or as a file of its own."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from macro_routing.report.markup import Markup, element, joined
from macro_routing.report.style import FILE_CSS, LIGHT

Key = tuple[Markup, str]
"""Shapes within 28 × 12, and what they mean."""

_SWATCH, _ROW, _TITLE, _MARGIN = 28.0, 20.0, 36.0, 16.0
_CHARACTER = 6.9
"""Width of a letter in a legend, roughly; files are laid out without knowing the font."""
_TITLE_CHARACTER = 8.2
"""The same in a title, which is larger and bold."""
_FONT = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif"


@dataclass(frozen=True)
class Figure:
    """Shapes on a canvas."""

    name: str
    """Of its file, without ending."""
    title: str
    label: str
    """What a screen reader says."""
    width: float
    height: float
    shapes: Markup
    legend: tuple[Key, ...] = ()
    caption: str = ""

    def html(self) -> Markup:
        """The drawing in a box that scrolls by itself, its legend and its caption."""
        drawing = element(
            "svg",
            self.shapes,
            class_="wide",
            viewBox=f"0 0 {self.width:.0f} {self.height:.0f}",
            role="img",
            aria_label=self.label,
        )
        keys = [
            element("span", element("svg", shapes, width=28, height=12, aria_hidden="true"), words)
            for shapes, words in self.legend
        ]
        return element(
            "figure",
            element("div", drawing, class_="scroll", tabindex=0),
            element("div", *keys, class_="legend") if keys else None,
            element("figcaption", self.caption) if self.caption else None,
        )

    def svg(self) -> str:
        """The drawing as a file that needs no page: title above, legend below, light colours."""
        rows = self._legend_rows()
        titles = textwrap.wrap(self.title, int(self.width / _TITLE_CHARACTER), break_on_hyphens=False) or [""]
        above = _TITLE + _ROW * (len(titles) - 1)
        width = self.width + 2 * _MARGIN
        height = above + self.height + _ROW * len(rows) + 2 * _MARGIN
        below = above + self.height + _MARGIN
        legend = [
            element("g", shapes, element("text", words, x=_SWATCH + 6, y=10), transform=f"translate({x:.1f} {y:.1f})")
            for number, row in enumerate(rows)
            for x, (shapes, words) in row
            for y in [below + _ROW * number]
        ]
        return element(
            "svg",
            element("title", self.title),
            element("style", Markup(FILE_CSS)),
            element("rect", width=width, height=height, fill=LIGHT["card"]),
            *[
                element("text", words, x=_MARGIN, y=28 + _ROW * place, class_="strong", font_size=15)
                for place, words in enumerate(titles)
            ],
            element("g", self.shapes, transform=f"translate({_MARGIN:.0f} {above:.0f})"),
            joined(*legend),
            xmlns="http://www.w3.org/2000/svg",
            width=width,
            height=height,
            viewBox=f"0 0 {width:.0f} {height:.0f}",
            font_family=_FONT,
        )

    def _legend_rows(self) -> list[list[tuple[float, Key]]]:
        """Places of the keys, row by row."""
        rows: list[list[tuple[float, Key]]] = []
        x = _MARGIN
        for key in self.legend:
            needed = _SWATCH + 6 + _CHARACTER * len(key[1]) + 20
            if not rows or x + needed > self.width + _MARGIN:
                rows.append([])
                x = _MARGIN
            rows[-1].append((x, key))
            x += needed
        return rows
