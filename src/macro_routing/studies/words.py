"""How numbers are written in the studies' tables."""

from __future__ import annotations

from collections.abc import Callable

from macro_routing.studies.tables import Column, Row


def percent(share: float | None) -> str:
    """A share, as ``54.5``; the heading says %."""
    return "" if share is None else f"{100 * share:.1f}"


def points(difference: float | None) -> str:
    """A difference of two shares, with a true minus."""
    return "" if difference is None else f"{100 * difference:+.1f}".replace("-", "−")


def spread(mean: float | None, deviation: float | None) -> str:
    """A mean share and its sample standard deviation."""
    return percent(mean) + ("" if deviation is None else f" ± {100 * deviation:.1f}")


def short_name(model: str) -> str:
    """A model's name without the folders before it."""
    return model.rstrip("/").rsplit("/", 1)[-1]


def signed(value: float) -> str:
    """A difference that is no share, with its sign."""
    return f"{value:+.2f}".replace("-", "−")


def p_value(value: float | None) -> str:
    """How surprising a difference would be by luck alone."""
    return "" if value is None else f"{value:.2g}" if value >= 1e-4 else "< 0.0001"


def p_compared(value: float) -> str:
    """The same in a sentence, after "p"."""
    told = p_value(value)
    return told if told.startswith("<") else f"= {told}"


def interval(low: float | None, high: float | None) -> str:
    """The ends of an interval, in points."""
    return "" if low is None or high is None else f"{points(low)} to {points(high)}"


def text_column(heading: str, key: str, *, is_code: bool = False) -> Column:
    """A column of words."""
    return Column(heading, lambda row: str(row.get(key) or ""), is_number=False, is_code=is_code)


def column(heading: str, key: str, show: Callable[[float | None], str] = "{}".format) -> Column:
    """A column of numbers."""
    return Column(heading, lambda row: "" if row.get(key) is None else show(row[key]))


def difference_columns(heading: str = "difference, points") -> list[Column]:
    """What two things differ by, with its interval and p-value: the keys of ``difference_row``."""

    def shown(row: Row) -> str:
        if row.get("difference") is None:
            return ""
        return f"{points(row['difference'])} ({interval(row['low'], row['high'])})"

    return [
        Column(f"{heading} (95 % interval)", shown),
        Column("p", lambda row: p_value(row.get("p"))),
        Column("p, Holm", lambda row: p_value(row.get("p_holm"))),
    ]


def comparisons_note(count: int) -> str:
    """How many comparisons were made, and what that means for a p-value."""
    if count == 0:
        return "Nothing is compared in this table."
    if count == 1:
        return "One comparison was made."
    return f"{count} comparisons were made; p, Holm is corrected for all of them, p is not."
