"""Columns that several studies' tables share."""

from __future__ import annotations

from collections.abc import Callable

from macro_routing.report.formatting import format_p_value, format_percentage, format_points, format_points_interval
from macro_routing.studies.tables import Column, Row


def text_column(heading: str, key: str, *, is_code: bool = False) -> Column:
    """A column of text."""
    return Column(heading, lambda row: str(row.get(key) or ""), is_number=False, is_code=is_code)


def number_column(heading: str, key: str, format_number: Callable[[float], str] = "{}".format) -> Column:
    """A column of numbers; a missing one is left blank."""
    return Column(heading, lambda row: "" if row.get(key) is None else format_number(row[key]))


def percentage_column(heading: str, key: str) -> Column:
    """A column of shares in percent."""
    return number_column(heading, key, format_percentage)


def difference_columns(heading: str = "difference, points") -> list[Column]:
    """A difference with its interval and p-values: the keys of ``difference_row``."""

    def format_difference(row: Row) -> str:
        if row.get("difference") is None:
            return ""
        return f"{format_points(row['difference'])} ({format_points_interval(row['low'], row['high'])})"

    return [
        Column(f"{heading} (95 % interval)", format_difference),
        number_column("p", "p", format_p_value),
        number_column("p, Holm", "p_holm", format_p_value),
    ]


def comparisons_note(count: int) -> str:
    """How many comparisons were made, and what that means for a p-value."""
    if count == 0:
        return "Nothing is compared in this table."
    if count == 1:
        return "One comparison was made."
    return f"{count} comparisons were made; p, Holm is corrected for all of them, p is not."
