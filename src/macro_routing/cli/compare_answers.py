"""``macro compare-answers``: the standard pass and a route side by side, on a prompt or on a run's test set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from macro_routing import models
from macro_routing.cli.console import check_and_quiet_model_libraries, print_json, print_progress_message, print_table
from macro_routing.cli.route_argument import check_route_without_model, read_route_or_mixture
from macro_routing.cli.run_options import NO_PRESET, FlagTables, make_load_options_from_flags, with_run_options
from macro_routing.errors import SettingsError
from macro_routing.models.built_in import DEFAULT_MODEL
from macro_routing.models.chat import encode_messages
from macro_routing.routes.mixture import require_question
from macro_routing.routes.route import Route
from macro_routing.runs.folder import ANSWERS, RESULT, RunFolder
from macro_routing.tasks.task import LETTERS

AnswerFilter = Literal["changed", "fixed", "broken", "all"]
_COLUMNS = ("question", "standard", "route")


@with_run_options("dtype", "device", "quantization", **NO_PRESET)
def compare_answers(
    flags: FlagTables,
    run: Annotated[Path | None, typer.Option(help="A finished run: compare its test answers.")] = None,
    prompt: Annotated[str | None, typer.Option(help="A prompt: let both answer it.")] = None,
    route: Annotated[str | None, typer.Option(help="The route for --prompt: any notation, or a route file.")] = None,
    model: Annotated[str, typer.Option(help="The model for --prompt.")] = DEFAULT_MODEL,
    only: Annotated[AnswerFilter, typer.Option(help="Which answers of a run.")] = "changed",
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of answers shown.")] = 20,
    max_tokens: Annotated[int, typer.Option(min=1, help="Maximum tokens of an answer to --prompt.")] = 200,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what the standard pass and a route answer, side by side.

    Example: `macro compare-answers --prompt 'What is 17 + 25?' --route 'L0-L17 L17 RJ'`

    Example: `macro compare-answers --run runs/demo --only fixed`
    """
    if (run is None) == (prompt is None):
        raise SettingsError("give either --run or --prompt")
    if run is not None:
        pairs = _read_standard_and_routed_answers(run, only)
        _print_answer_pairs(pairs[:limit], len(pairs), as_json=as_json)
        return
    if route is None:
        raise SettingsError("--prompt needs a --route to compare with the standard pass")
    check_and_quiet_model_libraries()
    check_route_without_model(route, model, require_question)  # what is wrong is told before the model is loaded
    frozen = models.load_model(model, make_load_options_from_flags(flags), print_progress_message)
    _print_answer_pairs([_answer_with_both_routes(frozen, prompt or "", route, max_tokens)], 1, as_json=as_json)


def _answer_with_both_routes(frozen: Any, prompt: str, route: str, max_tokens: int) -> dict[str, Any]:
    from macro_routing.engine.generation import DecodingStage, GenerationRequest
    from macro_routing.engine.route_generation import generate_for_routes

    routes = [Route.standard(frozen.layers), read_route_or_mixture(route, frozen)]
    tokens = encode_messages(frozen.tokenizer, [{"role": "user", "content": prompt}])
    request = GenerationRequest((DecodingStage(frozenset(frozen.chat.end_token_ids), max_tokens),))
    generated = generate_for_routes(frozen.model, list(dict.fromkeys(routes)), [tokens], request)
    answers = [generated[route][0][0] for route in routes]
    standard, routed = (
        frozen.tokenizer.decode(answer.tokens, skip_special_tokens=True)
        + (" … (truncated)" if answer.truncated else "")
        for answer in answers
    )
    return {"question": prompt, "standard": standard, "routed": routed, "route": str(routes[1])}


def _read_standard_and_routed_answers(folder: Path, only: AnswerFilter) -> list[dict[str, Any]]:
    from macro_routing.runs.result import STANDARD, read_result

    run = RunFolder.open(folder)
    if not run.has_file(RESULT):
        raise SettingsError(f"{folder} is not finished; go on with `macro resume {folder}`")
    result = read_result(run)
    with run.explain_damaged_files(ANSWERS):
        answers = run.read_json(ANSWERS)
        standard = next(variant.route for variant in result.variants if variant.name == STANDARD)
        rows = zip(answers["examples"], answers["routes"][standard], answers["routes"][result.route], strict=True)
        return [
            {
                "question": example["question"],
                "choices": example["choices"],
                "answer": _format_letter_with_choice(example["answer"], example["choices"]),
                "standard": before["text"] or _format_letter_with_choice(before["prediction"], example["choices"]),
                "routed": after["text"] or _format_letter_with_choice(after["prediction"], example["choices"]),
                "standard_correct": before["correct"],
                "routed_correct": after["correct"],
            }
            for example, before, after in rows
            if _matches_answer_change_filter(before, after, only)
        ]


def _format_letter_with_choice(letter: str, choices: list[str]) -> str:
    """A letter with the choice it stands for."""
    named = dict(zip(LETTERS, choices, strict=False))
    return f"{letter}. {named[letter]}" if letter in named else letter


def _matches_answer_change_filter(before: dict[str, Any], after: dict[str, Any], only: AnswerFilter) -> bool:
    if only == "changed":
        return bool(before["prediction"] != after["prediction"])
    expected = {"fixed": (False, True), "broken": (True, False)}
    return only == "all" or (before["correct"], after["correct"]) == expected[only]


def _print_answer_pairs(pairs: list[dict[str, Any]], total: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"shown": len(pairs), "of": total, "answers": pairs})
        return
    if not pairs:
        print("no answer differs" if not total else "nothing to show; raise --limit")
        return
    rows = []
    for pair in pairs:
        answer = f"\n[right: {pair['answer']}]" if "answer" in pair else ""
        rows.append((pair["question"] + answer, *(_mark_correct_answer(pair, name) for name in ("standard", "routed"))))
    print_table(_COLUMNS, rows, left=_COLUMNS, wrapped=_COLUMNS, show_lines=True)
    if total > len(pairs):
        print(f"{len(pairs)} of {total}; more with --limit")


def _mark_correct_answer(pair: dict[str, Any], name: str) -> str:
    mark = {None: "", True: "✓ ", False: "✗ "}[pair.get(f"{name}_correct")]
    return f"{mark}{pair[name]}"
