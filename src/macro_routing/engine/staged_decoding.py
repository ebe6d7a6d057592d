"""The state of one sequence that is decoded in stages: its next input token, and the texts of its finished stages."""

from collections import deque

from macro_routing.engine.generation import DecodingStage, GeneratedText, GenerationRequest, StageTexts
from macro_routing.engine.loop_detection import extend_loop, find_loop_period

_LOOP_CHECK_INTERVAL = 8
"""Tokens between two checks for a loop."""


class StagedDecoder:
    """Takes the predicted tokens of one sequence and returns the tokens to feed."""

    def __init__(self, request: GenerationRequest) -> None:
        """Start at the first stage; with ``stop_loops`` a text that repeats itself ends the sequence early."""
        self._stages, self._stop_loops = request.stages, request.stop_loops
        self._texts: list[GeneratedText] = []
        self._tokens: list[int] = []
        self._forced: deque[int] = deque()
        self._stopped = False

    @property
    def texts(self) -> StageTexts:
        """The texts of the finished stages; fewer than stages if a loop ended the sequence."""
        return tuple(self._texts)

    def step(self, token: int) -> int | None:
        """Take the predicted ``token`` and return the next input token; None when the sequence is finished."""
        if self._stopped or len(self._texts) == len(self._stages):
            return None
        if self._forced:  # the prediction is ignored while forced tokens are fed
            return self._forced.popleft()
        stage = self._stages[len(self._texts)]
        if token in stage.end_tokens:
            return self._finish_stage(token, GeneratedText(tuple(self._tokens), truncated=False))
        self._tokens.append(token)
        if len(self._tokens) >= stage.max_tokens:
            return self._finish_stage(token, GeneratedText(tuple(self._tokens), truncated=True))
        if self._stop_loops and len(self._tokens) % _LOOP_CHECK_INTERVAL == 0:
            return self._stop_if_loop(token, stage)
        return token

    def _stop_if_loop(self, token: int, stage: DecodingStage) -> int | None:
        if (period := find_loop_period(self._tokens)) is None:
            return token
        # The loop would go on up to max_tokens; the caller decodes later stages from the extended prompt.
        self._texts.append(GeneratedText(extend_loop(self._tokens, period, stage.max_tokens), truncated=True))
        self._stopped = True
        return None

    def _finish_stage(self, token: int, text: GeneratedText) -> int | None:
        forced = self._stages[len(self._texts)].forced_tokens
        self._texts.append(text)
        self._tokens = []
        if len(self._texts) == len(self._stages):
            return None
        self._forced = deque([token, *forced] if text.truncated else forced)
        # Without forced tokens the next stage starts with the token that ended this one.
        return self._forced.popleft() if self._forced else self.step(token)
