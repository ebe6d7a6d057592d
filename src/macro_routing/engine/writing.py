"""One row of a batch that writes in stages: what it is fed next, when a stage is over, what it has written."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from macro_routing.engine.batches import Tokens
from macro_routing.engine.generation import Generated
from macro_routing.engine.loops import continued, period_of

_LOOK_EVERY = 8
"""Tokens between two looks for a loop."""


@dataclass(frozen=True)
class Stage:
    """A text up to an end token or a budget, and the tokens dictated after it where another stage follows."""

    ends: Collection[int]
    budget: int
    bridge: Tokens = ()


@dataclass(frozen=True)
class Written:
    """What a row has written; fewer texts than stages when it left in a loop."""

    texts: tuple[Generated, ...]

    def context(self, stages: Sequence[Stage]) -> Tokens:
        """All that stands between the prompt and the next stage."""
        found: list[int] = []
        for text, stage in zip(self.texts, stages, strict=False):
            found += [*text.tokens, *stage.bridge]
        return tuple(found)


class Writer:
    """The progress of one row."""

    def __init__(self, stages: Sequence[Stage], *, stop_loops: bool = False) -> None:
        """Nothing written yet."""
        self._stages = stages
        self._stop_loops = stop_loops
        self._texts: list[Generated] = []
        self._tokens: list[int] = []
        self._dictated: deque[int] = deque()
        self._left = False

    @property
    def written(self) -> Written:
        """The texts of all stages that are over."""
        return Written(tuple(self._texts))

    def take(self, token: int) -> int | None:
        """The model's next ``token`` comes in; out goes what to feed it, None when the row is done."""
        if self._left or len(self._texts) == len(self._stages):
            return None
        if self._dictated:  # the model is not asked while text is dictated to it
            return self._dictated.popleft()
        stage = self._stages[len(self._texts)]
        if token in stage.ends:
            return self._next_stage(token, Generated(tuple(self._tokens), cut_off=False))
        self._tokens.append(token)
        if len(self._tokens) >= stage.budget:
            return self._next_stage(token, Generated(tuple(self._tokens), cut_off=True))
        if self._stop_loops and len(self._tokens) % _LOOK_EVERY == 0 and (period := period_of(self._tokens)):
            # It would go on to the budget; what follows a loop continues a longer prompt, see ``_finish_loops``.
            self._texts.append(Generated(continued(self._tokens, period, stage.budget), cut_off=True))
            self._left = True
            return None
        return token

    def _next_stage(self, token: int, text: Generated) -> int | None:
        bridge = self._stages[len(self._texts)].bridge
        self._texts.append(text)
        self._tokens = []
        if len(self._texts) == len(self._stages):
            return None
        self._dictated = deque([token, *bridge] if text.cut_off else bridge)
        # With nothing to dictate the next stage begins with the token that ended this one.
        return self._dictated.popleft() if self._dictated else self.take(token)
