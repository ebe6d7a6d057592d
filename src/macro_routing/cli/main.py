"""Entry point of the command ``macro``: gathers the commands and turns mistakes into one clear line."""

import errno
import importlib
import io
import os
import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from macro_routing.cli.console import print_error, print_progress_message
from macro_routing.cli.help_groups import make_command_group
from macro_routing.errors import PAUSED, MacroError

COMMANDS = {
    "demo": ("demo", "Search a better layer order for a small model on a small task, and write the report."),
    "search": (
        "search",
        "Search a better order of a model's layers for a task, choose one on held-out data, test it once.",
    ),
    "resume": ("resume", "Continue a run that was stopped; the result is the same as without the stop."),
    "report": (
        "report",
        "Write a run's report as one HTML page that needs nothing else; also of a run that is not finished.",
    ),
    "compare": (
        "compare_methods",
        "Give several methods the same data and the same budget, over several seeds, and show what each finds.",
    ),
    "compare-answers": ("compare_answers", "Show what the standard pass and a route answer, side by side."),
    "explain": ("single_route_studies", "Drop each of a route's deviations in turn and measure what it was worth."),
    "study": ("study", "The paper's studies on any model: data, a table and a figure each, resumable."),
    "chat": ("chat", "Talk to a model that runs its layers in another order; answers appear as they are written."),
    "export": ("export", "Write a route in the form another program loads: transformers, llama.cpp, mergekit."),
    "serve": (
        "serve",
        "Serve a model that runs its layers in another order, with vLLM's or transformers' OpenAI-compatible server.",
    ),
    "route": ("route", "Look at routes and convert between notations."),
    "models": ("models", "List the built-in models and the supported architectures."),
    "doctor": ("doctor", "Check on a model that routes run exactly; ends with status 1 when a check fails."),
    "tasks": ("tasks", "List the tasks with their kind, test size, licence and source."),
    "evaluate": (
        "evaluate",
        "Score a route and the standard pass on the same examples, and say whether the difference is real.",
    ),
    "lm-eval": (
        "lm_eval",
        "Run lm-evaluation-harness with routed models: `--model macro`, and a `route` among its model arguments.",
    ),
    "store": ("store", "Look at the score store, or forget part of it."),
    "bench": (
        "bench",
        "Time many routes over many prompts: together against one after the other, raced against scored to the end.",
    ),
    "planted": (
        "planted",
        "Search for a planted route: no model, true scores known, noise like that of a real accuracy.",
    ),
}
"""Command → the module here that holds its function, of the same name, or its group, ``app``; and its summary."""


def make_cli_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The program with these of its commands; only their modules are imported."""
    app = _make_typer_app()
    for name in names:
        module = importlib.import_module(f"macro_routing.cli.{COMMANDS[name][0]}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            settings = getattr(module, "CONTEXT_SETTINGS", None)
            app.command(name, context_settings=settings)(getattr(module, name.replace("-", "_")))
    return app


def make_help_only_app() -> typer.Typer:
    """The program with only the names and summaries of its commands, for its help; no module is imported."""
    app = _make_typer_app()
    for name, (_, summary) in COMMANDS.items():
        app.command(name, help=summary)(_set_global_options)
    return app


def _make_typer_app() -> typer.Typer:
    program = make_command_group(
        name="macro",
        help="Run the layers of a frozen language model in a better order.",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    program.callback()(_set_global_options)
    return program


def _print_version(requested: bool) -> None:
    if requested:
        from macro_routing import __version__

        typer.echo(f"macro {__version__}")
        raise typer.Exit


def _set_global_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Run the layers of a frozen language model in a better order."""


def main() -> None:
    """Run the command line; a user's mistake ends with status 2 and one line, without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters or arrows still gets the rest
    called = [name for name in sys.argv[1:2] if name in COMMANDS]
    # A shell asks for the options of every command to complete them.
    needs_commands = COMMANDS.keys() & {*sys.argv} or "_MACRO_COMPLETE" in os.environ
    try:
        app = make_cli_app(called or COMMANDS) if needs_commands else make_help_only_app()
        app()
    except MacroError as error:
        if error.status == PAUSED:
            print_progress_message(str(error))
        else:
            print_error(str(error))
        sys.exit(error.status)
    except UnicodeEncodeError as error:
        near = str(error.object)[max(0, error.start - 40) : error.end + 40]
        print_error(f"{near!r} is not valid UTF-8; rename it")
        sys.exit(2)
    except OSError as error:  # the terminal, the pipe or the disk behind standard output is gone
        if error.errno not in {errno.ENOSPC, errno.EPIPE}:
            raise
        print_error(f"the output cannot be written: {error.strerror}")
        sys.exit(1)


if __name__ == "__main__":
    main()
