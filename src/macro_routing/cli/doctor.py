"""``macro doctor``: is this machine ready, and do routes run exactly on this very model?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from macro_routing.cli import options
from macro_routing.cli.console import print_fields, print_json
from macro_routing.cli.run_options import LOADING, Tables, make_load_options, with_run_options
from macro_routing.errors import MacroError
from macro_routing.models.catalog import DEFAULT_MODEL

if TYPE_CHECKING:
    from macro_routing.models.doctor import CheckResult
    from macro_routing.models.frozen import FrozenModel


@with_run_options(*LOADING)
def doctor(
    flags: Tables,
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
        _print_environment(as_json)
        return
    options.require_models_extra()
    options.quiet_libraries()
    from macro_routing.models.doctor import run_checks
    from macro_routing.models.frozen import load_model

    if model == "":
        raise MacroError("MODEL is empty; leave it out for the default")
    options.report_progress(f"loading {model or DEFAULT_MODEL}")
    frozen = load_model(model or DEFAULT_MODEL, make_load_options(flags), options.report_progress)
    parsed = None if route is None else options.read_route(route, frozen)
    findings = list(_print_findings(frozen, run_checks(frozen, parsed), as_json))
    if as_json:
        print_json({**_describe_model(frozen), "findings": [dataclasses.asdict(finding) for finding in findings]})
    if not all(finding.passed for finding in findings):
        raise typer.Exit(1)


def _print_environment(as_json: bool) -> None:
    from macro_routing.models.environment import describe_environment

    facts = describe_environment()
    if as_json:
        print_json([dataclasses.asdict(fact) for fact in facts])
        return
    print_fields([(fact.topic, fact.finding + (f"  → {fact.remedy}" if fact.remedy else "")) for fact in facts])


def _describe_model(frozen: FrozenModel) -> dict[str, object]:
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


def _print_findings(frozen: FrozenModel, findings: Iterator[CheckResult], as_json: bool) -> Iterator[CheckResult]:
    """Findings as they come, printed on the way unless JSON is wanted in the end."""
    if as_json:
        yield from findings
        return
    print_fields([(name.replace("_", " "), str(value)) for name, value in _describe_model(frozen).items()])
    print()
    _print_row("", "check", "max difference", "allowed", "")
    passed = failed = 0
    for finding in findings:
        _print_row(*_format_row(finding))
        passed, failed = passed + finding.passed, failed + (not finding.passed)
        yield finding
    print(f"\n{'all checks passed' if not failed else f'{failed} of {passed + failed} checks FAILED'}")


def _print_row(status: str, name: str, difference: str, allowed: str, detail: str) -> None:
    print(f"{status:<4}  {name:<54}  {difference:>14}  {allowed:>8}  {detail}".rstrip(), flush=True)


def _format_row(finding: CheckResult) -> tuple[str, str, str, str, str]:
    status = "skip" if finding.skipped else "ok" if finding.passed else "FAIL"
    difference = "" if finding.difference is None else f"{finding.difference:.3g}"
    allowed = "" if finding.allowed is None else f"{finding.allowed:.3g}"
    return status, finding.name, difference, allowed, finding.detail
