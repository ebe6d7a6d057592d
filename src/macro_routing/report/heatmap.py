"""A table of shaded cells: gains blue, losses orange, each with its number in it."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from macro_routing.report.figure import Figure, LegendKey
from macro_routing.report.formatting import format_signed
from macro_routing.report.rendering import render_template
from macro_routing.report.scale import round_up_to_round_number
from macro_routing.report.style import SHADES, compute_shade_level

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
    max_width: float = _WIDTH

    def draw_figure(self, name: str, title: str) -> Figure:
        """The map with its legend."""
        left = min(_MAX_LEFT, 14 + _CHARACTER * max(len(self.row_meaning) + 4, *map(len, self.rows)))
        cell = max(_MIN_CELL, min(_MAX_CELL, (self.max_width - left - 20) / len(self.columns)))
        longest_name = max(map(len, self.columns)) * _CHARACTER
        tilt = math.radians(_TILT) if longest_name > cell - 8 else 0.0
        top = 22 + (longest_name * math.sin(tilt) + 14 if tilt else 18)
        overhang = longest_name * math.cos(tilt) - cell / 2 if tilt else 0.0
        measured = [value for row in self.values for value in row if value is not None]
        full_color_value = self.max_value or round_up_to_round_number(max([*map(abs, measured), 1.0]))
        shapes = render_template(
            "heatmap.svg",
            heatmap=self,
            left=left,
            top=top,
            cell=cell,
            row_height=_ROW_HEIGHT,
            tilt=_TILT if tilt else 0,
            max_name=round((left - 14) / _CHARACTER),
            level_of=partial(compute_shade_level, limit=full_color_value),
        )
        width = max(min(_MIN_WIDTH, self.max_width), left + cell * len(self.columns) + max(overhang, 0) + 10)
        height = top + _ROW_HEIGHT * len(self.rows) + 8
        return Figure(name, title, title, width, height, shapes, self._make_legend(measured, full_color_value))

    def _make_legend(self, measured: Sequence[float], full_color_value: float) -> list[LegendKey]:
        keys = {f"up s{SHADES}": f"{self.format_value(full_color_value)} {self.unit}"}
        if any(value < 0 for value in measured):
            keys[f"down s{SHADES}"] = f"{self.format_value(-full_color_value)} {self.unit}"
        keys["never"] = "about 0"
        if self.outlined and self.outline_meaning:
            keys["best-cell"] = self.outline_meaning
        if len(measured) < sum(map(len, self.values)):
            keys["outline"] = "not measured"
        return [LegendKey("cell", class_, meaning) for class_, meaning in keys.items()]
