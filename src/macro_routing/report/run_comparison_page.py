"""Several runs on one page: their results, seeds together, their routes, and what differs between them."""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from macro_routing.errors import RunError
from macro_routing.evaluation.statistics import holm_correction
from macro_routing.report.figure import Figure
from macro_routing.report.formatting import (
    NO_VALUE,
    format_duration,
    format_p_value,
    format_percent,
    use_minus_sign,
)
from macro_routing.report.interval_chart import (
    GAIN,
    LOSS,
    classify_gain_or_loss,
    draw_intervals,
    make_difference_interval_row,
)
from macro_routing.report.rendering import render_page, render_table, render_template, write_output_file
from macro_routing.report.result_section import make_difference_cell
from macro_routing.report.route_chart import draw_route_charts
from macro_routing.report.run_data import RunData, explain_unreadable_run, load_run_for_report
from macro_routing.report.tables import ReportTable, Row, TableCell, flatten_settings
from macro_routing.runs.options import format_config_as_toml
from macro_routing.runs.result import LEVEL, ORACLE, RunResult

_COLUMNS = ("run", "standard", "route", "difference", "p", "layers", "truncated", "tokens", "search")
_GENERATION_COLUMNS = ("truncated", "tokens")
_HOLM_NOTE = (
    "p is the exact McNemar test of each run by itself. Among many runs a small p turns up by chance sooner or later; "
    "Holm's correction takes that into account. Truncated and tokens: the route's first."
)
_SEEDS_NOTE = "Runs that differ in nothing that was set but their seed; mean ± sample standard deviation, in percent."
_MAX_ROUTES = 24


def write_run_comparison(folders: Sequence[str | Path], output: Path) -> Path:
    """Write the page that compares some runs; unfinished ones are marked as such."""
    if len(folders) < 2:
        raise RunError("a comparison needs two runs or more")
    runs = [load_run_for_report(folder) for folder in folders]
    with explain_unreadable_run(Path("one of the runs")):
        page = _render_run_comparison(dict(zip(name_runs(runs), runs, strict=True)))
    write_output_file(output, page)
    return output


def draw_run_gains(runs: Sequence[RunData]) -> Figure | None:
    """Gain of every finished run, with its interval; None if none is finished."""
    named_results = [(name, run.result) for name, run in zip(name_runs(runs), runs, strict=True)]
    rows = [
        make_difference_interval_row(name, result.comparison, classify_gain_or_loss(result))
        for name, result in named_results
        if result is not None
    ]
    title = "Difference to the standard pass on the test set, with 95 % intervals"
    return draw_intervals("differences", title, "points", rows, 0.0) if rows else None


def name_runs(runs: Sequence[RunData]) -> list[str]:
    """Short distinct names: model, task and seed, and the folder where several share these."""
    names = [f"{run.title}, seed {run.given_config['seed']}" for run in runs]
    return [
        f"{run.path.name}: {name}" if names.count(name) > 1 else name for name, run in zip(names, runs, strict=True)
    ]


NamedRuns = Mapping[str, RunData]


def _render_run_comparison(runs: NamedRuns) -> str:
    figure = draw_run_gains(list(runs.values()))
    sections = {"Results": render_table(_make_results_table(runs), [_HOLM_NOTE], figure)}
    if seeds := _make_runs_grouped_by_seed_table(list(runs.values())):
        sections["Over seeds"] = render_table(seeds, [_SEEDS_NOTE])
    sections["Routes"] = _render_routes(runs)
    sections["What differs"] = _render_differing_settings(runs)
    configs = [
        {"name": name, "folder": run.path.name, "config": format_config_as_toml(run.given_config)}
        for name, run in runs.items()
    ]
    sections["To reproduce them"] = render_template("compared_configs.html", runs=configs)
    counts = _count_test_verdicts(list(runs.values()))
    return render_page("run_comparison.html", f"{len(runs)} runs compared", sections, **counts)


def _count_test_verdicts(runs: Sequence[RunData]) -> dict[str, int]:
    """Finished runs by what their test shows; oracles are bounds and not counted among them."""
    tested = [run.result for run in runs if run.result is not None]
    results = [result for result in tested if result.kind != ORACLE]
    kinds = [classify_gain_or_loss(result) for result in results]
    corrected = holm_correction([result.comparison.p_value for result in results])
    return {
        "finished": len(results),
        "gains": kinds.count(GAIN),
        "losses": kinds.count(LOSS),
        "corrected_gains": sum(p < LEVEL and kind == GAIN for p, kind in zip(corrected, kinds, strict=True)),
        "untested": len(runs) - len(tested),
        "oracles": len(tested) - len(results),
    }


def _make_results_table(runs: NamedRuns) -> ReportTable:
    ranked = [run.result for run in runs.values() if run.result is not None and run.result.kind != ORACLE]
    corrected = iter(holm_correction([result.comparison.p_value for result in ranked]))
    generates = any(run.generates_text for run in runs.values())
    columns = [name for name in _COLUMNS if generates or name not in _GENERATION_COLUMNS]
    rows = []
    for name, run in runs.items():
        is_ranked = run.result is not None and run.result.kind != ORACLE
        cells = _make_run_and_time_cells(name, run) | _make_test_cells(run, next(corrected) if is_ranked else None)
        rows.append([cells.get(column, NO_VALUE) for column in columns])
    return ReportTable(columns, rows, numbers=columns[1:])


