"""Drawings that the studies share: every value has its place, and nothing breaks out of the picture."""

import dataclasses
import re
from xml.etree import ElementTree as ET

import pytest

from macro_routing.report.heatmap import Heatmap
from macro_routing.report.line_chart import AxisLabels, ChartPoint, LineSeries, draw_line_chart

HOSTILE = "<script>&\"'"


def heatmap(values, **changes):
    rows, columns = [f"row {n}" for n in range(len(values))], [f"column {n}" for n in range(len(values[0]))]
    meanings = {"row_meaning": "rows", "column_meaning": "columns", "unit": "points"}
    return Heatmap(rows, columns, values, **meanings, **changes).draw_figure("h", "A map")


def test_gains_losses_and_gaps_look_different():
    figure = heatmap([[4.0, -4.0], [0.0, None]], outlined={(0, 0)}, outline_meaning="sure")
    text = figure.to_svg()
    assert text.count('class="up s10"') == 2  # the cell and its key
    assert text.count('class="down s10"') == 2
    assert text.count('class="never"') == 2
    assert text.count('class="outline"') == 2
    assert text.count('class="best-cell"') == 2
    for shown in ("+4.0", "−4.0", "+0.0", "not measured", "sure"):
        assert f">{shown}" in text


def test_a_map_of_gains_alone_has_no_key_for_losses():
    assert "down s10" not in heatmap([[1.0, 2.0]]).to_svg().split("</style>")[1]


def test_many_long_names_are_tilted_and_fit():
    names = [f"a rather long task {n}" for n in range(20)]
    values = [[float(n) for n in range(20)]] * 20
    figure = Heatmap(names, names, values, row_meaning="r", column_meaning="c", unit="u").draw_figure("h", "t")
    assert figure.to_svg().count("rotate(-35)") == 20
    places = [float(x) for x in re.findall(r"translate\(([\d.]+) [\d.]+\) rotate", figure.to_svg())]
    assert max(places) < figure.width


def test_whatever_a_task_is_called_the_file_is_sound():
    figure = Heatmap(
        [HOSTILE], [HOSTILE], [[1.0]], row_meaning=HOSTILE, column_meaning=HOSTILE, unit=HOSTILE
    ).draw_figure("h", HOSTILE)
    root = ET.fromstring(figure.to_svg())  # noqa: S314 our own file
    assert not [node for node in root.iter() if node.tag.endswith("script")]


def line(name, values, **changes):
    return LineSeries(name, [ChartPoint(x, y, y - 1, y + 1) for x, y in enumerate(values)], **changes)


def test_lines_lie_within_the_axes_and_higher_values_higher():
    figure = draw_line_chart(
        "l", "Lines", [line("one", [1, 5, 3]), line("two", [-4, 0, 2])], AxisLabels("x"), AxisLabels("y")
    )
    text = figure.to_svg().split("</style>")[1]
    first, second = (
        [tuple(map(float, pair.split(","))) for pair in points.split()]
        for points in re.findall(r'<polyline points="([^"]+)"', text)
    )
    assert first[1][1] < first[2][1] < first[0][1]
    assert all(0 <= x <= figure.width and 0 <= y <= figure.height for x, y in first + second)
    assert text.count('class="band"') == 1  # the reference is grey
    assert text.count('class="band best-band"') == 1
    assert "one" in text
    assert "two" in text


@pytest.mark.parametrize("values", [[2.0], [2.0, 2.0, 2.0]])
def test_a_single_value_can_be_drawn(values):
    bars = line("one", values, has_bars=True)
    named = AxisLabels("x", names=[(float(place), str(place)) for place in range(len(values))])
    text = draw_line_chart("l", "t", [bars], named, AxisLabels("y"), level=(1.0, "standard")).to_svg()
    assert "nan" not in text.lower().split("</style>")[1]
    assert "standard" in text


def test_a_title_longer_than_the_canvas_goes_on_in_the_next_line():
    figure = heatmap([[1.0, 2.0]])
    short, long = (dataclasses.replace(figure, title=title).to_svg() for title in ("A map", "A long word " * 20))
    texts = [element for element in ET.fromstring(long).iter() if element.get("font-size") == "15"]  # noqa: S314 our own file
    assert len(texts) > 1
    assert " ".join(element.text for element in texts) == ("A long word " * 20).strip()
    assert max(8.2 * len(element.text) for element in texts) <= figure.width
    heights = [float(ET.fromstring(text).get("height")) for text in (short, long)]  # noqa: S314
    assert heights[1] - heights[0] == 20 * (len(texts) - 1)
