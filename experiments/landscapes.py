"""Record a landscape: all single edits, all blocks and some routes of two edits of a real model, on training examples.

    python -m experiments.landscapes MODEL --task arc_easy [--mode likelihood] [--examples 1000] [--two-edits 250]
        [--max-routes N] [--data-dir FOLDER] [--folder experiments/raw/landscapes] [--minutes 8]
    python -m experiments.landscapes MODEL --task arc_easy --without-question experiments/raw/landscapes/NAME.npz

Only training examples of seed 0 are used, and none that is a test item under a judging seed. Where choices are compared
by likelihood, the log-likelihoods of short repeats and skips are written beside the table, as an .npz archive. A
recording that runs out of minutes keeps the examples that all routes have answered. The second command adds to such an
archive what the standard pass predicts without the question, a candidate for the members of a mixture.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import ROOT, current_commit, describe_hardware
from experiments.landscape import ChoiceScores, Landscape, is_short_repeat_or_skip, list_routes_to_record

SEED = 0
JUDGING_SEEDS = (1, 2, 42)
RAW_FOLDER = ROOT / "experiments" / "raw" / "landscapes"
CHUNK = {"likelihood": 250}
"""Examples answered at a time; others: 50, since text takes longer."""


def load_examples(arguments: argparse.Namespace) -> tuple[Any, list[Any]]:
    """A task and its training examples, without the test items of any judging seed."""
    from macro_routing.tasks import load_task, make_splits

    def split(seed: int, training: int) -> tuple[Any, Any]:
        task = load_task(arguments.task, data_dir=arguments.data_dir, seed=seed)
        return task, make_splits(task, seed=seed, training=training, validation=100)

    test_keys = {example.normalized_question for seed in JUDGING_SEEDS for example in split(seed, 1000)[1].test}
    task, splits = split(SEED, 3000)
    return task, [example for example in splits.train if example.normalized_question not in test_keys][
        : arguments.examples
    ]


def subsample_routes(routes: Sequence[Any], limit: int | None) -> list[Any]:
    """The standard pass, which comes first, and an even random share of the others."""
    if limit is None or len(routes) <= limit:
        return list(routes)
    chosen = np.random.default_rng(SEED).choice(np.arange(1, len(routes)), limit - 1, replace=False)
    return [routes[0], *(routes[index] for index in sorted(chosen))]


def score_chunk(
    frozen: Any, task: Any, routes: Sequence[Any], examples: Sequence[Any], mode: str
) -> tuple[NDArray[np.bool_], NDArray[np.float16] | None]:
    """Which examples each route answers correctly, and its choices' log-likelihoods where these are compared."""
    from macro_routing.engine.likelihood import score_choices_for_routes
    from macro_routing.evaluation.decoding_settings import DecodingSettings
    from macro_routing.evaluation.model_answers import (
        answer_with_every_route,
        build_choice_items,
        grade_choice_likelihoods,
    )

    decoding = DecodingSettings(mode)
    if mode != "likelihood":
        outcomes = answer_with_every_route(frozen, routes, task, examples, decoding)
        return np.array([[outcome.correct for outcome in outcomes[route]] for route in routes]), None
    scores = score_choices_for_routes(
        frozen.model, routes, build_choice_items(frozen, task, examples, by_letter=False), max_tokens=32_768
    )
    values = np.full((len(routes), len(examples), max(len(example.choices) for example in examples)), np.nan)
    for row, route in zip(values, routes, strict=True):
        for cells, log_likelihoods in zip(row, scores[route], strict=True):
            cells[: len(log_likelihoods)] = log_likelihoods
    correct = [
        [outcome.correct for outcome in grade_choice_likelihoods(examples, scores[route], decoding)] for route in routes
    ]
    return np.array(correct), values.astype(np.float16)


def score_all(
    frozen: Any, task: Any, routes: Sequence[Any], examples: Sequence[Any], arguments: argparse.Namespace
) -> tuple[NDArray[np.bool_], NDArray[np.float16] | None]:
    """Score chunk by chunk, as far as the minutes reach."""
    start, chunk = time.perf_counter(), CHUNK.get(arguments.mode, 50)
    parts = []
    for first in range(0, len(examples), chunk):
        parts.append(score_chunk(frozen, task, routes, examples[first : first + chunk], arguments.mode))
        seconds = time.perf_counter() - start
        print(f"{len(routes)} routes × {first + chunk} examples after {seconds:.0f} s", flush=True)
        if seconds * (len(parts) + 1) / len(parts) > 60 * arguments.minutes:
            break
    correct = np.concatenate([part[0] for part in parts], axis=1)
    scores = [part[1] for part in parts if part[1] is not None]
    width = max((values.shape[2] for values in scores), default=0)
    padded = [np.pad(one, ((0, 0), (0, 0), (0, width - one.shape[2])), constant_values=np.nan) for one in scores]
    return correct, np.concatenate(padded, axis=1) if padded else None


