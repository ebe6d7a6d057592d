"""Fused decoding steps against the time that their bytes need, and the kernels they launch."""

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from macro_routing.engine.batching import Tokens
from macro_routing.engine.fused.batch_plan import RoutesOverSamePrompts
from macro_routing.engine.fused.decoder import FusedDecoder
from macro_routing.engine.generation import DecodingStage, GenerationRequest
from macro_routing.engine.layer_schedule import schedule_layer_calls
from macro_routing.engine.memory import cache_bytes_per_token
from macro_routing.evaluation.bench import measure_seconds, time_fused_decoding
from macro_routing.routes.route import Route

_REPEATS = 3
_COPIED = 2 << 30
"""Bytes copied to find out how fast memory is."""


# --- against bytes ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DecodingStepTime:
    """One fused decoding step of several routes."""

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
    decoder: FusedDecoder,
    model: Any,
    routes: Sequence[Route],
    prompts: Sequence[Tokens],
    tokens: int,
    bandwidth: float,
) -> DecodingStepTime:
    """Time per token between a short text and one of ``tokens``; bytes at the mean length between the two."""
    short = max(8, tokens // 8)
    groups = [RoutesOverSamePrompts(list(routes), list(prompts))]

    def time_decoding(max_tokens: int) -> float:
        request = GenerationRequest((DecodingStage(frozenset(), max_tokens),))
        return measure_seconds(lambda: decoder.decode_prompt_groups(groups, request))[0]

    time_decoding(short)
    samples = [(time_decoding(tokens) - time_decoding(short)) / (tokens - short) for _ in range(_REPEATS)]
    layer, head = decoder.weights.layers[0], decoder.weights.head.weight
    layer_bytes = sum(linear.weight.nbytes for linear in (layer.qkv, layer.attention_out, layer.gate_up, layer.down))
    calls = len(schedule_layer_calls(routes).calls)
    live = sum(map(len, prompts)) + len(prompts) * (tokens + short) / 2
    steps = sum(route.length for route in routes)
    return DecodingStepTime(
        len(routes),
        steps,
        calls,
        len(routes) * len(prompts),
        statistics.median(samples),
        tuple(samples),
        calls * layer_bytes + head.nbytes,
        int(steps * live * cache_bytes_per_token(model)),
        bandwidth,
    )


def measure_copy_bandwidth(device: Any) -> float:
    """Bytes per second, read and written, of a large copy on the device."""
    source = torch.empty(_COPIED, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def copy() -> None:
        for _ in range(10):
            target.copy_(source)

    copy()
    took = min(measure_seconds(copy)[0] for _ in range(_REPEATS))
    return 10 * 2 * _COPIED / took


# --- all of it --------------------------------------------------------------------------------------------------

LEAST_SPEEDUP, MOST_TIMES_LIMIT, MOST_BY_LENGTH = 12.0, 2.0, 1.03
"""Targets."""
_SEVERAL = 8
"""Routes of the step that is timed with several routes."""
_STEP_TOKENS = 256


@dataclass(frozen=True)
class MeasuredFigure:
    """One line of the table."""

    figure: str
    value: float
    target: float | None
    met: bool
    detail: str
    raw: dict[str, Any]


def measure_fused_decoding(  # noqa: PLR0913
    decoder: FusedDecoder,
    model: Any,
    routes: Sequence[Route],
    prompts: Sequence[Tokens],
    stages: Sequence[DecodingStage],
    compared: Sequence[Route],
) -> list[MeasuredFigure]:
    """Everything that is measured for one model."""
    bandwidth = measure_copy_bandwidth(model.device)
    timing = time_fused_decoding(decoder, model, routes, compared, prompts, stages)
    tokens = min(_STEP_TOKENS, sum(stage.max_tokens for stage in stages))
    return [*_format_speedups(timing), *_measure_steps(decoder, model, routes, prompts, tokens, bandwidth)]


def _format_speedups(timing: dict[str, Any]) -> list[MeasuredFigure]:
    same = (
        f"{timing['prompts']} prompts, {timing['tokens_per_row']} tokens each;"
        f" generate {sum(timing['generate_seconds']):.1f} s for {len(timing['generate_seconds'])} routes in batches of"
        f" {timing['generate_rows']}, fused {timing['fused_seconds']:.2f}"
    )
    every = (
        f"{timing['all_routes']} routes in {timing['all_seconds']:.1f} s, at most {timing['peak_bytes'] / 1e9:.0f} GB"
    )
    return [
        MeasuredFigure(name, value, LEAST_SPEEDUP, value >= LEAST_SPEEDUP, detail, timing)
        for name, value, detail in (
            ("times as fast as generate, the same routes", timing["speedup"], same),
            ("times as fast as generate, all routes, per layer applied", timing["speedup_per_step"], every),
        )
    ]


def _measure_steps(  # noqa: PLR0913
    decoder: FusedDecoder,
    model: Any,
    routes: Sequence[Route],
    prompts: Sequence[Tokens],
    tokens: int,
    bandwidth: float,
) -> list[MeasuredFigure]:
    standard = Route.standard(routes[0].layers)
    longest = max(routes, key=lambda route: route.length)
    timed_steps = [
        measure_step(decoder, model, flying, prompts, tokens, bandwidth)
        for flying in ([standard], [longest], routes[:_SEVERAL])
    ]
    by_length = timed_steps[1].seconds / timed_steps[0].seconds * standard.length / longest.length
    lengths = f"T = {longest.length}, L = {standard.length}: {longest}"
    return [
        *map(_format_step, timed_steps),
        MeasuredFigure(
            "time per token over (T/L) × standard", by_length, MOST_BY_LENGTH, by_length <= MOST_BY_LENGTH, lengths, {}
        ),
    ]


def _format_step(step: DecodingStepTime) -> MeasuredFigure:
    alone = step.routes == 1
    gigabytes = (step.weight_bytes + step.cache_bytes) / 1e9
    return MeasuredFigure(
        f"decoding step over its bytes' time, {step.routes} route{'s' * (step.routes > 1)}, {step.steps} steps",
        step.times_limit,
        MOST_TIMES_LIMIT if alone else None,
        not alone or step.times_limit <= MOST_TIMES_LIMIT,
        f"{1e3 * step.seconds:.2f} ms for {step.rows} rows, {step.ticks} layers read; {gigabytes:.1f} GB at"
        f" {step.bandwidth / 1e12:.2f} TB/s take {1e3 * step.limit:.2f} ms",
        dataclasses.asdict(step),
    )


def profile_kernels(
    decoder: FusedDecoder, routes: Sequence[Route], prompts: Sequence[Tokens], tokens: int = 24
) -> list[tuple[str, float, float]]:
    """Kernels of decoding steps: name, launches per step, microseconds per launch; the prompts' pass is taken off."""
    from torch.profiler import ProfilerActivity, profile

    def counted(budget: int) -> dict[str, tuple[int, float]]:
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            decoder.decode_prompt_groups(
                [RoutesOverSamePrompts(list(routes), list(prompts))],
                GenerationRequest((DecodingStage(frozenset(), budget),)),
            )
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
