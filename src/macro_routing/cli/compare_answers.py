"""``macro compare-answers``: the standard pass and a route side by side, on a prompt or on a run's test set."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from macro_routing.cli import options
from macro_routing.cli.console import escape_control_characters, print_json
from macro_routing.cli.run_options import Tables, make_load_options, with_run_options
from macro_routing.errors import SettingsError
from macro_routing.models.catalog import DEFAULT_MODEL
from macro_routing.tasks.task import LETTERS

if TYPE_CHECKING:
    from macro_routing.runs.result import RunResult


class Only(StrEnum):
    """Which answers are shown."""

    changed = "changed"
    fixed = "fixed"
    broken = "broken"
    all = "all"


@with_run_options("dtype", "device", "quantization")
def compare_answers(
    flags: Tables,
    run: Annotated[Path | None, typer.Option(help="A finished run: compare its test answers.")] = None,
    prompt: Annotated[str | None, typer.Option(help="A prompt: let both answer it.")] = None,
    route: Annotated[str | None, typer.Option(help="The route for --prompt: any notation, or a route file.")] = None,
    model: Annotated[str, typer.Option(help="The model for --prompt.")] = DEFAULT_MODEL,
    only: Annotated[Only, typer.Option(help="Which answers of a run.")] = Only.changed,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of answers shown.")] = 20,
    budget: Annotated[int, typer.Option(min=1, help="Maximum tokens of an answer to --prompt.")] = 200,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what the standard pass and a route answer, side by side.

    Example: `macro compare-answers --prompt 'What is 17 + 25?' --route 'L0-L17 L17 RJ'`

    Example: `macro compare-answers --run runs/demo --only fixed`
    """
    if (run is None) == (prompt is None):
        raise SettingsError("give either --run or --prompt")
    if run is not None:
        pairs = _read_answer_pairs(run, only)
        _print_pairs(pairs[:limit], len(pairs), as_json=as_json)
        return
    if route is None:
        raise SettingsError("--prompt needs a --route to compare with the standard pass")
    options.require_models_extra()
    options.quiet_libraries()
    from macro_routing.models.frozen import load_model

    frozen = load_model(model, make_load_options(flags), options.report_progress)
    _print_pairs([_answer_prompt(frozen, prompt or "", route, budget)], 1, as_json=as_json)


def _answer_prompt(frozen: Any, prompt: str, route: str, budget: int) -> dict[str, Any]:
    from macro_routing.engine.generation import DecodingStage, GenerationRequest
    from macro_routing.engine.route_generation import generate_eager
    from macro_routing.models.chat import encode_messages
    from macro_routing.routes.route import Route

    routes = [Route.standard(frozen.layers), options.read_route(route, frozen)]
    asked = encode_messages(frozen.tokenizer, [{"role": "user", "content": prompt}])
    wanted = GenerationRequest((DecodingStage(frozenset(frozen.chat.end_token_ids), budget),))
    found = generate_eager(frozen.model, list(dict.fromkeys(routes)), [asked], wanted)
    texts = []
    for one in routes:
        ((written,),) = found[one]
        end = " … (truncated)" if written.truncated else ""
        texts.append(frozen.tokenizer.decode(written.tokens, skip_special_tokens=True) + end)
    return {"question": prompt, "standard": texts[0], "routed": texts[1], "route": str(routes[1])}


def _read_answer_pairs(folder: Path, only: Only) -> list[dict[str, Any]]:
    from macro_routing.runs import folder as files
    from macro_routing.runs.folder import RunFolder
    from macro_routing.runs.result import RunResult

    run = RunFolder.open(folder)
    if not run.has_file(files.RESULT):
        raise SettingsError(f"{folder} is not finished; go on with `macro resume {folder}`")
    with run.explain_damage(files.RESULT):
        result = RunResult.from_json(run.read_json(files.RESULT))
    with run.explain_damage(files.ANSWERS):
        return _pair_answers(result, run.read_json(files.ANSWERS), only)


def _pair_answers(result: RunResult, answers: dict[str, Any], only: Only) -> list[dict[str, Any]]:
    from macro_routing.runs.result import STANDARD

    standard = next(one.route for one in result.variants if one.name == STANDARD)
    rows = zip(answers["examples"], answers["routes"][standard], answers["routes"][result.route], strict=True)
    return [
        {
            "question": example["question"],
            "choices": example["choices"],
            "answer": _format_answer(example["answer"], example["choices"]),
            "standard": before["text"] or _format_answer(before["prediction"], example["choices"]),
            "routed": after["text"] or _format_answer(after["prediction"], example["choices"]),
            "standard_correct": before["correct"],
            "routed_correct": after["correct"],
        }
        for example, before, after in rows
        if _matches_filter(before, after, only)
    ]


def _format_answer(letter: str, choices: list[str]) -> str:
    """A letter with the choice it stands for."""
    named = dict(zip(LETTERS, choices, strict=False))
    return f"{letter}. {named[letter]}" if letter in named else letter


def _matches_filter(before: dict[str, Any], after: dict[str, Any], only: Only) -> bool:
    fixed, broken = after["correct"] and not before["correct"], before["correct"] and not after["correct"]
    changed = before["prediction"] != after["prediction"]
    return bool({Only.all: True, Only.fixed: fixed, Only.broken: broken, Only.changed: changed}[only])


def _print_pairs(pairs: list[dict[str, Any]], total: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"shown": len(pairs), "of": total, "answers": pairs})
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_lines=True)
    for name in ("question", "standard", "route"):
        table.add_column(name, overflow="fold", ratio=1)
    for one in pairs:
        right = f"\n[right: {one['answer']}]" if "answer" in one else ""
        table.add_row(
            escape(escape_control_characters(one["question"] + right)),
            _mark_correct(one, "standard"),
            _mark_correct(one, "routed"),
        )
    Console().print(table)
    if total > len(pairs):
        print(f"{len(pairs)} of {total}; more with --limit")


def _mark_correct(one: dict[str, Any], name: str) -> str:
    from rich.markup import escape

    verdict = one.get(f"{name}_correct")
    mark = "" if verdict is None else "✓ " if verdict else "✗ "
    return mark + escape(escape_control_characters(one[name]))
