"""Numbers as text: percentages, differences, intervals, p-values, counts, durations and sizes."""

import math
import re

_NO_BREAK_SPACE, _THIN_SPACE, _MINUS = "\u00a0", "\u202f", "−"
_NEGATIVE_NUMBER = re.compile(r"(?<!\S)-(?=\d)")
NO_VALUE = "–"
"""Placeholder for a missing number."""


def format_signed(value: float, digits: int = 1) -> str:
    """A number with its sign, as ``+4.5``; the true minus sign has the width of the plus sign."""
    return use_minus_sign(f"{value:+.{digits}f}")


def use_minus_sign(text: str) -> str:
    """Replace hyphens by true minus signs."""
    return text.replace("-", _MINUS)


def use_minus_in_sentence(text: str) -> str:
    """Replace the hyphen before a negative number by the minus sign; routes and ranges keep theirs."""
    return _NEGATIVE_NUMBER.sub(_MINUS, text)


def format_percent(share: float | None) -> str:
    """A share with its unit, as ``54.5 %``."""
    return NO_VALUE if share is None else f"{100 * share:.1f}{_NO_BREAK_SPACE}%"


def format_percent_interval(low: float, high: float) -> str:
    """The interval of a share, as ``47.6 to 61.3 %``."""
    return f"{100 * low:.1f} to {100 * high:.1f}{_NO_BREAK_SPACE}%"


def format_percent_number(share: float | None) -> str:
    """A share without unit, as ``54.5``, for columns whose heading names the unit."""
    return "" if share is None else f"{100 * share:.1f}"


def format_mean_and_deviation(mean: float | None, deviation: float | None) -> str:
    """A mean share and its sample standard deviation, in percent."""
    return format_percent_number(mean) + ("" if deviation is None else f" ± {100 * deviation:.1f}")


def format_points(difference: float | None) -> str:
    """A difference of two shares in percentage points, as ``+4.5``."""
    return "" if difference is None else format_signed(100 * difference)


def format_points_interval(low: float | None, high: float | None) -> str:
    """The interval of a difference in percentage points, as ``+1.2 to +7.8``."""
    return "" if low is None or high is None else f"{format_points(low)} to {format_points(high)}"


def format_p_value(value: float | None) -> str:
    """A p-value; tiny ones as an upper bound."""
    return "" if value is None else f"{value:.2g}" if value >= 1e-4 else "< 0.0001"


def format_p_in_sentence(value: float) -> str:
    """A p-value within a sentence, after the letter p: ``= 0.03`` or ``< 0.0001``."""
    text = format_p_value(value)
    return text if text.startswith("<") else f"= {text}"


def format_detectable_gain(gain: float) -> str:
    """The smallest gain that the data could show."""
    return f"{100 * gain:.1f} points" if math.isfinite(gain) and gain < 1 else "none"


def format_count(number: float) -> str:
    """A count, with thin spaces between thousands."""
    return f"{number:,.0f}".replace(",", _THIN_SPACE)


def format_number_of(number: int, noun: str) -> str:
    """``1 seed``, ``2 seeds``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_duration(seconds: float) -> str:
    """A duration in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def format_milliseconds(seconds: float) -> str:
    """A short duration."""
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.2f} s"


def format_kibibytes(size: float) -> str:
    """A size in KiB."""
    return f"{size / 1024:,.1f} KiB".replace(",", _THIN_SPACE)


def format_mebibytes(size: float) -> str:
    """A size in MiB."""
    return f"{size / 2**20:,.0f} MiB".replace(",", _THIN_SPACE)


def shorten_model_name(model: str) -> str:
    """A model's name without its folders or its owner."""
    return model.rstrip("/").rsplit("/", 1)[-1]
