"""Parts that several charts share: grid lines with labels, texts, error bars, legend keys."""

from collections.abc import Iterable

from markupsafe import Markup

from macro_routing.report.markup import join_markup, svg_element


def svg_text(text: str, x: float, y: float, anchor: str = "middle", class_: str | None = None) -> Markup:
    """A text; ``anchor`` says which of its ends is at ``x``."""
    return svg_element("text", text, x=x, y=y, text_anchor=anchor, class_=class_)


def rotated_text(text: str, x: float, y: float, class_: str | None = None) -> Markup:
    """A text from bottom to top, centred, for the vertical axis."""
    rotation = f"translate({x:.1f} {y:.1f}) rotate(-90)"
    return svg_element("text", text, transform=rotation, text_anchor="middle", class_=class_)


def horizontal_line(y: float, left: float, right: float, class_: str = "grid") -> Markup:
    """A line across the chart."""
    return svg_element("line", x1=left, x2=right, y1=y, y2=y, class_=class_)


def vertical_line(x: float, top: float, bottom: float, class_: str = "grid") -> Markup:
    """A line from top to bottom."""
    return svg_element("line", x1=x, x2=x, y1=top, y2=bottom, class_=class_)


def horizontal_gridline(label: str, y: float, left: float, right: float) -> Markup:
    """A grid line with its value at the left."""
    return join_markup(horizontal_line(y, left, right), svg_text(label, left - 8, y + 4, "end"))


def vertical_gridline(label: str, x: float, top: float, bottom: float) -> Markup:
    """A grid line with its value below it."""
    return join_markup(vertical_line(x, top, bottom), svg_text(label, x, bottom + 17))


def error_bar(x: float, low: float, high: float, class_: str) -> Markup:
    """A vertical interval with ends."""
    return svg_element("path", d=f"M{x - 4:.1f} {high:.1f}h8m-4 0V{low:.1f}m-4 0h8", class_=class_)


def format_points_attribute(points: Iterable[tuple[float, float]]) -> str:
    """Points as a polyline or polygon takes them."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def line_key(class_: str) -> Markup:
    """A line in a legend."""
    return svg_element("path", d="M1 6L27 6", class_=class_)


def box_key(class_: str, width: int = 11) -> Markup:
    """A shaded cell in a legend."""
    return svg_element("rect", x=8, y=0.5, width=width, height=11, class_=class_)
