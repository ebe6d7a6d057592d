"""A table of shaded cells: gains blue, losses orange, each with its number in it."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from markupsafe import Markup

from macro_routing.report.chart_parts import box_key, svg_text
from macro_routing.report.figure import Figure, LegendKey
from macro_routing.report.formatting import format_signed
from macro_routing.report.markup import join_markup, svg_element
from macro_routing.report.scale import round_up
from macro_routing.report.style import SHADES, cell_text_class, shade_class, shade_level

CellIndex = tuple[int, int]
"""Row and column."""

_CHARACTER, _MAX_LEFT = 6.6, 330.0
_ROW_HEIGHT, _MIN_CELL, _MAX_CELL, _WIDTH, _MIN_WIDTH = 34.0, 30.0, 108.0, 860.0, 640.0
_TILT = 35
"""Degrees by which long names over narrow columns are turned."""


@dataclass(frozen=True)
class Heatmap:
    """Values by row and column; None is a cell that was not measured."""

    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]
    row_meaning: str
    column_meaning: str
    unit: str
    outlined: Collection[CellIndex] = ()
    outline_meaning: str = ""
    format_value: Callable[[float], str] = format_signed
    max_value: float | None = None
    """The value of the full colour; None for the largest one, rounded up."""

    def draw_figure(self, name: str, title: str) -> Figure:
        """The map with its legend."""
        return Figure(
            name, title, title, self._total_width, self._total_height, self._draw_shapes(), self._make_legend()
        )

    @cached_property
    def _full_color_value(self) -> float:
        sizes = [abs(value) for row in self.values for value in row if value is not None]
        return self.max_value or round_up(max([*sizes, 1.0]))

    @cached_property
    def _left_edge(self) -> float:
        return min(_MAX_LEFT, 14 + _CHARACTER * max(len(self.row_meaning) + 4, *map(len, self.rows)))

    @cached_property
    def _cell_width(self) -> float:
        return max(_MIN_CELL, min(_MAX_CELL, (_WIDTH - self._left_edge - 20) / len(self.columns)))

    @cached_property
    def _longest_name(self) -> float:
        return max(map(len, self.columns)) * _CHARACTER

    @cached_property
    def _is_tilted(self) -> bool:
        return self._longest_name > self._cell_width - 8

    @cached_property
    def _top_edge(self) -> float:
        return 22 + (self._longest_name * math.sin(math.radians(_TILT)) + 14 if self._is_tilted else 18)

    @cached_property
    def _total_width(self) -> float:
        overhang = self._longest_name * math.cos(math.radians(_TILT)) - self._cell_width / 2 if self._is_tilted else 0
        return max(_MIN_WIDTH, self._left_edge + self._cell_width * len(self.columns) + max(overhang, 0) + 10)

    @cached_property
    def _total_height(self) -> float:
        return self._top_edge + _ROW_HEIGHT * len(self.rows) + 8

    def _draw_shapes(self) -> Markup:
        indices = [(row, column) for row in range(len(self.rows)) for column in range(len(self.columns))]
        return join_markup(
            svg_element("text", f"{self.column_meaning} →", x=self._left_edge, y=12, class_="strong"),
            svg_text(f"{self.row_meaning} ↓", self._left_edge - 8, self._top_edge - 7, "end", "strong"),
            *(self._draw_column_name(index, name) for index, name in enumerate(self.columns)),
            *(self._draw_row_name(index, name) for index, name in enumerate(self.rows)),
            *map(self._draw_cell, indices),
        )

    def _draw_column_name(self, index: int, name: str) -> Markup:
        x, y = self._left_edge + self._cell_width * (index + 0.5), self._top_edge - 7
        if not self._is_tilted:
            return svg_text(name, x, y)
        return svg_element("text", name, transform=f"translate({x:.1f} {y:.1f}) rotate(-{_TILT})")

    def _draw_row_name(self, index: int, name: str) -> Markup:
        maximum = round((self._left_edge - 14) / _CHARACTER)
        short = name if len(name) <= maximum else f"{name[: maximum - 1]}…"
        return svg_text(short, self._left_edge - 8, self._top_edge + _ROW_HEIGHT * (index + 0.5) + 4, "end")

    def _draw_cell(self, index: CellIndex) -> Markup:
        row, column = index
        value = self.values[row][column]
        x, y = self._left_edge + self._cell_width * column, self._top_edge + _ROW_HEIGHT * row
        size = {"x": x + 1, "y": y + 1, "width": self._cell_width - 2, "height": _ROW_HEIGHT - 2}
        if value is None:
            return svg_element("rect", class_="outline", **size)
        level, text = shade_level(value, self._full_color_value), self.format_value(value)
        title = svg_element("title", f"{self.rows[row]}, {self.columns[column]}: {text}")
        return join_markup(
            svg_element("rect", title, class_=shade_class(level), rx=2, **size),
            svg_element("rect", class_="best-cell", rx=2, **size) if index in self.outlined else None,
            svg_text(text, x + self._cell_width / 2, y + _ROW_HEIGHT / 2 + 4, class_=cell_text_class(level)),
        )

    def _make_legend(self) -> tuple[LegendKey, ...]:
        measured = [value for row in self.values for value in row if value is not None]
        keys = [(box_key(f"up s{SHADES}", 14), f"{self.format_value(self._full_color_value)} {self.unit}")]
        if any(value < 0 for value in measured):
            keys.append((box_key(f"down s{SHADES}", 14), f"{self.format_value(-self._full_color_value)} {self.unit}"))
        keys.append((box_key("never", 14), "about 0"))
        if self.outlined and self.outline_meaning:
            keys.append((box_key("best-cell", 14), self.outline_meaning))
        if len(measured) < sum(map(len, self.values)):
            keys.append((box_key("outline", 14), "not measured"))
        return tuple(keys)
