"""Pictures made of records: the route drawn, accuracy by layers, models by benchmarks, speed, policy over rounds."""

import re
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from result_tables import SPEEDS, WAYS, read_record, split_setting
from wording import name_task

from macro_routing.report.figure import Figure, LegendKey
from macro_routing.report.heatmap import Heatmap
from macro_routing.report.policy_map import list_nonempty_policy_cells
from macro_routing.report.rendering import mark_safe, render_template
from macro_routing.report.route_chart import draw_route_chart
from macro_routing.report.scale import Scale, list_integer_ticks, list_nice_axis_ticks
from macro_routing.routes import parse_route

WIDTH = 470.0
"""Readable on a phone, where a wider picture is made smaller."""
POLICY = "demo_policy.json"
_LARGE, _SMALL = ("Qwen2.5-Coder-1.5B", 28), ("SmolLM2-135M", 30)
_LEFT, _TOP, _BOTTOM = 52.0, 18.0, 44.0
_GAIN = re.compile(r"[+-][\d.]+")


class Mark(NamedTuple):
    """Layers and change of accuracy of what was returned, the standard pass included, averaged over seeds."""

    name: str
    layers: float
    gain: float
    kind: str


def draw_accuracy_by_layers() -> str:
    """Every setting in which some seed returned a route of its own: layers applied, and points gained or lost."""
    marks = [*_list_accuracy_marks(), *_list_speed_marks()]
    height = 330.0
    across = list_nice_axis_ticks([100, *(mark.layers for mark in marks)], 6, min_span=10, beyond=True)
    up = list_nice_axis_ticks([0, *(mark.gain for mark in marks)], 6, min_span=5)
    x = Scale(across[0], across[-1], _LEFT, WIDTH - 20)
    y = Scale(up[0], up[-1], height - _BOTTOM, _TOP)
    grid = [
        f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{y.end}" y2="{y.start}" class="grid"/>'
        f'<text x="{x(tick):.1f}" y="{y.start + 17}" text-anchor="middle">{tick:g} %</text>'
        for tick in across
    ]
    grid += [
        f'<line x1="{x.start}" x2="{x.end}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" class="grid"/>'
        f'<text x="{x.start - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{_sign(tick)}</text>'
        for tick in up
    ]
    middle = (x.start + x.end) / 2
    axes = (
        f'<path d="M{x(100):.1f} {y.end}V{y.start}M{x.start} {y(0):.1f}H{x.end}" class="standard-pass"/>'
        f'<text x="{middle}" y="{y.start + 36}" text-anchor="middle" class="strong">layers applied</text>'
        f'<text x="0" y="10" class="strong">change of accuracy, points</text>'
    )
    shapes = mark_safe("".join([*grid, axes, *(_draw_mark(mark, marks, x, y) for mark in marks)]))
    legend = [
        LegendKey("line with dot", "best", "--objective accuracy (default)"),
        LegendKey("line with dot", "median", "--objective speed"),
        LegendKey("line", "standard-pass", "the standard pass"),
    ]
    title = "Accuracy against layers"
    return Figure("accuracy_layers", title, title, WIDTH, height, shapes, legend).to_svg()


def _list_accuracy_marks() -> list[Mark]:
    marks = []
    for row in read_record("search_quality.json")["results"]:
        task, _, small = split_setting(row)
        found = [value for name, value in row["raw"].items() if name.rpartition("-")[0] == "guided"]
        layers = (_SMALL if small else _LARGE)[1]
        routes = [parse_route(route, layers) for route, _ in found]
        if not all(route.is_standard for route in routes):
            share = 100 * fmean(route.length for route in routes) / layers
            marks.append(Mark(name_task(task) + " ᵃ" * small, share, 100 * fmean(gain for _, gain in found), "best"))
    return marks


def _list_speed_marks() -> list[Mark]:
    rows = [row for row in read_record("speed_objective.json")["results"] if row["saved"]]
    return [
        Mark(name_task(split_setting(row)[0]), 100 - row["saved"], float(_GAIN.match(row["speed"])[0]), "median")  # type: ignore[index]
        for row in rows
    ]


def _draw_mark(mark: Mark, marks: Sequence[Mark], x: Scale, y: Scale) -> str:
    """A dot with its name at the right, or at the left where another dot is close."""
    left, top = x(mark.layers), y(mark.gain)
    others = [other for other in marks if other is not mark and abs(y(other.gain) - top) < 14]
    is_blocked = left > x.end - 70 or any(0 <= x(other.layers) - left < 90 for other in others)
    shift, anchor = (-8, "end") if is_blocked else (8, "start")
    return (
        f'<circle cx="{left:.1f}" cy="{top:.1f}" r="4.5" class="{mark.kind}-point"/>'
        f'<text x="{left + shift:.1f}" y="{top + 4:.1f}" text-anchor="{anchor}" class="label">{mark.name}</text>'
    )


