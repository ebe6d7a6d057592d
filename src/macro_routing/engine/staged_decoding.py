"""The state of one sequence that is decoded in stages: its next input token, and the texts of its finished stages.

A text that repeats itself exactly can be stopped early.
"""

from collections import deque
from collections.abc import Sequence

from macro_routing.engine.generation import DecodingStage, GeneratedText, GenerationRequest, StageTexts

MAX_PERIOD = 64
MIN_REPEATS = 4
MIN_LOOP_TOKENS = 48
"""A loop has at least ``MIN_REPEATS`` repeats of one period and at least ``MIN_LOOP_TOKENS`` tokens."""
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


def find_loop_period(tokens: Sequence[int]) -> int | None:
    """The shortest period of the loop at the end of ``tokens``; None if they do not end in a loop."""
    size = len(tokens)
    for period in range(1, min(MAX_PERIOD, size // MIN_REPEATS) + 1):
        span = max(MIN_REPEATS * period, MIN_LOOP_TOKENS)
        if span > size:
            return None  # longer periods need even more tokens
        if tokens[size - 1] != tokens[size - 1 - period]:
            continue  # a cheap check first: slices are slow, and there are thousands of rows
        tail = tokens[size - span :]
        if tail[period:] == tail[:-period]:
            return period
    return None


def extend_loop(tokens: Sequence[int], period: int, length: int) -> tuple[int, ...]:
    """``tokens`` with their last ``period`` tokens repeated up to ``length``."""
    extended = list(tokens)
    while len(extended) < length:
        extended.append(extended[-period])
    return tuple(extended[:length])
