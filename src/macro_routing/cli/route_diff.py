"""``macro route diff``: two routes, and what speaks for them, beside each other."""

import dataclasses
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from macro_routing.cli.console import escape_control_characters, format_multiline_field, print_fields, print_json
from macro_routing.cli.route_argument import read_route_text
from macro_routing.errors import MacroError
from macro_routing.routes import Route, parse_route
from macro_routing.routes.route_diff import describe_adds, describe_edit, diff_routes
from macro_routing.routes.route_file import RouteFile, is_route_file_text, parse_route_file

_VERDICT = "scores.verdict"
_SETTINGS = "found_by.settings."


def show_route_differences(
    old: Annotated[str, typer.Argument(metavar="A", help="A route, in any notation, or a file.", show_default=False)],
    new: Annotated[str, typer.Argument(metavar="B", help="The route it is compared with.", show_default=False)],
    layers: Annotated[
        int | None,
        typer.Option("--layers", "-n", min=1, help="Layers of the model; needed unless A or B carries it."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what differs between two routes: steps, adds, and for route files the evidence side by side.

    Example: `macro route diff 'L0-L7 L3 RJ' 'L0-L7 L3(+h-2) RJ' --layers 28`
    """
    texts = [read_route_text(old), read_route_text(new)]
    carried = [_infer_layer_count_from_text(text) for text in texts]
    known = layers or carried[0] or carried[1]
    first, second = (parse_route(text, layers if own else known) for text, own in zip(texts, carried, strict=True))
    files = [parse_route_file(text) if is_route_file_text(text) else None for text in texts]
    evidence = [None if file is None else _flatten_evidence(file) for file in files]
    edits = diff_routes(first, second)
    if as_json:
        print_json(
            {
                "a": _route_to_json(first),
                "b": _route_to_json(second),
                "equal": first == second,
                "edits": [
                    {
                        **dataclasses.asdict(edit),
                        "old": [str(step) for step in edit.old],
                        "new": [str(step) for step in edit.new],
                    }
                    for edit in edits
                ],
                "evidence": {"a": evidence[0], "b": evidence[1]},
            }
        )
        return
    same_layers = first.layers == second.layers
    models = f"{first.layers} layers" if same_layers else f"models of {first.layers} and {second.layers} layers"
    described = [describe_edit(edit) for edit in edits] or ["nothing: both execute the same steps"]
    print_fields(
        [
            ("A", str(first)),
            ("B", str(second)),
            ("length", f"{first.length} and {second.length} applications on {models}"),
            *format_multiline_field("differs in", described),
            *format_multiline_field("adds in A", describe_adds(first)),
            *format_multiline_field("adds in B", describe_adds(second)),
        ]
    )
    if any(evidence):
        _print_facts_side_by_side([values or {} for values in evidence])


def _infer_layer_count_from_text(text: str) -> int | None:
    """The number of layers that a text tells by itself; errors in it are reported when it is parsed again."""
    try:
        return parse_route(text, None).layers
    except MacroError:
        return None


def _route_to_json(route: Route) -> dict[str, Any]:
    return {"route": str(route), "layers": route.layers, "length": route.length, "adds": describe_adds(route)}


def _flatten_evidence(file: RouteFile) -> dict[str, Any]:
    """All but the route, tables opened up: ``scores.test.p_value``."""
    values = dataclasses.asdict(file)
    del values["route"]
    return dict(_flatten_values("", values))


def _flatten_values(prefix: str, values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flatten_values(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value


def _print_facts_side_by_side(evidence: list[dict[str, Any]]) -> None:
    """One line per fact, both files beside each other; a route that came without a file has none."""
    old, new = evidence
    rows = [
        ("", "A", "B"),
        *(
            (name, _format_value(old.get(name)), _format_value(new.get(name)))
            for name in _list_route_fact_columns(old, new)
        ),
    ]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    print()
    for name, left, right in rows:
        mark = " " if left == right or not name else "*"
        print(f"{mark} {name:<{widths[0]}}  {left:<{widths[1]}}  {right}".rstrip())
    for letter, values in zip("AB", evidence, strict=True):
        if _VERDICT in values:
            print(f"  verdict on {letter}: {_format_value(values[_VERDICT])}")


def _list_route_fact_columns(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Names of facts; a verdict is too wide for a column, and settings of a search are shown where they differ."""
    names = [name for name in {**old, **new} if name != _VERDICT]
    return [name for name in names if not name.startswith(_SETTINGS) or old.get(name) != new.get(name)]


def _format_value(value: Any) -> str:
    if value is None:
        return "-"
    return escape_control_characters(f"{value:.4g}" if isinstance(value, float) else str(value)).replace("\n", " ")
