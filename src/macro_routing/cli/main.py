"""Entry point of the command ``macro``: gathers the commands and turns mistakes into one clear line."""

import errno
import io
import sys
from typing import Annotated

import typer

from macro_routing.cli import (
    bench,
    chat,
    compare,
    compare_answers,
    demo,
    doctor,
    evaluate,
    export,
    lm_eval,
    models,
    planted,
    report,
    resume,
    route,
    search,
    serve,
    store,
    study,
    study_routes,
    tasks,
)
from macro_routing.cli.console import print_error
from macro_routing.cli.group import make_group
from macro_routing.cli.options import report_progress
from macro_routing.errors import PAUSED, MacroError
from macro_routing.version import __version__

app = make_group(
    name="macro",
    help="Run the layers of a frozen language model in a better order.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("search")(search.search)
app.command("resume")(resume.resume)
app.command("report")(report.report)
app.command("compare")(compare.compare)
app.command("compare-answers")(compare_answers.compare_answers)
app.command("explain")(study_routes.explain)
app.add_typer(study.app, name="study")
app.command("chat")(chat.chat)
app.command("export")(export.export)
app.command("serve")(serve.serve)
app.add_typer(route.app, name="route")
app.command("models")(models.models)
app.command("doctor")(doctor.doctor)
app.command("tasks")(tasks.tasks)
app.command("evaluate")(evaluate.evaluate)
app.command("lm-eval", context_settings=lm_eval.PASS_ON)(lm_eval.lm_eval)
app.add_typer(store.app, name="store")
app.command("bench")(bench.bench)
app.command("planted")(planted.planted)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"macro {__version__}")
        raise typer.Exit


@app.callback()
def options(
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
    try:
        app()
    except MacroError as error:
        if error.status == PAUSED:
            report_progress(str(error))
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
