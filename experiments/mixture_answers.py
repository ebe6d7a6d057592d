"""Weights of mixtures for written answers: two ways to learn them, judged on other training examples.

    python -m experiments.mixture_answers MODEL [--task counting] [--mode direct] [--fitted 80] [--judged 200]
        [--routes 20] [--write docs/data/mixture_answers.json]

*Reference*: every token of a reference answer is a choice among the tokens that the standard pass finds plausible;
weights by the regression that compares choices by likelihood. *Grid*: a few routes with a few weights, the mixture
whose written answers are most often correct. Only training examples are used.
"""

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.record import write_record
from macro_routing.engine.batching import Tokens
from macro_routing.engine.likelihood import ChoiceItem, score_choices_for_routes
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.mixture_weights import choose_members, make_mixture
from macro_routing.evaluation.model_answers import encode_prompts
from macro_routing.evaluation.outcomes import RouteEvaluation
from macro_routing.evaluation.score_store import ScoreStore
from macro_routing.evaluation.statistics import compare_paired
from macro_routing.models import FrozenModel, load_model
from macro_routing.models.mixing import PLAUSIBILITY
from macro_routing.routes import Route
from macro_routing.routes.mixture import Mixture, RouteOrMixture
from macro_routing.tasks import load_task, make_splits
from macro_routing.tasks.task import Example, Task

SEED = 1
MAX_MEMBERS = 3
GRID_WEIGHTS = (0.25, 0.6)
"""Weights of the subtracted route; the standard pass has 1 plus this."""
GRID_ROUTES = 4
COLUMNS = {
    "way": "weights from",
    "mixture": "mixture",
    "layers": "layers applied, × the model's",
    "accuracy": "correct (%)",
    "difference": "gain over the standard pass, points",
    "low": "95 % interval, from",
    "high": "to",
    "n": "examples",
}


def list_members(layers: int, count: int) -> list[Route]:
    """The standard pass, then without one of its layers, spread over the depth."""
    plain = list(range(layers))
    skipped = np.unique(np.linspace(1, layers - 1, count - 1).astype(int))
    routes = [Route.from_layers([*plain[:layer], *plain[layer + 1 :]], layers) for layer in skipped]
    return [Route.standard(layers), *routes]


# --- references -----------------------------------------------------------------------------------------------------


def encode_references(frozen: FrozenModel, examples: Sequence[Example]) -> list[Tokens]:
    """The tokens of the examples' answers, and the end token."""
    texts = frozen.tokenize_texts([example.answer for example in examples], add_special_tokens=False)
    end = int(frozen.tokenizer.eos_token_id)
    return [(*tokens, end) for tokens in texts]


@torch.no_grad()
def make_token_items(
    frozen: FrozenModel, prompts: Sequence[Tokens], references: Sequence[Tokens]
) -> tuple[list[ChoiceItem], list[int]]:
    """Each token of a reference as a choice among plausible ones, where it is plausible itself, and its index."""
    items, answers = [], []
    for prompt, reference in zip(prompts, references, strict=True):
        ids = torch.tensor([[*prompt, *reference[:-1]]], device=frozen.model.device)
        log_probs = frozen.model(ids, use_cache=False, logits_to_keep=len(reference)).logits[0].float().log_softmax(-1)
        for place, (token, row) in enumerate(zip(reference, log_probs, strict=True)):
            plausible = torch.nonzero(row >= row.max() + np.log(PLAUSIBILITY))[:, 0].tolist()
            if token in plausible and len(plausible) > 1:
                items.append(ChoiceItem((*prompt, *reference[:place]), tuple((one,) for one in plausible)))
                answers.append(plausible.index(token))
    return items, answers


def fit_to_references(
    frozen: FrozenModel, routes: Sequence[Route], prompts: Sequence[Tokens], references: Sequence[Tokens]
) -> tuple[list[Mixture], int]:
    """Mixtures of 2, 3, … routes, and the number of tokens that the weights were fitted to."""
    items, answers = make_token_items(frozen, prompts, references)
    scored = score_choices_for_routes(frozen.model, routes, items)
    scores = np.full((len(routes), len(items), max(len(item.choices) for item in items)), np.nan)
    for row, route in zip(scores, routes, strict=True):
        for cells, values in zip(row, scored[route], strict=True):
            cells[: len(values)] = values
    path = choose_members(scores, np.array(answers), MAX_MEMBERS, SEED)
    return [make_mixture(routes, members.indices, members.weights) for members in path[1:]], len(items)


