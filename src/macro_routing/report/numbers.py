"""How numbers are written on the page."""

from __future__ import annotations

import math

_GAP = "\u00a0"
"""A space at which no line breaks."""
NONE = "–"
"""Stands where there is no number."""


def percent(share: float | None) -> str:
    """A share, as ``54.5 %``."""
    return NONE if share is None else f"{100 * share:.1f}{_GAP}%"


def points(difference: float) -> str:
    """A difference of two shares, as ``+4.5``; with a true minus, which lines up with the plus."""
    return f"{100 * difference:+.1f}".replace("-", "−")


def interval(low: float, high: float) -> str:
    """A share's interval, as ``47.6 to 61.3 %``."""
    return f"{100 * low:.1f} to {100 * high:.1f}{_GAP}%"


def count(number: float) -> str:
    """A count, with thin gaps between thousands."""
    return f"{number:,.0f}".replace(",", "\u202f")


def gain(detectable: float) -> str:
    """The smallest gain that the data could show."""
    return f"{100 * detectable:.1f} points" if math.isfinite(detectable) and detectable < 1 else "none"


def seconds(duration: float) -> str:
    """A duration, in the unit a person would use."""
    if duration < 90:
        return f"{duration:.0f} s"
    return f"{duration / 60:.0f} min" if duration < 5400 else f"{duration / 3600:.1f} h"


def milliseconds(duration: float) -> str:
    """A short time."""
    return f"{1000 * duration:.3g} ms" if duration < 1 else f"{duration:.2f} s"


def kilobytes(size: float) -> str:
    """A small amount of memory."""
    return f"{size / 1024:,.1f} KiB".replace(",", "\u202f")


def megabytes(size: float) -> str:
    """A larger one."""
    return f"{size / 2**20:,.0f} MiB".replace(",", "\u202f")


def p_value(value: float) -> str:
    """How surprising a difference would be by luck alone."""
    return f"{value:.2g}" if value >= 1e-4 else "< 0.0001"
