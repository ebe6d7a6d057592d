"""Several runs on one page: what each came to, seeds together, routes one under the other, and what differs."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from macro_routing.errors import RunError
from macro_routing.evaluation.statistics import holm_correction
from macro_routing.report.document import contents_list, document, section, write_file
from macro_routing.report.figure import Figure
from macro_routing.report.formatting import NO_VALUE, format_duration, format_p_value, format_percent, format_points
from macro_routing.report.interval_chart import GAIN, LOSS, IntervalRow, intervals_figure, verdict_kind
from macro_routing.report.markup import Markup, element, joined
from macro_routing.report.reproduce import as_toml
from macro_routing.report.route_chart import track_figure
from macro_routing.report.run_data import RunData, open_run, shown_safely
from macro_routing.report.tables import flattened, table
from macro_routing.runs.result import LEVEL, ORACLE, RunResult

_COLUMNS = ("run", "standard", "route", "difference", "p", "layers", "cut off", "tokens", "search")
_OF_WRITING = ("cut off", "tokens")
_HOLM = (
    "p is the exact McNemar test of each run by itself. Whoever looks at many runs finds a small p by luck sooner or "
    "later; Holm's correction takes that into account. Cut-offs and tokens: the route's first."
)
_SAME = "Runs that differ in nothing that was set but their seed; mean ± sample standard deviation, in percent."
_MOST_TRACKS = 24


def write_run_comparison(folders: Sequence[str | Path], output: Path) -> Path:
    """Write the page that compares some runs; unfinished ones are named as such."""
    if len(folders) < 2:
        raise RunError("a comparison needs two runs or more")
    runs = [open_run(folder) for folder in folders]
    with shown_safely(Path("one of the runs")):
        page = _page(runs)
    write_file(output, page)
    return output


def differences_figure(runs: Sequence[RunData]) -> Figure | None:
    """Gain of every finished run, with its interval; None where none is finished."""
    rows = []
    for name, run in zip(run_names(runs), runs, strict=True):
        if run.result is not None:
            one = run.result.comparison
            low, middle, high = 100 * one.low, 100 * one.difference, 100 * one.high
            rows.append(IntervalRow(name, low, middle, high, verdict_kind(run.result)))
    title = "Difference to the standard pass on the test set, with 95 % intervals"
    return intervals_figure("differences", title, "points", rows, 0.0) if rows else None


def run_names(runs: Sequence[RunData]) -> list[str]:
    """Short names: model, task and seed, and the folder where that is not enough."""
    names = [f"{run.title}, seed {run.given['seed']}" for run in runs]
    return [
        f"{run.path.name}: {name}" if names.count(name) > 1 else name for name, run in zip(names, runs, strict=True)
    ]


def _page(runs: Sequence[RunData]) -> str:
    figure = differences_figure(runs)
    sections = {"Results": joined(None if figure is None else figure.html(), _table(runs))}
    if seeds := _seeds(runs):
        sections["Over seeds"] = seeds
    sections["Routes"] = _routes(runs)
    sections["What differs"] = _differences(runs)
    sections["To repeat them"] = joined(*[_repeat(name, run) for name, run in zip(run_names(runs), runs, strict=True)])
    title = f"{len(runs)} runs compared"
    drawn = [section(name, contents) for name, contents in sections.items()]
    return document(title, element("h1", title), _verdict(runs), contents_list(list(sections)), *drawn)


def _verdict(runs: Sequence[RunData]) -> Markup:
    tested = [run.result for run in runs if run.result is not None]
    results = [one for one in tested if one.kind != ORACLE]
    kinds = [verdict_kind(one) for one in results]
    gains, losses = kinds.count(GAIN), kinds.count(LOSS)
    kept = sum(p < LEVEL and kind == GAIN for p, kind in zip(_corrected(results), kinds, strict=True))
    words = f"{gains} of {len(results)} finished runs show a gain, {losses} a loss, the others no evidence of either."
    if gains:
        words += f" After Holm's correction for {len(results)} comparisons {kept} of the gains remain."
    left, bounds = len(runs) - len(tested), len(tested) - len(results)
    told = [f"Not tested yet: {left}."] if left else []
    told += [f"Oracles, which are bounds and not counted: {bounds}."] if bounds else []
    more = element("p", " ".join(told)) if told else None
    worth = "better" if kept else "worse" if losses and not gains else ""
    return element("div", words, more, class_=f"verdict {worth}".strip())


def _corrected(results: Sequence[RunResult]) -> list[float]:
    return holm_correction([one.comparison.p_value for one in results])


def _table(runs: Sequence[RunData]) -> Markup:
    ranked = [run.result for run in runs if run.result is not None and run.result.kind != ORACLE]
    corrected = iter(_corrected(ranked))
    columns = [name for name in _COLUMNS if name not in _OF_WRITING or any(run.writes for run in runs)]
    rows = []
    for name, run in zip(run_names(runs), runs, strict=True):
        is_ranked = run.result is not None and run.result.kind != ORACLE
        cells = _row(name, run) | _outcome(run, next(corrected) if is_ranked else None)
        rows.append([cells.get(column, NO_VALUE) for column in columns])
    return joined(table(columns, rows, numbers=columns[1:]), element("p", _HOLM, class_="note"))


def _row(name: str, run: RunData) -> dict[str, str]:
    given = run.given
    told = f"{run.mode}, preset {given['preset']}, {given['method']}"
    if run.result is None:
        told += f"; not finished: {len(run.rounds)} of {run.settings['iterations']} rounds"
    head = element("div", element("b", name), element("small", told), class_="name")
    return {"run": head, "search": format_duration(sum(one.seconds for one in run.rounds))}


def _outcome(run: RunData, corrected: float | None) -> dict[str, str]:
    if run.result is None:
        return {}
    one, (chosen, *_, standard) = run.result.comparison, run.result.variants
    bounds = element("small", f"{format_points(one.low)} to {format_points(one.high)}")
    found: dict[str, str] = {
        "standard": format_percent(one.baseline),
        "route": format_percent(one.routed),
        "difference": joined(format_points(one.difference), bounds),
        "p": "a bound"
        if corrected is None
        else joined(format_p_value(one.p_value), element("small", f"Holm {format_p_value(corrected)}")),
        "layers": f"{run.layers} → {chosen.length:.4g}",
    }
    if run.writes:
        cut, tokens = format_percent(chosen.cut_off), f"{chosen.tokens:.1f}"
        found["cut off"] = joined(cut, element("small", f"standard {format_percent(standard.cut_off)}"))
        found["tokens"] = joined(tokens, element("small", f"standard {standard.tokens:.1f}"))
    return found


# --- seeds --------------------------------------------------------------------------------------------------------


def _seeds(runs: Sequence[RunData]) -> Markup | None:
    """Runs that differ in their seed only, together."""
    groups: dict[tuple[str, str, str], list[RunResult]] = {}
    for run in runs:
        if run.result is not None:
            told = f"{run.mode}, preset {run.given['preset']}, {run.given['method']}"
            others = {**run.given, "seed": None, "weights": run.header["model"]["weights_id"]}
            kind = (run.title, told, json.dumps(others, sort_keys=True))
            groups.setdefault(kind, []).append(run.result)
    several = {kind: results for kind, results in groups.items() if len(results) > 1}
    if not several:
        return None
    names = list(
        dict.fromkeys(one.name for results in several.values() for result in results for one in result.variants)
    )
    columns = ("runs", "n", *names, "difference")
    rows = [_seed_row(kind, results, names) for kind, results in several.items()]
    return joined(table(columns, rows, numbers=columns[1:]), element("p", _SAME, class_="note"))


def _seed_row(kind: tuple[str, str, str], results: Sequence[RunResult], names: Sequence[str]) -> list[str]:
    title, told, _ = kind
    head = element("div", element("b", title), element("small", told), class_="name")
    cells = []
    for name in names:
        found = [100 * one.accuracy for result in results for one in result.variants if one.name == name]
        cells.append(_spread(found))
    differences = [100 * result.comparison.difference for result in results]
    return [head, str(len(results)), *cells, _spread(differences, signed=True)]


def _spread(values: Sequence[float], *, signed: bool = False) -> str:
    if not values:
        return NO_VALUE
    mean = f"{statistics.mean(values):{'+' if signed else ''}.1f}".replace("-", "−")
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.1f}"


# --- routes, differences, repeating ---------------------------------------------------------------------------------


def _routes(runs: Sequence[RunData]) -> Markup:
    parts: list[Markup] = []
    for name, run in list(zip(run_names(runs), runs, strict=True))[:_MOST_TRACKS]:
        route = run.chosen
        parts.append(element("h3", name))
        if route is None:
            parts.append(element("p", "No route is chosen yet."))
            continue
        parts.append(element("pre", str(route), class_="command"))
        figure = None if route.is_standard else track_figure(route)
        plain = "This is the standard pass." if route.is_standard else "Too many steps to draw."
        parts.append(element("p", plain) if figure is None else figure.html())
    if len(runs) > _MOST_TRACKS:
        parts.append(element("p", f"The routes of {len(runs) - _MOST_TRACKS} more runs are in their reports."))
    return joined(*parts)


def _differences(runs: Sequence[RunData]) -> Markup:
    """Settings and data in which the runs are not alike."""
    told = [_told(run) for run in runs]
    lines = list(dict.fromkeys(name for one in told for name in one))
    differing = [name for name in lines if len({one.get(name) for one in told}) > 1]
    tests = {one["test examples"] for one in told}
    note = (
        "All runs were tested on the same examples."
        if len(tests) == 1
        else f"The runs were tested on {len(tests)} different sets of examples: differences to the standard pass can be"
        " compared, accuracies only within a set."
    )
    if not differing:
        return joined(element("p", note), element("p", "Nothing else differs."))
    columns = ("", *run_names(runs))
    rows = [[element("b", name), *[one.get(name, NO_VALUE) for one in told]] for name in differing]
    return joined(element("p", note), table(columns, rows))


def _told(run: RunData) -> dict[str, str]:
    splits = {f"{name} examples": f"{size} ({mark})" for name, (size, mark) in run.header["splits"].items()}
    model = {"model": str(run.header["model"]["name"]), "weights": str(run.header["model"]["weights_id"])}
    numerics = {"numerics": str(run.header["scope"].get("numerics", "not recorded"))}
    given = {name: value for name, value in run.given.items() if name != "model"}
    return {**model, **numerics, **splits, **flattened({**given, **run.resolved}), "macro": str(run.header["macro"])}


def _repeat(name: str, run: RunData) -> Markup:
    summary = element("summary", name, element("small", str(run.path.name)))
    return element("details", summary, element("div", element("pre", as_toml(run.given)), class_="inside"))
