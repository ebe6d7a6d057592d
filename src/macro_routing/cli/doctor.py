"""``macro doctor``: is this machine ready, and do routes run exactly on this very model?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from macro_routing import models
from macro_routing.cli.console import check_and_quiet_model_libraries, print_fields, print_json, print_progress_message
from macro_routing.cli.route_argument import check_route_without_model, read_route_or_mixture, read_route_text
from macro_routing.cli.run_options import LOADING, NO_PRESET, FlagTables, make_load_options_from_flags, with_run_options
from macro_routing.errors import MacroError
from macro_routing.models.built_in import DEFAULT_MODEL
from macro_routing.routes.mixture import require_question


@with_run_options(*LOADING, **NO_PRESET)
def doctor(
    flags: FlagTables,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A built-in name (see `macro models`), a folder, a .gguf file, or a hub id such as Qwen/Qwen3-1.7B.",
            show_default=DEFAULT_MODEL,
        ),
    ] = None,
    route: Annotated[
        str | None, typer.Option(help="Check this route instead of one with repeats, a skip, a jump back and adds.")
    ] = None,
    environment: Annotated[
        bool, typer.Option("--environment", help="Describe this machine instead: paste it into a bug report.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check on a model that routes run exactly; ends with status 1 when a check fails.

    Examples: `macro doctor smollm2-135m`, `macro doctor ./model --route 'L0-L7 L3 RJ'`, `macro doctor --environment`
    """
    if environment:
        if model is not None or route is not None:
            raise MacroError("--environment describes the machine and takes no model or route; run the two separately")
        from macro_routing.models.environment import describe_environment

        facts = describe_environment()
        if as_json:
            print_json([dataclasses.asdict(fact) for fact in facts])
        else:
            print_fields([(fact.topic, fact.finding + (f"  → {fact.remedy}" if fact.remedy else "")) for fact in facts])
        return
    check_and_quiet_model_libraries()
    from macro_routing.models.doctor import run_checks

    if model == "":
        raise MacroError("MODEL is empty; leave it out for the default")
    if route is not None:
        read_route_text(route)  # a mistyped name is told before the model is loaded
        check_route_without_model(route, model or DEFAULT_MODEL, require_question)
    print_progress_message(f"loading {model or DEFAULT_MODEL}")
    frozen = models.load_model(model or DEFAULT_MODEL, make_load_options_from_flags(flags), print_progress_message)
    parsed = None if route is None else read_route_or_mixture(route, frozen)
    if parsed is not None:
        require_question(parsed)
    findings = list(_print_check_results(frozen, run_checks(frozen, parsed), as_json))
    if as_json:
        print_json({**_describe_model(frozen), "findings": [dataclasses.asdict(finding) for finding in findings]})
    if not all(finding.passed for finding in findings):
        raise typer.Exit(1)


def _describe_model(frozen: models.FrozenModel) -> dict[str, object]:
    model = frozen.model
    return {
        "model": frozen.name,
        "architecture": model.config.get_text_config(decoder=True).model_type,
        "layers": frozen.layers,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": str(model.device),
        "attention": model.config._attn_implementation,  # noqa: SLF001 transformers has no public name for it
        "weights_id": frozen.weights_id,
        "numerics_id": frozen.numerics_id,
    }


def _print_check_results(frozen: models.FrozenModel, findings: Iterator[Any], as_json: bool) -> Iterator[Any]:
    """Results of checks as they come, printed on the way unless JSON is wanted in the end."""
    if as_json:
        yield from findings
        return
    print_fields([(name.replace("_", " "), str(value)) for name, value in _describe_model(frozen).items()])
    print()
    _print_check_row("", "check", "max difference", "allowed", "")
    passed = []
    for finding in findings:
        verdict = "ok" if finding.passed else "FAIL"
        difference, allowed = (
            "" if value is None else f"{value:.3g}" for value in (finding.difference, finding.allowed)
        )
        _print_check_row("skip" if finding.skipped else verdict, finding.name, difference, allowed, finding.detail)
        passed.append(finding.passed)
        yield finding
    print("\nall checks passed" if all(passed) else f"\n{passed.count(False)} of {len(passed)} checks FAILED")


def _print_check_row(status: str, name: str, difference: str, allowed: str, detail: str) -> None:
    print(f"{status:<4}  {name:<54}  {difference:>14}  {allowed:>8}  {detail}".rstrip(), flush=True)
