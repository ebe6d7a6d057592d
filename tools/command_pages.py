"""A page per command, from the code: what ``macro COMMAND --help`` knows, without a terminal's width.

The functions behind the commands are read, not the help they print: their signatures hold every option with its
default and its help, and their docstrings the description and the examples.
"""

import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo, ParameterInfo

PROGRAM = "macro"
ORIGIN = "<!-- written by make docs from the code of the command; changes belong there -->"
MAX_COMMANDS_PER_PAGE = 4
"""A group with more commands has a page for each."""
_EXAMPLES = re.compile(r"(?:^|(?<=\. ))(?P<label>[^`.]*): (?P<commands>`[^`]+`(, `[^`]+`)*)$")
_WORDS = {bool: "switch", int: "integer", float: "number", str: "text", Path: "path"}


@dataclass(frozen=True)
class Parameter:
    """One option or argument as a page shows it."""

    is_option: bool
    names: str
    value: str
    default: str
    required: bool
    help: str
    panel: str
    """Heading of the table it is in; empty: none."""


def command_pages(app: typer.Typer) -> dict[str, str]:
    """Pages by file name, the list of all of them included."""
    pages, lines = {}, []
    for name, commands in _gathered(app).items():
        pages[f"{name}.md"] = "\n\n".join([ORIGIN, *(_section(title, call) for title, call in commands.items())]) + "\n"
        for title, call in commands.items():
            lines.append(f"- [`{PROGRAM} {title}`]({name}.md): {_paragraphs(call)[0]}")
    opening = f"# Commands\n\n`{PROGRAM} COMMAND --help` shows the same in a terminal."
    pages["README.md"] = "\n\n".join([ORIGIN, opening, "\n".join(lines)]) + "\n"
    return pages


def _gathered(app: typer.Typer) -> dict[str, dict[str, Callable[..., Any]]]:
    """By page: the commands on it with the functions behind them; a group of small commands is one page."""
    found = {name: {name: call} for name, call in _commands(app)}
    for group in app.registered_groups:
        assert group.typer_instance is not None
        of_group = {f"{group.name} {name}": call for name, call in _commands(group.typer_instance)}
        if len(of_group) > MAX_COMMANDS_PER_PAGE:
            found |= {title.replace(" ", "-"): {title: call} for title, call in of_group.items()}
        else:
            found[str(group.name)] = of_group
    return found


def _commands(app: typer.Typer) -> Iterator[tuple[str, Callable[..., Any]]]:
    for one in app.registered_commands:
        assert one.callback is not None
        yield one.name or one.callback.__name__.replace("_", "-"), one.callback


def _section(title: str, call: Callable[..., Any]) -> str:
    parameters = list(_parameters(call))
    first, *rest = [prose for text in _paragraphs(call) if (prose := _EXAMPLES.sub("", text).strip())]
    arguments = [one for one in parameters if not one.is_option]
    options = [one for one in parameters if one.is_option]
    usage = " ".join([PROGRAM, title, *(_usage(one) for one in arguments), *(["[OPTIONS]"] if options else [])])
    parts = [f"# {PROGRAM} {title}", first, _block([usage]), *rest]
    if shown := list(_examples(call)):
        parts.append("\n".join(["Examples:" if len(shown) > 1 else "Example:", "", _block(shown)]))
    if arguments:
        parts.append(_table("argument", arguments))
    panels = list(dict.fromkeys(one.panel for one in options))
    for panel in sorted(panels, key=lambda name: name == ""):
        heading = f"## {panel or 'Other options'}\n\n" if len(panels) > 1 else ""
        parts.append(heading + _table("option", [one for one in options if one.panel == panel]))
    return "\n\n".join(parts)


def _usage(argument: Parameter) -> str:
    return argument.names if argument.required else f"[{argument.names}]"


def _block(lines: list[str]) -> str:
    return "\n".join(["```bash", *lines, "```"])


def _table(heading: str, rows: list[Parameter]) -> str:
    lines = [f"| {heading} | value | default | meaning |", "| --- | --- | --- | --- |"]
    for one in rows:
        default = "required" if one.required else one.default
        lines.append(f"| `{one.names}` | {_cell(one.value)} | {_cell(default)} | {_cell(one.help)} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _paragraphs(call: Callable[..., Any]) -> list[str]:
    text = inspect.getdoc(call) or ""
    return [" ".join(part.split()) for part in text.split("\n\n")]


def _examples(call: Callable[..., Any]) -> Iterator[str]:
    for text in _paragraphs(call):
        if match := _EXAMPLES.search(text):
            if match["label"] not in {"Example", "Examples"}:
                yield f"# {match['label']}"
            yield from re.findall("`([^`]+)`", match["commands"])


def examples(app: typer.Typer) -> list[str]:
    """All commands that the pages show as examples."""
    calls = [call for commands in _gathered(app).values() for call in commands.values()]
    return [line for call in calls for line in _examples(call) if not line.startswith("#")]


def _parameters(call: Callable[..., Any]) -> Iterator[Parameter]:
    hints = get_type_hints(call, include_extras=True)
    for name, given in inspect.signature(call).parameters.items():
        hint = hints[name]
        if hint is typer.Context:  # not of the user
            continue
        kind, info = hint, typer.Option()
        if get_origin(hint) is Annotated:
            kind, info = get_args(hint)[0], next(one for one in get_args(hint) if isinstance(one, ParameterInfo))
        if not info.hidden:
            yield _parameter(name, _plain(kind), info, given.default)


def _plain(kind: Any) -> Any:
    """The type without ``None`` and without the list around it."""
    if get_origin(kind) in {Union, types.UnionType}:
        kind = next(one for one in get_args(kind) if one is not types.NoneType)
    return get_args(kind)[0] if get_origin(kind) is list else kind


def _parameter(name: str, kind: Any, info: OptionInfo | ArgumentInfo, default: Any) -> Parameter:
    is_option = isinstance(info, OptionInfo)
    # Inside Annotated the first positional argument of typer.Option is a name, though typer calls it the default.
    given = [one for one in (info.default, *(info.param_decls or ())) if isinstance(one, str)]
    names = given or [f"--{name.replace('_', '-')}" if is_option else info.metavar or name.upper()]
    required = default is inspect.Parameter.empty
    return Parameter(
        is_option,
        ", ".join(names),
        _value(kind, info),
        "" if required else _default(info, default),
        required,
        info.help or "",
        info.rich_help_panel if isinstance(info.rich_help_panel, str) else "",
    )


def _value(kind: Any, info: ParameterInfo) -> str:
    if info.metavar and "|" in info.metavar:  # choices that the settings check
        return ", ".join(f"`{choice}`" for choice in info.metavar.strip("<>").split("|"))
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    least = "" if info.min is None else f" from {info.min:g}"
    return _WORDS[kind] + least


def _default(info: ParameterInfo, default: Any) -> str:
    if isinstance(info.show_default, str):
        return info.show_default
    if default is None or default is False or default == "" or not info.show_default:
        return ""
    return f"`{default}`"


def stale_pages(pages: Mapping[str, str], folder: Path) -> list[Path]:
    """Files that differ from ``pages``: changed, missing, or of a command that is gone."""
    known = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    return [folder / name for name in sorted(pages.keys() | known.keys()) if pages.get(name) != known.get(name)]


def write_pages(pages: Mapping[str, str], folder: Path) -> None:
    """Bring the folder to exactly these pages."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in stale_pages(pages, folder):
        if path.name in pages:
            path.write_text(pages[path.name], encoding="utf-8")
        else:
            path.unlink()
