"""Decoding in flight against ``model.generate``, and against the time that its bytes need, in one run on one GPU.

Rows write to their budgets on both sides, so that both produce the same number of tokens.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from macro_routing.engine.batches import Tokens, pad_left
from macro_routing.engine.flight.boarding import Party
from macro_routing.engine.flight.decoder import FlightDecoder
from macro_routing.engine.flight.generation import generate_in_flight
from macro_routing.engine.flight.schedule import plan_ticks
from macro_routing.engine.memory import cache_bytes_per_token, is_out_of_memory
from macro_routing.engine.writing import Stage
from macro_routing.models.routing import apply_route
from macro_routing.routes.route import Route

_REPEATS = 3
_COPIED = 2 << 30
"""Bytes copied to find out how fast memory is."""


def forced(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """The same stages without end tokens: every row writes to its budgets."""
    return tuple(dataclasses.replace(stage, ends=frozenset()) for stage in stages)


# --- against generate -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Flown:
    """Seconds for the same texts."""

    prompts: int
    tokens_per_row: int
    """Tokens the model is fed after the prompt, bridges included; the same on both sides."""
    compared_steps: int
    """Layer applications per token of the routes that both sides ran, together."""
    compared_routes: tuple[str, ...]
    generate_seconds: tuple[float, ...]
    """By route."""
    generate_rows: int
    """Rows of ``generate``'s batches."""
    same_seconds: float
    """In flight, the same routes together."""
    routes: int
    steps: int
    all_seconds: float
    """In flight, all routes."""
    peak_bytes: int

    @property
    def same_speedup(self) -> float:
        """On the routes that both ran."""
        return sum(self.generate_seconds) / self.same_seconds

    @property
    def speedup(self) -> float:
        """All routes in flight against ``generate``, by layer applications, since routes differ in length."""
        return (sum(self.generate_seconds) / self.compared_steps) / (self.all_seconds / self.steps)


def measure_flight(  # noqa: PLR0913
    decoder: FlightDecoder,
    model: Any,
    routes: Sequence[Route],
    compared: Sequence[Route],
    prompts: Sequence[Tokens],
    stages: Sequence[Stage],
) -> Flown:
    """``compared`` by both sides, all ``routes`` in flight."""
    stages = forced(stages)
    short = tuple(dataclasses.replace(stage, budget=4) for stage in stages)
    generate_in_flight(decoder, compared, prompts, short)  # kernels are compiled once
    generate_plainly(model, prompts[:4], short)
    seconds, rows = [], []
    for route in compared:
        routed = apply_route(model, route, allow_untested=True)
        took, size = timed(lambda routed=routed: generate_plainly(routed, prompts, stages))  # type: ignore[misc]
        seconds.append(took)
        rows.append(size)
    same, _ = timed(lambda: generate_in_flight(decoder, compared, prompts, stages))
    torch.cuda.reset_peak_memory_stats()
    everything, _ = timed(lambda: generate_in_flight(decoder, routes, prompts, stages))
    return Flown(
        len(prompts),
        sum(stage.budget + len(stage.bridge) for stage in stages),
        sum(route.length for route in compared),
        tuple(map(str, compared)),
        tuple(seconds),
        min(rows),
        same,
        len(routes),
        sum(route.length for route in routes),
        everything,
        int(torch.cuda.max_memory_allocated()),
    )


