"""``macro route diff``: two routes, and what speaks for them, beside each other."""

import dataclasses
from typing import Annotated, Any

import typer

from macro_routing.cli.console import escape_control_characters, print_fields, print_json, read_text_argument
from macro_routing.errors import MacroError
from macro_routing.routes.notation import parse_route
from macro_routing.routes.route import Route
from macro_routing.routes.route_diff import describe_adds, describe_edit, diff_routes
from macro_routing.routes.route_file import RouteFile, is_route_file, parse_route_file

_VERDICT = "scores.verdict"
_SETTINGS = "found_by.settings."


def diff(
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
    texts = [read_text_argument(old), read_text_argument(new)]
    known = layers or next((found for text in texts if (found := _carried_layers(text))), None)
    first, second = (parse_route(text, layers if _carried_layers(text) else known) for text in texts)
    files = [parse_route_file(text) if is_route_file(text) else None for text in texts]
    if as_json:
        print_json(_diff_facts(first, second, files))
        return
    edits = [describe_edit(edit) for edit in diff_routes(first, second)]
    print_fields(
        [
            ("A", str(first)),
            ("B", str(second)),
            *_layer_fields(first, second),
            *_format_steps("differs in", edits or ["nothing: both execute the same steps"]),
            *_format_steps("adds in A", describe_adds(first)),
            *_format_steps("adds in B", describe_adds(second)),
        ]
    )
    _print_evidence(files)


def _carried_layers(text: str) -> int | None:
    """The number of layers that a text tells by itself; what is wrong with it is said when it is read for good."""
    try:
        return parse_route(text, None).layers
    except MacroError:
        return None


def _layer_fields(old: Route, new: Route) -> list[tuple[str, str]]:
    lengths = f"{old.length} and {new.length} applications"
    layers = f"{old.layers} layers" if old.layers == new.layers else f"models of {old.layers} and {new.layers} layers"
    return [("length", f"{lengths} on {layers}")]


def _format_steps(name: str, lines: list[str]) -> list[tuple[str, str]]:
    return [(name if number == 0 else "", line) for number, line in enumerate(lines)]


def _diff_facts(old: Route, new: Route, files: list[RouteFile | None]) -> dict[str, Any]:
    return {
        **{
            name: {"route": str(route), "layers": route.layers, "length": route.length, "adds": describe_adds(route)}
            for name, route in (("a", old), ("b", new))
        },
        "equal": old == new,
        "edits": [
            {
                **dataclasses.asdict(edit),
                "old": [str(step) for step in edit.old],
                "new": [str(step) for step in edit.new],
            }
            for edit in diff_routes(old, new)
        ],
        "evidence": {
            name: None if file is None else _evidence_to_json(file)
            for name, file in zip(("a", "b"), files, strict=True)
        },
    }


def _evidence_to_json(file: RouteFile) -> dict[str, Any]:
    """All but the route, tables opened up: ``scores.test.p_value``."""
    values = dataclasses.asdict(file)
    del values["route"]
    return dict(_flatten_values("", values))


def _flatten_values(prefix: str, values: dict[str, Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in values.items():
        found += _flatten_values(f"{prefix}{name}.", value) if isinstance(value, dict) else [(f"{prefix}{name}", value)]
    return found


def _print_evidence(files: list[RouteFile | None]) -> None:
    """One line per fact, both files beside each other; a route that came without a file has none."""
    if files == [None, None]:
        return
    both = [{} if file is None else _evidence_to_json(file) for file in files]
    names = [name for name in dict.fromkeys([*both[0], *both[1]]) if _is_visible(name, *both)]
    rows = [("", "A", "B"), *((name, *(_shorten(one.get(name)) for one in both)) for name in names)]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    print()
    for name, left, right in rows:
        mark = " " if left == right or not name else "*"
        print(f"{mark} {name:<{widths[0]}}  {left:<{widths[1]}}  {right}".rstrip())
    for letter, one in zip("AB", both, strict=True):
        if _VERDICT in one:
            print(f"  verdict on {letter}: {_shorten(one[_VERDICT])}")


def _is_visible(name: str, old: dict[str, Any], new: dict[str, Any]) -> bool:
    """A verdict is a sentence, too wide for a column; how a search was set is of interest where it differs."""
    return name != _VERDICT and (not name.startswith(_SETTINGS) or old.get(name) != new.get(name))


def _shorten(value: Any) -> str:
    if value is None:
        return "-"
    return escape_control_characters(f"{value:.4g}" if isinstance(value, float) else str(value)).replace("\n", " ")
