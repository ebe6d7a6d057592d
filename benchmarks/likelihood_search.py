"""Where the seconds of a search by likelihood go, and on a GPU how many of them are outside its kernels.

    python -m benchmarks.likelihood_search MODEL [--task sciq] [--data-dir FOLDER] [--budget 43500]
        [--no-graphs] [--write docs/data/likelihood_search.json]
    python -m benchmarks.likelihood_search --shape qwen2.5-1.5b

With --no-graphs layers of small batches are called, not replayed from CUDA graphs. With a shape the weights are random
and words stand for tokens. Shape ``tiny`` has 28 layers that take no time, so what is left is the time of the host. On
a GPU a part's seconds are those until its kernels are launched; what the device still has to do then is waited for in
"copy from the device".
"""

import argparse
import os
import tempfile
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from benchmarks.fused import SHAPES, make_random_model
from benchmarks.record import write_record
from macro_routing.engine import likelihood
from macro_routing.engine.likelihood import ChoiceBatch
from macro_routing.engine.shared_forward import PrefixTreeForward
from macro_routing.evaluation import model_answers
from macro_routing.evaluation.bench import measure_seconds
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.score_store import ScoreStore
from macro_routing.models import load_model
from macro_routing.models.frozen import FrozenModel, freeze_model
from macro_routing.runs import make_run_config, prepare
from macro_routing.runs.folder import RunFolder
from macro_routing.runs.prepare import prepare_run, run_search
from macro_routing.search import GuidedSearch
from macro_routing.search.route_gp import RouteGP

SEED = 1
BUDGET = 43_500
"""Evaluations of the paper's search, and of the comparisons of methods."""
TINY = "tiny"
COLUMNS = {"part": "part", "seconds": "seconds", "share": "share (%)", "calls": "calls"}
PARTS: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    ("layers", PrefixTreeForward, ("_apply_layer",)),
    ("final norm, head and log-probabilities", likelihood, ("_score_choices_from_states",)),
    ("copy from the device", ChoiceBatch, ("split_by_item",)),
    ("tensors and masks", ChoiceBatch, ("from_padded_choice_items",)),
    ("tensors and masks", likelihood, ("split_prompts_at_common_prefix", "PrefixTreeForward")),
    ("prefix trees", likelihood, ("plan_prefix_trees",)),
    ("prompts to tokens", model_answers, ("build_choice_items",)),
    ("grading", model_answers, ("grade_choice_likelihoods",)),
    ("score store", ScoreStore, ("find_outcomes", "store_outcomes")),
    ("Gaussian process", RouteGP, ("fit", "predict_mean", "predict_gain_covariance")),
    ("proposing routes", GuidedSearch, ("_ask",)),
    ("learning from scores", GuidedSearch, ("_tell",)),
    ("run folder", RunFolder, ("save_round", "write_json", "write_manifest")),
    ("loading the task", prepare, ("load_configured_task",)),
    ("scoring, the rest", Evaluator, ("race_draws", "evaluate")),
)
"""What is timed: a part's name, and the functions of a class or module that are that part."""


class PartClock:
    """Seconds by part; a part that runs within another one does not count for that one."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()
        self._running: list[str] = []
        self._since = time.perf_counter()

    def _switch(self) -> None:
        now = time.perf_counter()
        if self._running:
            self.seconds[self._running[-1]] += now - self._since
        self._since = now

    @contextmanager
    def run_part(self, part: str) -> Iterator[None]:
        """Count the time inside for ``part``."""
        self._switch()
        self._running.append(part)
        self.calls[part] += 1
        try:
            yield
        finally:
            self._switch()
            self._running.pop()

    def time_function(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function`` with its time counted."""

        def run(*args: Any, **kwargs: Any) -> Any:
            with self.run_part(part):
                return function(*args, **kwargs)

        return run


@contextmanager
def time_parts(clock: PartClock) -> Iterator[None]:
    """Count the time of all parts."""
    with ExitStack() as patches:
        for part, owner, names in PARTS:
            for name in names:
                original = vars(owner)[name]
                timed = (
                    classmethod(clock.time_function(part, original.__func__))
                    if isinstance(original, classmethod)
                    else clock.time_function(part, original)
                )
                patches.enter_context(mock.patch.object(owner, name, timed))
        yield


class ModelOfWords(FrozenModel):
    """A model without a tokenizer: every word of a text is a token."""

    def tokenize_texts(self, texts: Sequence[str], *, add_special_tokens: bool = True) -> list[list[int]]:  # noqa: ARG002
        """The words' checksums as token ids."""
        largest = self.model.config.vocab_size - 10
        return [[10 + zlib.crc32(word.encode()) % largest for word in text.split()] for text in texts]


def make_model(model: str | None, shape: str | None) -> FrozenModel:
    """The model to search on."""
    if model is not None:
        return load_model(model)
    frozen = freeze_model(_make_tiny_model() if shape == TINY else make_random_model(str(shape)), name=str(shape))
    return ModelOfWords(frozen.name, frozen.model, None, frozen.weights_id, frozen.numerics_id)


