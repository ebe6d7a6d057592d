"""What ``macro bench`` times: shared engine against single routes, racing, fused decoding against ``generate``."""

import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from macro_routing.engine.batching import Tokens, pad_left
from macro_routing.engine.generation import DecodingStage, GenerationRequest, max_new_tokens
from macro_routing.engine.memory import BatchLimit, run_halving_on_oom
from macro_routing.engine.prefix_tree import plan_prefix_tree
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.model_answers import answer_examples, answer_with_every_route
from macro_routing.evaluation.outcomes import ExampleOutcome
from macro_routing.evaluation.score_store import ScoreStore
from macro_routing.evaluation.scoring_settings import NEVER
from macro_routing.models.frozen import FrozenModel
from macro_routing.models.routing import apply_route
from macro_routing.routes.route import Route, Step
from macro_routing.routes.space import RouteSpace
from macro_routing.search.macro import select_elite
from macro_routing.search.policy import MarkovPolicy
from macro_routing.tasks.task import Example, Task

_CHUNKS = 6
"""Both paths take turns on chunks of the examples, so that a machine that slows down slows both."""
_REPEATED_BLOCK_SIZES = (1, 2, 3, 5)


def draw_routes_from_prior(layers: int, draws: int, seed: int) -> list[Route]:
    """Routes as a search draws them before it has learnt anything; some may be equal."""
    policy, rng = MarkovPolicy.make_prior(RouteSpace(layers)), np.random.default_rng(seed)
    return [policy.sample_program(rng).to_route(layers) for _ in range(draws)]


def make_repeat_and_skip_routes(layers: int) -> list[Route]:
    """The standard route, all single repeats of blocks of a few layers, and all single skips."""
    standard = list(range(layers))
    repeats = [
        standard[: start + size] + standard[start:]
        for size in _REPEATED_BLOCK_SIZES
        for start in range(layers - size + 1)
    ]
    skips = [[layer for layer in standard if layer != skipped] for skipped in range(1, layers)]
    orders = [standard, *repeats, *skips]
    return list(dict.fromkeys(Route(tuple(map(Step, order)), layers) for order in orders))


