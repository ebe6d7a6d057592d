"""Checks, on the user's own model, that routes run exactly; and that the checks would notice if they did not."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from macro_routing.models.decoder import get_decoder
from macro_routing.models.frozen import FrozenModel
from macro_routing.models.reference import build_unrolled_model, reference_logits
from macro_routing.models.routing import apply_route
from macro_routing.routes.route import Add, Route, Step

TOLERANCES = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""Largest difference of logits allowed, as a share of the largest logit, where another order of sums is unavoidable."""
QUANTIZED_TOLERANCE = 1e-1
_N_NEW_TOKENS = 12
_MAX_SLIDING_WINDOW = 1024
"""Sliding windows up to this length are filled by the prompt; longer ones would take minutes on a CPU."""
_PROMPT = (
    "Layers of a language model can be run in another order. A route says which layer comes next, with repeats,"
    " skips and jumps back; the cache must keep one slot for every step."
)


@dataclass(frozen=True)
class CheckResult:
    """The result of one check."""

    name: str
    passed: bool
    difference: float | None
    """Largest absolute difference found; None where the check compares no numbers."""
    allowed: float | None
    """Largest absolute difference allowed."""
    detail: str = ""
    skipped: bool = False


@dataclass(frozen=True, eq=False)
class ModelUnderTest:
    """A model with the routes and inputs it is examined with."""

    frozen: FrozenModel
    plain: Route
    """A route without adds."""
    adding: Route
    """A route with adds."""

    @property
    def model(self) -> Any:
        """The untouched model."""
        return self.frozen.model

    @cached_property
    def tokens(self) -> torch.Tensor:
        """A prompt of at least a dozen tokens that fills a sliding window which is not too long, ``[1, length]``."""
        if self.frozen.tokenizer is None:
            size = self.model.config.get_text_config(decoder=True).vocab_size
            ids = torch.randint(size, (1, 24), generator=torch.Generator().manual_seed(0))
        else:
            ids = torch.tensor([self.frozen.tokenizer.encode(_PROMPT)])
        window = getattr(self.model.config.get_text_config(decoder=True), "sliding_window", None) or 0
        if window <= _MAX_SLIDING_WINDOW:
            ids = ids.repeat(1, -(-(window + 8) // ids.shape[1]))
        return ids.to(self.model.device)

    @property
    def tolerance(self) -> float:
        """Relative tolerance of the dtype the model computes in."""
        if getattr(self.model, "is_quantized", False):
            return QUANTIZED_TOLERANCE
        return TOLERANCES.get(self.model.dtype, TOLERANCES[torch.float32])

    def routed(self, route: Route) -> Any:
        """The model under test."""
        return apply_route(self.model, route, allow_untested=True)

    def logits(self, model: Any, ids: torch.Tensor | None = None, **inputs: Any) -> torch.Tensor:
        """Logits of a pass without a cache."""
        with torch.no_grad():
            found: torch.Tensor = model(self.tokens if ids is None else ids, use_cache=False, **inputs).logits
        return found


def run_checks(frozen: FrozenModel, route: Route | None = None) -> Iterator[CheckResult]:
    """All checks, one after the other, on a given route or on ones that hold repeats, skips, jumps and adds."""
    patient = ModelUnderTest(frozen, *_choose_test_routes(frozen.layers, route))
    patient.logits(frozen.model)  # some quantised weights are repacked when they are used for the first time
    before, answers = digest_weights(frozen.model), _decode_greedily(frozen.model, patient.tokens)[1]
    for name, check in CHECKS:
        yield _run_check(name, check, patient)
    yield _compare_logits(
        "the model itself answers as before", _decode_greedily(frozen.model, patient.tokens)[1], answers, 0.0
    )
    after = digest_weights(frozen.model)
    yield CheckResult("weights unchanged before and after", before == after, None, None, f"SHA-256 {after[:12]}…")


def _run_check(name: str, check: Callable[[ModelUnderTest, str], CheckResult], patient: ModelUnderTest) -> CheckResult:
    try:
        return check(patient, name)
    except Exception as error:  # noqa: BLE001 a check that cannot run is a finding, and the others still run
        return CheckResult(name, passed=False, difference=None, allowed=None, detail=f"{type(error).__name__}: {error}")


def _choose_test_routes(layers: int, route: Route | None) -> tuple[Route, Route]:
    if route is not None:
        plain = Route(tuple(Step(step.layer) for step in route.steps), layers)
        return plain, route
    middle = layers // 2
    back = max(0, middle - 2)
    order = [*range(middle + 1), *range(back, layers), layers - 1]
    if layers > 5:
        order.remove(layers - 2)  # a skip near the end, where the second visit of an early layer cannot hide it
    plain = Route(tuple(Step(layer) for layer in order), layers)
    return plain, _insert_adds(plain)


def _insert_adds(route: Route) -> Route:
    """The route with an addition in the middle and, where it is long enough, a subtraction at the end."""
    steps = list(route.steps)
    places = {len(steps) // 2: 1.0, len(steps) - 1: -0.25}
    for place, coefficient in places.items():
        if place >= 2:
            steps[place] = Step(steps[place].layer, Add(min(3, place - 1), coefficient))
    return Route(tuple(steps), route.layers)


# --- the checks ---------------------------------------------------------------------------------------------------


def _check_identity_route(patient: ModelUnderTest, name: str) -> CheckResult:
    untouched = patient.logits(patient.model)
    routed = patient.logits(patient.routed(Route.standard(patient.frozen.layers)))
    return _compare_logits(name, routed, untouched, 0.0)


def _check_plain_route(patient: ModelUnderTest, name: str) -> CheckResult:
    if getattr(patient.model, "is_quantized", False) or getattr(patient.model, "hf_device_map", None):
        by_hand = reference_logits(patient.model, patient.plain, patient.tokens)
        routed = patient.logits(patient.routed(patient.plain))
        return _compare_logits(
            name, routed, by_hand, patient.tolerance, "quantised or spread out: held against a pass by hand"
        )
    deeper = patient.logits(build_unrolled_model(patient.model, patient.plain))
    return _compare_logits(
        name, patient.logits(patient.routed(patient.plain)), deeper, 0.0, f"{patient.plain.length} layers"
    )


def _check_adds(patient: ModelUnderTest, name: str) -> CheckResult:
    if not patient.adding.has_adds:
        return CheckResult(
            name, passed=True, difference=None, allowed=None, detail="the route adds nothing", skipped=True
        )
    by_hand = reference_logits(patient.model, patient.adding, patient.tokens)
    return _compare_logits(
        name, patient.logits(patient.routed(patient.adding)), by_hand, patient.tolerance, str(patient.adding)
    )


def _check_dynamic_cache(patient: ModelUnderTest, name: str) -> CheckResult:
    return _compare_cached_with_recomputed(patient, name, patient.routed(patient.adding))


def _check_static_cache(patient: ModelUnderTest, name: str) -> CheckResult:
    model = patient.routed(patient.adding)
    cache = _make_static_cache(model, patient)
    return _compare_cached_with_recomputed(patient, name, model, cache)


def _make_static_cache(model: Any, patient: ModelUnderTest) -> Any:
    from transformers import StaticCache

    return StaticCache(config=model.config, max_cache_len=patient.tokens.shape[1] + _N_NEW_TOKENS + 1)


def _compare_cached_with_recomputed(patient: ModelUnderTest, name: str, model: Any, cache: Any = None) -> CheckResult:
    ids, stepwise = _decode_greedily(model, patient.tokens, cache)
    start = patient.tokens.shape[1] - 1
    recomputed = patient.logits(model, ids)[:, start : start + stepwise.shape[1]]
    same = (stepwise.argmax(-1) == recomputed.argmax(-1)).float().mean().item()
    return _compare_logits(name, stepwise, recomputed, patient.tolerance, f"{same:.0%} of {_N_NEW_TOKENS} tokens agree")


def _decode_greedily(model: Any, tokens: torch.Tensor, cache: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens after cached greedy decoding, and the logits each new one was chosen by."""
    ids, seen, feed = tokens, [], tokens
    with torch.no_grad():
        for _ in range(_N_NEW_TOKENS):
            output = model(feed, past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            seen.append(output.logits[:, -1])
            feed = seen[-1].argmax(-1, keepdim=True)
            ids = torch.cat([ids, feed], dim=1)
    return ids[:, :-1], torch.stack(seen, dim=1)


def _check_padding(patient: ModelUnderTest, name: str) -> CheckResult:
    """Two prompts of different length in one batch, padded on either side, against each on its own."""
    model = patient.routed(patient.adding)
    whole, short = patient.tokens, patient.tokens[:, : patient.tokens.shape[1] * 2 // 3]
    alone = torch.cat([patient.logits(model, ids)[:, -1] for ids in (whole, short)])
    pieces = []
    for side in ("left", "right"):
        ids, mask = _pad_batch(whole, short, side)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        logits = patient.logits(model, ids, attention_mask=mask, position_ids=positions)
        last = ids.shape[1] - 1 if side == "left" else mask.sum(-1) - 1
        pieces.append(logits[torch.arange(2, device=logits.device), last])
    return _compare_logits(name, torch.cat(pieces), torch.cat([alone, alone]), patient.tolerance)


def _pad_batch(whole: torch.Tensor, short: torch.Tensor, side: str) -> tuple[torch.Tensor, torch.Tensor]:
    missing = whole.shape[1] - short.shape[1]
    filler = whole[:, :1].expand(1, missing)
    nothing, something = torch.zeros_like(filler), torch.ones_like(short)
    left = side == "left"
    row = torch.cat([filler, short] if left else [short, filler], dim=1)
    mask = torch.cat([nothing, something] if left else [something, nothing], dim=1)
    return torch.cat([whole, row]), torch.cat([torch.ones_like(whole), mask])


def _check_generate(patient: ModelUnderTest, name: str) -> CheckResult:
    """``generate`` on a left-padded batch: each row must be chosen by the logits it has alone."""
    model = patient.routed(patient.adding)
    whole, short = patient.tokens, patient.tokens[:, : patient.tokens.shape[1] * 2 // 3]
    ids, mask = _pad_batch(whole, short, "left")
    output = model.generate(
        ids,
        attention_mask=mask,
        max_new_tokens=_N_NEW_TOKENS,
        min_new_tokens=_N_NEW_TOKENS,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        pad_token_id=0,
    )
    stepwise = torch.stack(output.logits, dim=1)  # [rows, new tokens, vocabulary]
    alone = []
    for row, prompt in enumerate((whole, short)):
        ids = torch.cat([prompt, output.sequences[row : row + 1, -_N_NEW_TOKENS:-1]], dim=1)
        alone.append(patient.logits(model, ids)[:, prompt.shape[1] - 1 :])
    return _compare_logits(name, stepwise, torch.cat(alone), patient.tolerance, f"2 rows, {_N_NEW_TOKENS} tokens")


def _check_extra_memory(patient: ModelUnderTest, name: str) -> CheckResult:
    """Bytes of weight storage that a routed model has and the untouched one has not."""
    own = {storage for storage, _ in _list_storages(patient.model)}
    routed = dict(_list_storages(patient.routed(patient.adding)))
    extra = sum(size for storage, size in routed.items() if storage not in own)
    return CheckResult(
        name, extra == 0, float(extra), 0.0, f"{sum(routed.values()):,} bytes, all shared" if not extra else "bytes"
    )


def _list_storages(model: Any) -> Iterator[tuple[int, int]]:
    for tensor in (*model.parameters(), *model.buffers()):
        storage = tensor.untyped_storage()
        yield storage.data_ptr(), storage.nbytes()


def _check_negative_control(patient: ModelUnderTest, name: str) -> CheckResult:
    """With one cache slot per *layer*, as other systems have it, decoding a repeated layer must be found wrong."""
    model = patient.routed(patient.plain)
    if len({step.layer for step in patient.plain.steps}) == patient.plain.length:
        return CheckResult(
            name, passed=True, difference=None, allowed=None, detail="no layer is repeated", skipped=True
        )
    break_cache_slots(model, patient.plain)
    try:
        found = _compare_cached_with_recomputed(patient, name, model)
    except Exception as error:  # noqa: BLE001 crashing is one of the ways in which a shared slot shows
        return CheckResult(name, passed=True, difference=None, allowed=None, detail=f"noticed: {type(error).__name__}")
    noticed = found.difference is not None and math.isfinite(found.difference) and not found.passed
    detail = "noticed: logits are off by more than allowed" if noticed else "NOT noticed"
    return CheckResult(name, noticed, found.difference, found.allowed, detail)


def break_cache_slots(model: Any, route: Route) -> None:
    """Break a routed model the way others are broken: every step of a layer uses that layer's one cache slot."""
    for layer, step in zip(get_decoder(model).layers, route.steps, strict=True):
        for part in layer.modules():
            if "layer_idx" in part.__dict__:
                part.layer_idx = step.layer


def _check_cuda_graph(patient: ModelUnderTest, name: str) -> CheckResult:
    """Decoding with a static cache, each step replayed from one captured CUDA graph."""
    if patient.model.device.type != "cuda":
        return CheckResult(name, passed=True, difference=None, allowed=None, detail="no CUDA device", skipped=True)
    from macro_routing.models.cuda_graph import CudaGraphStep

    model = patient.routed(patient.adding)
    expected_ids, expected = _decode_greedily(model, patient.tokens)
    try:
        step = CudaGraphStep(model, patient.tokens, _make_static_cache(model, patient))
    except RuntimeError as error:
        # Sliding-window caches and some experts copy from the host in every step, routed or not.
        if _supports_cuda_graph(patient):
            raise
        detail = f"the untouched model cannot be captured either: {error}"
        return CheckResult(name, passed=True, difference=None, allowed=None, detail=detail, skipped=True)
    fed = range(patient.tokens.shape[1], expected_ids.shape[1])
    seen = [step.first_logits, *(step(expected_ids[:, place, None]) for place in fed)]
    return _compare_logits(
        name, torch.stack(seen, dim=1), expected, patient.tolerance, f"{len(seen) - 1} replays of one graph"
    )


def _supports_cuda_graph(patient: ModelUnderTest) -> bool:
    from macro_routing.models.cuda_graph import CudaGraphStep

    try:
        CudaGraphStep(patient.model, patient.tokens, _make_static_cache(patient.model, patient))
    except RuntimeError:
        return False
    return True


CHECKS: Sequence[tuple[str, Callable[[ModelUnderTest, str], CheckResult]]] = (
    ("identity route equals the untouched model, bit for bit", _check_identity_route),
    ("plain route equals an independently built deeper model", _check_plain_route),
    ("adds equal a pass by hand", _check_adds),
    ("cached decoding equals recomputing", _check_dynamic_cache),
    ("static cache equals recomputing", _check_static_cache),
    ("CUDA graph equals eager decoding", _check_cuda_graph),
    ("padded equals unpadded, left and right", _check_padding),
    ("generate on a padded batch equals each row alone", _check_generate),
    ("extra weight memory is zero", _check_extra_memory),
    ("negative control: a shared cache slot is noticed", _check_negative_control),
)


def _compare_logits(
    name: str, found: torch.Tensor, expected: torch.Tensor, tolerance: float, detail: str = ""
) -> CheckResult:
    """Compare logits; ``tolerance`` is relative to the largest expected logit, 0 demands equal bits."""
    found, expected = found.float().cpu(), expected.float().cpu()
    difference = (found - expected).abs().max().item()
    allowed = tolerance * expected.abs().max().item()
    passed = torch.equal(found, expected) if tolerance == 0 else difference <= allowed  # NaN is never within
    return CheckResult(name, passed, difference, allowed, detail)


def digest_weights(model: Any) -> str:
    """SHA-256 over all parameters and buffers, bytes as they are."""
    digest = hashlib.sha256()
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        digest.update(name.encode())
        if not tensor.is_meta:  # offloaded weights lie in files of their own
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