# --- grid -----------------------------------------------------------------------------------------------------------


def list_grid(routes: Sequence[Route]) -> list[Mixture]:
    """The standard pass minus one route, for a few routes and weights."""
    chosen = [routes[index] for index in np.linspace(1, len(routes) - 1, GRID_ROUTES).astype(int)]
    return [
        Mixture.from_weights([(routes[0], 1 + weight), (route, -weight)]) for route in chosen for weight in GRID_WEIGHTS
    ]


# --- judging --------------------------------------------------------------------------------------------------------


def judge(way: str, route: RouteOrMixture, evaluations: Mapping[RouteOrMixture, RouteEvaluation]) -> dict[str, Any]:
    """A line of the table."""
    standard = Route.standard(route.layers)
    evaluation, baseline = evaluations[route], evaluations[standard]
    same = route == standard
    comparison = compare_paired(baseline.correct, evaluation.correct, seed=SEED, is_same_route=same)
    return {
        "way": way,
        "mixture": f"`{route}`",
        "layers": route.length / route.layers,
        "accuracy": 100 * comparison.routed,
        "difference": None if same else 100 * comparison.difference,
        "low": None if same else 100 * comparison.low,
        "high": None if same else 100 * comparison.high,
        "n": comparison.n,
        "truncated": evaluation.truncated_share,
        "tokens": evaluation.mean_tokens,
        "p_value": None if same else comparison.p_value,
    }


def run(
    arguments: argparse.Namespace, frozen: FrozenModel, task: Task, evaluator: Evaluator
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Fit by both ways, then judge."""
    train = make_splits(task, seed=SEED, training=arguments.fitted + arguments.judged).train
    fitted, judged = train[: arguments.fitted], train[arguments.fitted :]
    routes = list_members(frozen.layers, arguments.routes)
    prompts = encode_prompts(frozen, task, fitted, evaluator.decoding)
    mixtures, tokens = fit_to_references(frozen, routes, prompts, encode_references(frozen, fitted))
    print(f"{tokens} tokens of {len(fitted)} references: {list(map(str, mixtures))}", flush=True)
    grid = list_grid(routes)
    by_grid = evaluator.evaluate(list[RouteOrMixture]([routes[0], *grid]), fitted)
    counts = {str(route): sum(evaluation.correct) for route, evaluation in by_grid.items()}
    print(counts, flush=True)
    best = max(grid, key=lambda mixture: sum(by_grid[mixture].correct))
    ways: list[tuple[str, RouteOrMixture]] = [
        ("standard pass", routes[0]),
        *((f"references, {len(mixture.members)} routes", mixture) for mixture in mixtures),
        ("grid", best),
    ]
    evaluations = evaluator.evaluate([route for _, route in ways], judged)
    summary = {"fitted_tokens": tokens, "fitted": len(fitted), "grid": counts}
    return [judge(way, route, evaluations) for way, route in ways], summary


def main() -> None:
    """Fit, judge, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--task", default="counting")
    parser.add_argument("--mode", choices=("direct", "reasoning"), default="direct")
    parser.add_argument("--answer-budget", type=int, default=24)
    parser.add_argument("--fitted", type=int, default=80)
    parser.add_argument("--judged", type=int, default=200)
    parser.add_argument("--routes", type=int, default=20)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--store", type=Path, help="keep the answers here, to go on after an interruption")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    frozen = load_model(arguments.model)
    task = load_task(arguments.task, data_dir=arguments.data_dir, seed=SEED)
    decoding = DecodingSettings(arguments.mode, answer_budget=arguments.answer_budget)
    store = ScoreStore(arguments.store) if arguments.store else None
    rows, summary = run(arguments, frozen, task, Evaluator(frozen, task, decoding, store))
    for row in rows:
        print(row, flush=True)
    if arguments.write:
        write_record(
            arguments.write,
            command=f"python -m experiments.mixture_answers {Path(arguments.model).name} --task {arguments.task}"
            f" --mode {arguments.mode} --answer-budget {arguments.answer_budget} --fitted {arguments.fitted}"
            f" --judged {arguments.judged} --routes {arguments.routes}",
            config={"model": Path(arguments.model).name, "task": arguments.task, **dataclasses.asdict(decoding)},
            seed=SEED,
            columns=COLUMNS,
            results=rows,
            summary=summary,
            device=str(frozen.model.device),
        )


if __name__ == "__main__":
    main()