def _describe_run_setup(run: RunData) -> str:
    return f"{run.answer_mode}, preset {run.given_config['preset']}, {run.given_config['method']}"


def _make_run_and_time_cells(name: str, run: RunData) -> dict[str, str | TableCell]:
    setup = _describe_run_setup(run)
    if run.result is None:
        setup += f"; not finished: {len(run.rounds)} of {run.search_settings['iterations']} rounds"
    duration = format_duration(sum(report.seconds for report in run.rounds))
    return {"run": TableCell(name, setup, kind="name"), "search": duration}


def _make_test_cells(run: RunData, corrected: float | None) -> dict[str, str | TableCell]:
    if run.result is None:
        return {}
    paired, (chosen, *_, standard) = run.result.comparison, run.result.variants
    cells: dict[str, str | TableCell] = {
        "standard": format_percent(paired.baseline),
        "route": format_percent(paired.routed),
        "difference": make_difference_cell(paired),
        "p": "a bound"
        if corrected is None
        else TableCell(format_p_value(paired.p_value), f"Holm {format_p_value(corrected)}"),
        "layers": f"{run.layers} → {chosen.length:.4g}",
    }
    if run.generates_text:
        cells["truncated"] = TableCell(
            format_percent(chosen.truncated_share), f"standard {format_percent(standard.truncated_share)}"
        )
        cells["tokens"] = TableCell(f"{chosen.tokens:.1f}", f"standard {standard.tokens:.1f}")
    return cells


# --- seeds --------------------------------------------------------------------------------------------------------


def _make_runs_grouped_by_seed_table(runs: Sequence[RunData]) -> ReportTable | None:
    """Runs that differ in their seed only, together."""
    groups: dict[tuple[str, str, str], list[RunResult]] = {}
    for run in runs:
        if run.result is not None:
            others = {**run.given_config, "seed": None, "weights": run.header["model"]["weights_id"]}
            key = (run.title, _describe_run_setup(run), json.dumps(others, sort_keys=True))
            groups.setdefault(key, []).append(run.result)
    several = {key: results for key, results in groups.items() if len(results) > 1}
    if not several:
        return None
    names = list(
        dict.fromkeys(variant.name for results in several.values() for result in results for variant in result.variants)
    )
    rows = [_make_seeds_row(title, setup, results, names) for (title, setup, _), results in several.items()]
    columns = ("runs", "n", *names, "difference")
    return ReportTable(columns, rows, numbers=columns[1:])


def _make_seeds_row(
    title: str, setup: str, results: Sequence[RunResult], names: Sequence[str]
) -> list[str | TableCell]:
    accuracies = [
        [100 * variant.accuracy for result in results for variant in result.variants if variant.name == name]
        for name in names
    ]
    differences = [100 * result.comparison.difference for result in results]
    return [
        TableCell(title, setup, kind="name"),
        str(len(results)),
        *(_format_mean_and_spread(values) for values in accuracies),
        _format_mean_and_spread(differences, signed=True),
    ]


def _format_mean_and_spread(values: Sequence[float], *, signed: bool = False) -> str:
    if not values:
        return NO_VALUE
    mean = use_minus_sign(f"{statistics.mean(values):{'+' if signed else ''}.1f}")
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.1f}"


# --- routes and settings ------------------------------------------------------------------------------------------


def _render_routes(runs: NamedRuns) -> Markup:
    routes = [(name, run.chosen_route) for name, run in runs.items()]
    hidden = len(routes[_MAX_ROUTES:])
    return render_template(
        "compared_routes.html", routes=routes[:_MAX_ROUTES], hidden_runs=hidden, draw_routes=draw_route_charts
    )


def _render_differing_settings(runs: NamedRuns) -> Markup:
    """Settings and data in which the runs are not alike."""
    settings = [_list_run_settings(run) for run in runs.values()]
    names = list(dict.fromkeys(name for lines in settings for name in lines))
    differing = [name for name in names if len({lines.get(name) for lines in settings}) > 1]
    tests = {lines["test examples"] for lines in settings}
    test_sets = (
        "All runs were tested on the same examples."
        if len(tests) == 1
        else f"The runs were tested on {len(tests)} different sets of examples: differences to the standard pass can be"
        " compared, accuracies only within a set."
    )
    rows: list[Row] = [
        [TableCell(name, kind="bold"), *[lines.get(name, NO_VALUE) for lines in settings]] for name in differing
    ]
    return render_template("compared_settings.html", test_sets=test_sets, table=ReportTable(("", *runs), rows))


def _list_run_settings(run: RunData) -> dict[str, str]:
    splits = {f"{name} examples": f"{size} ({mark})" for name, (size, mark) in run.header["splits"].items()}
    model = {"model": str(run.header["model"]["name"]), "weights": str(run.header["model"]["weights_id"])}
    numerics = {"numerics": str(run.header["scope"].get("numerics", "not recorded"))}
    config = {name: value for name, value in run.given_config.items() if name != "model"}
    settings = flatten_settings({**config, **run.resolved_config})
    return {**model, **numerics, **splits, **settings, "macro": str(run.header["macro"])}
