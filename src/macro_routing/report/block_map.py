"""Every repeated block as one cell: how it compares with the standard pass, and where blocks may begin and end."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from macro_routing.report.figure import Figure, Key
from macro_routing.report.formatting import format_count, format_percent, format_points
from macro_routing.report.markup import Markup, element, joined
from macro_routing.report.scale import Scale, round_step, ticks
from macro_routing.report.style import STEPS
from macro_routing.search.rys_sweep import Block, block_from_route, count_blocks
from macro_routing.search.searcher import Draw, Score

_FEWEST = 3
"""Fewer cells are no map."""
_WIDTH, _SIDE, _LARGEST_CELL = 860.0, 600.0, 72.0
_LEFT, _HEADER, _ABOVE, _BESIDE, _BOTTOM, _SKYLINE = 60.0, 20.0, 10.0, 22.0, 44.0, 88.0
_BAR_LENGTH, _BAR_HEIGHT = 220.0, 12.0
_ROOM_FOR_NUMBER = 40.0
"""A cell from here on has room for its difference in points."""
_DARK = 7
"""From this shade on the number in a cell is light."""
_MOST_TOLD = 4000
"""Of more cells, none says its numbers when pointed at: the page would become large."""
_SHARE_IN_RANGE = 0.5
"""Share of cells whose size the colours tell at least; disasters must not make all the others pale."""


@dataclass(frozen=True)
class BlockCell:
    """A block's answers and the standard pass's to the same examples."""

    block: Block
    correct: float
    standard: float
    """How many the standard pass got right."""
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
    def told(self) -> str:
        """All there is to say about it."""
        i, j = self.block
        counts = f"{self.correct:g} right of {self.total}, the standard pass {self.standard:g}"
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
            right, of_standard = (sum(one.correct for one in side) for side in zip(*pairs, strict=True))
            cells.append(BlockCell(block, right, of_standard, sum(score.total for score, _ in pairs)))
    return cells


def skyline(cells: Iterable[BlockCell], axis: int) -> dict[int, float]:
    """The mean difference of all blocks with the same start (axis 0) or the same end (axis 1)."""
    grouped: dict[int, list[float]] = defaultdict(list)
    for cell in cells:
        grouped[cell.block[axis]].append(cell.difference)
    return {place: fmean(grouped[place]) for place in sorted(grouped)}


def block_map_figure(draws: Sequence[Draw], layers: int) -> Figure | None:
    """The map; None where there are too few blocks, or no score of the standard pass to compare them with."""
    cells = block_cells(draws)
    if len(cells) < _FEWEST:
        return None
    # As the searches rank routes: of equally good ones more examples, then the shorter.
    best = max(cells, key=lambda cell: (cell.difference, cell.total, cell.block[0] - cell.block[1]))
    drawing = _Map(cells, layers, best)
    label = f"Accuracy of {len(cells)} repeated blocks minus the standard pass's; best: {best.told}"
    title = "Repeated blocks, compared with the standard pass"
    legend = _legend(cells, best, layers)
    return Figure("blocks", title, label, _WIDTH, drawing.height, drawing.shapes(), legend, _caption(cells))


class _Map:
    """A column per start i, a row per end j from bottom to top; bars above and at the right."""

    def __init__(self, cells: Sequence[BlockCell], layers: int, best: BlockCell) -> None:
        self.cells, self.layers, self.best = cells, layers, best
        self.cell = max(min(math.floor(2 * _SIDE / layers) / 2, _LARGEST_CELL), 0.5)
        self.side = self.cell * layers
        self.left = (_WIDTH - self.side - _BESIDE - _SKYLINE + _LEFT) / 2
        self.top = _HEADER + _SKYLINE + _ABOVE
        self.right, self.bottom = self.left + self.side, self.top + self.side
        self.height = self.bottom + _BOTTOM
        self.limit = _limit(cells)

    def shapes(self) -> Markup:
        columns, rows = (skyline(self.cells, axis) for axis in (0, 1))
        means = [0.0, *columns.values(), *rows.values()]
        up, right = self.top - _ABOVE, self.right + _BESIDE
        return joined(
            *self._axes(),
            element("path", d=self._stairs(), class_="outline"),
            *map(self._cell, self.cells),
            self._best(),
            *self._column_means(columns, Scale(min(means), max(means), up, up - _SKYLINE)),
            *self._row_means(rows, Scale(min(means), max(means), right, right + _SKYLINE)),
            *self._colours(),
        )

    def _x(self, i: int) -> float:
        return self.left + self.cell * i

    def _y(self, j: int) -> float:
        return self.bottom - self.cell * j

    def _stairs(self) -> str:
        """Around all blocks there can be."""
        steps = f"v{self.cell:.1f}h-{self.cell:.1f}" * self.layers
        return f"M{self.left:.1f} {self.top:.1f}h{self.side:.1f}{steps}z"

    def _axes(self) -> list[Markup]:
        parts = []
        for i in ticks(0, self.layers - 1, 10):
            x = self._x(i) + self.cell / 2
            parts.append(element("text", str(i), x=x, y=self.bottom + 17, text_anchor="middle"))
        for j in ticks(1, self.layers, 10):
            y = self._y(j) + self.cell / 2 + 4
            parts.append(element("text", str(j), x=self.left - 8, y=y, text_anchor="end"))
        x, y = self.left + self.side / 2, self.top + self.side / 2
        parts.append(element("text", "i, the block's first layer", x=x, y=self.bottom + 38, text_anchor="middle"))
        turned = f"translate({self.left - 42:.1f} {y:.1f}) rotate(-90)"
        return [*parts, element("text", "j, the layer after its last", transform=turned, text_anchor="middle")]

    def _cell(self, cell: BlockCell) -> Markup:
        (i, j), step = cell.block, self._step(cell.difference)
        told = element("title", cell.told) if len(self.cells) <= _MOST_TOLD else None
        inner = self.cell - min(1.0, self.cell / 16)
        x, y = self._x(i), self._y(j)
        box = element("rect", told, x=x, y=y, width=inner, height=inner, class_=_shade(step))
        if self.cell < _ROOM_FOR_NUMBER:
            return box
        style = "in-cell on-shade" if abs(step) >= _DARK else "in-cell"
        number, middle = _signed(round(cell.difference, 3)), inner / 2
        return joined(box, element("text", number, x=x + middle, y=y + middle + 4, text_anchor="middle", class_=style))

    def _step(self, difference: float) -> int:
        """The shade of a difference, negative for a loss."""
        return round(STEPS * max(-1.0, min(1.0, difference / self.limit)))

    def _best(self) -> Markup:
        i, j = self.best.block
        size = {"width": self.cell + 1, "height": self.cell + 1, "rx": 2}
        return element("rect", x=self._x(i) - 1, y=self._y(j) - 1, class_="best-cell", **size)

    def _column_means(self, means: Mapping[int, float], scale: Scale) -> list[Markup]:
        parts = [element("text", "mean of each column, in points", x=self.left, y=self.top - _ABOVE - _SKYLINE - 8)]
        for value, name in _marks(scale):
            y = scale(value)
            parts.append(element("line", x1=self.left, x2=self.right, y1=y, y2=y, class_="grid"))
            parts.append(element("text", name, x=self.left - 8, y=y + 4, text_anchor="end"))
        for i, mean in means.items():
            ends = sorted((scale(0), scale(mean)))
            size = {"width": 0.8 * self.cell, "height": ends[1] - ends[0]}
            parts.append(_mean_bar(f"blocks from L{i}", mean, x=self._x(i) + 0.1 * self.cell, y=ends[0], **size))
        return [*parts, element("line", x1=self.left, x2=self.right, y1=scale(0), y2=scale(0), class_="axis")]

    def _row_means(self, means: Mapping[int, float], scale: Scale) -> list[Markup]:
        parts = [element("text", "mean of each row", x=self.right + _BESIDE, y=self.top - 8)]
        for value, name in _marks(scale):
            x = scale(value)
            parts.append(element("line", x1=x, x2=x, y1=self.top, y2=self.bottom, class_="grid"))
            parts.append(element("text", name, x=x, y=self.bottom + 17, text_anchor="middle"))
        for j, mean in means.items():
            ends = sorted((scale(0), scale(mean)))
            size = {"width": ends[1] - ends[0], "height": 0.8 * self.cell}
            parts.append(_mean_bar(f"blocks up to L{j - 1}", mean, x=ends[0], y=self._y(j) + 0.1 * self.cell, **size))
        return [*parts, element("line", x1=scale(0), x2=scale(0), y1=self.top, y2=self.bottom, class_="axis")]

    def _colours(self) -> list[Markup]:
        """What the shades mean, in the corner where no block can be."""
        length = min(_BAR_LENGTH, 0.6 * self.side)
        left, top = self.right - length, self.bottom - _BAR_HEIGHT - 20
        wide = length / (2 * STEPS + 1)
        parts = [element("text", "difference in points", x=self.right, y=top - 8, text_anchor="end")]
        for place, step in enumerate(range(-STEPS, STEPS + 1)):
            x = left + wide * place
            parts.append(element("rect", x=x, y=top, width=wide, height=_BAR_HEIGHT, class_=_shade(step)))
        differences = [cell.difference for cell in self.cells]
        lowest = "≤ " if min(differences) < -self.limit else ""
        ends = [(-1, left, "start", lowest), (0, left + length / 2, "middle", ""), (1, self.right, "end", "")]
        for sign, x, anchor, before in ends:
            name = before + _signed(sign * self.limit)
            parts.append(element("text", name, x=x, y=self.bottom - 5, text_anchor=anchor))
        return parts


def _limit(cells: Sequence[BlockCell]) -> float:
    """The difference that has the full colour: no gain is above it, and mere noise stays pale."""
    sizes = [abs(cell.difference) for cell in cells]
    gain = max(cell.difference for cell in cells)
    wanted = max(gain, float(np.quantile(sizes, _SHARE_IN_RANGE)), 2 * _standard_error(cells), 0.001)
    step = round_step(wanted, 4)
    return step * math.ceil(wanted / step - 1e-9)


def _standard_error(cells: Sequence[BlockCell]) -> float:
    """Of one cell's difference, roughly: two accuracies near the standard pass's, taken as independent."""
    accuracy = _standard_accuracy(cells)
    return math.sqrt(2 * accuracy * (1 - accuracy) / min(cell.total for cell in cells))


def _standard_accuracy(cells: Sequence[BlockCell]) -> float:
    return sum(cell.standard for cell in cells) / sum(cell.total for cell in cells)


def _shade(step: int) -> str:
    return "never" if step == 0 else f"{'up' if step > 0 else 'down'} s{abs(step)}"


def _mean_bar(name: str, mean: float, **place: float) -> Markup:
    told = element("title", f"{name}: {format_points(mean)} points on average")
    return element("rect", told, class_="up" if mean > 0 else "down", **place)


def _marks(scale: Scale) -> list[tuple[float, str]]:
    """Round values on an axis and their names, zero among them."""
    step = round_step(scale.last - scale.first, 3)
    numbers_of_steps = range(math.ceil(scale.first / step - 1e-9), math.floor(scale.last / step + 1e-9) + 1)
    return [(number * step, _signed(number * step)) for number in numbers_of_steps]


def _signed(difference: float) -> str:
    """A difference in points, as short as it can be."""
    points = round(100 * difference, 6)
    return "0" if points == 0 else f"{points:+g}".replace("-", "−")


def _legend(cells: Sequence[BlockCell], best: BlockCell, layers: int) -> tuple[Key, ...]:
    def box(style: str) -> Markup:
        return element("rect", x=8, y=0.5, width=11, height=11, class_=style)

    ties = sum(cell.difference == best.difference for cell in cells)
    words = f"best: ({best.block[0]}, {best.block[1]}), {best.name}, {format_points(best.difference)} points"
    keys = [
        (box("up s8"), "better than the standard pass"),
        (box("down s8"), "worse"),
        (box("never"), "about the same"),
        (box("best-cell"), words + (f"; {ties} cells are as good" if ties > 1 else "")),
    ]
    return tuple(keys if len(cells) == count_blocks(layers) else [*keys, (box("outline"), "not scored")])


def _caption(cells: Sequence[BlockCell]) -> str:
    fewest, most = min(cell.total for cell in cells), max(cell.total for cell in cells)
    examples = format_count(fewest) if fewest == most else f"{format_count(fewest)} to {format_count(most)}"
    plural = "example" if most == 1 else "examples"
    error, accuracy = _standard_error(cells), format_percent(_standard_accuracy(cells))
    yardstick = (
        f"a cell's difference has a standard error of about {100 * error:.1f} points (a rough yardstick: two "
        f"independent accuracies near the standard pass's {accuracy} on {format_count(fewest)})"
        if error
        else f"how far luck moves a cell cannot be told, since the standard pass got {accuracy} right"
    )
    return (
        "Cell (i, j) is the standard pass with one block executed twice: layers 0 to j − 1, then i to the last. From "
        "left to right the block begins later, from bottom to top it ends later; the diagonal repeats one layer. Blue "
        "got more examples right than the standard pass, orange fewer. The bars are the means of the columns and rows: "
        f"where a block may begin, and where it may end. Every cell rests on {examples} {plural}, the same as the "
        f"standard pass's, and {yardstick}. The best of {format_count(len(cells))} cells looks better than it is: "
        "trust a whole region of one colour more than one cell, and the test set more than either."
    )