def generate_plainly(model: Any, prompts: Sequence[Tokens], stages: Sequence[Stage]) -> int:
    """Stage after stage with ``model.generate``, in the largest batch that fits; the number of its rows."""
    rows = len(prompts)
    while True:
        try:
            for start in range(0, len(prompts), rows):
                _generate_batch(model, prompts[start : start + rows], stages)
        except RuntimeError as error:
            if rows == 1 or not is_out_of_memory(error):
                raise
        else:
            return rows
        torch.cuda.empty_cache()
        rows = -(-rows // 2)


def _generate_batch(model: Any, prompts: Sequence[Tokens], stages: Sequence[Stage]) -> None:
    from transformers import GenerationConfig

    for stage in stages:
        settings = GenerationConfig(  # type: ignore[no-untyped-call]
            max_new_tokens=stage.budget,
            do_sample=False,
            eos_token_id=sorted(stage.ends) or None,
            pad_token_id=0,
            use_cache=True,
        )
        ids, mask = pad_left(prompts, model.device)
        written = model.generate(ids, attention_mask=mask, generation_config=settings)[:, ids.shape[1] :].tolist()
        prompts = [(*prompt, *text, *stage.bridge) for prompt, text in zip(prompts, written, strict=True)]


# --- against bytes ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StepTime:
    """One decoding step of routes in flight."""

    routes: int
    steps: int
    """Layer applications."""
    ticks: int
    """Layers whose weights are read."""
    rows: int
    """Sequences."""
    seconds: float
    """Median of repeats."""
    samples: tuple[float, ...]
    weight_bytes: int
    cache_bytes: int
    bandwidth: float
    """Bytes per second of a copy, read and written."""

    @property
    def limit(self) -> float:
        """Seconds that its bytes need."""
        return (self.weight_bytes + self.cache_bytes) / self.bandwidth

    @property
    def times_limit(self) -> float:
        """How much longer it takes."""
        return self.seconds / self.limit


def measure_step(  # noqa: PLR0913
    decoder: FlightDecoder,
    model: Any,
    routes: Sequence[Route],
    prompts: Sequence[Tokens],
    tokens: int,
    bandwidth: float,
) -> StepTime:
    """Time per token between a short text and one of ``tokens``; bytes at the mean length between the two."""
    short = max(8, tokens // 8)
    party = [Party(list(routes), list(prompts))]

    def write(budget: int) -> float:
        return timed(lambda: decoder.write(party, (Stage(frozenset(), budget),)))[0]

    write(short)
    samples = [(write(tokens) - write(short)) / (tokens - short) for _ in range(_REPEATS)]
    weights, ticks = decoder.weights, len(plan_ticks(routes).ticks)
    live = sum(map(len, prompts)) + len(prompts) * (tokens + short) / 2
    steps = sum(route.length for route in routes)
    return StepTime(
        len(routes),
        steps,
        ticks,
        len(routes) * len(prompts),
        statistics.median(samples),
        tuple(samples),
        ticks * weights.layer_bytes + weights.head_bytes,
        int(steps * live * cache_bytes_per_token(model)),
        bandwidth,
    )


def copy_bandwidth(device: Any) -> float:
    """Bytes per second, read and written, of a large copy on the device."""
    source = torch.empty(_COPIED, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def copy() -> None:
        for _ in range(10):
            target.copy_(source)

    copy()
    took = min(timed(copy)[0] for _ in range(_REPEATS))
    return 10 * 2 * _COPIED / took


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds until the device is done, and what came out."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    found = run()
    torch.cuda.synchronize()
    return time.perf_counter() - start, found


# --- all of it --------------------------------------------------------------------------------------------------

LEAST_SPEEDUP, MOST_TIMES_LIMIT, MOST_BY_LENGTH = 12.0, 2.0, 1.03
"""Targets."""
_SEVERAL = 8
"""Routes of the step that is timed with several in flight."""
_STEP_TOKENS = 256


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    figure: str
    value: float
    target: float | None
    met: bool
    detail: str
    raw: dict[str, Any]


def flight_figures(  # noqa: PLR0913
    decoder: FlightDecoder,
    model: Any,
    routes: Sequence[Route],
    prompts: Sequence[Tokens],
    stages: Sequence[Stage],
    compared: Sequence[Route],
) -> list[Figure]:
    """Everything that is measured for one model."""
    bandwidth = copy_bandwidth(model.device)
    flown = measure_flight(decoder, model, routes, compared, prompts, stages)
    tokens = min(_STEP_TOKENS, sum(stage.budget for stage in stages))
    return [*_speed_figures(flown), *_step_figures(decoder, model, routes, prompts, tokens, bandwidth)]


def _speed_figures(flown: Flown) -> list[Figure]:
    how = (
        f"{flown.prompts} prompts, {flown.tokens_per_row} tokens each; generate {sum(flown.generate_seconds):.1f} s for"
        f" {len(flown.generate_seconds)} routes in batches of {flown.generate_rows}, in flight {flown.same_seconds:.2f}"
    )
    every = f"{flown.routes} routes in {flown.all_seconds:.1f} s, at most {flown.peak_bytes / 1e9:.0f} GB"
    raw = dataclasses.asdict(flown)
    return [
        Figure(name, value, LEAST_SPEEDUP, value >= LEAST_SPEEDUP, detail, raw)
        for name, value, detail in (
            ("times as fast as generate, the same routes", flown.same_speedup, how),
            ("times as fast as generate, all routes, per layer applied", flown.speedup, every),
        )
    ]


def _step_figures(  # noqa: PLR0913
    decoder: FlightDecoder,
    model: Any,
    routes: Sequence[Route],
    prompts: Sequence[Tokens],
    tokens: int,
    bandwidth: float,
) -> list[Figure]:
    standard = Route.standard(routes[0].layers)
    longest = max(routes, key=lambda route: route.length)
    timed_steps = [
        measure_step(decoder, model, flying, prompts, tokens, bandwidth)
        for flying in ([standard], [longest], routes[:_SEVERAL])
    ]
    by_length = timed_steps[1].seconds / timed_steps[0].seconds * standard.length / longest.length
    lengths = f"T = {longest.length}, L = {standard.length}: {longest}"
    return [
        *map(_step_figure, timed_steps),
        Figure(
            "time per token over (T/L) × standard", by_length, MOST_BY_LENGTH, by_length <= MOST_BY_LENGTH, lengths, {}
        ),
    ]


def _step_figure(step: StepTime) -> Figure:
    alone = step.routes == 1
    gigabytes = (step.weight_bytes + step.cache_bytes) / 1e9
    return Figure(
        f"decoding step over its bytes' time, {step.routes} in flight, {step.steps} steps",
        step.times_limit,
        MOST_TIMES_LIMIT if alone else None,
        not alone or step.times_limit <= MOST_TIMES_LIMIT,
        f"{1e3 * step.seconds:.2f} ms for {step.rows} rows, {step.ticks} layers read; {gigabytes:.1f} GB at"
        f" {step.bandwidth / 1e12:.2f} TB/s take {1e3 * step.limit:.2f} ms",
        dataclasses.asdict(step),
    )


def kernel_times(
    decoder: FlightDecoder, routes: Sequence[Route], prompts: Sequence[Tokens], tokens: int = 24
) -> list[tuple[str, float, float]]:
    """Kernels of decoding steps: name, launches per step, microseconds per launch; the prompts' pass is taken off."""
    from torch.profiler import ProfilerActivity, profile

    def counted(budget: int) -> dict[str, tuple[int, float]]:
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            decoder.write([Party(list(routes), list(prompts))], (Stage(frozenset(), budget),))
            torch.cuda.synchronize()
        return {one.key: (one.count, one.device_time_total) for one in seen.key_averages() if one.device_time_total}

    counted(2)
    short, long = counted(1), counted(1 + tokens)
    found = []
    for name, (count, total) in long.items():
        fewer, before = short.get(name, (0, 0.0))
        if count > fewer:
            found.append((name, (count - fewer) / tokens, (total - before) / (count - fewer)))
    return sorted(found, key=lambda one: -one[1] * one[2])
