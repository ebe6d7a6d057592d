"""A command's output as the terminal shows it, as a picture for the pages.

python -m benchmarks.terminal_recording --write docs/pictures/search.svg macro demo
"""

import argparse
import os
import subprocess
import sys
import textwrap
from pathlib import Path

from rich.console import Console
from rich.text import Text

from macro_routing.files import write_atomically

WIDTH, FIRST_LINES, LAST_LINES = 76, 12, 22
_FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace;
font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: arial; }} {styles}</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>{lines}</defs>
{chrome}<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g></svg>
"""
"""As rich's own, but for its font, which readers would fetch from another host."""


def run_command(command: list[str]) -> str:
    """What the command prints, both streams in order."""
    program = [sys.executable, "-m", "macro_routing.cli.main", *command[1:]]
    environment = {**os.environ, "COLUMNS": str(WIDTH)}
    done = subprocess.run(  # noqa: S603
        program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, check=True
    )
    return done.stdout


def draw_terminal(command: list[str], printed: str) -> str:
    """The picture; of a long output the beginning and the end."""
    lines = [(part, _find_style(line)) for line in printed.rstrip().splitlines() for part in textwrap.wrap(line, WIDTH)]
    if len(lines) > FIRST_LINES + LAST_LINES:
        lines = [*lines[:FIRST_LINES], ("[…]", "dim"), *lines[-LAST_LINES:]]
    console = Console(record=True, width=WIDTH, file=Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    console.print(Text("$ " + " ".join(command), style="bold green"))
    for line, style in lines:
        console.print(Text(line, style=style))
    return console.export_svg(title="macro", code_format=_FORMAT, unique_id="recording")


def _find_style(line: str) -> str:
    """Progress is dim, the verdict bold."""
    is_verdict = line.startswith(("The route", "No better", "No evidence"))
    return "bold" if is_verdict else "dim" if line.startswith("macro:") else ""


def main() -> None:
    """Run, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, required=True)
    parser.add_argument("--text", type=Path, help="also keep the output as text")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    printed = run_command(arguments.command)
    if arguments.text:
        arguments.text.write_text(printed, encoding="utf-8")
    write_atomically(arguments.write, draw_terminal(arguments.command, printed).encode())


if __name__ == "__main__":
    main()
