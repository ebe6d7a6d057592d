"""Groups of commands whose help can be read in a terminal of eighty columns.

Typer's help in boxes gives the names of options and values their full width and the help texts what is left, some
sixteen columns here; plain help wraps under a name that is too long for its column. Options are listed under the
headings of their panels all the same.
"""

import re
import sys
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

_LAST_PANEL = "Options"
_ROUTE_TOKEN = re.compile(r"(L\d\S*|RJ)\s*$", re.IGNORECASE)
_UsageError: Any = typer.BadParameter.__base__
"""Click's, which newer versions of typer bring along under another name."""


class _CommandWithHelpPanels(TyperCommand):
    """Lists its options under the heading of their panel, and explains a route without quotes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except _UsageError as error:
            route = [word for word in words if _ROUTE_TOKEN.match(word)]
            if len(route) > 1 and "unexpected extra argument" in error.format_message():
                error.message += f"; quote a route of several tokens: '{' '.join(route)}'"
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                default = "Arguments" if parameter.param_type_name == "argument" else _LAST_PANEL
                panels.setdefault(getattr(parameter, "rich_help_panel", None) or default, []).append(record)
        for heading, records in sorted(panels.items(), key=lambda panel: panel[0] == _LAST_PANEL):
            with formatter.section(heading):
                formatter.write_dl(records)


class _UntruncatedHelpGroup(TyperGroup):
    """Shows the whole first sentence of each command, over several lines where it must."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = [
            (name, command.get_short_help_str(sys.maxsize))
            for name in self.list_commands(ctx)
            if (command := self.get_command(ctx, name)) and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class _TyperWithHelpPanels(typer.Typer):
    """Adds commands whose help has panels."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        return super().command(name, **{"cls": _CommandWithHelpPanels, **settings})


def make_command_group(**settings: Any) -> typer.Typer:
    """A group of commands; without one of them it shows its help."""
    return _TyperWithHelpPanels(cls=_UntruncatedHelpGroup, no_args_is_help=True, rich_markup_mode=None, **settings)
