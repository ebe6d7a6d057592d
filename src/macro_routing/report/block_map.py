"""Every repeated block as one cell: how it compares with the standard pass, and where blocks may begin and end."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from markupsafe import Markup

from macro_routing.report.chart_parts import (
    box_key,
    horizontal_gridline,
    horizontal_line,
    rotated_text,
    svg_text,
    vertical_gridline,
    vertical_line,
)
from macro_routing.report.figure import Figure, LegendKey
from macro_routing.report.formatting import format_count, format_percent, format_points, use_minus_sign
from macro_routing.report.markup import join_markup, svg_element
from macro_routing.report.scale import Scale, integer_ticks, round_step, round_up
from macro_routing.report.style import SHADES, cell_text_class, shade_class, shade_level
from macro_routing.search.rys_sweep import Block, block_from_route, count_blocks
from macro_routing.search.searcher import Draw, Score

_MIN_CELLS = 3
_WIDTH, _MAX_SIDE, _MAX_CELL = 860.0, 600.0, 72.0
_LEFT, _HEADER, _ABOVE, _BESIDE, _BOTTOM, _BAR_SIZE = 60.0, 20.0, 10.0, 22.0, 44.0, 88.0
_KEY_LENGTH, _KEY_HEIGHT = 220.0, 12.0
_MIN_CELL_FOR_NUMBER = 40.0
_MAX_TITLES = 4000
"""With more cells none has a tooltip: the page would become large."""
_SHARE_IN_RANGE = 0.5
"""Minimum share of cells within the range of the colours; a few bad cells must not make all the others pale."""


@dataclass(frozen=True)
class BlockCell:
    """A block's answers and the standard pass's to the same examples."""

    block: Block
    correct: float
    standard: float
    """How many the standard pass has correct."""
    total: int

    @property
    def difference(self) -> float:
        """The block's accuracy minus the standard pass's."""
        return (self.correct - self.standard) / self.total

    @property
    def name(self) -> str:
        """What the block does."""
        i, j = self.block
        return f"L{i} twice" if j == i + 1 else f"L{i} to L{j - 1} twice"

    @property
    def description(self) -> str:
        """Block, name, difference and counts."""
        i, j = self.block
        counts = f"{self.correct:g} correct of {self.total}, the standard pass {self.standard:g}"
        return f"({i}, {j}), {self.name}: {format_points(self.difference)} points ({counts})"


def block_cells(draws: Sequence[Draw]) -> list[BlockCell]:
    """Every block that was scored in a round with the standard pass; a block of several rounds once, over all."""
    standard: dict[int, Score] = {}
    blocks: dict[Block, dict[int, Score]] = defaultdict(dict)
    for draw in draws:
        route, score = draw.proposal.route, draw.outcome
        if not isinstance(score, Score):
            continue
        if route.is_standard:
            standard[draw.round] = score
        elif (block := block_from_route(route)) is not None:
            blocks[block][draw.round] = score
    cells = []
    for block, scores in sorted(blocks.items()):
        pairs = [(score, standard[number]) for number, score in scores.items() if number in standard]
        if pairs:
            correct, baseline = (sum(score.correct for score in side) for side in zip(*pairs, strict=True))
            cells.append(BlockCell(block, correct, baseline, sum(score.total for score, _ in pairs)))
    return cells


def mean_differences(cells: Iterable[BlockCell], axis: int) -> dict[int, float]:
    """The mean difference of all blocks with the same start (axis 0) or the same end (axis 1)."""
    grouped: dict[int, list[float]] = defaultdict(list)
    for cell in cells:
        grouped[cell.block[axis]].append(cell.difference)
    return {layer: fmean(grouped[layer]) for layer in sorted(grouped)}


def block_map_figure(draws: Sequence[Draw], layers: int) -> Figure | None:
    """The map; None if there are too few blocks, or no score of the standard pass to compare them with."""
    cells = block_cells(draws)
    if len(cells) < _MIN_CELLS:
        return None
    # As the searches rank routes: of equally good ones more examples, then the shorter.
    best = max(cells, key=lambda cell: (cell.difference, cell.total, cell.block[0] - cell.block[1]))
    chart = _BlockMap(cells, layers, best)
    label = f"Accuracy of {len(cells)} repeated blocks minus the standard pass's; best: {best.description}"
    title = "Repeated blocks, compared with the standard pass"
    legend = _make_legend(cells, best, layers)
    return Figure("blocks", title, label, _WIDTH, chart.height, chart.draw_shapes(), legend, _write_caption(cells))


class _BlockMap:
    """A column per start i, a row per end j from bottom to top; bars of their means above and at the right."""

    def __init__(self, cells: Sequence[BlockCell], layers: int, best: BlockCell) -> None:
        self.cells, self.layers, self.best = cells, layers, best
        self.cell = max(min(math.floor(2 * _MAX_SIDE / layers) / 2, _MAX_CELL), 0.5)
        self.side = self.cell * layers
        self.left = (_WIDTH - self.side - _BESIDE - _BAR_SIZE + _LEFT) / 2
        self.top = _HEADER + _BAR_SIZE + _ABOVE
        self.right, self.bottom = self.left + self.side, self.top + self.side
        self.height = self.bottom + _BOTTOM
        self.limit = _color_limit(cells)

    def draw_shapes(self) -> Markup:
        columns, rows = (mean_differences(self.cells, axis) for axis in (0, 1))
        means = [0.0, *columns.values(), *rows.values()]
        bottom, left = self.top - _ABOVE, self.right + _BESIDE
        return join_markup(
            *self._draw_axes(),
            svg_element("path", d=self._outline_path(), class_="outline"),
            *map(self._draw_cell, self.cells),
            self._draw_best(),
            *self._draw_column_means(columns, Scale(min(means), max(means), bottom, bottom - _BAR_SIZE)),
            *self._draw_row_means(rows, Scale(min(means), max(means), left, left + _BAR_SIZE)),
            *self._draw_color_key(),
        )

    def _column_x(self, i: int) -> float:
        return self.left + self.cell * i

    def _row_y(self, j: int) -> float:
        return self.bottom - self.cell * j

    def _outline_path(self) -> str:
        """Around all possible blocks."""
        steps = f"v{self.cell:.1f}h-{self.cell:.1f}" * self.layers
        return f"M{self.left:.1f} {self.top:.1f}h{self.side:.1f}{steps}z"

    def _draw_axes(self) -> list[Markup]:
        middle = self.cell / 2
        starts, ends = integer_ticks(0, self.layers - 1, 10), integer_ticks(1, self.layers, 10)
        return [
            *(svg_text(str(i), self._column_x(i) + middle, self.bottom + 17) for i in starts),
            *(svg_text(str(j), self.left - 8, self._row_y(j) + middle + 4, "end") for j in ends),
            svg_text("i, the block's first layer", self.left + self.side / 2, self.bottom + 38),
            rotated_text("j, the layer after its last", self.left - 42, self.top + self.side / 2),
        ]

    def _draw_cell(self, cell: BlockCell) -> Markup:
        (i, j), level = cell.block, shade_level(cell.difference, self.limit)
        title = svg_element("title", cell.description) if len(self.cells) <= _MAX_TITLES else None
        inner = self.cell - min(1.0, self.cell / 16)
        x, y, middle = self._column_x(i), self._row_y(j), inner / 2
        box = svg_element("rect", title, x=x, y=y, width=inner, height=inner, class_=shade_class(level))
        if self.cell < _MIN_CELL_FOR_NUMBER:
            return box
        number = _format_short(round(cell.difference, 3))
        return join_markup(box, svg_text(number, x + middle, y + middle + 4, class_=cell_text_class(level)))

    def _draw_best(self) -> Markup:
        i, j = self.best.block
        size = {"width": self.cell + 1, "height": self.cell + 1, "rx": 2}
        return svg_element("rect", x=self._column_x(i) - 1, y=self._row_y(j) - 1, class_="best-cell", **size)

    def _draw_column_means(self, means: Mapping[int, float], scale: Scale) -> list[Markup]:
        y = self.top - _ABOVE - _BAR_SIZE - 8
        parts = [svg_element("text", "mean of each column, in points", x=self.left, y=y)]
        parts += [horizontal_gridline(name, scale(value), self.left, self.right) for value, name in _axis_marks(scale)]
        for i, mean in means.items():
            top, bottom = sorted((scale(0), scale(mean)))
            size = {"width": 0.8 * self.cell, "height": bottom - top}
            parts.append(_mean_bar(f"blocks from L{i}", mean, x=self._column_x(i) + 0.1 * self.cell, y=top, **size))
        return [*parts, horizontal_line(scale(0), self.left, self.right, "axis")]

    def _draw_row_means(self, means: Mapping[int, float], scale: Scale) -> list[Markup]:
        parts = [svg_element("text", "mean of each row", x=self.right + _BESIDE, y=self.top - 8)]
        parts += [vertical_gridline(name, scale(value), self.top, self.bottom) for value, name in _axis_marks(scale)]
        for j, mean in means.items():
            left, right = sorted((scale(0), scale(mean)))
            size = {"width": right - left, "height": 0.8 * self.cell}
            parts.append(_mean_bar(f"blocks up to L{j - 1}", mean, x=left, y=self._row_y(j) + 0.1 * self.cell, **size))
        return [*parts, vertical_line(scale(0), self.top, self.bottom, "axis")]

    def _draw_color_key(self) -> list[Markup]:
        """What the shades mean, in the corner where no block can be."""
        length = min(_KEY_LENGTH, 0.6 * self.side)
        left, top = self.right - length, self.bottom - _KEY_HEIGHT - 20
        size = {"y": top, "width": length / (2 * SHADES + 1), "height": _KEY_HEIGHT}
        bound = "≤ " if min(cell.difference for cell in self.cells) < -self.limit else ""
        ends = [(-1, left, "start", bound), (0, left + length / 2, "middle", ""), (1, self.right, "end", "")]
        return [
            svg_text("difference in points", self.right, top - 8, "end"),
            *(
                svg_element("rect", x=left + size["width"] * index, class_=shade_class(level), **size)
                for index, level in enumerate(range(-SHADES, SHADES + 1))
            ),
            *(
                svg_text(prefix + _format_short(sign * self.limit), x, self.bottom - 5, anchor)
                for sign, x, anchor, prefix in ends
            ),
        ]


def _color_limit(cells: Sequence[BlockCell]) -> float:
    """The difference that has the full colour: no gain is above it, and mere noise stays pale."""
    sizes = [abs(cell.difference) for cell in cells]
    gain = max(cell.difference for cell in cells)
    return round_up(max(gain, float(np.quantile(sizes, _SHARE_IN_RANGE)), 2 * _standard_error(cells), 0.001))


def _standard_error(cells: Sequence[BlockCell]) -> float:
    """Of one cell's difference, roughly: two accuracies near the standard pass's, taken as independent."""
    accuracy = _standard_accuracy(cells)
    return math.sqrt(2 * accuracy * (1 - accuracy) / min(cell.total for cell in cells))


def _standard_accuracy(cells: Sequence[BlockCell]) -> float:
    return sum(cell.standard for cell in cells) / sum(cell.total for cell in cells)


def _mean_bar(name: str, mean: float, **box: float) -> Markup:
    title = svg_element("title", f"{name}: {format_points(mean)} points on average")
    return svg_element("rect", title, class_="up" if mean > 0 else "down", **box)


def _axis_marks(scale: Scale) -> list[tuple[float, str]]:
    """Round values on an axis and their labels, zero among them."""
    step = round_step(scale.last - scale.first, 3)
    multiples = range(math.ceil(scale.first / step - 1e-9), math.floor(scale.last / step + 1e-9) + 1)
    return [(number * step, _format_short(number * step)) for number in multiples]


def _format_short(difference: float) -> str:
    """A difference in points, as short as it can be."""
    points = round(100 * difference, 6)
    return "0" if points == 0 else use_minus_sign(f"{points:+g}")


def _make_legend(cells: Sequence[BlockCell], best: BlockCell, layers: int) -> tuple[LegendKey, ...]:
    ties = sum(cell.difference == best.difference for cell in cells)
    meaning = f"best: ({best.block[0]}, {best.block[1]}), {best.name}, {format_points(best.difference)} points"
    keys = [
        (box_key("up s8"), "better than the standard pass"),
        (box_key("down s8"), "worse"),
        (box_key("never"), "about the same"),
        (box_key("best-cell"), meaning + (f"; {ties} cells are as good" if ties > 1 else "")),
    ]
    return tuple(keys if len(cells) == count_blocks(layers) else [*keys, (box_key("outline"), "not scored")])


def _write_caption(cells: Sequence[BlockCell]) -> str:
    fewest, most = min(cell.total for cell in cells), max(cell.total for cell in cells)
    examples = format_count(fewest) if fewest == most else f"{format_count(fewest)} to {format_count(most)}"
    plural = "example" if most == 1 else "examples"
    error, accuracy = _standard_error(cells), format_percent(_standard_accuracy(cells))
    noise = (
        f"a cell's difference has a standard error of about {100 * error:.1f} points (roughly: two "
        f"independent accuracies near the standard pass's {accuracy} on {format_count(fewest)})"
        if error
        else f"the noise of a cell cannot be estimated, since the standard pass has {accuracy} correct"
    )
    return (
        "Cell (i, j) is the standard pass with one block executed twice: layers 0 to j − 1, then i to the last. From "
        "left to right the block begins later, from bottom to top it ends later; the diagonal repeats one layer. Blue "
        "has more examples correct than the standard pass, orange fewer. The bars are the means of the columns and "
        f"rows: where a block may begin, and where it may end. Every cell rests on {examples} {plural}, the same as "
        f"the standard pass's, and {noise}. The best of {format_count(len(cells))} cells looks better than it is: "
        "trust a whole region of one colour more than one cell, and the test set more than either."
    )
