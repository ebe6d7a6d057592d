"""``macro compare``: several methods on one model and task, at one budget."""

from __future__ import annotations

import dataclasses
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from macro_routing.cli import options
from macro_routing.cli.console import print_json, read_toml
from macro_routing.cli.search import Preset, SearchMode, make_config
from macro_routing.errors import SettingsError
from macro_routing.search.method_names import METHOD_NAMES

if TYPE_CHECKING:
    from macro_routing.runs.comparison_results import MethodRow

_WIDTH = 80
_LEGEND = (
    "right: on the test set, ± over seeds; gain: points over the standard pass, with its interval; asked: outcomes;"
    " work: layers × tokens; s: seconds of search; layers: what the result runs. Whoever takes the best line chooses on"
    " test data: intervals are of one line each."
)
DEFAULT_METHODS = "guided,macro,macro-restarts,random,rys,shortgpt,early-exit"


def compare(
    task: Annotated[
        str,
        typer.Option(help="A task's name (see `macro tasks`), a .toml, or a .jsonl or .csv file."),
    ],
    model: Annotated[
        str | None,
        typer.Option(help="A built-in name, a folder, a .gguf file or a hub id.", show_default="smollm2-135m"),
    ] = None,
    methods: Annotated[
        str, typer.Option(help=f"Which, with commas; there are {', '.join(METHOD_NAMES)}.")
    ] = DEFAULT_METHODS,
    budget: Annotated[
        int | None,
        typer.Option(
            help="Outcomes, route × example, that each search may ask for.", show_default="what MACRO asks for"
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, with commas.")] = "1,2,42",
    preset: Annotated[Preset, typer.Option(help="Settings by name.")] = Preset.default,
    out: Annotated[Path, typer.Option(help="A folder; each method and seed has a run's folder in it.")] = Path(
        "runs/compare"
    ),
    mode: Annotated[SearchMode | None, typer.Option(help="How the model answers.", show_default="auto")] = None,
    reasoning_budget: Annotated[int | None, typer.Option(help="Most tokens of reasoning.", show_default="400")] = None,
    answer_budget: Annotated[int | None, typer.Option(help="Most tokens of the answer.", show_default="128")] = None,
    training: Annotated[int | None, typer.Option(help="Training examples.", show_default="the preset's")] = None,
    validation: Annotated[int | None, typer.Option(help="Validation examples.", show_default="the preset's")] = None,
    test: Annotated[
        int | None, typer.Option(help="Use only the first so many test examples.", show_default="all, or the preset's")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(help="Rounds of the searches that draw.", show_default="the preset's")
    ] = None,
    draws: Annotated[int | None, typer.Option(help="Their draws per round.", show_default="the preset's")] = None,
    elite: Annotated[int | None, typer.Option(help="How many move the policy.", show_default="the preset's")] = None,
    max_span: Annotated[
        int | None, typer.Option(help="Longest repeated block of RYS.", show_default="no limit; 8 for its beam")
    ] = None,
    k: Annotated[
        int | None, typer.Option("--k", help="Candidates that each validates.", show_default="the preset's")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with the benchmarks' files; else MACRO_DATA_DIR, else the hub.")
    ] = None,
    question: options.QuestionOption = None,
    answer: options.AnswerOption = None,
    choices: options.ChoicesOption = None,
    kind: options.KindOption = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file with settings of the runs; flags go before it.")
    ] = None,
    store: Annotated[Path | None, typer.Option(help="Where scores are kept.", show_default="the cache folder")] = None,
    backend: options.BackendOption = options.Backend.local,
    workers: options.WorkersOption = 0,
    address: options.AddressOption = None,
    gpus_per_worker: options.GpusOption = None,
    worker_timeout: options.WorkerTimeoutOption = 30.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done and how long it takes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Give several methods the same data and the same budget, over several seeds, and show what each finds.

    Stopped, the same command goes on where it was. Every method and seed is a run of its own, with a report.

    Example: `macro compare --task category --preset quick --methods guided,macro,random,rys --seeds 1,2`

    Your own data: `macro compare --task mine.csv --answer right --choices right,wrong1,wrong2 --preset quick`
    """
    flags: dict[str, dict[str, Any]] = {
        "": {"task": task, "model": model, "preset": preset.value, "budget": budget},
        "decoding": {
            "mode": mode and mode.value,
            "reasoning_budget": reasoning_budget,
            "answer_budget": answer_budget,
        },
        "data": {
            "training": training,
            "validation": validation,
            "test": test,
            "data_dir": data_dir and str(data_dir),
            "question": question,
            "answer": answer,
            "choices": choices,
            "kind": kind,
        },
        "search": {"iterations": iterations, "draws": draws, "elite": elite, "k": k, "max_span": max_span},
    }
    options.need_models_extra()
    options.quiet_libraries()
    crew = options.worker_settings(backend, workers, address, gpus_per_worker, worker_timeout)
    from macro_routing.runs.methods import check_methods

    # The settings of searches are for those that know them, so they are not checked against one method here.
    names, numbers = _names(methods), _seeds(seeds)
    check_methods(names, numbers)
    given = {name: value for name, value in flags.pop("search").items() if value is not None}
    values = read_toml(config) if config else {}
    search = {**_search_table(values.pop("search", {}), names, config), **given}
    base = make_config(flags, config, values)
    # From here on there is something to wait for.
    if dry_run:
        from macro_routing.cli.plan import print_plan_of_methods

        print_plan_of_methods(base, names, numbers, out, search, store, as_json=as_json)
        return
    from macro_routing.cli.progress import listener_for
    from macro_routing.cli.stopping import stopping_with
    from macro_routing.report import write_method_comparison, write_report
    from macro_routing.runs.compare_methods import compare_methods
    from macro_routing.runs.comparison_results import about, read_method_runs, summarize_methods

    with listener_for(out, []) as listener, stopping_with("the same command goes on where it was"):
        arms = compare_methods(base, names, numbers, out, search=search, listener=listener, store=store, workers=crew)
        for arm in arms:
            write_report(out / f"{arm.method}-{arm.seed}")
        told, kept = about(out), read_method_runs(out)  # earlier methods stay on the page
        page = write_method_comparison(kept, out / "compare.html", told)
    rows = summarize_methods(arms)
    if as_json:
        found = [{**dataclasses.asdict(arm), "result": arm.result.to_json(), "right": None} for arm in arms]
        print_json({"rows": [dataclasses.asdict(row) for row in rows], "runs": found, "report": str(page)})
        return
    if told:
        print(textwrap.fill(told, _WIDTH))
    _print_table(rows)
    earlier = len(kept) - len(arms)
    print(f"report  {page}{f' (with {earlier} earlier runs of this folder)' if earlier else ''}")


def _search_table(values: Any, names: list[str], file: Path | None) -> dict[str, Any]:
    """The file's settings of searches; each must be known to one of the methods at least."""
    from macro_routing.runs.methods import keep_known_settings

    if not isinstance(values, dict):
        raise SettingsError(f"{file}: search must be a table of settings")
    for key, value in values.items():
        if not any(keep_known_settings(name, {key: value}) for name in names):
            raise SettingsError(f"{file}: [search] {key} is known to none of {', '.join(names)}")
    return values


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _seeds(text: str) -> list[int]:
    try:
        return [int(seed) for seed in _names(text)]
    except ValueError:
        raise SettingsError(f"--seeds {text} is not allowed: whole numbers with commas, such as 1,2,42") from None


def _print_table(rows: list[MethodRow]) -> None:
    from rich.console import Console
    from rich.table import Table

    from macro_routing.runs.result import ORACLE, STANDARD

    # A terminal is narrow: no lines between columns, and short heads.
    shown = Table(box=None, padding=(0, 1, 0, 0))
    for name in ("", "right %", "gain", "95 %", "asked", "work", "s", "layers"):
        shown.add_column(name, justify="right" if name else "left", no_wrap=True)
    for row in rows:
        is_reference = row.name == STANDARD
        shown.add_row(
            row.name,
            f"{100 * row.accuracy:.1f}" + ("" if row.spread is None else f"±{100 * row.spread:.1f}"),
            "" if is_reference else f"{100 * row.difference:+.1f}",
            "" if is_reference else f"{100 * row.low:+.1f} to {100 * row.high:+.1f}",
            f"{row.asked:,.0f}",
            f"{row.work:.2g}",
            f"{row.seconds:.0f}",
            f"{row.layers:.1f}",
        )
    Console().print(shown)
    print(textwrap.fill(_LEGEND, _WIDTH))
    if any(row.kind == ORACLE for row in rows):
        print("An oracle knows the answers: it is a bound, no method.")
