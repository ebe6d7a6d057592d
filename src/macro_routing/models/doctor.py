"""Checks, on the user's own model, that routes run exactly; and that the checks would notice if they did not."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from macro_routing.models.by_hand import deeper_model, logits_by_hand
from macro_routing.models.frozen import FrozenModel
from macro_routing.models.routing import apply_route, decoder_of
from macro_routing.routes.route import Add, Route, Step

TOLERANCES = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""Largest difference of logits allowed, as a share of the largest logit, where another order of sums is unavoidable."""
QUANTIZED_TOLERANCE = 1e-1
_NEW_TOKENS = 12
_LONGEST_WINDOW = 1024
"""Sliding windows up to this length are filled by the prompt; longer ones would take minutes on a CPU."""
_TEXT = (
    "Layers of a language model can be run in another order. A route says which layer comes next, with repeats,"
    " skips and jumps back; the cache must keep one slot for every step."
)


@dataclass(frozen=True)
class Finding:
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
class Patient:
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
            ids = torch.tensor([self.frozen.tokenizer.encode(_TEXT)])
        window = getattr(self.model.config.get_text_config(decoder=True), "sliding_window", None) or 0
        if window <= _LONGEST_WINDOW:
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


def examine(frozen: FrozenModel, route: Route | None = None) -> Iterator[Finding]:
    """All checks, one after the other, on a given route or on ones that hold repeats, skips, jumps and adds."""
    patient = Patient(frozen, *_routes(frozen.layers, route))
    patient.logits(frozen.model)  # some quantised weights are repacked when they are used for the first time
    before, answers = weights_digest(frozen.model), _greedy(frozen.model, patient.tokens)[1]
    for name, check in CHECKS:
        yield _attempt(name, check, patient)
    yield _compared("the model itself answers as before", _greedy(frozen.model, patient.tokens)[1], answers, 0.0)
    after = weights_digest(frozen.model)
    yield Finding("weights unchanged before and after", before == after, None, None, f"SHA-256 {after[:12]}…")


def _attempt(name: str, check: Callable[[Patient, str], Finding], patient: Patient) -> Finding:
    try:
        return check(patient, name)
    except Exception as error:  # noqa: BLE001 a check that cannot run is a finding, and the others still run
        return Finding(name, passed=False, difference=None, allowed=None, detail=f"{type(error).__name__}: {error}")


def _routes(layers: int, route: Route | None) -> tuple[Route, Route]:
    if route is not None:
        plain = Route(tuple(Step(step.layer) for step in route.steps), layers)
        return plain, route
    middle = layers // 2
    back = max(0, middle - 2)
    order = [*range(middle + 1), *range(back, layers), layers - 1]
    if layers > 5:
        order.remove(layers - 2)  # a skip near the end, where the second visit of an early layer cannot hide it
    plain = Route(tuple(Step(layer) for layer in order), layers)
    return plain, _with_adds(plain)


