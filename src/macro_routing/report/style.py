"""How the pages and their drawings look: light and dark, wide and narrow, without anything from the network."""

from __future__ import annotations

import re

LIGHT = {
    "page": "#fbfbfa",
    "card": "#ffffff",
    "ink": "#1b1d21",
    "soft": "#5c626b",
    "line": "#dfe1e4",
    "faint": "#eceef0",
    "grid": "#e6e8ea",
    "reference": "#6f7680",
    "blue": "#2166c4",
    "orange": "#c2501a",
    "green": "#0f7a53",
    "violet": "#6a3fb5",
    "red": "#b3261e",
    "good": "#e6f4ee",
    "bad": "#fbeaea",
    "neutral": "#eef1f6",
}
_DARK = {
    "page": "#14161a",
    "card": "#1b1e23",
    "ink": "#e7e9ec",
    "soft": "#a2a9b3",
    "line": "#343941",
    "faint": "#24282e",
    "grid": "#2b3037",
    "reference": "#98a0ab",
    "blue": "#6aa9f7",
    "orange": "#f2935f",
    "green": "#45c294",
    "violet": "#b597f5",
    "red": "#f28b82",
    "good": "#16342a",
    "bad": "#3d2022",
    "neutral": "#232a35",
}

HEAT = (0.005, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
"""Where the shades of a heatmap begin; unevenly, since what a search starts from is a few hundredths everywhere."""
_SHADES = "\n".join(
    f".h{level} {{ fill: var(--blue); fill-opacity: {0.1 + 0.9 * level / len(HEAT):.2f}; }}"
    for level in range(1, len(HEAT) + 1)
)
STEPS = 10
"""Shades on either side of zero where gains and losses are shown: ``up s3`` is a small gain, ``down s10`` the worst."""
_STEPS = "\n".join(f".s{step} {{ fill-opacity: {0.1 + 0.9 * step / STEPS:.2f}; }}" for step in range(1, STEPS + 1))

_COLOURS = ("blue", "orange", "green", "violet", "red")
_METHODS = "\n".join(
    f".method-{number} {{ stroke: var(--{_COLOURS[number % 5]}); stroke-width: 2.2; fill: none;"
    f"{' stroke-dasharray: 7 4;' if number >= 5 else ''} }}"
    f" .method-{number}.dot {{ fill: var(--{(*_COLOURS, 'card')[min(number, 5)]}); stroke-dasharray: none; }}"
    f" .method-{number}.lead {{ stroke-width: .8; stroke-opacity: .6; stroke-dasharray: none; }}"
    for number in range(10)
)
"""Five colours twice, the second time dashed and hollow, so that no two lines look alike in grey either."""

_DRAWINGS = (
    """
svg text { fill: var(--soft); font-size: 12px; }
svg text.strong { fill: var(--ink); font-weight: 600; }
svg text.label { fill: var(--ink); paint-order: stroke; stroke: var(--card); stroke-width: 4px; stroke-linejoin: round;
  font-weight: 600; font-size: 11.5px; }
.grid { stroke: var(--grid); stroke-width: 1; } .axis { stroke: var(--line); stroke-width: 1; }
.never { fill: var(--faint); }
.standard-pass { stroke: var(--reference); stroke-width: 1.5; stroke-dasharray: 2 4; fill: none; }
.ordinary { stroke: var(--ink); stroke-width: 1.8; fill: none; } .stop { fill: var(--ink); }
.back { stroke: var(--orange); fill: none; stroke-width: 2.6; stroke-dasharray: 6 3; }
.ahead { stroke: var(--blue); fill: none; stroke-width: 2.6; }
.repeat { stroke: var(--violet); fill: none; stroke-width: 3.4; stroke-dasharray: 2 2.5; }
.stop.back { fill: var(--orange); stroke: none; } .stop.ahead { fill: var(--blue); stroke: none; }
.stop.repeat { fill: var(--violet); stroke: none; }
.add { stroke: var(--green); fill: none; stroke-width: 1.8; } .add-from { stroke: var(--green); fill: var(--card);
  stroke-width: 2; } .add-tip { fill: var(--green); }
.add.minus { stroke-dasharray: 4 3; }
.band { fill: var(--reference); fill-opacity: .16; }
.reference { stroke: var(--reference); stroke-width: 2; fill: none; }
.best { stroke: var(--blue); stroke-width: 2.4; fill: none; } .best-point { fill: var(--blue); }
.best-band { fill: var(--blue); } .median-band { fill: var(--orange); }
.best-interval { stroke: var(--blue); stroke-width: 1.6; fill: none; stroke-opacity: .7; }
.median { stroke: var(--orange); stroke-width: 2; fill: none; stroke-dasharray: 6 4; }
.median-point { fill: var(--card); stroke: var(--orange); stroke-width: 2; }
.draw { fill: var(--reference); fill-opacity: .6; } .draw.elite { fill: var(--blue); fill-opacity: .75; }
.stopped { fill: none; stroke: var(--reference); stroke-width: 1.2; }
.taken { fill: none; stroke: var(--orange); stroke-width: 2; }
.gain { stroke: var(--green); stroke-width: 2.4; fill: none; } .gain-point { fill: var(--green); }
.loss { stroke: var(--red); stroke-width: 2.4; fill: none; } .loss-point { fill: var(--red); }
.open { stroke: var(--reference); stroke-width: 2.4; fill: none; } .open-point { fill: var(--reference); }
.up { fill: var(--blue); } .down { fill: var(--orange); }
.best-cell { fill: none; stroke: var(--ink); stroke-width: 2.4; }
.outline { fill: none; stroke: var(--line); stroke-width: 1; }
svg text.in-cell { fill: var(--ink); font-weight: 600; pointer-events: none; } svg text.on-shade { fill: var(--card); }
"""
    f"{_SHADES}\n{_STEPS}" + _METHODS
)

_PAGE = """
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.5;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem; }
h3 { font-size: 1rem; margin: 1.6rem 0 .5rem; overflow-wrap: anywhere; }
p { margin: .5rem 0; max-width: 46rem; overflow-wrap: anywhere; }
a { color: var(--blue); }
nav { display: flex; flex-wrap: wrap; gap: .2rem .9rem; font-size: .9rem; margin: .9rem 0 0; }
.soft, figcaption, .note { color: var(--soft); font-size: .9rem; }
code, pre, .mono { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: .86em; }
code { overflow-wrap: anywhere; }
pre { background: var(--faint); border-radius: 6px; padding: .7rem .9rem; margin: .5rem 0; overflow-x: auto;
  font-size: .82rem; }
pre.command { white-space: pre-wrap; overflow-wrap: anywhere; }
pre.words { white-space: pre-wrap; overflow-wrap: anywhere; max-height: 26rem; overflow-y: auto; }
.verdict { font-size: 1.12rem; font-weight: 600; padding: .9rem 1.1rem; border-radius: 8px; margin: 1.1rem 0;
  border-left: 5px solid var(--soft); background: var(--neutral); max-width: none; overflow-wrap: anywhere; }
.verdict.better { border-color: var(--green); background: var(--good); }
.verdict.worse { border-color: var(--red); background: var(--bad); }
.verdict.open { border-color: var(--orange); }
.verdict p { margin: .4rem 0 0; font-weight: 400; font-size: .95rem; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; background: var(--card); }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { padding: .45rem .65rem; text-align: left; vertical-align: top; border-top: 1px solid var(--line); }
thead th { border-top: 0; color: var(--soft); font-weight: 600; vertical-align: bottom; white-space: nowrap; }
tbody th { font-weight: 600; }
tfoot td, tfoot th { font-weight: 600; border-top: 2px solid var(--line); }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td small, th small { display: block; color: var(--soft); font-weight: 400; font-size: .82rem; }
tr.chosen td, tr.chosen th { background: var(--neutral); }
.route { min-width: 12rem; } .name { min-width: 9rem; overflow-wrap: anywhere; } .token { white-space: nowrap; }
.remark { min-width: 11rem; }
.facts td:first-child { white-space: nowrap; color: var(--soft); width: 1%; padding-right: 2rem; }
.facts tr:first-child td { border-top: 0; }
.facts td { overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: .7rem; margin: 1rem 0; }
.tile { border: 1px solid var(--line); border-radius: 8px; background: var(--card); padding: .6rem .85rem; }
.tile b { display: block; white-space: nowrap; font-size: 1.3rem; line-height: 1.3; }
.tile span { display: block; color: var(--soft); font-size: .85rem; }
figure { margin: .8rem 0; }
figure .scroll { padding: .4rem; }
figcaption { margin-top: .5rem; max-width: 46rem; }
svg { display: block; }
svg.wide { width: 100%; height: auto; }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; font-size: .88rem; margin: .4rem 0; color: var(--soft); }
.legend span { display: inline-flex; align-items: center; gap: .4rem; }
details { border: 1px solid var(--line); border-radius: 8px; background: var(--card); margin: .5rem 0; }
summary { cursor: pointer; padding: .55rem .85rem; overflow-wrap: anywhere; }
summary small { color: var(--soft); display: block; }
details > .inside { padding: 0 .85rem .75rem; }
details .scroll { border: 0; border-top: 1px solid var(--line); border-radius: 0 0 8px 8px; }
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(18rem, 100%), 1fr)); gap: 0 1rem; }
.sides > div { min-width: 0; }
.right { color: var(--green); font-weight: 600; } .wrong { color: var(--red); font-weight: 600; }
ul.differences { columns: 2 20rem; } ul.differences li { margin: 0; padding: .12rem 0; break-inside: avoid; }
ul { margin: .5rem 0; padding-left: 1.3rem; } li { margin: .15rem 0; overflow-wrap: anywhere; }
/* Buttons without a script: of several radio buttons the chosen one decides what is shown. */
.frames, .answers { display: flex; flex-wrap: wrap; gap: .35rem; align-items: center; margin: .6rem 0; }
.frames > input, .answers > input { position: absolute; opacity: 0; pointer-events: none; }
.frames > label, .answers > label { border: 1px solid var(--line); border-radius: 999px; padding: .15rem .7rem;
  cursor: pointer; font-size: .9rem; background: var(--card); min-width: 2.2rem; text-align: center; }
.frames > input:checked + label, .answers > input:checked + label { background: var(--blue); color: var(--page);
  border-color: var(--blue); }
.frames > input:focus-visible + label, .answers > input:focus-visible + label { outline: 2px solid var(--orange);
  outline-offset: 2px; }
.frames > .frame { display: none; order: 1; flex: 0 0 100%; min-width: 0; }
.frames > input:checked + label + .frame { display: block; }
.answers > .find { order: 1; margin-left: auto; font-size: .9rem; max-width: 100%; }
.find input { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: .2rem .5rem; max-width: 14rem; }
.answers > .list { order: 2; flex: 0 0 100%; min-width: 0; max-height: 38rem; overflow-y: auto; padding-right: .2rem; }
#kind-fixed:checked ~ .list > .broken, #kind-broken:checked ~ .list > .fixed { display: none; }
#kind-cut:checked ~ .list > .answer:not(.cut) { display: none; }
.tag { display: inline-block; border-radius: 4px; padding: 0 .4rem; margin-right: .5rem; font-size: .8rem;
  font-weight: 600; background: var(--good); color: var(--green); }
.broken > summary .tag { background: var(--bad); color: var(--red); }
@media (max-width: 40rem) {
  main { padding: 1.2rem .9rem 3rem; } h1 { font-size: 1.35rem; } .verdict { font-size: 1.02rem; }
  svg.wide { min-width: 46rem; } .tiles { grid-template-columns: 1fr 1fr; gap: .5rem; }
  .tile { padding: .5rem .6rem; } .tile b { font-size: 1.1rem; white-space: normal; }
}
@media print { details { break-inside: avoid; } .scroll { overflow: visible; } .answers > .list { max-height: none; } }
"""


def _variables(palette: dict[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in palette.items())


PAGE_CSS = (
    f":root {{ color-scheme: light dark; {_variables(LIGHT)} }}\n"
    f"@media (prefers-color-scheme: dark) {{ :root {{ {_variables(_DARK)} }} }}\n{_PAGE}{_DRAWINGS}"
)
FILE_CSS = re.sub(r"var\(--(\w+)\)", lambda name: LIGHT[name[1]], _DRAWINGS)
"""For drawings in files of their own; programs that read SVG often know no variables."""
