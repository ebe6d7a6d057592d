"""``macro planted``: a whole search on a problem with a known answer, in seconds and without a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from macro_routing import evaluation, routes
from macro_routing.cli.console import format_multiline_field, print_fields, print_json, read_toml
from macro_routing.cli.run_options import FlagCustomization, FlagTables, with_run_options
from macro_routing.errors import RouteOutsideSpaceError, SettingsError
from macro_routing.evaluation.scoring_settings import EXACT
from macro_routing.routes.route import Route
from macro_routing.runs.methods import GUIDED, MACRO, METHODS, RANDOM, keep_settings_of_method
from macro_routing.search.decision_settings import DecisionSettings
from macro_routing.search.policy_settings import MacroSettings
from macro_routing.search.searcher import Draw, Score, StoppedScore
from macro_routing.settings import build_settings

if TYPE_CHECKING:
    from macro_routing.evaluation.planted_problem import PlantedResult

DEFAULT_LAYERS = 8
_TABLES = ("space", "search", "decision", "problem")


@with_run_options("racing", racing=FlagCustomization(help="Stop routes that can no longer be among the best."))
def planted(
    flags: FlagTables,
    layers: Annotated[
        int | None, typer.Option("--layers", "-n", help="Layers of the imagined model.", show_default="8")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="The hidden best route, in any notation; 'L0 RJ' plants nothing to find.", show_default="L0-L4 L6 RJ"
        ),
    ] = None,
    method: Annotated[Literal["guided", "macro", "random"], typer.Option(help="The search to run.")] = "guided",
    examples: Annotated[
        int, typer.Option(help="Training examples (coin flips per route, dealt over the rounds).")
    ] = 1000,
    validation: Annotated[int, typer.Option(help="Validation examples.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the search and of the coin flips.")] = 0,
    config: Annotated[
        Path | None,
        typer.Option(help="A TOML file with tables [space], [search], [decision] and [problem].", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Search for a planted route: no model, true scores known, noise like that of a real accuracy.

    Example: `macro planted --layers 12 --target 'L0-L5 L4 RJ' --seed 3`
    """
    tables = _read_config_tables(config)
    space = _make_route_space(layers, tables["space"])
    goal = _parse_planted_target(target, space)
    problem = build_settings(
        evaluation.PlantedProblem, {"target": goal, "seed": seed, **tables["problem"]}, "[problem]"
    )
    search = _make_search(method, space, examples, tables, seed)
    result = evaluation.solve_planted(
        search, problem, training=examples, validation=validation, racing=flags.get("", {}).get("racing", EXACT)
    )
    facts = _collect_planted_result_facts(problem, result)
    if as_json:
        print_json({"method": method, "search": _describe_search_settings(search), **facts})
        return
    candidates = facts["candidates"]
    words = {True: "yes", False: "no"}
    named = [
        (name.replace("_", " "), str(words[value] if isinstance(value, bool) else value))
        for name, value in facts.items()
        if value is not candidates
    ]
    print_fields([*named, *format_multiline_field("candidates", candidates)])


def _parse_planted_target(text: str | None, space: routes.RouteSpace) -> Route:
    if text is None:
        text = "L0-L4 L6 RJ" if space.layers > 6 else "L0 L0 RJ"
    goal = routes.parse_route(text, space.layers)
    try:
        space.check_route(goal)
    except RouteOutsideSpaceError as error:
        raise RouteOutsideSpaceError(
            f"--target lies outside the route space, where no search could find it: {error}"
        ) from None
    return goal


def _make_search(
    method: str, space: routes.RouteSpace, examples: int, tables: Mapping[str, dict[str, Any]], seed: int
) -> Any:
    """The search of that name; settings that only other methods have are left aside, so that one file serves all."""
    from macro_routing.runs.search_building import MethodInputs, build_search

    table = tables["search"]
    foreign = {name for other in (GUIDED, MACRO, RANDOM) for name in keep_settings_of_method(other, table)}
    foreign -= keep_settings_of_method(method, table).keys()
    own = {name: value for name, value in table.items() if name not in foreign}
    settings: Any = build_settings(METHODS[method].settings, own, "[search]")
    # As in a run: without a budget a search may spend what MACRO would.
    decision = build_settings(DecisionSettings, tables["decision"], "[decision]")
    if decision.members != 1:
        raise SettingsError(
            "mixtures are not allowed in a planted problem, whose routes have no log-likelihoods; set members = 1 in"
            " [decision]"
        )
    inputs = MethodInputs(space, examples, 0, None, seed, settings, MacroSettings(), list, decision)
    return build_search(method, inputs)


def _describe_search_settings(search: Any) -> dict[str, Any]:
    """What the search was made of, without what it has worked out since."""
    plain = {field.name: getattr(search, field.name) for field in dataclasses.fields(search) if field.init}
    tables = ("space", "settings", "decision")
    return plain | {name: dataclasses.asdict(plain[name]) for name in tables if name in plain}


def _make_route_space(layers: int | None, table: Mapping[str, Any]) -> routes.RouteSpace:
    if layers is not None and table.get("layers", layers) != layers:
        raise SettingsError(f"--layers {layers} and layers = {table['layers']} in [space] disagree; give one of them")
    return build_settings(
        routes.RouteSpace, {"layers": DEFAULT_LAYERS if layers is None else layers, **table}, "[space]"
    )


def _read_config_tables(config: Path | None) -> Mapping[str, dict[str, Any]]:
    contents = read_toml(config)
    for name, table in contents.items():
        if name not in _TABLES:
            raise SettingsError(f"{config}: unknown key {name!r}; the file holds the tables {', '.join(_TABLES)}")
        if not isinstance(table, dict):
            raise SettingsError(f"{config}: {name} must be a table of settings")
    for name in ("target", "seed"):
        if name in contents.get("problem", {}):
            raise SettingsError(f"{config}: give {name} with --{name}, not in [problem]")
    return {name: contents.get(name, {}) for name in _TABLES}


def _count_scored_examples(draw: Draw) -> int:
    if isinstance(draw.outcome, StoppedScore):
        return draw.outcome.scored
    return draw.outcome.total if isinstance(draw.outcome, Score) else 0


def _collect_planted_result_facts(problem: evaluation.PlantedProblem, result: PlantedResult) -> dict[str, Any]:
    route = result.selected.route
    draws = result.state.draws
    standard = Route.standard(route.layers)
    return {
        "target": str(problem.target),
        "selected": str(route),
        "found": result.found,
        "true_score_of_standard": round(problem.true_score(standard), 4),
        "true_score_of_selected": round(problem.true_score(route), 4),
        "true_score_of_target": round(problem.true_score(problem.target), 4),
        "rounds": result.state.rounds,
        "stopped_early": "all draws of the last round were one route" if result.state.stopped else "no",
        "routes_drawn": len(draws),
        "different_routes": len({draw.proposal.route for draw in draws}),
        "stopped_routes": sum(isinstance(draw.outcome, StoppedScore) for draw in draws),
        "coin_flips": sum(map(_count_scored_examples, draws)),
        "candidates": [str(candidate.route) for candidate in result.candidates],
    }
