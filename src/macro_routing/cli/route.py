"""``macro route``: look at a route, and write it the way another tool wants it."""

import dataclasses
import itertools
from typing import Annotated, Literal

import typer

from macro_routing.cli import route_diff
from macro_routing.cli.console import format_multiline_field, print_fields, print_json
from macro_routing.cli.help_groups import make_command_group
from macro_routing.cli.route_argument import read_route_text
from macro_routing.routes import Route, format_route, parse_route
from macro_routing.routes.mixture import Mixture, RouteOrMixture
from macro_routing.routes.notation import parse_route_or_mixture
from macro_routing.routes.route_file import is_route_file_text, parse_route_file
from macro_routing.routes.route_moves import (
    count_route_moves,
    describe_deviations_from_standard_pass,
    render_route_ascii,
)

app = make_command_group(help="Look at routes and convert between notations.")
app.command("diff")(route_diff.show_route_differences)

_ROUTE_HELP = (
    "A route: the paper's text ('L0-L7 L3-L9 RJ'), JSON, a RYS pair (45,52), a range list (0..14,12..39), mergekit"
    " YAML; a file that holds one; or - for standard input."
)
SingleRouteArgument = Annotated[str, typer.Argument(metavar="ROUTE", help=_ROUTE_HELP, show_default=False)]
RouteArgument = Annotated[
    str,
    typer.Argument(
        metavar="ROUTE",
        help=_ROUTE_HELP + " Or a mixture: '1.5 [L0 RJ] - 0.5 [L0-L3 L5 RJ]', after -- if it begins with a minus.",
        show_default=False,
    ),
]
LayersOption = Annotated[
    int | None, typer.Option("--layers", "-n", min=1, help="Layers of the model; needed unless JSON carries it.")
]


@app.command("show")
def show_route(
    route: RouteArgument,
    layers: LayersOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a route or mixture executes and how it differs from the standard pass.

    In the track, `-` is an ordinary step, `<` a jump back, `=` a repeat, `>` a jump ahead, `+` an add, `~` a
    subtraction; after anything but ordinary steps the layer is named.

    Example: `macro route show 'L0-L7 L3-L9 RJ' --layers 28`
    """
    text = read_route_text(route)
    parsed = parse_route_or_mixture(text, layers)
    if as_json:
        print_json(_mixture_to_json(parsed) if isinstance(parsed, Mixture) else _route_to_json(parsed))
        return
    file = parse_route_file(text.lstrip("\ufeff")) if is_route_file_text(text) else None
    advice = [("recommended", f"no: {file.recommendation}")] if file and not file.recommended else []
    fields = _describe_mixture(parsed) if isinstance(parsed, Mixture) else _describe_route(parsed)
    print_fields([*fields, *advice])


def _describe_route(route: Route) -> list[tuple[str, str]]:
    return [
        ("route", str(route)),
        ("executes", " ".join(str(step) for step in route.steps)),
        ("length", _describe_length(route)),
        ("track", render_route_ascii(route)),
        ("made of", _describe_route_composition(route)),
        *_describe_differences(route),
    ]


def _describe_length(route: RouteOrMixture) -> str:
    multiple = route.length / route.layers
    return f"{route.length} applications on {route.layers} layers, {multiple:.2f} times the standard pass"


def _describe_differences(route: Route) -> list[tuple[str, str]]:
    differences = describe_deviations_from_standard_pass(route) or ["nothing: this is the standard pass"]
    return list(format_multiline_field("differs in", differences))


def _describe_mixture(mixture: Mixture) -> list[tuple[str, str]]:
    """The mixture's cost, then every member with its weight."""
    alone = sum(route.length for route in mixture.routes)
    fields = [("mixture", str(mixture)), ("length", f"{_describe_length(mixture)}; its routes one by one: {alone}")]
    for member in mixture.members:
        fields += [("member", str(member)), ("track", render_route_ascii(member.route))]
        fields += [] if member.with_question else [("reads", "the choices and the prompt without its question")]
        if member.with_question or not member.route.is_standard:
            fields += _describe_differences(member.route)
    return fields


def _describe_route_composition(route: Route) -> str:
    counts = dataclasses.asdict(count_route_moves(route))
    del counts["length"]
    words = {name: name.replace("_", " ") for name in counts}
    return ", ".join(
        f"{count} {words[name].removesuffix('s') if count == 1 else words[name]}" for name, count in counts.items()
    )


def _route_to_json(route: Route) -> dict[str, object]:
    return {
        "route": str(route),
        "layers": route.layers,
        "steps": [str(step) for step in route.steps],
        "is_standard": route.is_standard,
        **dataclasses.asdict(count_route_moves(route)),
        "differences": describe_deviations_from_standard_pass(route),
        "track": render_route_ascii(route),
    }


def _mixture_to_json(mixture: Mixture) -> dict[str, object]:
    return {
        "route": str(mixture),
        "layers": mixture.layers,
        "is_standard": False,
        "length": mixture.length,
        "members": [
            {
                "weight": member.weight,
                "with_question": member.with_question,
                **_route_to_json(member.route),
                "is_standard": member.is_standard,
            }
            for member in mixture.members
        ],
    }


@app.command("draws")
def show_draws(
    layers: Annotated[int, typer.Option("--layers", "-n", min=1, help="Layers of the model.")],
    max_length: Annotated[
        int | None,
        typer.Option(
            min=1, help="Maximum length of a route.", show_default="the paper's: 40 for 36 layers, else layers + 12"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search; the paper's are 1, 2 and 42.")] = 42,
    count: Annotated[int, typer.Option(min=1, max=100_000, help="Number of draws; a round of the paper has 30.")] = 30,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the programs that the paper's search draws first, with random numbers as inferred from its routes.

    Example: `macro route draws --layers 36 --seed 42 --count 30`
    """
    from macro_routing.routes.space import RouteSpace
    from macro_routing.search.paper_stream import get_paper_max_length, iterate_programs
    from macro_routing.settings import check_seed

    check_seed(seed)
    space = RouteSpace(layers, max_length=max_length or get_paper_max_length(layers))
    programs = map(str, itertools.islice(iterate_programs(space, seed), count))
    if as_json:
        print_json(list(programs))
        return
    width = len(str(count - 1))
    for number, program in enumerate(programs):  # printed as they are drawn: a reader may have seen enough
        print(f"{number:<{width}}  {program}", flush=True)


@app.command("convert")
def convert_route(
    route: SingleRouteArgument,
    to: Annotated[
        Literal["text", "json", "ranges", "mergekit"], typer.Option("--format", help="The notation to write.")
    ],
    layers: LayersOption = None,
    model: Annotated[str, typer.Option(help="The model that a mergekit configuration should load.")] = "MODEL",
) -> None:
    """Write a route in another notation.

    Example: `macro route convert 45,52 --layers 80 --format mergekit --model ./my-model`
    """
    print(format_route(parse_route(read_route_text(route), layers), to, model))