def record_landscape(frozen: Any, arguments: argparse.Namespace) -> tuple[Path, Landscape]:
    """Record one task and write its files."""
    from macro_routing.routes import RouteSpace

    task, examples = load_examples(arguments)
    every_route = list_routes_to_record(RouteSpace(frozen.layers), arguments.two_edits, SEED)
    routes = subsample_routes(every_route, arguments.max_routes)
    correct, scores = score_all(frozen, task, routes, examples, arguments)
    about = {
        "model": Path(arguments.model).name,
        "task": arguments.task,
        "mode": arguments.mode,
        "command": f"python -m experiments.landscapes MODEL --task {arguments.task} --mode {arguments.mode}"
        f" --examples {correct.shape[1]} --two-edits {arguments.two_edits}"
        + (f" --max-routes {arguments.max_routes}" if arguments.max_routes else ""),
        "commit": current_commit(),
        "hardware": describe_hardware(frozen.model.device.type),
        "seed": SEED,
    }
    landscape = Landscape(tuple(routes), correct, about)
    path = arguments.folder / f"{Path(arguments.model).name.split('.gguf')[0]}-{arguments.task}-{arguments.mode}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(landscape.to_json(), encoding="utf-8")
    if scores is not None:
        collect_choice_scores(routes, scores, examples).save(path.with_suffix(".npz"))
    return path, landscape


def collect_choice_scores(routes: Sequence[Any], scores: NDArray[np.float16], examples: Sequence[Any]) -> ChoiceScores:
    """The log-likelihoods of short repeats and skips; of all routes they would take megabytes."""
    kept = [index for index, route in enumerate(routes) if is_short_repeat_or_skip(route)]
    sizes, answers = describe_choices(examples[: scores.shape[1]])
    return ChoiceScores(tuple(str(routes[index]) for index in kept), scores[kept], sizes, answers)


def describe_choices(examples: Sequence[Any]) -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
    """The bytes of every choice, 0 where an example has fewer, and the correct choices."""
    sizes = np.zeros((len(examples), max(len(example.choices) for example in examples)), np.uint16)
    for row, example in zip(sizes, examples, strict=True):
        row[: len(example.choices)] = [len(choice.encode()) for choice in example.choices]
    return sizes, np.array([example.correct_choice for example in examples], np.uint8)


def add_scores_without_question(frozen: Any, arguments: argparse.Namespace) -> None:
    """Score the choices of the recorded examples by the standard pass without the question."""
    from macro_routing.engine.likelihood import score_choices_for_routes
    from macro_routing.evaluation.model_answers import build_choice_items
    from macro_routing.routes import Route
    from macro_routing.routes.mixture import Mixture

    recorded = ChoiceScores.load(arguments.without_question)
    task, examples = load_examples(arguments)
    examples = examples[: len(recorded.answers)]
    sizes, answers = describe_choices(examples)
    if not np.array_equal(sizes, recorded.choice_bytes) or not np.array_equal(answers, recorded.answers):
        archive = arguments.without_question
        sys.exit(f"{archive} was recorded on other examples; name its task, and the data it was made of")
    standard = Route.standard(frozen.layers)
    items = build_choice_items(frozen, task, examples, by_letter=False, with_question=False)
    scores = score_choices_for_routes(frozen.model, [standard], items)[standard]
    values = np.full((1, *recorded.log_likelihoods.shape[1:]), np.nan, np.float16)
    for cells, log_likelihoods in zip(values[0], scores, strict=True):
        cells[: len(log_likelihoods)] = log_likelihoods
    name = str(Mixture.from_route(standard, with_question=False))
    others = [index for index, route in enumerate(recorded.routes) if route != name]
    ChoiceScores(
        (*(recorded.routes[index] for index in others), name),
        np.concatenate([recorded.log_likelihoods[others], values]),
        recorded.choice_bytes,
        recorded.answers,
    ).save(arguments.without_question)
    print(f"{arguments.without_question}: {name} on {len(examples)} examples")


def main() -> None:
    """Record, and print what the table holds."""
    from macro_routing.models import load_model

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--task", required=True)
    parser.add_argument("--mode", default="likelihood")
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--two-edits", type=int, default=250)
    parser.add_argument("--max-routes", type=int)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--folder", type=Path, default=RAW_FOLDER)
    parser.add_argument("--without-question", type=Path, help="an archive of log-likelihoods to add to")
    arguments = parser.parse_args()
    if arguments.without_question:
        add_scores_without_question(load_model(arguments.model), arguments)
        return
    path, landscape = record_landscape(load_model(arguments.model), arguments)
    gains = sorted((landscape.gain(route), str(route)) for route in landscape.routes)
    print(
        f"{path}: {len(landscape.routes)} routes × {landscape.examples} examples;"
        f" standard {100 * landscape.standard.mean():.1f} %, {sum(gain > 0 for gain, _ in gains)} better; best"
        f" {', '.join(f'{100 * gain:+.1f} {route}' for gain, route in gains[-3:][::-1])}"
    )


if __name__ == "__main__":
    main()
