"""What found routes are made of: how often they add and move, how long they are, which rank was chosen."""

import hashlib
import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from macro_routing.errors import RunError
from macro_routing.report.figure import Figure
from macro_routing.report.formatting import format_number_of, format_points, shorten_model_name
from macro_routing.report.heatmap import Heatmap
from macro_routing.routes.route import Route
from macro_routing.routes.route_moves import step_displacements
from macro_routing.runs import folder as files
from macro_routing.runs.folder import RunFolder
from macro_routing.runs.methods import METHODS
from macro_routing.runs.result import ROUTE, read_result
from macro_routing.studies.folder import make_file_name
from macro_routing.studies.paired_comparisons import make_corrected_comparison_table
from macro_routing.studies.study_result import StudyResult
from macro_routing.studies.tables import flatten_row, make_text_column, number_column, percentage_column
from macro_routing.tasks.prompts import LIKELIHOOD

STUDY = "composition"
_COLUMNS = [
    make_text_column("model", "model"),
    make_text_column("method", "method"),
    make_text_column("settings", "settings"),
    number_column("layers", "layers"),
    number_column("routes", "runs"),
    percentage_column("standard pass, %", "standard"),
    percentage_column("adds, %", "adds"),
    percentage_column("subtractions, %", "subtractions"),
    percentage_column("moves, %", "moves"),
    percentage_column("both, %", "both"),
    number_column("length change, %", "length_change", format_points),
    number_column("mean rank", "rank", "{:.2f}".format),
]
_MAX_APPLICATIONS = 4
"""Layers applied more often share the last row."""


@dataclass(frozen=True)
class FoundRoute:
    """A run's chosen route."""

    model: str
    method: str
    """How it was searched, as tables call it."""
    run: str
    route: Route
    raw_rank: int | None
    """Its place among the policy's programs; None for the standard pass where it was only the floor."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """How it was searched: runs of one method with other settings are another group."""
    search: str = ""
    """A mark of model, data, seed and settings: the same search may lie in several folders."""


def find_finished_runs(folders: Sequence[Path], method: str | None) -> list[FoundRoute]:
    """All finished runs in or under some folders, each search once; those of other methods are left out."""
    run_paths: dict[Path, None] = {}
    for folder in folders:
        paths = sorted({path.parent for path in folder.rglob(files.RESULT)})
        if not paths:
            raise RunError(f"{folder} holds no finished run; name runs' folders, or folders that hold some")
        run_paths |= dict.fromkeys(paths)
    routes = [route for path in run_paths if (route := _read_found_route(path, method)) is not None]
    if not routes:
        raise RunError(f"none of the {len(run_paths)} runs was made by the method {method}; name another with --method")
    different: dict[str, FoundRoute] = {}
    for route in routes:
        different.setdefault(route.search, route)
    return list(different.values())


def _read_found_route(path: Path, method: str | None) -> FoundRoute | None:
    """The route of a run; None for a run of another method, without a route, or with a mixture."""
    run = RunFolder.open(path)
    result = read_result(run)
    with run.explain_damaged_files(files.RUN):
        header = run.read_json(files.RUN)
        route = result.best_route if result.kind == ROUTE else None
        if not isinstance(route, Route) or (method is not None and header["config"]["given"]["method"] != method):
            return None
        model = shorten_model_name(str(header["model"]["name"]))
        title = METHODS[header["config"]["given"]["method"]].title
        settings, search = _list_search_settings(header), _digest_search(header)
    with run.explain_damaged_files(files.CANDIDATES):
        choice = run.read_json(files.CANDIDATES)
        ranks = [line.get("raw_rank") for line in choice["candidates"] if line["route"] == choice["chosen"]]
    return FoundRoute(
        model,
        title,
        str(path),
        route,
        ranks[0] if ranks else None,
        settings,
        search,
    )


_RUN_FIELDS = ("seed", "examples", "layers")
"""Parts of a search that come with its seed, task and model."""


def _list_search_settings(header: Mapping[str, Any]) -> dict[str, Any]:
    """A run's settings of search, space and data by name."""
    resolved = header["config"]["resolved"]
    searcher = resolved["searcher"].get("first", resolved["searcher"])  # of a restarted search its first
    sizes = {name: resolved["data"][name] for name in ("training", "validation")}
    settings = flatten_row({**searcher.get("settings", {}), **searcher.get("space", {}), **sizes})
    return {name: value for name, value in settings.items() if name not in _RUN_FIELDS}


