"""Mixtures on real models against single routes and the controls of contrastive decoding, choices by likelihood.

    python -m experiments.mixture_quality MODEL --runs FOLDER [--amateur SMALLER_MODEL] [--data-dir FOLDER]
        [--minutes 20] [--only sciq] [--seeds 1,2] [--share 0.1] [--kept FILE]
    python -m experiments.mixture_quality [--write docs/data/mixture_quality.json]

The first runs what is missing and keeps a line a search; the second makes the tables of what is kept. Tasks, seeds,
budget and ``--max-cost 2`` are those of docs/results/search_protocol.md. Controls learn from the same training examples
as the mixture, and the best of them is the one with the highest training accuracy.
"""

import argparse
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import ROOT
from experiments.kept_searches import (
    Job,
    Line,
    describe_search,
    format_difference,
    print_rows,
    read_correct,
    read_kept,
    run_missing,
    write_kept_record,
)
from experiments.method_comparison import BUDGET, SEEDS, is_selected, make_parser
from macro_routing.evaluation.mixture_weights import (
    Scores,
    choose_members,
    combine_scores,
    fit_weights,
    pick_choices,
)
from macro_routing.evaluation.statistics import holm_correction
from macro_routing.routes.mixture import Mixture, parse_mixture
from macro_routing.routes.route import Route
from macro_routing.search.fixed_route_count_search import list_early_exit_routes

KEPT = ROOT / "experiments" / "raw" / "mixture_quality.jsonl"
TASKS = ("sciq", "arc_easy", "openbookqa", "medqa", "mmlu_pro")
MAX_COST = 2.0
CONTRAST = (1.5, -0.5)
"""Weights of the stronger and the weaker prediction, those of contrastive decoding."""
STANDARD, SINGLE, RETURNED, FITTED, BEST_CONTROL = "standard", "single", "returned", "fitted", "best control"
PMI, DOLA, SKIP, AVERAGE, READOUTS, AMATEUR = CONTROLS = (
    "PMI", "DoLa, static", "SkipLayerCD", "average", "read-outs", "smaller model",
)  # fmt: skip
PMI_AND_MIXTURE = "PMI and mixture"
COLUMNS = {
    "setting": "model, task",
    STANDARD: "standard (%)",
    SINGLE: "best single route",
    RETURNED: "returned",
    FITTED: "mixture before the decision",
    BEST_CONTROL: "best control",
    **{name: name for name in CONTROLS},
    PMI_AND_MIXTURE: "PMI and mixture",
    "layers": "layers applied, × the model's",
    "seeds": "seeds",
}
SUMMARY = {
    "compared": "compared",
    "mean": "mean difference, points",
    "low": "95 % interval, from",
    "high": "to",
    "p": "p",
    "p_holm": "p (Holm)",
    "settings": "model × task",
}
COMPARED = (
    (RETURNED, STANDARD),
    (RETURNED, SINGLE),
    (RETURNED, BEST_CONTROL),
    (FITTED, STANDARD),
    (FITTED, BEST_CONTROL),
    (PMI_AND_MIXTURE, PMI),
)


