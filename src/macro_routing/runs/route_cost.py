"""What a route costs beside the standard pass: layers, time per token, memory; measured on training prompts.

Both routes write the same number of tokens after the same prompts, turn by turn, so that a machine that slows down
slows both. Where the standard pass is the result, nothing is timed. Memory is measured where the device counts it
(CUDA); elsewhere it is said to be not measured.
"""

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy
import torch

from macro_routing.engine.batching import Tokens
from macro_routing.engine.generation import generate_greedy
from macro_routing.engine.memory import cache_bytes_per_token, is_out_of_memory
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.model_answers import encode_prompts
from macro_routing.models.routing import apply_route
from macro_routing.routes.mixture import RouteOrMixture, to_mixture
from macro_routing.tasks.task import Example

FORMAT = "macro-cost/1"
PROMPTS, TOKENS, MIN_TURNS, MAX_TURNS = 4, 4, 3, 20
MAX_SECONDS = 20.0
"""No further turn is begun after these, but ``MIN_TURNS`` are always made: fewer say too little of their noise."""
USEFUL_NOISE = 0.05
"""Turns end when the ratio of the two times is known this well; the report shows a larger uncertainty."""
_MAX_LOG_NOISE = 10.0
_Turn = tuple[float, float, int | None]
"""Seconds with one token, seconds with all tokens, peak bytes."""
_NO_END = (-1,)
"""No token has this number, so every text is written to its budget."""


def measure_cost(
    evaluator: Evaluator,
    routes: Sequence[RouteOrMixture],
    examples: Sequence[Example],
    max_seconds: float = MAX_SECONDS,
) -> dict[str, Any]:
    """The cost of ``routes``; where measuring fails, the reason is kept instead."""
    frozen = evaluator.frozen
    slot = cache_bytes_per_token(frozen.model)
    cost: dict[str, Any] = {
        "format": FORMAT,
        "device": str(frozen.model.device),
        "prompts": min(PROMPTS, len(examples)),
        "tokens": TOKENS,
        "routes": {
            str(route): {"layers": route.length, "cache_bytes_per_token": slot * route.length} for route in routes
        },
    }
    if len(routes) == 1:
        cost["not_measured"] = "the result is the standard pass, so there is nothing to compare"
        return cost
    if any(to_mixture(route).compares_choices_only for route in routes):
        cost["not_measured"] = "the result only compares choices, and the time of written tokens is what is measured"
        return cost
    try:
        prompts = encode_prompts(frozen, evaluator.task, examples[:PROMPTS], evaluator.decoding)
        for route, measured in _time_routes(evaluator, routes, prompts, max_seconds).items():
            cost["routes"][str(route)].update(measured)
    except Exception as error:  # noqa: BLE001 a run must not fail at its end for want of a side measurement
        reason = "memory ran out" if is_out_of_memory(error) else f"{type(error).__name__}: {error}"
        cost["not_measured"] = reason[:300]
    return cost


def _time_routes(
    evaluator: Evaluator, routes: Sequence[RouteOrMixture], prompts: list[Tokens], max_seconds: float
) -> dict[RouteOrMixture, dict[str, Any]]:
    """Turn by turn, until the ratio of the routes' times is known well or time is up."""
    models = {route: apply_route(evaluator.frozen, route) for route in routes}
    for model in models.values():
        generate_greedy(model, prompts, _NO_END, 2)  # what is done once is not timed
    turns: dict[RouteOrMixture, list[_Turn]] = {route: [] for route in routes}
    started = time.perf_counter()
    for turn in range(MAX_TURNS):
        if turn >= MIN_TURNS and (
            time.perf_counter() - started > max_seconds or _uncertainty_of_ratio(list(turns.values())) <= USEFUL_NOISE
        ):
            break
        for route, model in models.items():
            turns[route].append(_time_one_repeat(model, prompts))
    noise = _uncertainty_of_ratio(list(turns.values()))
    return {route: {**_take_fastest_timing(rows), "noise": noise} for route, rows in turns.items()}


def _uncertainty_of_ratio(rows: Sequence[Sequence[_Turn]]) -> float:
    """Half the width of the 95 % interval of the ratio of two routes' times, as a share; pairs are of one turn.

    What slows a whole turn down slows both of its halves, so it cancels. The interval is Student's, of the logarithm;
    it is valid for three turns, too.
    """
    first, *others = [np.log([[begun, max(whole - begun, 1e-9)] for begun, whole, _ in turns]) for turns in rows]
    count = len(first)
    spread = np.max([np.std(other - first, axis=0, ddof=1) for other in others])
    return math.expm1(min(scipy.stats.t.ppf(0.975, count - 1) * spread / math.sqrt(count), _MAX_LOG_NOISE))


def _time_one_repeat(model: Any, prompts: list[Tokens]) -> _Turn:
    """Seconds to read the prompts and write one token each, seconds with all tokens, and the peak of memory."""
    on_gpu = model.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(model.device)
    begun: list[float] = []  # of every forward pass: the token before has been looked at, so the device has finished it
    handle = model.register_forward_pre_hook(lambda *_: begun.append(time.perf_counter()))
    try:
        generate_greedy(model, prompts, _NO_END, 1 + TOKENS)
    finally:
        handle.remove()
    whole = time.perf_counter() - begun[0]
    first = sum(begun[index + 1] - begun[index] for index in range(0, len(begun), 1 + TOKENS))  # of every batch
    peak = int(torch.cuda.max_memory_allocated(model.device)) if on_gpu else None
    return first, whole, peak


def _take_fastest_timing(turns: Sequence[_Turn]) -> dict[str, Any]:
    """The fastest turn counts: whatever else the machine does can only slow one down."""
    firsts, wholes, peaks = zip(*turns, strict=True)
    return {
        "prompt_seconds": min(firsts),
        "token_seconds": max(min(wholes) - min(firsts), 0.0) / TOKENS,
        "peak_bytes": None if peaks[0] is None else max(peaks),
        "turns": len(turns),
    }
