"""Fused decoding steps against a roofline of bytes and arithmetic, and the kernels they launch."""

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from macro_routing.engine.batching import Tokens
from macro_routing.engine.fused.batch_plan import RoutesOverSamePrompts
from macro_routing.engine.fused.decoder import FusedDecoder
from macro_routing.engine.fused.weights import Experts, LayerWeights
from macro_routing.engine.generation import DecodingStage, GenerationRequest
from macro_routing.engine.layer_schedule import schedule_layer_calls
from macro_routing.engine.memory import cache_bytes_per_token
from macro_routing.evaluation.bench import measure_repeatedly, measure_seconds, time_fused_decoding
from macro_routing.routes.route import Route

_REPEATS = 3
_COPIED = 2 << 30
"""Bytes copied to find out how fast memory is."""
_MULTIPLIED = 8192
"""Rows and columns of the matrices multiplied to find out how fast arithmetic is."""


# --- against the roofline ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeviceLimits:
    """What the device can do at most, measured."""

    bandwidth: float
    """Bytes per second of a large copy, read and written."""
    arithmetic: float
    """Floating-point operations per second of a large matrix product."""

    def product_seconds(self, weight_bytes: int, rows: int) -> float:
        """The least time of a product of ``rows`` rows with 16-bit weights: to read them, or to multiply."""
        return max(weight_bytes / self.bandwidth, rows * weight_bytes / self.arithmetic)

    def layer_seconds(self, layer: LayerWeights, rows: int) -> float:
        """The least time of all products of a layer; every row chooses its experts at random."""
        attention = [linear.weight.nbytes for linear in (layer.qkv, layer.attention_out)]
        mlp = layer.mlp
        if not isinstance(mlp, Experts):
            dense = (*attention, mlp.gate_up.weight.nbytes, mlp.down.weight.nbytes)
            return sum(self.product_seconds(weight_bytes, rows) for weight_bytes in dense)
        share = mlp.chosen / len(mlp.down)
        read = 1 - (1 - share) ** rows
        return sum(self.product_seconds(weight_bytes, rows) for weight_bytes in attention) + sum(
            max(read * weight.nbytes / self.bandwidth, share * rows * weight.nbytes / self.arithmetic)
            for weight in (mlp.gate_up, mlp.down)
        )


@dataclass(frozen=True)
class DecodingStepTime:
    """One fused decoding step of several routes."""

    routes: int
    steps: int
    """Layer applications."""
    calls: int
    """Layers whose weights are read."""
    rows: int
    """Sequences."""
    seconds: float
    """Median of repeats."""
    samples: tuple[float, ...]
    products: float
    """Least seconds of the matrix products, each the larger of its bytes' and its arithmetic's time."""
    cache: float
    """Least seconds of reading the cache."""

    @property
    def limit(self) -> float:
        """The least seconds of all."""
        return self.products + self.cache

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
    limits: DeviceLimits,
) -> DecodingStepTime:
    """Time per token between a short text and one of ``tokens``; bytes at the mean length between the two."""
    short = max(8, tokens // 8)
    groups = [RoutesOverSamePrompts(list(routes), list(prompts))]

    def time_decoding(max_tokens: int) -> float:
        request = GenerationRequest((DecodingStage(frozenset(), max_tokens),))
        return measure_seconds(lambda: decoder.decode_prompt_groups(groups, request))[0]

    time_decoding(tokens)
    samples = [(time_decoding(tokens) - time_decoding(short)) / (tokens - short) for _ in range(_REPEATS)]
    layers, head = decoder.weights.layers, decoder.weights.head.weight
    calls = schedule_layer_calls(routes).calls
    products = limits.product_seconds(head.nbytes, len(routes) * len(prompts)) + sum(
        limits.layer_seconds(layers[call.layer], len(call.steps) * len(prompts)) for call in calls
    )
    steps = [step.layer for route in routes for step in route.steps]
    # A window may move over the first tokens of a text.
    live = [sum(min(len(prompt) + (tokens + short) / 2, layers[layer].window) for prompt in prompts) for layer in steps]
    return DecodingStepTime(
        len(routes),
        len(steps),
        len(calls),
        len(routes) * len(prompts),
        statistics.median(samples),
        tuple(samples),
        products,
        sum(live) * cache_bytes_per_token(model) / limits.bandwidth,
    )


def measure_copy_bandwidth(device: Any) -> float:
    """Bytes per second, read and written, of a large copy on the device."""
    source = torch.empty(_COPIED, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def copy() -> None:
        for _ in range(10):
            target.copy_(source)

    copy()
    return 10 * 2 * _COPIED / min(measure_repeatedly(copy, _REPEATS))


def measure_arithmetic(device: Any) -> float:
    """Floating-point operations per second of a large matrix product in bfloat16 on the device."""
    left, right = (torch.randn(_MULTIPLIED, _MULTIPLIED, dtype=torch.bfloat16, device=device) for _ in range(2))
    out = torch.empty_like(left)

    def multiply() -> None:
        for _ in range(10):
            torch.mm(left, right, out=out)

    multiply()
    return 10 * 2 * _MULTIPLIED**3 / min(measure_repeatedly(multiply, _REPEATS))


# --- all of it --------------------------------------------------------------------------------------------------

LEAST_SPEEDUP, MOST_TIMES_LIMIT, MOST_BY_LENGTH = 12.0, 1.5, 1.03
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
    timing = time_fused_decoding(decoder, model, routes, compared, prompts, stages, _REPEATS)
    tokens = sum(stage.max_tokens for stage in stages)
    return [*_format_speedups(timing), *measure_steps(decoder, model, routes, prompts, tokens)]


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


def measure_steps(
    decoder: FusedDecoder, model: Any, routes: Sequence[Route], prompts: Sequence[Tokens], budget: int
) -> list[MeasuredFigure]:
    """Decoding steps of the standard pass, the longest route, and several routes, against their roofline."""
    limits = DeviceLimits(measure_copy_bandwidth(model.device), measure_arithmetic(model.device))
    tokens = min(_STEP_TOKENS, budget)
    standard = Route.standard(routes[0].layers)
    longest = max(routes, key=lambda route: route.length)
    timed_steps = [
        measure_step(decoder, model, together, prompts, tokens, limits)
        for together in ([standard], [longest], routes[:_SEVERAL])
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
    return MeasuredFigure(
        f"decoding step over its roofline, {step.routes} route{'s' * (step.routes > 1)}, {step.steps} steps",
        step.times_limit,
        MOST_TIMES_LIMIT,
        step.times_limit <= MOST_TIMES_LIMIT,
        f"{1e3 * step.seconds:.2f} ms for {step.rows} rows, {step.calls} layers read; products need"
        f" {1e3 * step.products:.2f} ms, the cache {1e3 * step.cache:.2f} ms",
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