def _sign(tick: float) -> str:
    return f"{tick:+g}".replace("-", "−") if tick else "0"


def draw_models_by_benchmarks() -> str:
    """The default's gain by model and way to answer, for every benchmark that was run."""
    cells: dict[tuple[str, str], float] = {}
    for row in read_record("search_quality.json")["results"]:
        task, mode, small = split_setting(row)
        gain = 100 * fmean(value[1] for name, value in row["raw"].items() if name.rpartition("-")[0] == "guided")
        cells[f"{(_SMALL if small else _LARGE)[0]}, {mode}", name_task(task)] = gain
    rows = sorted(dict.fromkeys(row for row, _ in cells), key=lambda row: (row.startswith(_SMALL[0]), _order_way(row)))
    names = dict.fromkeys(task for _, task in cells)
    tasks = sorted(names, key=lambda task: -max(cells.get((row, task), -9e9) for row in rows))
    heatmap = Heatmap(
        rows=[row.replace("2.5-Coder-1.5B", "").replace("-135M", "") for row in rows],
        columns=tasks,
        values=[[cells.get((row, task)) for task in tasks] for row in rows],
        row_meaning="model",
        column_meaning="benchmark",
        unit="points",
        max_width=WIDTH,
    )
    return heatmap.draw_figure("models_benchmarks", "Gain of the default search, points").to_svg()


def _order_way(row: str) -> int:
    return list(WAYS).index(row.rpartition(", ")[2])


def draw_decoding_speed() -> str:
    """Tokens per second of every side."""
    rows = sorted(read_record(SPEEDS)["results"], key=lambda row: row["rows"])
    height, bar = 40.0 * len(rows) + 6, 15.0
    x = Scale(0, max(row["tokens"] for row in rows), 0, WIDTH - 110)
    parts = []
    for index, row in enumerate(rows):
        top = 40.0 * index
        shade = "down s7" if row["routes"] > 1 else "up s7" if row["side"] == "fused" else "draw"
        parts.append(
            f'<text y="{top + 12:.1f}" class="label">{_name_side(row)}</text>'
            f'<rect y="{top + 17:.1f}" width="{x(row["tokens"]):.1f}" height="{bar}" class="{shade}"/>'
            f'<text x="{x(row["tokens"]) + 8:.1f}" y="{top + 29:.1f}" class="strong">{row["tokens"]:,.0f}</text>'
        )
    title = "Tokens per second, greedy decoding, one GPU"
    return Figure("decoding_speed", title, title, WIDTH, height, mark_safe("".join(parts))).to_svg()


def _name_side(row: Mapping[str, Any]) -> str:
    routes = f", {row['routes']} routes" if row["routes"] > 1 else ""
    return f"{row['side'].replace('fused', 'MACRO, fused decoding')}: {row['rows']:,} texts{routes}"


def draw_demo_route() -> str:
    """The route that the demo has found, over the layers."""
    found, standard = read_record("demo.json")["results"]
    route = parse_route(found["route"].strip("`"), standard["length"])
    chart = draw_route_chart(route, str(route), WIDTH)
    assert chart is not None
    return chart.to_svg()


def draw_policy_rounds() -> str:
    """How often the policy goes where, in some rounds of the demo's search."""
    rows = read_record(POLICY)["results"]
    layers = len(rows[0]["frequencies"])
    cell, row_height, gap = (WIDTH - 82) / layers, 15.0, 44.0
    x, top, parts = Scale(0, layers, 76, 76 + cell * layers), 0.0, []
    for number in dict.fromkeys(row["round"] for row in rows):
        shown = [row for row in rows if row["round"] == number]
        tops = [20 + row_height * index for index in range(len(shown) + 1)]
        shapes = render_template(
            "policy_map.svg",
            x=x,
            cell=cell,
            row_height=row_height,
            rows=list(zip(tops, [row["goes"] for row in shown], strict=False)),
            cells=list_nonempty_policy_cells([(row["goes"], np.array(row["frequencies"])) for row in shown], x, tops),
            min_title=1.0,
            jumps=[],
            layer_ticks=list_integer_ticks(0, layers - 1, 8),
            bottom=tops[-1],
        )
        name = f"after round {number}" if number else "before the first round"
        parts.append(f'<g transform="translate(0 {top:g})"><text x="0" y="10" class="strong">{name}</text>{shapes}</g>')
        top += tops[-1] + gap
    title = "Where the policy goes from each layer, round by round"
    legend = [
        LegendKey("bar", f"h{level}", f"from {threshold}") for level, threshold in ((1, 0.005), (5, 0.2), (9, 0.9))
    ]
    return Figure("policy_rounds", title, title, WIDTH, top, mark_safe("".join(parts)), legend).to_svg()
