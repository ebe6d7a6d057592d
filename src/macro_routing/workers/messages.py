"""What passes between a driver and its workers: JSON, whatever carries it.

Ray pickles what it sends between its processes; what it is given here are texts, and ours alone are read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from macro_routing.evaluation.decoding import Decoding
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.executor import Results, WorkItem
from macro_routing.evaluation.outcome import ExampleOutcome
from macro_routing.evaluation.units import UnitSizes
from macro_routing.models.frozen import FrozenModel, LoadOptions
from macro_routing.routes.notation import parse_route
from macro_routing.tasks.catalog import find_task
from macro_routing.tasks.task import Example, Task


@dataclass(frozen=True)
class TaskSource:
    """How a worker finds a task: its prompts and its grader; the examples come with the work."""

    name: str
    data_dir: str | None = None
    seed: int = 0
    question: str = "question"
    answer: str = "answer"
    choices: str = ""
    kind: str | None = None

    def find(self) -> Task:
        """The task."""
        columns = {"question": self.question, "answer": self.answer, "choices": self.choices, "kind": self.kind}
        folder = Path(self.data_dir) if self.data_dir else None
        return find_task(self.name, folder, self.seed, **columns)  # type: ignore[arg-type]


@dataclass(frozen=True)
class WorkerSetup:
    """All that a worker needs to begin: it loads model and tasks itself."""

    model: str
    loading: LoadOptions
    tasks: tuple[TaskSource, ...]

    def to_text(self) -> str:
        """As it is sent."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_text(cls, text: str) -> WorkerSetup:
        """As it was sent."""
        values = json.loads(text)
        tasks = tuple(TaskSource(**source) for source in values["tasks"])
        return cls(values["model"], LoadOptions(**values["loading"]), tasks)


def scope_digest(scope: Mapping[str, Any]) -> str:
    """A scope in few letters."""
    return hashlib.sha256(json.dumps(scope, sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Assignment:
    """How asks are to be answered; a worker whose own scope is another one refuses."""

    task: str
    decoding: Mapping[str, Any]
    decoder: str
    sizes: Mapping[str, Any]
    scope: str

    @classmethod
    def of(cls, evaluator: Evaluator) -> Assignment:
        """What an evaluator wants of its workers."""
        return cls(
            evaluator.task.name,
            dataclasses.asdict(evaluator.decoding),
            evaluator.decoder,
            dataclasses.asdict(evaluator.unit_sizes),
            scope_digest(evaluator.scope),
        )

    @property
    def most_tokens(self) -> int:
        """Tokens that may be written for each example."""
        return Decoding(**self.decoding).most_tokens

    def evaluator(self, frozen: FrozenModel, task: Task, report: Callable[[str], None]) -> Evaluator:
        """The worker's own evaluator, which keeps nothing."""
        decoding, sizes = Decoding(**self.decoding), UnitSizes(**self.sizes)
        return Evaluator(frozen, task, decoding, None, sizes, self.decoder, report)


# By hand: dataclasses.asdict copies every value deeply, which took half of the driver's time.
_EXAMPLE = ("id", "question", "answer", "choices", "group")
_OUTCOME = tuple(field.name for field in dataclasses.fields(ExampleOutcome))


def work_item_to_json(assignment: Assignment, ask: WorkItem) -> str:
    """A job as it is sent."""
    return json.dumps(
        {
            "assignment": dataclasses.asdict(assignment),
            "layers": ask.routes[0].layers,
            "routes": [str(route) for route in ask.routes],
            "examples": [[getattr(one, name) for name in _EXAMPLE] for one in ask.unit],
            "paired": ask.paired,
        }
    )


def work_item_from_json(text: str) -> tuple[Assignment, WorkItem]:
    """A job as it was sent."""
    values = json.loads(text)
    routes = tuple(parse_route(route, values["layers"]) for route in values["routes"])
    rows = (dict(zip(_EXAMPLE, one, strict=True)) for one in values["examples"])
    unit = tuple(Example(**{**row, "choices": tuple(row["choices"])}) for row in rows)
    return Assignment(**values["assignment"]), WorkItem(routes, unit, values["paired"])


def results_to_json(answers: Results) -> list[list[list[Any]]]:
    """Results as they are sent back, without the names of their fields."""
    return [[[getattr(one, name) for name in _OUTCOME] for one in outcomes] for outcomes in answers]


def results_from_json(values: Any) -> Results:
    """Results as they were sent back."""
    return tuple(tuple(ExampleOutcome(*fields) for fields in outcomes) for outcomes in values)
