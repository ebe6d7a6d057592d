"""Check on the user's own model that routes run as they should, with a negative control that must fail."""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from macro_routing.models.cuda_graph_step import CudaGraphStep
from macro_routing.models.find_decoder import get_decoder
from macro_routing.models.frozen import FrozenModel
from macro_routing.models.mixing import PLAUSIBILITY, combine_logits, find_plausible
from macro_routing.models.reference import build_unrolled_model, compute_route_reference_logits
from macro_routing.models.routing import apply_route
from macro_routing.models.support import get_text_config
from macro_routing.routes.mixture import Mixture, RouteOrMixture
from macro_routing.routes.route import Add, Route, Step

TOLERANCES = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""Largest allowed difference of logits, relative to the largest logit, where the order of sums differs."""
QUANTIZED_TOLERANCE = 1e-1
_N_NEW_TOKENS = 12
_MAX_SLIDING_WINDOW = 1024
"""The prompt fills sliding windows up to this length; longer ones would take minutes on a CPU."""
_PROMPT = (
    "Layers of a language model can be run in another order. A route says which layer comes next, with repeats,"
    " skips and jumps back; the cache must keep one slot for every step."
)


@dataclass(frozen=True)
class CheckResult:
    """The result of one check."""

    name: str
    passed: bool
    difference: float | None = None
    """Largest absolute difference found; None where the check compares no numbers."""
    allowed: float | None = None
    """Largest absolute difference allowed."""
    detail: str = ""
    skipped: bool = False


@dataclass(frozen=True, eq=False)
class ModelWithCheckInputs:
    """A model with the routes and inputs of the checks."""

    frozen: FrozenModel
    plain_route: Route
    """A route without adds."""
    adding_route: Route
    """A route with adds."""
    mixture: Mixture
    """A mixture of the standard pass and another route, or the user's own."""

    @property
    def unrouted_model(self) -> Any:
        """The untouched model."""
        return self.frozen.model

    @cached_property
    def prompt_tokens(self) -> torch.Tensor:
        """A prompt of at least a dozen tokens that fills a sliding window of moderate length, ``[1, length]``."""
        if self.frozen.tokenizer is None:
            size = get_text_config(self.unrouted_model.config).vocab_size
            ids = torch.randint(size, (1, 24), generator=torch.Generator().manual_seed(0))
        else:
            ids = torch.tensor([self.frozen.tokenizer.encode(_PROMPT)])
        window = getattr(get_text_config(self.unrouted_model.config), "sliding_window", None) or 0
        if window <= _MAX_SLIDING_WINDOW:
            ids = ids.repeat(1, -(-(window + 8) // ids.shape[1]))
        return ids.to(self.unrouted_model.device)

    @property
    def prompts_of_different_length(self) -> list[torch.Tensor]:
        """Two prompts of different length, for padded batches."""
        return [self.prompt_tokens, self.prompt_tokens[:, : self.prompt_tokens.shape[1] * 2 // 3]]

    @property
    def tolerance(self) -> float:
        """Relative tolerance for the model's dtype."""
        if getattr(self.unrouted_model, "is_quantized", False):
            return QUANTIZED_TOLERANCE
        return TOLERANCES.get(self.unrouted_model.dtype, TOLERANCES[torch.float32])

    def apply_route(self, route: RouteOrMixture) -> Any:
        """Make the routed model under test."""
        return apply_route(self.unrouted_model, route, allow_untested=True)

    def compute_logits(self, model: Any, ids: torch.Tensor | None = None, **inputs: Any) -> torch.Tensor:
        """Logits of a pass without a cache."""
        with torch.no_grad():
            logits: torch.Tensor = model(self.prompt_tokens if ids is None else ids, use_cache=False, **inputs).logits
        return logits


def run_checks(frozen: FrozenModel, route: RouteOrMixture | None = None) -> Iterator[CheckResult]:
    """Run all checks, on the given route or mixture, or on test routes with repeats, skips, jumps and adds."""
    subject = _choose_inputs(frozen, route)
    subject.compute_logits(frozen.model)  # some quantized weights are repacked on first use
    before, answers = digest_weights(frozen.model), _decode_greedily(frozen.model, subject.prompt_tokens)[1]
    for name, check in CHECKS:
        yield _run_check(name, check, subject)
    yield _compare_logits(
        "the model itself answers as before", _decode_greedily(frozen.model, subject.prompt_tokens)[1], answers, 0.0
    )
    after = digest_weights(frozen.model)
    yield CheckResult("weights unchanged before and after", before == after, None, None, f"SHA-256 {after[:12]}…")


def _run_check(
    name: str, check: Callable[[ModelWithCheckInputs, str], CheckResult], subject: ModelWithCheckInputs
) -> CheckResult:
    try:
        return check(subject, name)
    except Exception as error:  # noqa: BLE001 a check that cannot run fails, and the others still run
        return CheckResult(name, passed=False, detail=f"{type(error).__name__}: {error}")


def _choose_inputs(frozen: FrozenModel, route: RouteOrMixture | None) -> ModelWithCheckInputs:
    """Of a mixture, the other checks take its last route."""
    single = route.routes[-1] if isinstance(route, Mixture) else route
    plain, adding = _choose_doctor_routes(frozen.layers, single)
    if isinstance(route, Mixture):
        return ModelWithCheckInputs(frozen, plain, adding, route)
    other = _choose_doctor_routes(frozen.layers, None)[1] if adding.is_standard else adding
    mixture = Mixture.from_weights([(Route.standard(frozen.layers), 1.5), (other, -0.5)])
    return ModelWithCheckInputs(frozen, plain, adding, mixture)


def _choose_doctor_routes(layers: int, route: Route | None) -> tuple[Route, Route]:
    """A route without adds and one with adds, from the user's route where one is given."""
    if route is not None:
        return Route(tuple(Step(step.layer) for step in route.steps), layers), route
    middle = layers // 2
    order = [*range(middle + 1), *range(max(0, middle - 2), layers), layers - 1]
    if layers > 5:
        order.remove(layers - 2)  # a skip near the end, where no second visit of the layer hides it
    plain = Route(tuple(map(Step, order)), layers)
    return plain, _insert_adds(plain)


def _insert_adds(route: Route) -> Route:
    """Insert an addition in the middle and, in a route that is long enough, a subtraction at the end."""
    steps = list(route.steps)
    coefficients = {len(steps) // 2: 1.0, len(steps) - 1: -0.25}
    for index, coefficient in coefficients.items():
        if index >= 2:
            steps[index] = Step(steps[index].layer, Add(min(3, index - 1), coefficient))
    return Route(tuple(steps), route.layers)


# --- the checks ---------------------------------------------------------------------------------------------------


def _check_identity_route(subject: ModelWithCheckInputs, name: str) -> CheckResult:
    routed = subject.apply_route(Route.standard(subject.frozen.layers))
    return _compare_logits(name, subject.compute_logits(routed), subject.compute_logits(subject.unrouted_model), 0.0)


def _check_routed_logits_without_adds(subject: ModelWithCheckInputs, name: str) -> CheckResult:
    logits = subject.compute_logits(subject.apply_route(subject.plain_route))
    if getattr(subject.unrouted_model, "is_quantized", False) or getattr(subject.unrouted_model, "hf_device_map", None):
        expected = compute_route_reference_logits(subject.unrouted_model, subject.plain_route, subject.prompt_tokens)
        detail = "quantized or on several devices: compared with the reference"
        return _compare_logits(name, logits, expected, subject.tolerance, detail)
    deeper = subject.compute_logits(build_unrolled_model(subject.unrouted_model, subject.plain_route))
    return _compare_logits(name, logits, deeper, 0.0, f"{subject.plain_route.length} layers")


def _check_adds_match_reference(subject: ModelWithCheckInputs, name: str) -> CheckResult:
    if not subject.adding_route.has_adds:
        return CheckResult(name, passed=True, detail="the route has no adds", skipped=True)
    logits = subject.compute_logits(subject.apply_route(subject.adding_route))
    expected = compute_route_reference_logits(subject.unrouted_model, subject.adding_route, subject.prompt_tokens)
    return _compare_logits(name, logits, expected, subject.tolerance, str(subject.adding_route))


def _check_mixture(subject: ModelWithCheckInputs, name: str) -> CheckResult:
    mixture = subject.mixture
    logits = subject.compute_logits(subject.apply_route(mixture))
    members = [subject.compute_logits(subject.apply_route(route)) for route in mixture.routes]
    expected = combine_logits(members, mixture)
    # Tokens at the threshold may be plausible in one pass and not in the other; NaN stays, and fails.
    plausible = find_plausible(members[mixture.reference].float(), 2 * PLAUSIBILITY)
    return _compare_logits(name, logits[plausible], expected[plausible], subject.tolerance, str(mixture))


def _check_cached_decoding(subject: ModelWithCheckInputs, name: str, *, static: bool) -> CheckResult:
    model = subject.apply_route(subject.adding_route)
    cache = _make_static_cache(model, subject) if static else None
    return _compare_cached_with_recomputed(subject, name, model, cache)


def _make_static_cache(model: Any, subject: ModelWithCheckInputs) -> Any:
    from transformers import StaticCache

    return StaticCache(config=model.config, max_cache_len=subject.prompt_tokens.shape[1] + _N_NEW_TOKENS + 1)


def _compare_cached_with_recomputed(
    subject: ModelWithCheckInputs, name: str, model: Any, cache: Any = None
) -> CheckResult:
    ids, stepwise = _decode_greedily(model, subject.prompt_tokens, cache)
    start = subject.prompt_tokens.shape[1] - 1
    recomputed = subject.compute_logits(model, ids)[:, start : start + stepwise.shape[1]]
    same = (stepwise.argmax(-1) == recomputed.argmax(-1)).float().mean().item()
    return _compare_logits(name, stepwise, recomputed, subject.tolerance, f"{same:.0%} of {_N_NEW_TOKENS} tokens agree")


def _decode_greedily(model: Any, tokens: torch.Tensor, cache: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Decode greedily with a cache; return the tokens and the logits of each new token."""
    ids, seen, feed = tokens, [], tokens
    with torch.no_grad():
        for _ in range(_N_NEW_TOKENS):
            output = model(feed, past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            seen.append(output.logits[:, -1])
            feed = seen[-1].argmax(-1, keepdim=True)
            ids = torch.cat([ids, feed], dim=1)
    return ids[:, :-1], torch.stack(seen, dim=1)


def _check_padded_batch(subject: ModelWithCheckInputs, name: str) -> CheckResult:
    """Compare two prompts of different length in a padded batch with each prompt alone."""
    model = subject.apply_route(subject.adding_route)
    alone = torch.cat([subject.compute_logits(model, ids)[:, -1] for ids in subject.prompts_of_different_length])
    pieces = []
    for side in ("left", "right"):
        ids, mask = _pad_batch(subject.prompts_of_different_length, side)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        logits = subject.compute_logits(model, ids, attention_mask=mask, position_ids=positions)
        last = ids.shape[1] - 1 if side == "left" else mask.sum(-1) - 1
        pieces.append(logits[torch.arange(2, device=logits.device), last])
    return _compare_logits(name, torch.cat(pieces), torch.cat([alone, alone]), subject.tolerance)


def _pad_batch(prompts: list[torch.Tensor], side: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and attention mask of prompts ``[1, length]`` in one batch, padded on one side."""
    ids = pad_sequence([prompt[0] for prompt in prompts], batch_first=True, padding_side=side)
    mask = pad_sequence([torch.ones_like(prompt[0]) for prompt in prompts], batch_first=True, padding_side=side)
    return ids, mask


def _check_padded_generate(subject: ModelWithCheckInputs, name: str) -> CheckResult:
    """Check that ``generate`` on a left-padded batch uses the logits that each row has alone."""
    model = subject.apply_route(subject.adding_route)
    ids, mask = _pad_batch(subject.prompts_of_different_length, "left")
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
    for row, prompt in enumerate(subject.prompts_of_different_length):
        ids = torch.cat([prompt, output.sequences[row : row + 1, -_N_NEW_TOKENS:-1]], dim=1)
        alone.append(subject.compute_logits(model, ids)[:, prompt.shape[1] - 1 :])
    return _compare_logits(name, stepwise, torch.cat(alone), subject.tolerance, f"2 rows, {_N_NEW_TOKENS} tokens")


def _check_no_extra_weight_memory(subject: ModelWithCheckInputs, name: str) -> CheckResult:
    """Count bytes of weight storage that the routed model has and the original does not."""
    original = _measure_weight_storage_bytes(subject.unrouted_model)
    routed = _measure_weight_storage_bytes(subject.apply_route(subject.adding_route))
    extra = sum(size for storage, size in routed.items() if storage not in original)
    detail = "bytes" if extra else f"{sum(routed.values()):,} bytes, all shared"
    return CheckResult(name, extra == 0, float(extra), 0.0, detail)


def _measure_weight_storage_bytes(model: Any) -> dict[int, int]:
    """The size of every weight storage in bytes, by address."""
    storages = (tensor.untyped_storage() for tensor in (*model.parameters(), *model.buffers()))
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


def _check_shared_cache_slot_fails(subject: ModelWithCheckInputs, name: str) -> CheckResult:
    """Check that one cache slot per *layer*, as in other systems, fails for a route that repeats a layer."""
    model = subject.apply_route(subject.plain_route)
    if len({step.layer for step in subject.plain_route.steps}) == subject.plain_route.length:
        return CheckResult(name, passed=True, detail="no layer is repeated", skipped=True)
    break_cache_slots(model, subject.plain_route)
    try:
        result = _compare_cached_with_recomputed(subject, name, model)
    except Exception as error:  # noqa: BLE001 a shared slot can also cause a crash
        return CheckResult(name, passed=True, detail=f"noticed: {type(error).__name__}")
    noticed = result.difference is not None and math.isfinite(result.difference) and not result.passed
    detail = "noticed: logits are off by more than allowed" if noticed else "NOT noticed"
    return CheckResult(name, noticed, result.difference, result.allowed, detail)


def break_cache_slots(model: Any, route: Route) -> None:
    """Break a routed model on purpose: every step of a layer uses one cache slot."""
    for layer, step in zip(get_decoder(model).layers, route.steps, strict=True):
        for part in layer.modules():
            if "layer_idx" in part.__dict__:
                part.layer_idx = step.layer


def _check_cuda_graph(subject: ModelWithCheckInputs, name: str) -> CheckResult:
    """Check decoding with a static cache, each step replayed from one captured CUDA graph."""
    if subject.unrouted_model.device.type != "cuda":
        return CheckResult(name, passed=True, detail="no CUDA device", skipped=True)
    model = subject.apply_route(subject.adding_route)
    expected_ids, expected = _decode_greedily(model, subject.prompt_tokens)
    try:
        step = CudaGraphStep(model, subject.prompt_tokens, _make_static_cache(model, subject))
    except RuntimeError as error:
        # Sliding-window caches and some experts copy from the host in every step, routed or not.
        if _supports_cuda_graph(subject):
            raise
        detail = f"the untouched model cannot be captured either: {error}"
        return CheckResult(name, passed=True, detail=detail, skipped=True)
    indices = range(subject.prompt_tokens.shape[1], expected_ids.shape[1])
    replayed = [step.first_logits, *(step(expected_ids[:, index, None]) for index in indices)]
    return _compare_logits(
        name, torch.stack(replayed, dim=1), expected, subject.tolerance, f"{len(replayed) - 1} replays of one graph"
    )


def _supports_cuda_graph(subject: ModelWithCheckInputs) -> bool:
    try:
        CudaGraphStep(
            subject.unrouted_model, subject.prompt_tokens, _make_static_cache(subject.unrouted_model, subject)
        )
    except RuntimeError:
        return False
    return True


CHECKS: Sequence[tuple[str, Callable[[ModelWithCheckInputs, str], CheckResult]]] = (
    ("identity route equals the untouched model, bit for bit", _check_identity_route),
    ("plain route equals an independently built deeper model", _check_routed_logits_without_adds),
    ("adds equal the reference implementation", _check_adds_match_reference),
    ("a mixture equals its routes one by one", _check_mixture),
    ("cached decoding equals recomputing", partial(_check_cached_decoding, static=False)),
    ("static cache equals recomputing", partial(_check_cached_decoding, static=True)),
    ("CUDA graph equals eager decoding", _check_cuda_graph),
    ("padded equals unpadded, left and right", _check_padded_batch),
    ("generate on a padded batch equals each row alone", _check_padded_generate),
    ("extra weight memory is zero", _check_no_extra_weight_memory),
    ("negative control: a shared cache slot is noticed", _check_shared_cache_slot_fails),
)


def _compare_logits(
    name: str, logits: torch.Tensor, expected: torch.Tensor, tolerance: float, detail: str = ""
) -> CheckResult:
    """Compare logits; ``tolerance`` is relative to the largest expected logit, 0 requires equal bits."""
    logits, expected = logits.float().cpu(), expected.float().cpu()
    difference = (logits - expected).abs().max().item()
    allowed = tolerance * expected.abs().max().item()
    passed = torch.equal(logits, expected) if tolerance == 0 else difference <= allowed  # NaN never passes
    return CheckResult(name, passed, difference, allowed, detail)


def digest_weights(model: Any) -> str:
    """SHA-256 of the bytes of all parameters and buffers."""
    digest = hashlib.sha256()
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        digest.update(name.encode())
        if not tensor.is_meta:  # offloaded weights are in files
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
