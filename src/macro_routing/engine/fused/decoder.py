"""Fused decoding of many routes and prompts: the prefill fills the cache, then all sequences decode together.

The host launches some tokens ahead and reads the predicted tokens later, so the device never waits for it.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from macro_routing.engine.batching import Tokens
from macro_routing.engine.fused.batch_plan import (
    BatchPlan,
    RoutesOverSamePrompts,
    group_by_member_count,
    list_step_layers,
    plan_batches,
    split_pairs_to_fit_memory,
    split_routes_to_fit_memory,
)
from macro_routing.engine.fused.device_tables import (
    RunningSequenceRows,
    SequenceTable,
    assign_rows_to_sequences,
    pad_row_count,
)
from macro_routing.engine.fused.model_runner import BufferSizes, ModelRunner, RotaryTable
from macro_routing.engine.fused.prefill import prefill_prompts
from macro_routing.engine.fused.quantized import has_4bit_weights
from macro_routing.engine.fused.support import find_fused_unsupported_reason
from macro_routing.engine.fused.weights import ModelWeights, fuse_weights
from macro_routing.engine.generation import GenerationRequest, SequenceStageTracker, StageTexts, max_new_tokens
from macro_routing.engine.layer_schedule import LayerSchedule, schedule_layer_calls
from macro_routing.engine.memory import CACHE_SHARE, cache_bytes_per_token, free_memory_bytes
from macro_routing.errors import ModelError
from macro_routing.models.hidden_states import compute_layer_keyword_arguments
from macro_routing.routes.mixture import RouteOrMixture

_TOKENS_AHEAD = 8
"""Tokens that are launched before the host reads the predictions."""
_MAX_KEPT_SHARE = 0.85
"""Rows are assigned again when at most this share of the assigned sequences is still running."""
_MIN_SIZES = BufferSizes(rows=64, calls=128, cached_tokens=1, kept_states=8, text_tokens=256)


class FusedDecoder:
    """Decodes routes of one model; its buffers and CUDA graphs stay from one call to the next."""

    def __init__(self, model: Any, *, graphs: bool = True) -> None:
        """Concatenate the model's projections; buffers are allocated when their sizes are known.

        Without ``graphs`` every kernel is launched by itself, which also works with interpreted kernels.
        """
        if (reason := find_fused_unsupported_reason(model, interpreted=not graphs)) is not None:
            raise ModelError(f"this model cannot use the fused decoder: {reason}")
        self._model, self._graphs = model, graphs
        self._weights: ModelWeights | None = fuse_weights(model)
        self.runner: ModelRunner | None = None

    @property
    def weights(self) -> ModelWeights:
        """The fused weights; those that were released are made again."""
        if self._weights is None:
            self._weights = fuse_weights(self._model)
        return self._weights

    @property
    def allocated_cache_bytes(self) -> int:
        """The current size of the cache."""
        return 0 if self.runner is None else 2 * self.runner.keys.nbytes

    @property
    def max_cached_tokens(self) -> int:
        """Tokens that the cache can hold, over all sequences and steps."""
        free = free_memory_bytes(self.weights.embeddings.device) + self.allocated_cache_bytes
        return min(2**31 - 1, int(CACHE_SHARE * free) // cache_bytes_per_token(self._model))

    def release_memory(self) -> None:
        """Free cache, graphs and de-quantized weights; the next call makes them again."""
        self.runner = None
        if has_4bit_weights(self._model):
            self._weights = None
        if self._model.device.type == "cuda":
            torch.cuda.empty_cache()

    def generate_for_routes(
        self, routes: Sequence[RouteOrMixture], prompts: Sequence[Tokens], request: GenerationRequest
    ) -> dict[RouteOrMixture, list[StageTexts]]:
        """The texts of every different route or mixture after each prompt, as many together as fit into memory.

        With ``stop_loops`` a sequence that a loop stopped has fewer texts than stages.
        """
        texts: dict[RouteOrMixture, list[StageTexts]] = {route: [()] * len(prompts) for route in routes}
        # Routes with a common prefix share the prefill, so they decode together.
        ordered = sorted(texts, key=list_step_layers)
        new_tokens = max_new_tokens(request.stages)
        for numbers in group_by_member_count(ordered):
            alike = [ordered[number] for number in numbers]
            for group, indices in split_routes_to_fit_memory(alike, prompts, new_tokens, self.max_cached_tokens):
                (decoded,) = self.decode_prompt_groups(
                    [RoutesOverSamePrompts.from_routes(group, [prompts[index] for index in indices])], request
                )
                for route, rows in zip(group, decoded, strict=True):
                    for index, row in zip(indices, rows, strict=True):
                        texts[route][index] = row
        return texts

    def generate_for_pairs(
        self, pairs: Sequence[tuple[RouteOrMixture, Tokens]], request: GenerationRequest
    ) -> list[StageTexts]:
        """The texts of each pair's route after its prompt: a request group per route, as many together as fit."""
        texts: list[StageTexts] = [()] * len(pairs)
        for numbers in group_by_member_count([route for route, _ in pairs]):
            alike = [pairs[number] for number in numbers]
            for group in split_pairs_to_fit_memory(alike, max_new_tokens(request.stages), self.max_cached_tokens):
                requests = [
                    RoutesOverSamePrompts.from_routes([route], [alike[n][1] for n in indices])
                    for route, indices in group.items()
                ]
                for indices, (rows,) in zip(group.values(), self.decode_prompt_groups(requests, request), strict=True):
                    for index, row in zip(indices, rows, strict=True):
                        texts[numbers[index]] = row
        return texts

    @torch.no_grad()
    def decode_prompt_groups(
        self, groups: Sequence[RoutesOverSamePrompts], request: GenerationRequest
    ) -> list[list[list[StageTexts]]]:
        """The texts by group, route or mixture, and prompt; mixtures must have equally many routes."""
        device = self.weights.embeddings.device
        # Kernels are launched on the current device, which need not be the model's.
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            new_tokens = max_new_tokens(request.stages)
            plan = plan_batches(groups, new_tokens)
            schedule = schedule_layer_calls(plan.routes)
            runner = self._get_large_enough_runner(_compute_buffer_sizes(plan, schedule))
            runner.stage_tables.copy_stages_to_device(request.stages)
            table = plan.sequence_table
            runner.tables.upload_mixtures(table)
            tokens = prefill_prompts(self._model, runner, plan)
            decoders = [SequenceStageTracker(request) for _ in range(plan.num_sequences)]
            _DecodingLoop(runner, schedule, table, decoders).decode_until_finished(tokens, new_tokens)
            by_route = plan.arrange_results_by_route_and_prompt(
                [decoder.texts_of_finished_stages for decoder in decoders]
            )
            # All members of a mixture have written the same.
            return [rows[:: max(1, group.members)] for group, rows in zip(groups, by_route, strict=True)]

    def _get_large_enough_runner(self, needed: BufferSizes) -> ModelRunner:
        if self.runner is None or not self.runner.sizes.is_large_enough_for(needed):
            current = self.runner.sizes if self.runner is not None else _MIN_SIZES
            sizes = current.enlarge_to_cover(needed, self.max_cached_tokens)
            self.runner = None  # frees its memory before more is allocated
            self.runner = ModelRunner(self.weights, self._compute_rotary(sizes), sizes, graphs=self._graphs)
        return self.runner

    def _compute_rotary(self, sizes: BufferSizes) -> list[RotaryTable]:
        """The table of every layer, as the model's own forward pass makes it; equal tables are made once."""
        # One token per row: so the masks, which come along, stay small.
        positions = torch.arange(sizes.text_tokens, device=self.weights.embeddings.device)[:, None]
        inputs = compute_layer_keyword_arguments(
            self._model, torch.zeros_like(positions), torch.ones_like(positions), positions, cached=0
        )
        tables = [arguments["position_embeddings"] for arguments in inputs.arguments]
        contiguous = {id(table): (table[0][:, 0].contiguous(), table[1][:, 0].contiguous()) for table in tables}
        return [contiguous[id(table)] for table in tables]


