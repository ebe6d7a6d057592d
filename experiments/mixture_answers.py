"""Mixtures where answers are written: what they gain on test sets, beside controls.

    python -m experiments.mixture_answers MODEL --runs FOLDER [--data-dir FOLDER] [--minutes 20] [--only svamp-direct]
        [--seeds 1] [--share 0.1] [--kept FILE]
    python -m experiments.mixture_answers [--write docs/data/mixture_answers.json]

The first runs what is missing and keeps a line per setting and seed; the second makes the table of what is kept.
Settings, seeds and rules are those of docs/results/search_protocol.md. Everything is chosen on training examples.

*Grid*: the standard pass minus a weaker route, with fixed weights, on some examples; the best few of these with other
weights, on more examples; the mixture whose written answers are most often correct. *References*: every token of a
reference answer is a choice among the tokens that the standard pass finds plausible; weights by the regression that
compares choices by likelihood. Only direct answers have references.
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.record import ROOT, current_commit, describe_hardware
from experiments.kept_searches import Job, Line, print_rows, read_correct, read_kept, run_missing, write_kept_record
from experiments.method_comparison import SEEDS, is_selected, make_parser
from experiments.recorded_runs import pack_verdicts
from macro_routing.engine.batching import Tokens
from macro_routing.engine.decoders import release_fused_decoder
from macro_routing.engine.generation import generate_reasoning_then_answer
from macro_routing.engine.likelihood import ChoiceItem, score_choices_for_routes
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.mixture_weights import choose_members, make_mixture
from macro_routing.evaluation.model_answers import (
    encode_prompts,
    encode_prompts_and_generation_stages,
    grade_texts,
)
from macro_routing.evaluation.outcomes import ExampleOutcome
from macro_routing.evaluation.score_store import ScoreStore
from macro_routing.evaluation.statistics import holm_correction
from macro_routing.models import FrozenModel
from macro_routing.models.mixing import PLAUSIBILITY
from macro_routing.routes import Route
from macro_routing.routes.mixture import Mixture, RouteOrMixture
from macro_routing.search.method_names import DOLA, SKIP_LAYER_CD
from macro_routing.search.mixture_controls import list_control_sources
from macro_routing.studies.paired_comparisons import estimate_difference_over_seeds
from macro_routing.tasks import load_task, make_splits
from macro_routing.tasks.grading import Grader
from macro_routing.tasks.task import Example, Task

KEPT = ROOT / "experiments" / "raw" / "mixture_answers.jsonl"
SETTINGS = {
    f"{task}-{mode}": (task, DecodingSettings(mode))
    for task, mode in (
        ("svamp", "direct"),
        ("gsm8k", "direct"),
        ("counting", "direct"),
        ("svamp", "reasoning"),
        ("gsm8k", "reasoning"),
    )
}
FITTED, REFITTED, TESTED = 100, 200, 500
"""Training examples of the whole grid, of its best mixtures, and test examples at most."""
MAX_MEMBERS = 3
SINGLE_SKIPS, BEST = 10, 3
"""Routes without one layer in the grid; its mixtures that are tried with other weights."""
WEIGHTS = (0.25, 0.5, 1.0)
"""Of the subtracted route; the standard pass has 1 plus this. The grid begins with that of the controls."""
SAMPLES, TEMPERATURE = 3, 0.7
_SAMPLED_BATCH_TOKENS = 150_000
STANDARD, GRID, SELF_CONSISTENCY = "standard pass", "grid", "self-consistency"
DOLA_TITLE, SKIP_TITLE = "DoLa, static", "SkipLayerCD"
COLUMNS = {
    "setting": "model, task, answers",
    "way": "answered by",
    "mixture": "mixture",
    "layers": "layers applied, × the model's",
    "accuracy": "correct (%)",
    "difference": "gain over the standard pass, points",
    "low": "95 % interval, from",
    "high": "to",
    "p_holm": "p (Holm)",
    "truncated": "truncated (%)",
    "tokens": "tokens",
    "n": "test examples",
    "seeds": "seeds",
}


class Answers(NamedTuple):
    """The test answers of one way to answer."""

    text: str
    """The route or mixture."""
    cost: float
    """Layers applied per token, × the model's."""
    outcomes: Sequence[ExampleOutcome]


# --- grid -----------------------------------------------------------------------------------------------------------


