"""``macro export``: a route in the form another program loads."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from macro_routing.cli.console import check_and_quiet_model_libraries, print_progress_message
from macro_routing.cli.route_argument import (
    check_route_without_model,
    find_model_of_route,
    read_route_file,
    read_route_or_mixture,
)
from macro_routing.cli.run_options import FlagTables, make_load_options_from_flags, with_run_options
from macro_routing.cli.stopping import show_hint_on_interrupt
from macro_routing.errors import ExportError, NotationError
from macro_routing.routes.mixture import require_question, require_single_route

if TYPE_CHECKING:
    from macro_routing.routes.mixture import RouteOrMixture
    from macro_routing.routes.route import Route
    from macro_routing.routes.route_file import RouteFile


@with_run_options("revision")
def export(
    flags: FlagTables,
    route: Annotated[
        str,
        typer.Argument(
            metavar="ROUTE", help="A run's folder, a route file, or a route in any notation.", show_default=False
        ),
    ],
    to: Annotated[
        Literal["hf", "routed", "gguf", "mergekit"],
        typer.Option(
            "--format",
            help="routed: a transformers checkpoint that applies the route, adds included, weights once;"
            " hf: a standard checkpoint, one layer per step; gguf: the same for llama.cpp; mergekit: its YAML.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The folder or file to write; it must not exist yet.")],
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="The model: a built-in name, a folder, a .gguf file or a hub id; by default the"
            " one the route file names.",
        ),
    ] = None,
    copy_weights: Annotated[
        bool,
        typer.Option("--copy-weights", help="With --format routed: store a hub model's weights instead of its id."),
    ] = False,
) -> None:
    """Write a route in the form another program loads: transformers, llama.cpp, mergekit.

    Example: `macro export runs/my-run --format hf --out my-model`

    Example: `macro export 'L0-L17 L17 RJ' --model smollm2-135m --format gguf --out my-model.gguf`
    """
    check_and_quiet_model_libraries()
    if copy_weights and to != "routed":
        raise ExportError(
            f"--copy-weights belongs to --format routed; --format {to} copies what it needs anyway, leave it out"
        )
    if route == "-":
        raise NotationError("a route to export is a run's folder, a file or a text; it is not read from a pipe")
    from macro_routing.deploy.export_common import check_output_not_existing, open_exportable_model
    from macro_routing.deploy.routed_checkpoint import write_routed_checkpoint

    evidence = read_route_file(route)
    name = model or (evidence.model if evidence else find_model_of_route(route))
    revision = make_load_options_from_flags(flags).revision or (
        evidence.revision if evidence and model in {None, evidence.model} else None
    )
    check_output_not_existing(out)
    check_route_without_model(route, name, partial(_check_format_takes, to))
    with show_hint_on_interrupt("nothing was written"):
        base = open_exportable_model(name, revision=revision, report=print_progress_message)
        applied = read_route_or_mixture(route, base)
        if to == "routed":
            _warn_of_long_route(base, applied, to)
            write_routed_checkpoint(base, applied, evidence, out, copy_weights=copy_weights)
        else:
            _write_single_route(to, base, _require_single_route_of_format(to, applied), evidence, out)
    print(out)


def _check_format_takes(to: str, route: RouteOrMixture) -> None:
    """Reject a mixture that the format does not take."""
    if to == "routed":
        require_question(route)
    else:
        _require_single_route_of_format(to, route)


def _require_single_route_of_format(to: str, route: RouteOrMixture) -> Route:
    return require_single_route(route, f"--format {to}", "use --format routed or `macro serve`, which take mixtures")


def _warn_of_long_route(base: Any, route: RouteOrMixture, to: str) -> None:
    from macro_routing.deploy.export_common import describe_long_route

    if warning := describe_long_route(base, route, copies_layers=to != "routed"):
        print_progress_message(f"warning: {warning}")


def _write_single_route(to: str, base: Any, route: Route, evidence: RouteFile | None, out: Path) -> None:
    """The formats that take no mixtures."""
    _warn_of_long_route(base, route, to)
    if to == "gguf":
        from macro_routing.deploy.gguf_export import write_gguf

        write_gguf(base, route, evidence, out)
    elif to == "mergekit":
        from macro_routing.deploy.mergekit_export import write_mergekit_config

        write_mergekit_config(base, route, out)
    else:
        from macro_routing.deploy.hf_export import write_hf_checkpoint

        write_hf_checkpoint(base, route, evidence, out)