def measure_seconds(run: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Seconds until the device has finished, and the result."""
    import torch

    synchronize: Callable[[], None] = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    synchronize()
    start = time.perf_counter()
    result = run(*arguments)
    synchronize()
    return time.perf_counter() - start, result


# --- shared engine against one route after the other ----------------------------------------------------------------


def time_joint_route_scoring(
    frozen: FrozenModel, task: Task, routes: Sequence[Route], examples: Sequence[Example], decoding: DecodingSettings
) -> dict[str, Any]:
    """Score different routes together and one after the other, on the same examples; a record for a JSON file."""
    routes = list(dict.fromkeys(routes))
    size = -(-len(examples) // _CHUNKS)
    answer_with_every_route(frozen, routes[:1], task, examples[:1], decoding)  # set-up that happens once is not timed
    timings = [
        (
            measure_seconds(_answer_route_by_route, frozen, routes, task, chunk, decoding),
            measure_seconds(answer_with_every_route, frozen, routes, task, chunk, decoding),
        )
        for chunk in (examples[start : start + size] for start in range(0, len(examples), size))
    ]
    plain_chunks = tuple(seconds for (seconds, _), _ in timings)
    shared_chunks = tuple(seconds for _, (seconds, _) in timings)
    changed = sum(
        plain.correct != shared.correct
        for (_, plain_outcomes), (_, shared_outcomes) in timings
        for route in routes
        for plain, shared in zip(plain_outcomes[route], shared_outcomes[route], strict=True)
    )
    return {
        "routes": len(routes),
        "examples": len(examples),
        # Highest possible speed-up: layer applications of all routes over those of their prefix tree.
        "limit": plan_prefix_tree(routes).sharing_factor,
        "plain_chunks": plain_chunks,  # seconds, one route after the other
        "shared_chunks": shared_chunks,  # seconds, all routes together
        "changed_verdicts": changed,
        "speedup": statistics.median(plain / shared for plain, shared in zip(plain_chunks, shared_chunks, strict=True)),
    }


def _answer_route_by_route(
    frozen: FrozenModel, routes: Sequence[Route], task: Task, examples: Sequence[Example], decoding: DecodingSettings
) -> dict[Route, list[ExampleOutcome]]:
    return {route: answer_examples(frozen, apply_route(frozen, route), task, examples, decoding) for route in routes}


# --- racing -----------------------------------------------------------------------------------------------------------


def benchmark_racing(  # noqa: PLR0913
    frozen: FrozenModel,
    task: Task,
    draws: Sequence[Route],
    examples: Sequence[Example],
    elite: int,
    decoding: DecodingSettings,
) -> dict[str, Any]:
    """Race the draws, then score the rest too, and compare both elites; a record for a JSON file."""
    with tempfile.TemporaryDirectory() as folder:
        store = ScoreStore(Path(folder) / "scores.sqlite")
        evaluator = Evaluator(frozen, task, decoding, store)
        race_seconds, raced = measure_seconds(evaluator.race_draws, draws, examples, elite)
        rest_seconds, full = measure_seconds(evaluator.race_draws, draws, examples, elite, NEVER)
        store.close()
    return {
        "draws": len(draws),
        "distinct_routes": len(set(draws)),
        "examples": len(examples),
        "elite": elite,
        "requested": raced.requested,  # evaluations (draw × example) of the round
        "repeated": raced.duplicates,  # evaluations saved because draws repeat
        "stopped": raced.stopped,  # evaluations saved because the race stopped draws early
        "same_elite": select_elite(raced.outcomes, elite) == select_elite(full.outcomes, elite),
        "race_seconds": race_seconds,
        "full_seconds": race_seconds + rest_seconds,
    }


# --- fused decoding against generate ------------------------------------------------------------------------------


def time_fused_decoding(  # noqa: PLR0913
    decoder: Any,
    model: Any,
    routes: Sequence[Route],
    compared: Sequence[Route],
    prompts: Sequence[Tokens],
    stages: Sequence[DecodingStage],
    repeats: int = 1,
) -> dict[str, Any]:
    """Decode ``compared`` by fused decoding and ``model.generate``, and all ``routes`` by fused decoding.

    Both run the same prompts to the same lengths once before they are timed; times are medians of ``repeats``. There
    are no end tokens, so all rows use up their budgets. Returns a record for a JSON file.
    """
    import torch

    stages = tuple(dataclasses.replace(stage, end_tokens=frozenset()) for stage in stages)
    request = GenerationRequest(stages)
    routed_models = [apply_route(model, route, allow_untested=True) for route in compared]
    rows = _generate_with_transformers(routed_models[0], prompts, stages)
    generate_samples = [
        measure_repeatedly(partial(_generate_with_transformers, routed, prompts, stages), repeats)
        for routed in routed_models
    ]
    decoder.generate_for_routes(compared, prompts, request)
    fused_samples = measure_repeatedly(partial(decoder.generate_for_routes, compared, prompts, request), repeats)
    decoder.generate_for_routes(routes, prompts, request)
    torch.cuda.reset_peak_memory_stats()
    all_samples = measure_repeatedly(partial(decoder.generate_for_routes, routes, prompts, request), repeats)
    compared_steps, all_steps = (sum(route.length for route in group) for group in (compared, routes))
    generate_seconds = tuple(map(statistics.median, generate_samples))
    fused_seconds, all_seconds = statistics.median(fused_samples), statistics.median(all_samples)
    return {
        "prompts": len(prompts),
        "tokens_per_row": max_new_tokens(stages),
        "compared_routes": tuple(map(str, compared)),
        "compared_steps": compared_steps,  # layer applications per token of these routes
        "generate_seconds": generate_seconds,  # by route
        "generate_samples": generate_samples,
        "generate_rows": rows,  # of the batches of generate
        "fused_seconds": fused_seconds,  # the compared routes together
        "fused_samples": fused_samples,
        "all_routes": len(routes),
        "all_steps": all_steps,
        "all_seconds": all_seconds,  # fused decoding of all routes together
        "all_samples": all_samples,
        "peak_bytes": int(torch.cuda.max_memory_allocated()),
        "speedup": sum(generate_seconds) / fused_seconds,
        # All routes against generate, per layer application, since routes differ in length.
        "speedup_per_step": (sum(generate_seconds) / compared_steps) / (all_seconds / all_steps),
    }


def measure_repeatedly(run: Callable[[], Any], repeats: int) -> list[float]:
    """Seconds of each of some runs."""
    return [measure_seconds(run)[0] for _ in range(repeats)]


def _generate_with_transformers(model: Any, prompts: Sequence[Tokens], stages: Sequence[DecodingStage]) -> int:
    """Run ``model.generate`` stage after stage in the largest batch that fits; returns its number of rows."""
    limit = BatchLimit(len(prompts))
    run_halving_on_oom(partial(_generate_batch, model, stages), prompts, lambda _message: None, limit)
    return int(limit.max_items)


def _generate_batch(model: Any, stages: Sequence[DecodingStage], prompts: Sequence[Tokens]) -> list[Tokens]:
    from transformers import GenerationConfig

    for stage in stages:
        settings = GenerationConfig(  # type: ignore[no-untyped-call]
            max_new_tokens=stage.max_tokens,
            do_sample=False,
            eos_token_id=sorted(stage.end_tokens) or None,
            pad_token_id=0,
            use_cache=True,
        )
        ids, mask = pad_left(prompts, model.device)
        texts = model.generate(ids, attention_mask=mask, generation_config=settings)[:, ids.shape[1] :].tolist()
        prompts = [(*prompt, *text, *stage.forced_tokens) for prompt, text in zip(prompts, texts, strict=True)]
    return list(prompts)
