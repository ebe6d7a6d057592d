"""``macro export``: a route in the form another program loads."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from macro_routing.cli import options
from macro_routing.cli.run_options import Tables, make_load_options, with_run_options
from macro_routing.cli.stopping import stop_with_hint
from macro_routing.errors import ExportError, NotationError
from macro_routing.routes.route_file import RouteFile

if TYPE_CHECKING:
    from macro_routing.models.metadata import ModelMetadata
    from macro_routing.routes.route import Route


class Target(StrEnum):
    """Forms a route can be exported to."""

    hf = "hf"
    routed = "routed"
    gguf = "gguf"
    mergekit = "mergekit"


@with_run_options("revision")
def export(
    flags: Tables,
    route: Annotated[
        str,
        typer.Argument(
            metavar="ROUTE", help="A run's folder, a route file, or a route in any notation.", show_default=False
        ),
    ],
    to: Annotated[
        Target,
        typer.Option(
            "--to",
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
        typer.Option("--copy-weights", help="With --to routed: store a hub model's weights instead of its id."),
    ] = False,
) -> None:
    """Write a route in the form another program loads: transformers, llama.cpp, mergekit.

    Example: `macro export runs/my-run --to hf --out my-model`

    Example: `macro export 'L0-L17 L17 RJ' --model smollm2-135m --to gguf --out my-model.gguf`
    """
    options.require_models_extra()
    options.quiet_libraries()
    from macro_routing.deploy.export_common import open_base_model

    if copy_weights and to is not Target.routed:
        raise ExportError(f"--copy-weights belongs to --to routed; --to {to} copies what it needs anyway, leave it out")
    evidence = _read_evidence(route)
    name = model or (evidence.model if evidence else options.find_model_of_route(route))
    revision = make_load_options(flags).revision or (
        evidence.revision if evidence and model in {None, evidence.model} else None
    )
    with stop_with_hint("nothing was written"):
        base = open_base_model(name, revision=revision, report=options.report_progress)
        chosen = options.read_route(route, base)
        _write_export(to, base, chosen, evidence, out, copy_weights=copy_weights)
    print(out)


def _read_evidence(argument: str) -> RouteFile | None:
    """What a route file says for its route; None for a bare route."""
    if argument == "-":
        raise NotationError("a route to export is a run's folder, a file or a text; it is not read from a pipe")
    return options.read_route_file(argument)


def _write_export(
    to: Target, base: ModelMetadata, route: Route, evidence: RouteFile | None, out: Path, *, copy_weights: bool
) -> None:
    if to is Target.routed:
        from macro_routing.deploy.routed_checkpoint import write_routed_checkpoint

        write_routed_checkpoint(base, route, evidence, out, copy_weights=copy_weights)
    elif to is Target.hf:
        from macro_routing.deploy.hf_export import write_hf_checkpoint

        write_hf_checkpoint(base, route, evidence, out)
    elif to is Target.gguf:
        from macro_routing.deploy.gguf_export import write_gguf

        write_gguf(base, route, evidence, out)
    else:
        from macro_routing.deploy.mergekit_export import write_mergekit_config

        write_mergekit_config(base, route, out)