def _digest_search(header: Mapping[str, Any]) -> str:
    given, resolved = header["config"]["given"], header["config"]["resolved"]
    options = [given.get(name) for name in ("task", "seed", "method", "racing", "max_minutes", "init_from", "guard")]
    splits = {name: value for name, value in header["splits"].items() if name != "test"}
    decoding = dict(resolved["decoding"])
    if decoding.get("mode") == LIKELIHOOD:  # nothing is written
        decoding = {name: value for name, value in decoding.items() if not name.endswith("_budget")}
    inputs = [header["model"]["weights_id"], splits, resolved["searcher"], decoding, options]
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def run_route_composition_study(routes: Sequence[FoundRoute]) -> StudyResult:
    """Count what the routes of every model and method are made of."""
    kinds: dict[tuple[str, str, int], list[FoundRoute]] = defaultdict(list)
    for route in routes:
        kinds[_make_model_method_depth_key(route)].append(route)
    groups: dict[tuple[str, str, int, str], list[FoundRoute]] = defaultdict(list)
    for route in routes:
        kind = _make_model_method_depth_key(route)
        groups[*kind, _describe_settings_unlike_other_runs(route, kinds[kind])].append(route)
    groups = dict(sorted(groups.items(), key=lambda group: -len(group[1])))  # the figure is the largest one's
    rows = [
        _summarize_edits_of_route_group(model, method, text, group)
        for (model, method, _, text), group in groups.items()
    ]
    figures = [_draw_layer_use_chart(*name, [route.route for route in group]) for name, group in groups.items()]
    note = (
        "Adds: routes that add an earlier state at least once (subtractions counted apart); moves: routes with"
        " at least one step that does not go to the next layer; both: routes with an add and a move. Length"
        " change is of the mean length. The rank is that of the chosen program in the policy's raw order, over"
        " runs where it has one. The same search found in several folders counts once; depths and settings that"
        f" differ from run to run are apart.{''.join(map(_describe_settings_unless_stated, kinds.values()))}"
    )
    moves, adds, standard = (
        100 * sum(row[name] * row["runs"] for row in rows) / len(routes) for name in ("moves", "adds", "standard")
    )
    headline = (
        f"{len(routes)} routes of {format_number_of(len(groups), 'kind')} of search: {moves:.0f} % move,"
        f" {adds:.0f} % add, {standard:.0f} % are the standard pass."
    )
    details = {"runs": [{"model": route.model, "run": route.run, "route": str(route.route)} for route in routes]}
    table = make_corrected_comparison_table("What found routes are made of", _COLUMNS, rows, note)
    return StudyResult(STUDY, headline, table, figures, details)


def _make_model_method_depth_key(found: FoundRoute) -> tuple[str, str, int]:
    """Model, method and depth: models of one name may come in several."""
    return found.model, found.method, found.route.layers


def _describe_settings_unlike_other_runs(found: FoundRoute, kind: Sequence[FoundRoute]) -> str:
    """Those of a run's settings that most others of its kind do not have."""
    settings = {name: str(found.settings.get(name)) for name in _list_settings_of_found_routes(kind)}
    return ", ".join(f"{name} = {value}" for name, value in settings.items() if value != _most_common_value(name, kind))


def _describe_settings_unless_stated(kind: Sequence[FoundRoute]) -> str:
    """What stands behind settings that a line does not name."""
    differing = [
        name
        for name in _list_settings_of_found_routes(kind)
        if len({str(found.settings.get(name)) for found in kind}) > 1
    ]
    settings = ", ".join(f"{name} = {_most_common_value(name, kind)}" for name in differing)
    return f" Where a line does not say otherwise: {settings}." if settings else ""


def _list_settings_of_found_routes(kind: Sequence[FoundRoute]) -> list[str]:
    return list(dict.fromkeys(name for found in kind for name in found.settings))


def _most_common_value(name: str, kind: Sequence[FoundRoute]) -> str:
    """What most runs have for a setting; of equally many the first."""
    return Counter(str(found.settings.get(name)) for found in kind).most_common(1)[0][0]


def _summarize_edits_of_route_group(
    model: str, method: str, settings: str, group: Sequence[FoundRoute]
) -> dict[str, Any]:
    routes = [found.route for found in group]
    adds = [any(step.add and step.add.coefficient > 0 for step in route.steps) for route in routes]
    subtractions = [any(step.add and step.add.coefficient < 0 for step in route.steps) for route in routes]
    moves = [any(delta != 1 for delta in step_displacements(route)) for route in routes]
    ranks = [found.raw_rank for found in group if found.raw_rank is not None]
    layers = routes[0].layers
    return {
        "model": model,
        "method": method,
        "settings": settings,
        "runs": len(routes),
        "standard": statistics.mean(route.is_standard for route in routes),
        "adds": statistics.mean(adds),
        "subtractions": statistics.mean(subtractions),
        "moves": statistics.mean(moves),
        "both": statistics.mean(add and move for add, move in zip(adds, moves, strict=True)),
        "length_change": statistics.mean(route.length for route in routes) / layers - 1,
        "rank": statistics.mean(ranks) if ranks else None,
        "layers": layers,
    }


def tabulate_route_shares_by_layer_and_count(routes: Sequence[Route]) -> list[list[float]]:
    """By number of applications (0, 1 … and more) and layer: the share of the routes."""
    counts = [Counter(step.layer for step in route.steps) for route in routes]
    return [
        [
            sum(min(count[layer], _MAX_APPLICATIONS) == times for count in counts) / len(routes)
            for layer in range(routes[0].layers)
        ]
        for times in range(_MAX_APPLICATIONS + 1)
    ]


def _draw_layer_use_chart(model: str, method: str, layers: int, settings: str, routes: Sequence[Route]) -> Figure:
    name = ", ".join(part for part in (model, method, settings) if part)
    shares = tabulate_route_shares_by_layer_and_count(routes)
    last = max(times for times, row in enumerate(shares) if any(row))
    order = list(range(max(last, 2), -1, -1))
    names = {0: "never", 1: "once", 2: "twice", _MAX_APPLICATIONS: f"{_MAX_APPLICATIONS} times or more"}
    return Heatmap(
        [names.get(times, f"{times} times") for times in order],
        [str(layer) for layer in range(routes[0].layers)],
        [[100 * share for share in shares[times]] for times in order],
        row_meaning="applied",
        column_meaning="layer",
        unit="% of the routes",
        format_value=lambda share: f"{share:.0f}" if share else "",
        max_value=100.0,
    ).draw_figure(
        make_file_name(f"layers_{name}_{layers}"), f"How often each layer is applied: {len(routes)} routes of {name}"
    )
