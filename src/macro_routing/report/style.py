"""How pages and drawings look: colours of both themes, shades, and the style sheets beside the templates."""

import re
from functools import cache
from pathlib import Path

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
DARK = {
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

HEAT_LEVELS = (0.005, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
"""Thresholds of the policy map's shades (.h1 to .h9); unevenly spaced, since a prior is a few hundredths everywhere."""
SHADES = 10
"""Shades on either side of zero: ``up s3`` is a small gain, ``down s10`` the largest loss."""
_DARK_SHADE = 7
"""From this shade on the number in a cell is light."""


def get_shade_class(level: int) -> str:
    """The CSS class of a shade from -SHADES to SHADES."""
    return "never" if level == 0 else f"{'up' if level > 0 else 'down'} s{abs(level)}"


def get_cell_text_class(level: int) -> str:
    """The CSS class of the number in a cell of that shade."""
    return "in-cell on-shade" if abs(level) >= _DARK_SHADE else "in-cell"


def compute_shade_level(value: float, limit: float) -> int:
    """The shade of a value; ``limit`` and above have the full colour."""
    return round(SHADES * max(-1.0, min(1.0, value / limit)))


@cache
def read_template_asset(name: str) -> str:
    """A style sheet or script from the templates' folder."""
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")


def make_page_css() -> str:
    """The style sheet of a page, in the colours of the reader's theme."""
    light, dark = (" ".join(f"--{name}: {colour};" for name, colour in palette.items()) for palette in (LIGHT, DARK))
    themes = f":root {{ color-scheme: light dark; {light} }}\n"
    themes += f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    return themes + read_template_asset("page.css") + read_template_asset("drawings.css")


def make_standalone_svg_css() -> str:
    """The style sheet of an SVG file: light colours, without variables, which many programs do not support."""
    return re.sub(r"var\(--(\w+)\)", lambda match: LIGHT[match[1]], read_template_asset("drawings.css"))
