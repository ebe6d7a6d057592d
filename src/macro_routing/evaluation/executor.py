"""The protocol of workers: how an evaluator hands work items to other processes and gets the results back."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.work_items import Results, WorkItem
from macro_routing.evaluation.work_units import UnitSizes
from macro_routing.search.searcher import Failure


@dataclass(frozen=True)
class Assignment:
    """How work items have to be run; a worker whose own scope differs rejects the item."""

    task: str
    decoding: DecodingSettings
    decoder: str
    sizes: UnitSizes
    scope: str
    """Digest of the evaluator's scope."""


class Executor(Protocol):
    """Workers that run work items."""

    @property
    def workers(self) -> int:
        """Number of items that are run at the same time."""
        ...

    def run_items(
        self, assignment: Assignment, items: Sequence[WorkItem]
    ) -> Iterator[tuple[WorkItem, Results | Failure]]:
        """Results in the order in which they arrive; together they cover every item once.

        An item may come back in parts. A part that no worker survives has one route and comes back as a failure.
        A prefetch item that failed once comes back as a failure, which says nothing about its routes.
        """
        ...


def digest_scope(scope: Mapping[str, Any]) -> str:
    """A short digest of a scope."""
    return hashlib.sha256(json.dumps(scope, sort_keys=True).encode()).hexdigest()[:32]