class _DecodingLoop:
    """The sequences of one call, from their first token to their last."""

    def __init__(
        self, runner: ModelRunner, schedule: LayerSchedule, table: SequenceTable, decoders: list[SequenceStageTracker]
    ) -> None:
        self._runner, self._schedule, self._table, self._decoders = runner, schedule, table, decoders
        self._active = np.ones(len(table), dtype=bool)

    def decode_until_finished(self, tokens: torch.Tensor, max_steps: int) -> None:
        """Decode until all sequences are finished, or for ``max_steps`` tokens."""
        assignment, step = self._prepare_decoding_step()
        self._runner.feed_first_tokens(tokens, assignment.padded_rows)
        unread = [self._copy_predicted_tokens_to_host(0, 1)]
        launched = 0
        while launched < max_steps and self._active.any():
            if self._active.sum() <= _MAX_KEPT_SHARE * assignment.num_sequences:
                assignment, step = self._prepare_decoding_step()
            ahead = min(_TOKENS_AHEAD, max_steps - launched)
            for _ in range(ahead):
                step()
            launched += ahead
            unread.append(self._copy_predicted_tokens_to_host(launched - ahead + 1, launched + 1))
            self._read_predicted_tokens(*unread.pop(0))
        for predictions in unread:
            self._read_predicted_tokens(*predictions)

    def _prepare_decoding_step(self) -> tuple[RunningSequenceRows, Callable[[], None]]:
        assignment = assign_rows_to_sequences(self._schedule, self._table, self._active, self._runner.sizes.rows)
        step = self._runner.get_or_capture_token_step(assignment)  # while the device still runs earlier launches
        self._runner.tables.upload_row_assignment(assignment)
        return assignment, step

    def _copy_predicted_tokens_to_host(self, start: int, end: int) -> tuple[torch.Tensor, Any]:
        """The predicted tokens of some steps, on their way to the host, and the event of their arrival."""
        predictions = self._runner.token_log[start:end, : len(self._table)]
        if not predictions.is_cuda:
            return predictions.clone(), None
        host = torch.empty(predictions.shape, dtype=predictions.dtype, pin_memory=True)
        host.copy_(predictions, non_blocking=True)
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return host, event

    def _read_predicted_tokens(self, predictions: torch.Tensor, event: Any) -> None:
        if event is not None:
            event.synchronize()
        columns = predictions.t().tolist()
        for sequence in np.flatnonzero(self._active):
            step = self._decoders[sequence].advance_by_token
            if any(step(token) is None for token in columns[sequence]):
                self._active[sequence] = False


def _compute_buffer_sizes(plan: BatchPlan, schedule: LayerSchedule) -> BufferSizes:
    return BufferSizes(
        rows=pad_row_count(plan.num_sequences),
        calls=len(schedule.calls),
        cached_tokens=plan.planned_cache_tokens,
        kept_states=schedule.kept_states,
        text_tokens=max(batch.tokens_per_cache_region for batch in plan.batches),
    )
