"""Tasks as a study's options name them: ``TASK`` or ``TASK:MODE``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from macro_routing.errors import SettingsError
from macro_routing.tasks.prompts import MODES


@dataclass(frozen=True)
class TaskWithAnswerMode:
    """A task, and how it is answered unless the run's settings decide that: ``gsm8k:reasoning``."""

    task: str
    mode: str | None = None

    @classmethod
    def parse(cls, text: str) -> "TaskWithAnswerMode":
        """Parse ``TASK`` or ``TASK:MODE``."""
        name, colon, mode = text.rpartition(":")
        return cls(name, mode) if colon and mode in MODES else cls(text)

    @property
    def name_as_given(self) -> str:
        """The name as it was given."""
        return self._append_answer_mode(self.task)

    @property
    def name_with_absolute_path(self) -> str:
        """The name as a study's settings keep it: a file by its absolute path, since folders may hold equal names."""
        from macro_routing.runs.config import make_run_config

        return self._append_answer_mode(make_run_config(self.task).task)

    def __str__(self) -> str:
        """The name as it was given; of a file only its name."""
        return self._append_answer_mode(Path(self.task).name)

    def _append_answer_mode(self, name: str) -> str:
        return name if self.mode is None else f"{name}:{self.mode}"


def parse_task_names(texts: Sequence[str]) -> tuple[TaskWithAnswerMode, ...]:
    """Parse the names of several tasks; reject duplicates and an empty list."""
    tasks = tuple(TaskWithAnswerMode.parse(text) for text in texts)
    check_distinct_tasks(tasks)
    return tasks


def check_distinct_tasks(tasks: Sequence[TaskWithAnswerMode]) -> None:
    """Reject an empty list of tasks, and two that tables and folders would name the same."""
    if not tasks or len(set(map(str, tasks))) < len(tasks):
        raise SettingsError("a study needs every task once, and at least one")