class Prediction(NamedTuple):
    """Which choice a way to predict prefers, on training and test examples."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]


def list_missing(arguments: argparse.Namespace, frozen: Any) -> Iterator[Job]:
    """Searches that are not kept yet."""
    from macro_routing.models import load_model

    amateur = load_model(arguments.amateur) if arguments.amateur else None
    name = Path(frozen.name).name
    done = {(line["model"], line["task"], line["seed"]) for line in read_kept(arguments.kept)}
    tasks = arguments.only.split(",") if arguments.only else TASKS
    for seed in SEEDS:
        for task in tasks:
            if (name, task, seed) not in done and is_selected(arguments, RETURNED, seed):
                yield f"{name}, {task}, seed {seed}", partial(run_setting, arguments, task, seed, frozen, amateur)


def run_setting(arguments: argparse.Namespace, task: str, seed: int, frozen: Any, amateur: Any) -> Line:
    """One search, then everything it is compared with on the same training and test examples."""
    from macro_routing.runs import make_run_config
    from macro_routing.runs.folder import CANDIDATES, RunFolder
    from macro_routing.runs.prepare import prepare_run, run_search

    config = make_run_config(
        task,
        arguments.model,
        method="guided",
        seed=seed,
        budget=arguments.budget,
        data={"data_dir": str(arguments.data_dir)} if arguments.data_dir else {},
        decoding={"mode": "likelihood"},
        decision={"max_cost": MAX_COST},
    )
    folder = arguments.runs / f"{Path(task).stem}-{seed}"
    store = folder.with_suffix(".sqlite")
    start = time.perf_counter()
    result = run_search(config, folder, frozen=frozen, store=store)
    seconds = time.perf_counter() - start
    run = prepare_run(config, frozen=frozen, store=store)
    search: Any = run.searcher
    train = [run.splits.train[index] for index in search.searched_examples]
    members = search.list_member_candidates(RunFolder.open(folder).load_last_state())
    with closing(run.score_store):
        trained = run.evaluator.evaluate(members, train)
        by_accuracy = sorted(members, key=lambda route: -sum(trained[route].correct))
        texts = [line["route"] for line in RunFolder.open(folder).read_json(CANDIDATES)["candidates"]]
        mixtures = [parse_mixture(text, frozen.layers) for text in texts]
        fitted = max(mixtures, key=lambda mixture: len(mixture.members))  # the standard pass, if there is no mixture
        score = _Scorer(run.evaluator.task, train, run.splits.test)
        predictions = {
            SINGLE: score.predict(frozen, by_accuracy[:1], lambda _, __: [1.0]),
            RETURNED: score.predict_mixture(frozen, result.best_route),
            FITTED: score.predict_mixture(frozen, fitted),
            **predict_controls(score, frozen, amateur, by_accuracy),
            PMI_AND_MIXTURE: score.predict_with_pmi(frozen, fitted.routes),
        }
    standard = score.predict(frozen, [members[0]], lambda _, __: [1.0])
    known = [name for name in CONTROLS if name in predictions]
    best = max(known, key=lambda name: np.mean(predictions[name].train == score.train_answers))
    predictions |= {STANDARD: standard, BEST_CONTROL: predictions[best]}
    correct = {name: prediction.test == score.test_answers for name, prediction in predictions.items()}
    return {
        "task": task,
        "seed": seed,
        "seconds": seconds,
        "routes": {RETURNED: result.route, FITTED: str(fitted), SINGLE: str(by_accuracy[0]), BEST_CONTROL: best},
        "lengths": {RETURNED: result.best_route.length, FITTED: fitted.length},
        **describe_search(frozen, folder, result, run.splits.test, correct),
    }


FindWeights = Callable[[Scores, NDArray[np.int64]], Sequence[float]]
"""Weights from training scores and the correct choices."""


class _Scorer:
    """Log-likelihoods per byte of the choices of the same training and test examples, for any model and routes."""

    def __init__(self, task: Any, train: Sequence[Any], test: Sequence[Any]) -> None:
        self._task, self._examples, self._n = task, [*train, *test], len(train)
        answers = np.array([example.correct_choice for example in self._examples])
        self.train_answers, self.test_answers = answers[: self._n], answers[self._n :]

    def score(self, frozen: Any, routes: Sequence[Route], *, with_question: bool = True) -> Scores:
        """``[route, example, choice]``; without its question, a choice is scored for itself."""
        from macro_routing.engine.likelihood import score_choices_for_routes
        from macro_routing.evaluation.model_answers import build_choice_items, compute_choice_sizes

        examples = self._examples
        asked = examples if with_question else [dataclasses.replace(example, question="") for example in examples]
        scored = score_choices_for_routes(
            frozen.model, list(dict.fromkeys(routes)), build_choice_items(frozen, self._task, asked, by_letter=False)
        )
        scores = np.full((len(routes), len(examples), max(len(example.choices) for example in examples)), np.nan)
        sizes = [compute_choice_sizes(example, by_letter=False) for example in examples]
        for row, route in zip(scores, routes, strict=True):
            for cells, values, bytes_ in zip(row, scored[route], sizes, strict=True):
                cells[: len(values)] = np.divide(values, bytes_)
        return scores

    def pick(self, scores: Scores, weights: Sequence[float]) -> Prediction:
        """The choices of a weighted sum."""
        choices = pick_choices(combine_scores(scores, weights))
        return Prediction(choices[: self._n], choices[self._n :])

    def predict(self, frozen: Any, routes: Sequence[Route], find_weights: FindWeights) -> Prediction:
        """Weights found on the training examples."""
        scores = self.score(frozen, routes)
        return self.pick(scores, find_weights(scores[:, : self._n], self.train_answers))

    def predict_mixture(self, frozen: Any, mixture: Route | Mixture) -> Prediction:
        """A mixture with its own weights."""
        members = mixture if isinstance(mixture, Mixture) else Mixture.from_route(mixture)
        return self.predict(frozen, members.routes, lambda _, __: members.weights)

    def fit(self, scores: Scores) -> Prediction:
        """Weights by regression on the training examples."""
        return self.pick(scores, fit_weights(scores[:, : self._n], self.train_answers)[0].tolist())

    def predict_with_pmi(self, frozen: Any, routes: Sequence[Route]) -> Prediction:
        """The routes and the choice's own likelihood, with fitted weights."""
        alone = self.score(frozen, routes[:1], with_question=False)
        return self.fit(np.concatenate([self.score(frozen, routes), alone]))

    def predict_best_contrast(self, frozen: Any, weaker: Sequence[Route]) -> Prediction:
        """The standard pass against one weaker route, the one with the highest training accuracy."""
        scores = self.score(frozen, [Route.standard(frozen.layers), *weaker])
        predictions = [self.pick(scores[[0, index]], CONTRAST) for index in range(1, len(scores))]
        return max(predictions, key=lambda prediction: np.mean(prediction.train == self.train_answers))


