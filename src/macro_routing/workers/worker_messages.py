"""Messages between driver and workers: JSON on every backend.

Ray pickles what it sends between its processes. It gets only strings from us, and only our own JSON is parsed.
"""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from macro_routing.errors import MacroError
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.outcomes import ExampleOutcome
from macro_routing.evaluation.scoring_settings import UnitSizes
from macro_routing.evaluation.work_items import EvaluatorSpec, Results, WorkItem
from macro_routing.models.load_options import LoadOptions
from macro_routing.routes.notation import parse_route_or_mixture
from macro_routing.tasks.catalog import load_task
from macro_routing.tasks.task import Example, Task

_FORMAT = 2
"""Version of the messages; driver and workers must have the same."""


@dataclass(frozen=True)
class WorkerTaskSource:
    """Where a worker loads a task from: its prompts and its grader; the examples come with the work items."""

    name: str
    data_dir: str | None = None
    seed: int = 0
    question: str = "question"
    answer: str = "answer"
    choices: str = ""
    kind: str | None = None

    def load_task(self) -> Task:
        """Load the task."""
        return load_task(
            self.name,
            Path(self.data_dir) if self.data_dir else None,
            self.seed,
            question=self.question,
            answer=self.answer,
            choices=self.choices,
            kind=self.kind,
        )


@dataclass(frozen=True)
class WorkerSetup:
    """Everything that a worker needs to start: it loads model and tasks itself."""

    model: str
    loading: LoadOptions
    tasks: tuple[WorkerTaskSource, ...]

    def to_json(self) -> str:
        """The first message to a worker."""
        return json.dumps({"format": _FORMAT, **dataclasses.asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> "WorkerSetup":
        """The setup that ``to_json`` wrote."""
        values = json.loads(text)
        if values.get("format") != _FORMAT:
            raise MacroError(
                f"the driver sends messages of format {values.get('format')}, this worker reads format {_FORMAT};"
                " install the same version of macro-routing on all machines"
            )
        tasks = tuple(WorkerTaskSource(**source) for source in values["tasks"])
        return cls(values["model"], LoadOptions(**values["loading"]), tasks)


# Fields are listed by hand: dataclasses.asdict copies every value deeply, which took half of the driver's time.
_EXAMPLE_FIELDS = ("id", "question", "answer", "choices", "group")
_OUTCOME_FIELDS = tuple(field.name for field in dataclasses.fields(ExampleOutcome))


def work_item_to_json(spec: EvaluatorSpec, item: WorkItem) -> str:
    """The message that sends a work item to a worker."""
    return json.dumps(
        {
            "assignment": dataclasses.asdict(spec),
            "layers": item.routes[0].layers,
            "routes": [str(route) for route in item.routes],
            "examples": [[getattr(example, name) for name in _EXAMPLE_FIELDS] for example in item.unit],
            "paired": item.paired,
        }
    )


def work_item_from_json(text: str) -> tuple[EvaluatorSpec, WorkItem]:
    """The spec and the item that ``work_item_to_json`` wrote."""
    values = json.loads(text)
    routes = tuple(parse_route_or_mixture(route, values["layers"]) for route in values["routes"])
    rows = (dict(zip(_EXAMPLE_FIELDS, row, strict=True)) for row in values["examples"])
    unit = tuple(Example(**{**row, "choices": tuple(row["choices"])}) for row in rows)
    fields = values["assignment"]
    settings = {"decoding": DecodingSettings(**fields["decoding"]), "sizes": UnitSizes(**fields["sizes"])}
    return EvaluatorSpec(**{**fields, **settings}), WorkItem(routes, unit, values["paired"])


def encode_worker_results(results: Results) -> list[list[list[Any]]]:
    """Results as lists of values, without field names."""
    return [[[getattr(outcome, name) for name in _OUTCOME_FIELDS] for outcome in outcomes] for outcomes in results]


def results_from_json(values: Any) -> Results:
    """The results that ``encode_worker_results`` wrote."""

    def decode_outcome(fields: Sequence[Any]) -> ExampleOutcome:
        named = dict(zip(_OUTCOME_FIELDS, fields, strict=True))
        return ExampleOutcome(**{**named, "log_likelihoods": tuple(named["log_likelihoods"])})

    return tuple(tuple(map(decode_outcome, outcomes)) for outcomes in values)
