"""How a run's result is shown: the verdict, the variants, and what to do with them."""

import shlex
from pathlib import Path

from macro_routing.cli.console import print_fields, print_json, print_paragraph, print_table
from macro_routing.evaluation.statistics import wilson_interval
from macro_routing.routes.mixture import to_mixture
from macro_routing.runs.result import ROUTE, RunResult


def print_run_result(result: RunResult, page: Path, *, as_json: bool) -> None:
    """The verdict, the variants, and what to do with them."""
    if as_json:
        print_json({**result.to_json(), "report": str(page)})
        return
    # Where nothing was truncated there is no such column: a terminal is narrow.
    any_truncated = any(variant.truncated_share for variant in result.variants)
    rows = []
    for variant in result.variants:
        low, high = wilson_interval(variant.accuracy, variant.n)
        accuracy = f"{100 * variant.accuracy:.1f} ({100 * low:.0f}-{100 * high:.0f})"
        truncated = [f"{100 * variant.truncated_share:.1f} %"] if any_truncated else []
        counts = f"{variant.correct}/{variant.n}"
        rows.append([variant.name, counts, accuracy, f"{variant.length:.4g}", *truncated, variant.route])
    headings = ["", "correct", "% (95 %)", "layers", *(["truncated"] if any_truncated else []), "route"]
    print_paragraph(result.verdict)
    print_table(headings, rows, left=("", "route"), wrapped=("route",))
    if len(result.variants) > 2:
        print_paragraph(
            "The first was chosen before the test; top-1 is the most probable program, no Vit. the best draw."
        )
    files = {"route": [("route file", "route.json")], "router": [("routers", "routers")]}.get(result.kind, [])
    paths = [(name, Path(result.folder) / file) for name, file in files]
    folder = shlex.quote(result.folder)
    # Where no example had a label there are no routers.
    fields = [("report", str(page)), *((name, str(path)) for name, path in paths if path.exists())]
    if result.kind == ROUTE and not result.best_route.is_standard:
        fields.append(("answers", f"macro compare-answers --run {folder}"))
    is_used = result.kind == ROUTE and not result.best_route.is_standard and result.recommended
    if is_used and to_mixture(result.best_route).compares_choices_only:
        fields.append(("use it", f"macro evaluate --task TASK --route {folder}"))
    elif is_used:
        fields.append(("use it", f"macro serve {folder}"))
        fields.append(("or", f"macro export {folder} --format routed --out …"))
    print_fields(fields)