def predict_controls(score: _Scorer, frozen: Any, amateur: Any, by_accuracy: Sequence[Route]) -> dict[str, Prediction]:
    """All controls; the smaller model only where there is one."""
    layers = frozen.layers
    standard = Route.standard(layers)
    exits = list_early_exit_routes(layers)
    plain = list(range(layers))
    span = max(1, layers // 8)
    skips = [Route.from_layers([*plain[:i], *plain[i + span :]], layers) for i in range(1, layers // 2)]

    def choose_readouts(scores: Scores, answers: NDArray[np.int64]) -> list[float]:
        members = choose_members(scores, answers, 8, seed=0)[-1]
        weights = np.zeros(len(scores))
        weights[list(members.indices)] = members.weights
        return [float(weight) for weight in weights]

    predictions = {
        PMI: score.predict_with_pmi(frozen, [standard]),
        DOLA: score.predict_best_contrast(frozen, exits[layers // 2 :: 2]),
        SKIP: score.predict_best_contrast(frozen, skips),
        AVERAGE: score.predict(frozen, by_accuracy[:3], lambda _, __: [1 / 3] * 3),
        READOUTS: score.predict(frozen, [standard, *exits[1::2]], choose_readouts),
    }
    if amateur is not None:
        weaker = score.score(amateur, [Route.standard(amateur.layers)])
        predictions[AMATEUR] = score.fit(np.concatenate([score.score(frozen, [standard]), weaker]))
    return predictions


def group_by_setting(lines: Sequence[Line]) -> dict[tuple[str, str], list[Line]]:
    """The seeds of every model and task."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        groups.setdefault((line["model"], line["task"]), []).append(line)
    return groups


def make_rows(kept: Path) -> list[Line]:
    """A line per model and task: accuracy of the standard pass, differences to it of the others."""
    rows = []
    for (model, task), same in sorted(group_by_setting(read_kept(kept)).items()):
        accuracy = np.mean([np.mean(list(read_correct(line, STANDARD).values())) for line in same])
        row: Line = {"setting": f"{model}, {task}", STANDARD: 100 * float(accuracy), "seeds": len(same)}
        for name in (SINGLE, RETURNED, FITTED, BEST_CONTROL, *CONTROLS, PMI_AND_MIXTURE):
            if name in same[0]["right"]:
                row[name] = format_difference(same, name, STANDARD)
        row["layers"] = float(np.mean([line["lengths"][RETURNED] / line["layers"] for line in same]))
        row["raw"] = {str(line["seed"]): line["routes"] for line in same}
        rows.append(row)
    return rows


def make_summary_rows(kept: Path) -> list[Line]:
    """Mean differences over all models and tasks."""
    from macro_routing.studies.paired_comparisons import estimate_difference_over_seeds

    groups = group_by_setting(read_kept(kept)).values()
    rows: list[Line] = []
    for name, other in COMPARED if groups else ():
        pairs = [[(read_correct(line, other), read_correct(line, name)) for line in same] for same in groups]
        difference = estimate_difference_over_seeds(pairs)
        points = {what: 100 * getattr(difference, what) for what in ("mean", "low", "high")}
        compared = f"{COLUMNS[name]} against {other}"
        rows.append({"compared": compared, **points, "p": difference.p_value, "settings": len(pairs)})
    corrected = holm_correction([row["p"] for row in rows])
    return [{**row, "p_holm": p} for row, p in zip(rows, corrected, strict=True)]


def main() -> None:
    """Run, or collect."""
    parser = make_parser(__doc__, "runs/mixture_quality", KEPT)
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--amateur", help="a smaller model with the same tokenizer, as a control")
    arguments = parser.parse_args()
    run_missing(arguments, RETURNED, list_missing)
    rows, summary = make_rows(arguments.kept), make_summary_rows(arguments.kept)
    print_rows([*rows, *summary])
    if arguments.write:
        lines = read_kept(arguments.kept)
        other = arguments.write.with_name(f"{arguments.write.stem}_summary.json")
        for path, columns, table in ((arguments.write, COLUMNS, rows), (other, SUMMARY, summary)):
            write_kept_record(path, "experiments.mixture_quality", lines, columns, table, max_cost=MAX_COST)


if __name__ == "__main__":
    main()