def list_single_skips(layers: int, count: int) -> list[Route]:
    """The standard pass without one of its layers, spread over the depth."""
    plain = list(range(layers))
    skipped = np.unique(np.linspace(1, layers - 1, count).astype(int))
    return [Route.from_layers([*plain[:layer], *plain[layer + 1 :]], layers) for layer in skipped]


def subtract(weaker: Route, weight: float) -> Mixture:
    """The standard pass minus a weaker route."""
    return Mixture.from_weights([(Route.standard(weaker.layers), 1 + weight), (weaker, -weight)])


def list_grid(layers: int) -> list[Mixture]:
    """One weight for every weaker route: early exits, without a block of layers, without one layer."""
    controls = [source for name in (DOLA, SKIP_LAYER_CD) for source in list_control_sources(name, layers)]
    skips = [subtract(route, WEIGHTS[1]) for route in list_single_skips(layers, SINGLE_SKIPS)]
    return list(dict.fromkeys([*(source for source in controls if isinstance(source, Mixture)), *skips]))


def list_other_weights(mixtures: Sequence[Mixture]) -> list[Mixture]:
    """These weaker routes with every weight."""
    routes = [next(route for route in mixture.routes if not route.is_standard) for mixture in mixtures]
    return [subtract(route, weight) for route in routes for weight in WEIGHTS]


def count_correct(
    evaluator: Evaluator, routes: Sequence[RouteOrMixture], examples: Sequence[Example]
) -> dict[RouteOrMixture, int]:
    """Number of correct written answers."""
    evaluations = evaluator.evaluate(routes, examples)
    return {route: sum(evaluation.correct) for route, evaluation in evaluations.items()}


def search_grid(evaluator: Evaluator, train: Sequence[Example]) -> dict[str, RouteOrMixture]:
    """The best mixture of the grid, and the best of every control: a few by few examples, one of them by all."""
    layers = evaluator.frozen.layers
    grid = list_grid(layers)
    first = count_correct(evaluator, grid, train[:FITTED])

    def find_best_few(mixtures: Sequence[Mixture]) -> list[Mixture]:
        return sorted(mixtures, key=lambda mixture: -first[mixture])[:BEST]

    candidates = {GRID: list_other_weights(find_best_few(grid))}
    for title, name in ((DOLA_TITLE, DOLA), (SKIP_TITLE, SKIP_LAYER_CD)):
        sources = list_control_sources(name, layers)
        candidates[title] = find_best_few([source for source in sources if isinstance(source, Mixture)])
    counts = count_correct(
        evaluator, [mixture for mixtures in candidates.values() for mixture in mixtures], train[: FITTED + REFITTED]
    )
    return {title: max(mixtures, key=lambda mixture: counts[mixture]) for title, mixtures in candidates.items()}


# --- references -----------------------------------------------------------------------------------------------------


def encode_references(frozen: FrozenModel, examples: Sequence[Example]) -> list[Tokens]:
    """The tokens of the examples' answers, and the end token."""
    texts = frozen.tokenize_texts([example.answer for example in examples], add_special_tokens=False)
    end = int(frozen.tokenizer.eos_token_id)
    return [(*tokens, end) for tokens in texts]


@torch.no_grad()
def make_token_items(
    frozen: FrozenModel, prompts: Sequence[Tokens], references: Sequence[Tokens]
) -> tuple[list[ChoiceItem], list[int], list[int]]:
    """Each token of a reference as a choice among plausible ones, where it is plausible itself.

    With the choices come the index of the reference's token among them, and the example.
    """
    items, answers, examples = [], [], []
    for example, (prompt, reference) in enumerate(zip(prompts, references, strict=True)):
        ids = torch.tensor([[*prompt, *reference[:-1]]], device=frozen.model.device)
        log_probs = frozen.model(ids, use_cache=False, logits_to_keep=len(reference)).logits[0].float().log_softmax(-1)
        for position, (token, row) in enumerate(zip(reference, log_probs, strict=True)):
            plausible = torch.nonzero(row >= row.max() + np.log(PLAUSIBILITY))[:, 0].tolist()
            if token in plausible and len(plausible) > 1:
                items.append(ChoiceItem((*prompt, *reference[:position]), tuple((choice,) for choice in plausible)))
                answers.append(plausible.index(token))
                examples.append(example)
    return items, answers, examples