def _with_adds(route: Route) -> Route:
    """The route with an addition in the middle and, where it is long enough, a subtraction at the end."""
    steps = list(route.steps)
    places = {len(steps) // 2: 1.0, len(steps) - 1: -0.25}
    for place, coefficient in places.items():
        if place >= 2:
            steps[place] = Step(steps[place].layer, Add(min(3, place - 1), coefficient))
    return Route(tuple(steps), route.layers)


# --- the checks ---------------------------------------------------------------------------------------------------


def _identity(patient: Patient, name: str) -> Finding:
    untouched = patient.logits(patient.model)
    routed = patient.logits(patient.routed(Route.standard(patient.frozen.layers)))
    return _compared(name, routed, untouched, 0.0)


def _plain(patient: Patient, name: str) -> Finding:
    if getattr(patient.model, "is_quantized", False) or getattr(patient.model, "hf_device_map", None):
        by_hand = logits_by_hand(patient.model, patient.plain, patient.tokens)
        routed = patient.logits(patient.routed(patient.plain))
        return _compared(
            name, routed, by_hand, patient.tolerance, "quantised or spread out: held against a pass by hand"
        )
    deeper = patient.logits(deeper_model(patient.model, patient.plain))
    return _compared(name, patient.logits(patient.routed(patient.plain)), deeper, 0.0, f"{patient.plain.length} layers")


def _adds(patient: Patient, name: str) -> Finding:
    if not patient.adding.has_adds:
        return Finding(name, passed=True, difference=None, allowed=None, detail="the route adds nothing", skipped=True)
    by_hand = logits_by_hand(patient.model, patient.adding, patient.tokens)
    return _compared(
        name, patient.logits(patient.routed(patient.adding)), by_hand, patient.tolerance, str(patient.adding)
    )


def _cached(patient: Patient, name: str) -> Finding:
    return _cached_against_recomputed(patient, name, patient.routed(patient.adding))


def _static(patient: Patient, name: str) -> Finding:
    model = patient.routed(patient.adding)
    cache = _static_cache(model, patient)
    return _cached_against_recomputed(patient, name, model, cache)


def _static_cache(model: Any, patient: Patient) -> Any:
    from transformers import StaticCache

    return StaticCache(config=model.config, max_cache_len=patient.tokens.shape[1] + _NEW_TOKENS + 1)


def _cached_against_recomputed(patient: Patient, name: str, model: Any, cache: Any = None) -> Finding:
    ids, stepwise = _greedy(model, patient.tokens, cache)
    start = patient.tokens.shape[1] - 1
    recomputed = patient.logits(model, ids)[:, start : start + stepwise.shape[1]]
    same = (stepwise.argmax(-1) == recomputed.argmax(-1)).float().mean().item()
    return _compared(name, stepwise, recomputed, patient.tolerance, f"{same:.0%} of {_NEW_TOKENS} tokens agree")


def _greedy(model: Any, tokens: torch.Tensor, cache: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens after cached greedy decoding, and the logits each new one was chosen by."""
    ids, seen, feed = tokens, [], tokens
    with torch.no_grad():
        for _ in range(_NEW_TOKENS):
            output = model(feed, past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            seen.append(output.logits[:, -1])
            feed = seen[-1].argmax(-1, keepdim=True)
            ids = torch.cat([ids, feed], dim=1)
    return ids[:, :-1], torch.stack(seen, dim=1)


def _padded(patient: Patient, name: str) -> Finding:
    """Two prompts of different length in one batch, padded on either side, against each on its own."""
    model = patient.routed(patient.adding)
    whole, short = patient.tokens, patient.tokens[:, : patient.tokens.shape[1] * 2 // 3]
    alone = torch.cat([patient.logits(model, ids)[:, -1] for ids in (whole, short)])
    pieces = []
    for side in ("left", "right"):
        ids, mask = _pad(whole, short, side)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        logits = patient.logits(model, ids, attention_mask=mask, position_ids=positions)
        last = ids.shape[1] - 1 if side == "left" else mask.sum(-1) - 1
        pieces.append(logits[torch.arange(2, device=logits.device), last])
    return _compared(name, torch.cat(pieces), torch.cat([alone, alone]), patient.tolerance)


def _pad(whole: torch.Tensor, short: torch.Tensor, side: str) -> tuple[torch.Tensor, torch.Tensor]:
    missing = whole.shape[1] - short.shape[1]
    filler = whole[:, :1].expand(1, missing)
    nothing, something = torch.zeros_like(filler), torch.ones_like(short)
    left = side == "left"
    row = torch.cat([filler, short] if left else [short, filler], dim=1)
    mask = torch.cat([nothing, something] if left else [something, nothing], dim=1)
    return torch.cat([whole, row]), torch.cat([torch.ones_like(whole), mask])


def _generated(patient: Patient, name: str) -> Finding:
    """``generate`` on a left-padded batch: each row must be chosen by the logits it has alone."""
    model = patient.routed(patient.adding)
    whole, short = patient.tokens, patient.tokens[:, : patient.tokens.shape[1] * 2 // 3]
    ids, mask = _pad(whole, short, "left")
    output = model.generate(
        ids,
        attention_mask=mask,
        max_new_tokens=_NEW_TOKENS,
        min_new_tokens=_NEW_TOKENS,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        pad_token_id=0,
    )
    stepwise = torch.stack(output.logits, dim=1)  # [rows, new tokens, vocabulary]
    alone = []
    for row, prompt in enumerate((whole, short)):
        ids = torch.cat([prompt, output.sequences[row : row + 1, -_NEW_TOKENS:-1]], dim=1)
        alone.append(patient.logits(model, ids)[:, prompt.shape[1] - 1 :])
    return _compared(name, stepwise, torch.cat(alone), patient.tolerance, f"2 rows, {_NEW_TOKENS} tokens")


def _memory(patient: Patient, name: str) -> Finding:
    """Bytes of weight storage that a routed model has and the untouched one has not."""
    own = {storage for storage, _ in _storages(patient.model)}
    routed = dict(_storages(patient.routed(patient.adding)))
    extra = sum(size for storage, size in routed.items() if storage not in own)
    return Finding(
        name, extra == 0, float(extra), 0.0, f"{sum(routed.values()):,} bytes, all shared" if not extra else "bytes"
    )


def _storages(model: Any) -> Iterator[tuple[int, int]]:
    for tensor in (*model.parameters(), *model.buffers()):
        storage = tensor.untyped_storage()
        yield storage.data_ptr(), storage.nbytes()


def _control(patient: Patient, name: str) -> Finding:
    """With one cache slot per *layer*, as other systems have it, decoding a repeated layer must be found wrong."""
    model = patient.routed(patient.plain)
    if len({step.layer for step in patient.plain.steps}) == patient.plain.length:
        return Finding(name, passed=True, difference=None, allowed=None, detail="no layer is repeated", skipped=True)
    share_slots(model, patient.plain)
    try:
        found = _cached_against_recomputed(patient, name, model)
    except Exception as error:  # noqa: BLE001 crashing is one of the ways in which a shared slot shows
        return Finding(name, passed=True, difference=None, allowed=None, detail=f"noticed: {type(error).__name__}")
    noticed = found.difference is not None and math.isfinite(found.difference) and not found.passed
    detail = "noticed: logits are off by more than allowed" if noticed else "NOT noticed"
    return Finding(name, noticed, found.difference, found.allowed, detail)


def share_slots(model: Any, route: Route) -> None:
    """Break a routed model the way others are broken: every step of a layer uses that layer's one cache slot."""
    for layer, step in zip(decoder_of(model).layers, route.steps, strict=True):
        for part in layer.modules():
            if "layer_idx" in part.__dict__:
                part.layer_idx = step.layer


def _cuda_graph(patient: Patient, name: str) -> Finding:
    """Decoding with a static cache, each step replayed from one captured CUDA graph."""
    if patient.model.device.type != "cuda":
        return Finding(name, passed=True, difference=None, allowed=None, detail="no CUDA device", skipped=True)
    from macro_routing.models.capture import CapturedStep

    model = patient.routed(patient.adding)
    expected_ids, expected = _greedy(model, patient.tokens)
    try:
        step = CapturedStep(model, patient.tokens, _static_cache(model, patient))
    except RuntimeError as error:
        # Sliding-window caches and some experts copy from the host in every step, routed or not.
        if _can_be_captured(patient):
            raise
        detail = f"the untouched model cannot be captured either: {error}"
        return Finding(name, passed=True, difference=None, allowed=None, detail=detail, skipped=True)
    fed = range(patient.tokens.shape[1], expected_ids.shape[1])
    seen = [step.first_logits, *(step(expected_ids[:, place, None]) for place in fed)]
    return _compared(
        name, torch.stack(seen, dim=1), expected, patient.tolerance, f"{len(seen) - 1} replays of one graph"
    )


def _can_be_captured(patient: Patient) -> bool:
    from macro_routing.models.capture import CapturedStep

    try:
        CapturedStep(patient.model, patient.tokens, _static_cache(patient.model, patient))
    except RuntimeError:
        return False
    return True


CHECKS: Sequence[tuple[str, Callable[[Patient, str], Finding]]] = (
    ("identity route equals the untouched model, bit for bit", _identity),
    ("plain route equals an independently built deeper model", _plain),
    ("adds equal a pass by hand", _adds),
    ("cached decoding equals recomputing", _cached),
    ("static cache equals recomputing", _static),
    ("CUDA graph equals eager decoding", _cuda_graph),
    ("padded equals unpadded, left and right", _padded),
    ("generate on a padded batch equals each row alone", _generated),
    ("extra weight memory is zero", _memory),
    ("negative control: a shared cache slot is noticed", _control),
)


def _compared(name: str, found: torch.Tensor, expected: torch.Tensor, tolerance: float, detail: str = "") -> Finding:
    """Compare logits; ``tolerance`` is relative to the largest expected logit, 0 demands equal bits."""
    found, expected = found.float().cpu(), expected.float().cpu()
    difference = (found - expected).abs().max().item()
    allowed = tolerance * expected.abs().max().item()
    passed = torch.equal(found, expected) if tolerance == 0 else difference <= allowed  # NaN is never within
    return Finding(name, passed, difference, allowed, detail)


def weights_digest(model: Any) -> str:
    """SHA-256 over all parameters and buffers, bytes as they are."""
    digest = hashlib.sha256()
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        digest.update(name.encode())
        if not tensor.is_meta:  # offloaded weights lie in files of their own
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
