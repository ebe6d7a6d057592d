"""A group of commands whose help can be read in a terminal of eighty columns.

Typer's help in boxes gives the names of options and values their full width and the words what is left, some sixteen
columns here; plain help wraps under a name that is too long for its column.
"""

from __future__ import annotations

import sys
from typing import Any

import typer
from typer.core import TyperGroup


class _Group(TyperGroup):
    """Says the whole first sentence of each command, over several lines where it must."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = [
            (name, command.get_short_help_str(sys.maxsize))
            for name in self.list_commands(ctx)
            if (command := self.get_command(ctx, name)) and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def group(**settings: Any) -> typer.Typer:
    """A place to put commands; without one of them it shows what there is."""
    return typer.Typer(cls=_Group, no_args_is_help=True, rich_markup_mode=None, **settings)
