"""``macro study``: the paper's tables and figures as commands; here those that only read what others have found."""

from pathlib import Path
from typing import Annotated

import typer

from macro_routing.cli import study_command as shared
from macro_routing.cli import study_routes, study_searches
from macro_routing.cli.group import make_group
from macro_routing.cli.run_options import JsonOption, parse_names

app = make_group(help="The paper's studies on any model: data, a table and a figure each, resumable.")


def significance(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="The folder of a main-table study, or a JSON file of its lines.")
    ],
    baseline: Annotated[str, typer.Option(help="The method that is compared with.")] = "standard pass",
    method: Annotated[str, typer.Option(help="The method that is judged.")] = "MACRO",
    models: Annotated[
        str, typer.Option(help="Only these, separated by commas: p-values are corrected over them.", show_default="all")
    ] = "",
    out: Annotated[Path | None, shared.out_option("significance")] = None,
    as_json: JsonOption = False,
) -> None:
    """Judge a method against the baseline over the benchmarks of a main table, model by model, as the paper does.

    Benchmarks are resampled for the interval; p is an exact one-sided Wilcoxon test, corrected over models.

    Example: `macro study significance studies/main-table`
    """
    from macro_routing.studies.significance import STUDY, read_main_table_results, run_significance

    wanted = parse_names(models)
    found = run_significance(read_main_table_results(results), baseline, method, wanted)
    settings = {"results": str(results.resolve()), "baseline": baseline, "method": method, "models": wanted}
    folder = shared.open_study_folder(out, STUDY, settings)
    shared.write_and_print_study(folder, found, settings, as_json=as_json)


def composition(
    runs: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="Runs, or folders that hold some.")],
    method: Annotated[str, typer.Option(help="Only runs of this method.", show_default="all that find routes")] = "",
    out: Annotated[Path | None, shared.out_option("composition")] = None,
    as_json: JsonOption = False,
) -> None:
    """Count what found routes are made of: how often they add and move, how long they are, which rank was chosen.

    The figure shows how often every layer is applied over all runs. Nothing is run and no model is needed.

    Example: `macro study composition studies/transfer`
    """
    from macro_routing.studies.composition import STUDY, find_finished_runs
    from macro_routing.studies.composition import run_composition as study

    found = study(find_finished_runs(runs, method or None))
    settings = {"runs": sorted(str(one.resolve()) for one in runs), "method": method}
    folder = shared.open_study_folder(out, STUDY, settings)
    shared.write_and_print_study(folder, found, settings, as_json=as_json)


app.command("main-table")(study_searches.main_table)
app.command("significance")(significance)
app.command("ablation")(study_searches.ablation)
app.command("sweep")(study_searches.sweep)
app.command("logit-lens")(study_routes.logit_lens)
app.command("transfer")(study_searches.transfer)
app.command("one-route")(study_searches.one_route)
app.command("composition")(composition)
app.command("cost")(study_routes.cost)
app.command("side-effects")(study_routes.side_effects)
app.command("depth-tradeoff")(study_routes.depth_tradeoff)
