"""A context with a tiny model and tiny tasks: whole studies in a second or two."""

import json

from macro_routing.runs import make_run_config
from macro_routing.studies.context import StudyContext
from macro_routing.studies.folder import StudyFolder
from macro_routing.studies.study_result import write_study_result
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode
from macro_routing.tasks import GRADERS, Example, PromptTemplates, Task
from tests.runs.small import WORDS, small_frozen, small_task

BASE = make_run_config(
    task="small",
    model="small",
    preset="quick",
    method="macro",
    search={"iterations": 2, "draws": 6, "elite": 2, "k": 3, "epsilon_local": 0.4, "alpha": 0.5},
    data={"training": 16, "validation": 8, "test": 20},
    space={"max_length": 10},
    decoding={"answer_budget": 3, "reasoning_budget": 4},
    units={"race": 4, "full": 16},
)
SMALL, OTHER, WRITTEN = TaskWithAnswerMode("small"), TaskWithAnswerMode("other"), TaskWithAnswerMode("written")


def written_task():
    """Questions whose answer is a word that the model has to write."""

    def examples(numbers):
        return tuple(
            Example(f"t{n}", f"{WORDS[n % 40]} {WORDS[(3 * n) % 37]} {WORDS[n // 40]}", WORDS[n % 7]) for n in numbers
        )

    pools = {"train": examples(range(230)), "test": examples(range(300, 340))}
    return Task("written", "text", GRADERS["text"], PromptTemplates(), None, pools)


def small_context(path, frozen=None, study="any", settings=None, **changes):
    folder = StudyFolder.open(path / "study", study, settings or {})
    tasks = {"small": small_task(), "other": small_task("other", offset=31), "written": written_task()}
    return StudyContext(
        BASE, folder, store=path / "scores.sqlite", loaded_model=frozen or small_frozen(), loaded_tasks=tasks, **changes
    )


def check_written_files(context, result):
    """The study's files, read back."""
    data = write_study_result(context.folder, result, {}, "macro study …", lambda _: None)
    names = {path.name for path in context.folder.path.iterdir()}
    assert {"data.json", "table.csv", "table.md", "table.tex", "figure.svg", "figure.png", "figure.pdf"} <= names
    assert json.loads((context.folder.path / "data.json").read_text()) == data
    assert len((context.folder.path / "table.csv").read_text().splitlines()) == len(result.table.rows) + 1
    return data
