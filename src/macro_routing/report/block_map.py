"""Every repeated block as one cell: how it compares with the standard pass, and where blocks may begin and end."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from macro_routing.report.figure import Figure, LegendKey
from macro_routing.report.formatting import format_count, format_percent, format_points, use_minus_sign
from macro_routing.report.rendering import render_template
from macro_routing.report.scale import Scale, list_integer_ticks, list_ticks_within, round_up_to_round_number
from macro_routing.report.style import SHADES, compute_shade_level
from macro_routing.search.rys import Block, count_possible_blocks, find_repeated_block
from macro_routing.search.searcher import Draw, Score

_MIN_CELLS = 3
_WIDTH, _MAX_SIDE, _MAX_CELL = 860.0, 600.0, 72.0
_LEFT, _HEADER, _ABOVE, _BESIDE, _BOTTOM, _BAR_SIZE = 60.0, 20.0, 10.0, 22.0, 44.0, 88.0
_KEY_LENGTH = 220.0
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


def list_block_cells(draws: Sequence[Draw]) -> list[BlockCell]:
    """Every block that was scored in a round with the standard pass; a block of several rounds once, over all."""
    scored = [(draw.round, draw.proposal.route, draw.outcome) for draw in draws if isinstance(draw.outcome, Score)]
    standard = {number: score for number, route, score in scored if route.is_standard}
    blocks: dict[Block, dict[int, Score]] = defaultdict(dict)
    for number, route, score in scored:
        block = None if route.is_standard else find_repeated_block(route)
        if block is not None and number in standard:
            blocks[block][number] = score
    return [
        BlockCell(
            block,
            sum(score.correct for score in by_round.values()),
            sum(standard[number].correct for number in by_round),
            sum(score.total for score in by_round.values()),
        )
        for block, by_round in sorted(blocks.items())
    ]


def average_by_block_boundary(cells: Iterable[BlockCell], axis: int) -> dict[int, float]:
    """The mean difference of all blocks with the same start (axis 0) or the same end (axis 1)."""
    grouped: dict[int, list[float]] = defaultdict(list)
    for cell in cells:
        grouped[cell.block[axis]].append(cell.difference)
    return {layer: fmean(grouped[layer]) for layer in sorted(grouped)}


def draw_block_map(draws: Sequence[Draw], layers: int) -> Figure | None:
    """The map; None if there are too few blocks, or no score of the standard pass to compare them with.

    A column per start i, a row per end j from bottom to top; bars of their means above and at the right.
    """
    cells = list_block_cells(draws)
    if len(cells) < _MIN_CELLS:
        return None
    # As the searches rank routes: of equally good ones more examples, then the shorter.
    best = max(cells, key=lambda cell: (cell.difference, cell.total, cell.block[0] - cell.block[1]))
    cell_size = max(min(math.floor(2 * _MAX_SIDE / layers) / 2, _MAX_CELL), 0.5)
    side = cell_size * layers
    left = (_WIDTH - side - _BESIDE - _BAR_SIZE + _LEFT) / 2
    x = Scale(0, layers, left, left + side)
    y = Scale(0, layers, _HEADER + _BAR_SIZE + _ABOVE + side, _HEADER + _BAR_SIZE + _ABOVE)
    limit = _compute_color_limit(cells)
    column_means, row_means = (average_by_block_boundary(cells, axis) for axis in (0, 1))
    means = [0.0, *column_means.values(), *row_means.values()]
    shapes = render_template(
        "block_map.svg",
        x=x,
        y=y,
        cell_size=cell_size,
        layers=layers,
        cells=[(cell, compute_shade_level(cell.difference, limit)) for cell in cells],
        best=best,
        has_titles=len(cells) <= _MAX_TITLES,
        has_numbers=cell_size >= _MIN_CELL_FOR_NUMBER,
        starts=list_integer_ticks(0, layers - 1, 10),
        ends=list_integer_ticks(1, layers, 10),
        column_means=column_means,
        row_means=row_means,
        mean_ticks=list_ticks_within(min(means), max(means), 3),
        column_bars=Scale(min(means), max(means), y.end - _ABOVE, y.end - _ABOVE - _BAR_SIZE),
        row_bars=Scale(min(means), max(means), x.end + _BESIDE, x.end + _BESIDE + _BAR_SIZE),
        shades=range(-SHADES, SHADES + 1),
        key_length=min(_KEY_LENGTH, 0.6 * side),
        limit=limit,
        is_limited=min(cell.difference for cell in cells) < -limit,
        format_short=_format_short_points,
    )
    label = f"Accuracy of {len(cells)} repeated blocks minus the standard pass's; best: {best.description}"
    title = "Repeated blocks, compared with the standard pass"
    legend = _make_legend(cells, best, layers)
    return Figure("blocks", title, label, _WIDTH, y.start + _BOTTOM, shapes, legend, _write_caption(cells))


def _compute_color_limit(cells: Sequence[BlockCell]) -> float:
    """The difference that has the full colour: no gain is above it, and mere noise stays pale."""
    sizes = [abs(cell.difference) for cell in cells]
    gain = max(cell.difference for cell in cells)
    return round_up_to_round_number(
        max(gain, float(np.quantile(sizes, _SHARE_IN_RANGE)), 2 * _estimate_difference_standard_error(cells), 0.001)
    )


def _estimate_difference_standard_error(cells: Sequence[BlockCell]) -> float:
    """Of one cell's difference, roughly: two accuracies near the standard pass's, taken as independent."""
    accuracy = _compute_standard_accuracy(cells)
    return math.sqrt(2 * accuracy * (1 - accuracy) / min(cell.total for cell in cells))


def _compute_standard_accuracy(cells: Sequence[BlockCell]) -> float:
    return sum(cell.standard for cell in cells) / sum(cell.total for cell in cells)


def _format_short_points(difference: float) -> str:
    """A difference in points, as short as it can be."""
    points = round(100 * difference, 6)
    return "0" if points == 0 else use_minus_sign(f"{points:+g}")


def _make_legend(cells: Sequence[BlockCell], best: BlockCell, layers: int) -> list[LegendKey]:
    ties = sum(cell.difference == best.difference for cell in cells)
    meaning = f"best: ({best.block[0]}, {best.block[1]}), {best.name}, {format_points(best.difference)} points"
    keys = {
        "up s8": "better than the standard pass",
        "down s8": "worse",
        "never": "about the same",
        "best-cell": meaning + (f"; {ties} cells are as good" if ties > 1 else ""),
        "outline": "not scored" if len(cells) < count_possible_blocks(layers) else "",
    }
    return [LegendKey("cell", class_, meaning) for class_, meaning in keys.items() if meaning]


def _write_caption(cells: Sequence[BlockCell]) -> str:
    fewest, most = min(cell.total for cell in cells), max(cell.total for cell in cells)
    examples = format_count(fewest) if fewest == most else f"{format_count(fewest)} to {format_count(most)}"
    plural = "example" if most == 1 else "examples"
    error, accuracy = _estimate_difference_standard_error(cells), format_percent(_compute_standard_accuracy(cells))
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