def fit_to_references(
    frozen: FrozenModel, routes: Sequence[Route], prompts: Sequence[Tokens], references: Sequence[Tokens], seed: int
) -> list[Mixture]:
    """Mixtures of 2, 3, … routes, the first of ``routes`` among them; none where no token is a choice."""
    items, answers, examples = make_token_items(frozen, prompts, references)
    if not items:
        return []
    scored = score_choices_for_routes(frozen.model, routes, items)
    scores = np.full((len(routes), len(items), max(len(item.choices) for item in items)), np.nan)
    for row, route in zip(scores, routes, strict=True):
        for cells, values in zip(row, scored[route], strict=True):
            cells[: len(values)] = values
    path = choose_members(scores, np.array(answers), MAX_MEMBERS, seed, groups=np.array(examples))
    return [make_mixture(routes, members.indices, members.weights) for members in path[1:]]


# --- self-consistency -----------------------------------------------------------------------------------------------


@torch.no_grad()
def sample_answers(
    frozen: FrozenModel, task: Task, examples: Sequence[Example], decoding: DecodingSettings, seed: int
) -> list[list[ExampleOutcome]]:
    """``SAMPLES`` sampled answers to every example: greedy choices after Gumbel noise are samples."""
    generator = torch.Generator(frozen.model.device).manual_seed(seed)

    def add_noise(_module: Any, _inputs: Any, logits: torch.Tensor) -> torch.Tensor:
        noise = torch.empty(logits.shape, device=logits.device).exponential_(generator=generator).log_()
        return logits.float() / TEMPERATURE - noise

    prompts, stages = encode_prompts_and_generation_stages(frozen, task, examples, decoding)
    release_fused_decoder(frozen)
    hook = frozen.model.get_output_embeddings().register_forward_hook(add_noise)
    try:
        texts = [
            generate_reasoning_then_answer(frozen.model, prompts, stages, _SAMPLED_BATCH_TOKENS) for _ in range(SAMPLES)
        ]
    finally:
        hook.remove()
    return [grade_texts(frozen, task, examples, sample) for sample in texts]


def vote(grader: Grader, example: Example, samples: Sequence[ExampleOutcome]) -> ExampleOutcome:
    """The sample with the most common answer, the earliest of equally common ones.

    Answers are equal where the grader takes one for the other; a text without an answer has no vote.
    """
    answered = [sample for sample in samples if sample.prediction] or samples

    def count_votes(sample: ExampleOutcome) -> int:
        return sum(
            other.prediction == sample.prediction
            or grader(other.prediction, sample.prediction, example.choices).correct
            for other in answered
        )

    return max(answered, key=count_votes)


# --- running --------------------------------------------------------------------------------------------------------


def list_missing(arguments: argparse.Namespace, frozen: FrozenModel) -> Iterator[Job]:
    """Settings that are not kept yet."""
    name = Path(frozen.name).name
    done = {(line["model"], line["setting"], line["seed"]) for line in read_kept(arguments.kept)}
    for seed in SEEDS:
        for setting in arguments.only.split(",") if arguments.only else SETTINGS:
            if (name, setting, seed) not in done and is_selected(arguments, GRID, seed):
                yield f"{name}, {setting}, seed {seed}", partial(run_setting, arguments, setting, seed, frozen)


def run_setting(arguments: argparse.Namespace, setting: str, seed: int, frozen: FrozenModel) -> Line:
    """Learn on training examples, then answer the test set in every way."""
    name, decoding = SETTINGS[setting]
    task = load_task(name, data_dir=arguments.data_dir, seed=seed)
    splits = make_splits(task, seed=seed, training=FITTED + REFITTED)
    test = splits.test[:TESTED]
    start = time.perf_counter()
    with closing(ScoreStore(arguments.runs / f"{setting}-{seed}.sqlite")) as store:
        evaluator = Evaluator(frozen, task, decoding, store)
        answers = answer_in_every_way(evaluator, splits.train, test, seed)
    seconds = time.perf_counter() - start

    def average(name: str) -> dict[str, float]:
        return {
            way: float(np.mean([getattr(outcome, name) for outcome in answer.outcomes]))
            for way, answer in answers.items()
        }

    return {
        "model": Path(frozen.name).name,
        "setting": setting,
        "seed": seed,
        "commit": current_commit(),
        "hardware": describe_hardware(str(frozen.model.device)),
        "layers": frozen.layers,
        "seconds": seconds,
        "verdict": answers[GRID].text,
        "examples": [example.id for example in test],
        "right": {
            way: pack_verdicts(outcome.correct for outcome in answer.outcomes) for way, answer in answers.items()
        },
        "routes": {way: answer.text for way, answer in answers.items()},
        "costs": {way: answer.cost for way, answer in answers.items()},
        "truncated": average("truncated"),
        "tokens": average("generated_token_count"),
    }


