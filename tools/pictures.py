"""The pictures of the pages: those made of records, and a dark theme for all of them."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from comparison_pictures import (
    draw_accuracy_by_layers,
    draw_decoding_speed,
    draw_demo_route,
    draw_models_by_benchmarks,
    draw_policy_rounds,
)
from result_tables import METHODS, WAYS, read_record, split_setting
from wording import name_task

from macro_routing.report.heatmap import Heatmap
from macro_routing.report.interval_chart import GAIN, LOSS, OPEN, IntervalRow, draw_intervals
from macro_routing.report.style import DARK, LIGHT

WIDTH = 470.0
"""Readable on a phone, where a wider picture is made smaller."""
_MEANINGS = {GAIN: "better", LOSS: "worse", OPEN: "the standard pass was returned"}
_SPEED_MEANINGS = {GAIN: "better", LOSS: "worse", OPEN: "no significant difference"}
_GAIN = re.compile(r"([+-][\d.]+) \(([+-][\d.]+) to ([+-][\d.]+)\)")
_DARK_BLOCK = "@media (prefers-color-scheme: dark)"


def _parse_gain(text: str) -> tuple[float, float, float]:
    """A gain with its interval, as the record has it."""
    match = _GAIN.match(text)
    assert match, text
    middle, low, high = map(float, match.groups())
    return low, middle, high


def _name(setting: str) -> str:
    task, mode, small = split_setting({"setting": setting})
    return f"{name_task(task)}, {mode}" + (", SmolLM2-135M" if small else "")


def _draw_gains() -> str:
    """A forest plot of the default search."""
    rows = []
    for mode in WAYS:
        chosen = [row for row in read_record("search_quality.json")["results"] if split_setting(row)[1] == mode]
        for row in sorted(chosen, key=lambda row: -_parse_gain(row["guided"])[1]):
            low, middle, high = _parse_gain(row["guided"])
            kind = GAIN if low > 0 else LOSS if high < 0 else OPEN
            rows.append(IntervalRow(_name(row["setting"]), low, middle, high, kind))
    title = "Gain over the standard pass, 95 % intervals"
    return draw_intervals("headline_gains", title, "points", rows, 0.0, _MEANINGS, WIDTH).to_svg()


def _draw_methods() -> str:
    """Models and benchmarks by method."""
    rows = read_record("search_quality.json")["results"]
    heatmap = Heatmap(
        rows=[_name(row["setting"]).replace("SmolLM2-135M", "small") for row in rows],
        columns=list(METHODS.values()),
        values=[[_parse_gain(row[method])[1] for method in METHODS] for row in rows],
        row_meaning="setting",
        column_meaning="search",
        unit="points",
        max_width=WIDTH,
    )
    return heatmap.draw_figure("headline_methods", "Gain over the standard pass, points").to_svg()


def _draw_fewer_layers() -> str:
    """What routes that were searched for speed lose or gain, with the layers that they save."""
    rows = []
    for row in read_record("speed_objective.json")["results"]:
        if _GAIN.match(row["speed"]):
            low, middle, high = _parse_gain(row["speed"])
            kind = GAIN if low > 0 else LOSS if high < 0 else OPEN
            rows.append(
                IntervalRow(f"{_name(row['setting'])}: {row['saved']:.1f} % fewer layers", low, middle, high, kind)
            )
    title = "Change of accuracy with --objective speed, 95 % intervals"
    return draw_intervals("fewer_layers", title, "points", rows, 0.0, _SPEED_MEANINGS, WIDTH).to_svg()


def add_dark_theme(svg: str) -> str:
    """The picture with the report's dark colours for readers who prefer them; unchanged if it has them."""
    style = re.search(r"<style>(.*?)</style>", svg, re.DOTALL)
    if style is None or _DARK_BLOCK in svg:
        return svg
    dark = {LIGHT[name]: DARK[name] for name in LIGHT}
    rules = re.sub(r"#[0-9a-f]{6}", lambda match: dark.get(match[0], match[0]), style[1])
    background = f".background {{ fill: {DARK['card']}; }}"
    added = f"{_DARK_BLOCK} {{ {rules} {background} }}"
    svg = svg.replace("</style>", f"{added}</style>", 1)
    return re.sub(r"(<rect [^>]*)(fill=\"#ffffff\"/>)", r'\1class="background" \2', svg, count=1)


_DRAWN: Mapping[str, Callable[[], str]] = {
    "headline_gains.svg": _draw_gains,
    "headline_methods.svg": _draw_methods,
    "fewer_layers.svg": _draw_fewer_layers,
    "demo_route.svg": draw_demo_route,
    "accuracy_layers.svg": draw_accuracy_by_layers,
    "models_benchmarks.svg": draw_models_by_benchmarks,
    "decoding_speed.svg": draw_decoding_speed,
    "policy_rounds.svg": draw_policy_rounds,
}
"""What is drawn from records."""


def make_pictures(folder: Path) -> Mapping[str, str]:
    """All pictures by file name: drawn from records, or those that are there, each with both themes."""
    there = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.svg"))}
    drawn = {name: draw() for name, draw in _DRAWN.items()}
    return {name: add_dark_theme(str(svg)) for name, svg in (there | drawn).items()}


def stale_pictures(folder: Path) -> list[Path]:
    """Pictures that differ from their records."""
    pictures = make_pictures(folder)
    paths = {folder / name: svg for name, svg in pictures.items()}
    return [path for path, svg in paths.items() if not path.is_file() or path.read_text(encoding="utf-8") != svg]


def write_pictures(folder: Path) -> None:
    """Bring the pictures up to date."""
    for name, svg in make_pictures(folder).items():
        (folder / name).write_text(svg, encoding="utf-8")
