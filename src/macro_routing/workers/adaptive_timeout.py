"""How long a work item may take before its worker counts as hanging: longer for larger items, by measured speed.

Work items differ a thousandfold in size, and so do machines and models in speed. The configured timeout is therefore a
minimum. It grows with the routes, the examples and the longest texts of an item: by a limited factor until the first
result, then by the seconds that items of the same scope have taken.
"""

from dataclasses import dataclass, field

from macro_routing.evaluation.work_items import WorkItem

_USUAL_SIZE = 64.0
"""Standard passes with short answers that the timeout is meant for; a unit on CPU has as many examples."""
_SHORT_TOKENS = 128.0
"""Number of generated tokens that cost as much as reading a prompt."""
_MAX_UNMEASURED_FACTOR = 8.0
"""Maximum factor on the timeout before there is a measurement.

A worker that hangs from the start must be detected, too; an item of several routes is then tried in parts.
"""
_SLACK = 10.0
"""How much slower than earlier items an item may be: prompts and machines differ."""


def estimate_item_work(item: WorkItem, max_new_tokens: int) -> float:
    """An item's work in standard passes with short answers, if each answer has up to ``max_new_tokens``."""
    examples = 1 if item.paired else len(item.unit)
    passes = sum(route.length / route.layers for route in item.routes) * examples
    return passes * (1 + max_new_tokens / _SHORT_TOKENS)


@dataclass
class AdaptiveTimeout:
    """Timeouts by the size of an item, separate for each scope: another task or answer mode has another speed."""

    minimum: float
    """Seconds that every item may take."""
    _measured: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By scope: the total work and time of its finished items."""

    def record_item_duration(self, scope: str, size: float, seconds: float) -> None:
        """Record that an item of this size took this long."""
        total_size, total_seconds = self._measured.get(scope, (0.0, 0.0))
        self._measured[scope] = total_size + size, total_seconds + seconds

    def timeout_seconds(self, scope: str, size: float) -> float:
        """How long an item of this size may take."""
        total_size, total_seconds = self._measured.get(scope, (0.0, 0.0))
        if not total_size:
            return self.minimum * min(max(1.0, size / _USUAL_SIZE), _MAX_UNMEASURED_FACTOR)
        return max(self.minimum, _SLACK * size * total_seconds / total_size)