def answer_in_every_way(
    evaluator: Evaluator, train: Sequence[Example], test: Sequence[Example], seed: int
) -> dict[str, Answers]:
    """The test answers by title."""
    frozen, decoding = evaluator.frozen, evaluator.decoding
    standard = Route.standard(frozen.layers)
    routes: dict[str, RouteOrMixture] = {STANDARD: standard, **search_grid(evaluator, train)}
    if decoding.mode == "direct":
        fitted = train[: FITTED + REFITTED]
        members = [standard, *list_single_skips(frozen.layers, 2 * SINGLE_SKIPS)]
        prompts = encode_prompts(frozen, evaluator.task, fitted, decoding)
        mixtures = fit_to_references(frozen, members, prompts, encode_references(frozen, fitted), seed)
        # The standard pass where no other member helps in cross-validation.
        routes["references"] = mixtures[-1] if mixtures else standard
    evaluations = evaluator.evaluate(list(routes.values()), test)
    answers = {
        way: Answers(str(route), route.length / route.layers, evaluations[route].outcomes)
        for way, route in routes.items()
    }
    sampled = sample_answers(frozen, evaluator.task, test, decoding, seed)
    voted = [
        vote(evaluator.task.grader, example, samples)
        for example, samples in zip(test, zip(*sampled, strict=True), strict=True)
    ]
    return {**answers, SELF_CONSISTENCY: Answers(f"{SAMPLES} samples of the standard pass", SAMPLES, voted)}


# --- tables ---------------------------------------------------------------------------------------------------------


def make_rows(kept: Path) -> list[Line]:
    """A line per model, setting and way to answer."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in read_kept(kept):
        groups.setdefault((line["model"], line["setting"]), []).append(line)
    rows = [
        make_row(f"{model}, {setting.replace('-', ', ')}", way, lines)
        for (model, setting), lines in sorted(groups.items())
        for way in lines[0]["right"]
    ]
    compared = [row for row in rows if row["p"] is not None]
    for row, p in zip(compared, holm_correction([row["p"] for row in compared]), strict=True):
        row["p_holm"] = p
    return rows


def make_row(setting: str, way: str, lines: Sequence[Line]) -> Line:
    """Means over seeds, and the paired difference to the standard pass."""

    def average(name: str) -> float:
        return float(np.mean([line[name][way] for line in lines]))

    texts = list(dict.fromkeys(line["routes"][way] for line in lines))
    is_same = all(line["routes"][way] == line["routes"][STANDARD] for line in lines)
    pairs = [(read_correct(line, STANDARD), read_correct(line, way)) for line in lines]
    gain: Mapping[str, float | None] = dict.fromkeys(("difference", "low", "high", "p"))
    if not is_same:
        estimate = estimate_difference_over_seeds([pairs])
        gain = {
            "difference": 100 * estimate.mean,
            "low": 100 * estimate.low,
            "high": 100 * estimate.high,
            "p": estimate.p_value,
        }
    return {
        "setting": setting,
        "way": way,
        "mixture": "; ".join(texts),
        "layers": average("costs"),
        "accuracy": 100 * float(np.mean([np.mean(list(compared.values())) for _, compared in pairs])),
        **gain,
        "p_holm": None,
        "truncated": 100 * average("truncated"),
        "tokens": average("tokens"),
        "n": len({example for line in lines for example in line["examples"]}),
        "seeds": len(lines),
    }


def main() -> None:
    """Run, or collect."""
    arguments = make_parser(__doc__, "runs/mixture_answers", KEPT).parse_args()
    run_missing(arguments, GRID, list_missing)
    rows = make_rows(arguments.kept)
    print_rows(rows)
    if arguments.write:
        lines = read_kept(arguments.kept)
        write_kept_record(
            arguments.write, "experiments.mixture_answers", lines, COLUMNS, rows, fitted=FITTED + REFITTED
        )


if __name__ == "__main__":
    main()