def _make_tiny_model() -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(SEED)
    kind, sizes = SHAPES["qwen2.5-1.5b"]
    small = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1, "num_key_value_heads": 1}
    config = AutoConfig.for_model(kind, **{**sizes, **small, "head_dim": 8, "vocab_size": 512})
    return AutoModelForCausalLM.from_config(config).eval()  # type: ignore[no-untyped-call]


def measure_parts(frozen: FrozenModel, config: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Seconds of a whole search by part, and its sums."""
    clock = PartClock()
    with tempfile.TemporaryDirectory() as folder, time_parts(clock):
        begun = os.times()
        with clock.run_part("everything else"):
            result = run_search(config, Path(folder) / "run", frozen=frozen, store=Path(folder) / "scores.sqlite")
        ended = os.times()
    seconds = sum(clock.seconds.values())
    rows = [
        {"part": part, "seconds": spent, "share": 100 * spent / seconds, "calls": clock.calls[part]}
        for part, spent in sorted(clock.seconds.items(), key=lambda entry: -entry[1])
    ]
    cpu = ended.user + ended.system - begun.user - begun.system
    return rows, {"search_seconds": seconds, "cpu_seconds": cpu, "verdict": result.verdict}


SCORING = ("layers", "final norm, head and log-probabilities", "copy from the device", "tensors and masks")
"""Parts that launch kernels or wait for them."""


@contextmanager
def prepare_first_round(frozen: FrozenModel, config: Any) -> Iterator[Callable[[], Any]]:
    """What scores the routes of a search's first round on its examples."""
    with tempfile.TemporaryDirectory() as folder:
        run: Any = prepare_run(config, frozen=frozen, store=Path(folder) / "scores.sqlite")
        asked = run.searcher.ask(run.first_state)
        examples = [run.splits.train[index] for index in asked.examples]
        items = model_answers.build_choice_items(frozen, run.evaluator.task, examples, by_letter=False)
        routes = [proposal.route for proposal in asked.proposals]
        yield lambda: likelihood.score_choices_for_routes(frozen.model, routes, items)
        run.score_store.close()


def measure_kernels(frozen: FrozenModel, config: Any) -> dict[str, Any]:
    """Seconds of kernels in the first round, and without the profiler until its scores are there."""
    with prepare_first_round(frozen, config) as score:
        score()
        seconds, _ = measure_seconds(score)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            measure_seconds(score)
    averages = profiler.key_averages()
    kernels = sum(event.self_device_time_total for event in averages) / 1e6
    launched = sum(event.count for event in averages if event.self_device_time_total)
    return {"round_seconds": seconds, "round_kernel_seconds": kernels, "round_kernels": launched}


def estimate_share_outside_kernels(rows: Sequence[dict[str, Any]], kernels: dict[str, Any]) -> float:
    """The share of the search's seconds in which no kernel runs, with the first round's share for all scoring."""
    scoring = sum(row["seconds"] for row in rows if row["part"] in SCORING)
    busy = min(1.0, kernels["round_kernel_seconds"] / kernels["round_seconds"])
    return float(100 * (1 - busy * scoring / sum(row["seconds"] for row in rows)))


def main() -> None:
    """Measure, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--shape", choices=(TINY, *SHAPES))
    parser.add_argument("--task", default="category")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--budget", type=int, default=BUDGET, help="evaluations")
    parser.add_argument("--no-graphs", action="store_true")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    if (arguments.model is None) == (arguments.shape is None):
        parser.error("name a model or a --shape")
    likelihood.REPLAYS_LAYERS = not arguments.no_graphs
    frozen = make_model(arguments.model, arguments.shape)
    data = {"data_dir": str(arguments.data_dir)} if arguments.data_dir else {}
    settings: dict[str, Any] = {"budget": arguments.budget, "data": data, "decoding": {"mode": "likelihood"}}
    config = make_run_config(arguments.task, frozen.name, "default", seed=SEED, **settings)
    rows, summary = measure_parts(frozen, config)
    if frozen.model.device.type == "cuda":
        kernels = measure_kernels(frozen, config)
        summary |= {**kernels, "outside_kernels": estimate_share_outside_kernels(rows, kernels)}
    for row in rows:
        print(f"{row['part']:<45} {row['seconds']:8.2f} s {row['share']:5.1f} % {row['calls']:8} calls")
    print({name: round(value, 3) if isinstance(value, float) else value for name, value in summary.items()})
    if arguments.write:
        named = Path(arguments.model).name if arguments.model else f"--shape {arguments.shape}"
        write_record(
            arguments.write,
            command=f"python -m benchmarks.likelihood_search {'MODEL' if arguments.model else named}"
            f" --task {arguments.task} --budget {arguments.budget}{' --no-graphs' * arguments.no_graphs}"
            f" --write docs/data/{arguments.write.name}",
            config={"model": named, "task": arguments.task, "budget": arguments.budget},
            seed=SEED,
            columns=COLUMNS,
            results=rows,
            device=frozen.model.device.type,
            summary={**summary, "threads": torch.get_num_threads(), "load": os.getloadavg()[0]},
        )


if __name__ == "__main__":
    main()
