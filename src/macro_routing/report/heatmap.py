"""A table of shaded cells: gains blue, losses orange, each with its number in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

from macro_routing.report.figure import Figure, Key
from macro_routing.report.markup import Markup, element, joined
from macro_routing.report.scale import round_step
from macro_routing.report.style import STEPS

Place = tuple[int, int]
"""Row and column."""
Values = Sequence[Sequence[float | None]]

_CHARACTER, _LEFT_MOST = 6.6, 330.0
_HEIGHT, _NARROWEST, _WIDEST, _FIGURE, _LEAST = 34.0, 30.0, 108.0, 860.0, 640.0
_TILT = 35
"""Degrees by which long names over narrow columns are turned."""
_DARK = 7
"""From this shade on the number in a cell is light."""


def signed(value: float) -> str:
    """A difference with its sign and a true minus."""
    return f"{value:+.1f}".replace("-", "−")


def heatmap_figure(  # noqa: PLR0913 a drawing has two axes, each with names and a meaning
    name: str,
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Values,
    *,
    row_meaning: str,
    column_meaning: str,
    unit: str,
    outlined: Collection[Place] = (),
    outline_meaning: str = "",
    show: Callable[[float], str] = signed,
    limit: float | None = None,
) -> Figure:
    """The map; a value of None is a cell that was not measured. ``limit`` has the full colour."""
    drawing = _Heatmap(rows, columns, values, row_meaning, column_meaning, outlined, show, limit)
    legend = _legend(drawing.limit, unit, show, values, outline_meaning if outlined else "")
    return Figure(name, title, title, drawing.width, drawing.height, drawing.shapes(), legend)


class _Heatmap:
    """Places of rows, columns and their names."""

    def __init__(  # noqa: PLR0913
        self,
        rows: Sequence[str],
        columns: Sequence[str],
        values: Values,
        row_meaning: str,
        column_meaning: str,
        outlined: Collection[Place],
        show: Callable[[float], str],
        limit: float | None,
    ) -> None:
        self.rows, self.columns, self.values = rows, columns, values
        self.meanings, self.outlined, self.show = (row_meaning, column_meaning), outlined, show
        self.left = min(_LEFT_MOST, 14 + _CHARACTER * max(len(row_meaning) + 4, *map(len, rows)))
        room = (_FIGURE - self.left - 20) / len(columns)
        self.cell = max(_NARROWEST, min(_WIDEST, room))
        longest = max(map(len, columns)) * _CHARACTER
        self.tilted = longest > self.cell - 8
        above = longest * math.sin(math.radians(_TILT)) + 14 if self.tilted else 18
        self.top = 22 + above
        overhang = longest * math.cos(math.radians(_TILT)) - self.cell / 2 if self.tilted else 0
        self.width = max(_LEAST, self.left + self.cell * len(columns) + max(overhang, 0) + 10)
        self.height = self.top + _HEIGHT * len(rows) + 8
        sizes = [abs(value) for row in values for value in row if value is not None]
        self.limit = limit or _round_up(max([*sizes, 1.0]))

    def shapes(self) -> Markup:
        row_meaning, column_meaning = self.meanings
        return joined(
            element("text", f"{column_meaning} →", x=self.left, y=12, class_="strong"),
            element("text", f"{row_meaning} ↓", x=self.left - 8, y=self.top - 7, text_anchor="end", class_="strong"),
            *[self._column_name(place, name) for place, name in enumerate(self.columns)],
            *[self._row_name(place, name) for place, name in enumerate(self.rows)],
            *[self._cell((row, column)) for row in range(len(self.rows)) for column in range(len(self.columns))],
        )

    def _column_name(self, place: int, name: str) -> Markup:
        x, y = self.left + self.cell * (place + 0.5), self.top - 7
        if not self.tilted:
            return element("text", name, x=x, y=y, text_anchor="middle")
        return element("text", name, transform=f"translate({x:.1f} {y:.1f}) rotate(-{_TILT})")

    def _row_name(self, place: int, name: str) -> Markup:
        most = round((self.left - 14) / _CHARACTER)
        short = name if len(name) <= most else f"{name[: most - 1]}…"
        return element("text", short, x=self.left - 8, y=self.top + _HEIGHT * (place + 0.5) + 4, text_anchor="end")

    def _cell(self, place: Place) -> Markup:
        value = self.values[place[0]][place[1]]
        x, y = self.left + self.cell * place[1], self.top + _HEIGHT * place[0]
        size = {"x": x + 1, "y": y + 1, "width": self.cell - 2, "height": _HEIGHT - 2}
        if value is None:
            return element("rect", class_="outline", **size)
        step = round(STEPS * max(-1.0, min(1.0, value / self.limit)))
        shade = "never" if step == 0 else f"{'up' if step > 0 else 'down'} s{abs(step)}"
        style = "in-cell on-shade" if abs(step) >= _DARK else "in-cell"
        middle = {"x": x + self.cell / 2, "y": y + _HEIGHT / 2 + 4}
        told = f"{self.rows[place[0]]}, {self.columns[place[1]]}: {self.show(value)}"
        return joined(
            element("rect", element("title", told), class_=shade, rx=2, **size),
            element("rect", class_="best-cell", rx=2, **size) if place in self.outlined else None,
            element("text", self.show(value), text_anchor="middle", class_=style, **middle),
        )


def _round_up(value: float) -> float:
    step = round_step(value, 4)
    return step * math.ceil(value / step - 1e-9)


def _legend(
    limit: float, unit: str, show: Callable[[float], str], values: Values, outline_meaning: str
) -> tuple[Key, ...]:
    found = [value for row in values for value in row if value is not None]

    def box(style: str) -> Markup:
        return element("rect", x=8, y=0.5, width=14, height=11, class_=style)

    keys = [(box(f"up s{STEPS}"), f"{show(limit)} {unit}")]
    if any(value < 0 for value in found):
        keys.append((box(f"down s{STEPS}"), f"{show(-limit)} {unit}"))
    keys.append((box("never"), "about 0"))
    if outline_meaning:
        keys.append((box("best-cell"), outline_meaning))
    if len(found) < sum(map(len, values)):
        keys.append((box("outline"), "not measured"))
    return tuple(keys)
