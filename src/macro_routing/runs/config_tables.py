"""The tables of a run's configuration that are made here: data, answers, route space, guard tasks.

The others are the settings of the packages below: of models, searches, scoring and the decision.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from macro_routing.engine.decoders import AUTO
from macro_routing.errors import SettingsError
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.settings import check_integer, check_number, check_string, option
from macro_routing.tasks.prompts import DIRECT, MODES

if TYPE_CHECKING:
    from macro_routing.routes.space import RouteSpace

MODEL, DATA, ANSWERING, SEARCH, BUDGET = "Model", "Data", "Answering", "Search", "Budget"
"""Panels that the options of a run are grouped in; loading is under Model, workers are under Execution."""
PRESET_DECIDES = "the preset's"
_PATH = "PATH"


@dataclass(frozen=True)
class DataSettings:
    """Where examples come from and how many are used."""

    data_dir: str | None = option(
        None, "Folder with the benchmarks' files; else MACRO_DATA_DIR, else the hub.", DATA, metavar=_PATH
    )
    question: str = option("question", "Column of the question, for a file of your own.", DATA)
    answer: str = option("answer", "Column of the answer.", DATA)
    choices: str = option("", "Column of the choices, or several, separated by commas.", DATA)
    kind: str | None = option(None, "Kind of the answers: number, choice, math or text.", DATA)
    training: int = option(1000, "Number of training examples.", DATA, shown_default=PRESET_DECIDES)
    validation: int = option(200, "Number of validation examples.", DATA, shown_default=PRESET_DECIDES)
    test: int | None = option(
        None, "Use only the first N test examples.", DATA, shown_default="all, or the preset's", metavar="N"
    )
    test_seed: int | None = option(
        None, "Seed of the test set; runs of other seeds share it.", DATA, shown_default="the seed, or the preset's"
    )

    def __post_init__(self) -> None:
        """Reject impossible sizes and names."""
        for name in ("data_dir", "question", "answer", "choices", "kind"):
            check_string(name, getattr(self, name))
        check_integer("training", self.training, minimum=1)
        check_integer("validation", self.validation, minimum=1)
        if self.test is not None:
            check_integer("test", self.test, minimum=1)
        if self.test_seed is not None:
            check_integer("test_seed", self.test_seed, minimum=0, maximum=2**32 - 1)


@dataclass(frozen=True)
class AnswerSettings:
    """How the model answers; ``mode`` may be left to the task."""

    mode: str = option(
        AUTO,
        "How the model answers; auto: likelihood for choices, direct for the rest.",
        ANSWERING,
        choices=(AUTO, *MODES),
    )
    reasoning_budget: int = option(400, "Maximum reasoning tokens.", ANSWERING)
    answer_budget: int = option(128, "Maximum answer tokens.", ANSWERING)
    by_letter: bool = option(False, "Compare the likelihood of the choices' letters, not of their texts.", ANSWERING)
    stop_loops: bool = option(
        False, "Stop generating an answer that loops.", ANSWERING, flag="--stop-loops/--no-stop-loops"
    )

    def __post_init__(self) -> None:
        """Reject impossible settings."""
        self.resolve_answer_mode(DIRECT)

    def resolve_answer_mode(self, automatic: str) -> DecodingSettings:
        """How answers are obtained where ``automatic`` is the task's own mode."""
        mode = automatic if self.mode == AUTO else self.mode
        return DecodingSettings(**{**dataclasses.asdict(self), "mode": mode})


@dataclass(frozen=True)
class SpaceSettings:
    """The route space, but for the number of layers, which is the model's; see ``RouteSpace``."""

    max_length: int = option(0, "Maximum length of a route, in layers.", SEARCH, shown_default="layers + 12")
    radius: int = 5
    window: int = option(
        6, "Search only routes that every export supports: nothing is added to a state.", SEARCH,
        flag="--no-adds", flag_value=0,
    )  # fmt: skip
    coefficients: tuple[float, ...] = (1.0,)
    phase: bool = True
    displacement: bool = True
    operator: bool = True
    previous_layer: bool = False

    def __post_init__(self) -> None:
        """Reject what no model could have; the maximum length is checked when the model is known."""
        self.make_space(2, max_length=0)
        check_integer("max_length (T_max)", self.max_length, minimum=0)

    def make_space(self, layers: int, **automatic: Any) -> RouteSpace:
        """The space over a model's layers."""
        from macro_routing.routes.space import RouteSpace

        return RouteSpace(layers, **{**dataclasses.asdict(self), **automatic})


@dataclass(frozen=True)
class GuardTaskSettings:
    """Other tasks that the chosen route must not harm too much."""

    tasks: tuple[str, ...] = option(
        (), "A task on which the chosen route must not lose; may be repeated.", SEARCH, flag="--guard-task"
    )
    max_drop: float = option(2.0, "Maximum loss on each guard task, in points of accuracy.", SEARCH)
    examples: int = 200
    """Validation examples per task."""

    def __post_init__(self) -> None:
        """Reject impossible guards."""
        if isinstance(self.tasks, str) or not all(isinstance(task, str) and task for task in self.tasks):
            raise SettingsError(f"tasks = {self.tasks!r} is not allowed: it must be a list of tasks")
        object.__setattr__(self, "tasks", tuple(self.tasks))
        check_number("max_drop", self.max_drop, minimum=0, maximum=100)
        check_integer("examples", self.examples, minimum=1)
