"""Tasks that share questions: a route of one is not judged on the other as if its questions were new."""

from collections.abc import Sequence

from macro_routing.errors import SettingsError
from macro_routing.studies.tables import make_text_column
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode
from macro_routing.tasks.benchmarks import (
    list_contaminating_tasks,
    list_contamination_warnings,
    list_tasks_with_rewritten_questions,
)

KEY = "shares_questions"
COLUMN = make_text_column("shared questions", KEY)
NOTE = "*Shared questions* names tasks whose questions are also in the tested one: their lines count in no sum or mean."
REWRITTEN_NOTE = (
    "*Shared questions* names tasks of the pool whose questions are also in the tested one, in other words or with"
    " other numbers: their lines count in no mean."
)


def find_contaminating_search_tasks(tested: TaskWithAnswerMode, searched: Sequence[TaskWithAnswerMode]) -> str:
    """Names of the tasks a route was searched on that share questions with the one it is tested on."""
    names = dict.fromkeys(task.task for task in searched)
    return ", ".join(name for name in names if name in list_contaminating_tasks(tested.task))


def find_rewritten_search_tasks(tested: TaskWithAnswerMode, searched: Sequence[TaskWithAnswerMode]) -> str:
    """Names of the searched tasks that share questions with the tested one in other words: none can be removed."""
    names = dict.fromkeys(task.task for task in searched)
    return ", ".join(name for name in names if name in list_tasks_with_rewritten_questions(tested.task))


def check_pooled_tasks_overlap(tasks: Sequence[TaskWithAnswerMode]) -> None:
    """Reject a pool in which one task's training examples may be another's test examples in other words."""
    names = [task.task for task in tasks]
    rewritten = [name for name in names if set(list_tasks_with_rewritten_questions(name)) & set(names)]
    if warnings := list_contamination_warnings(rewritten):
        raise SettingsError(f"{'; '.join(warnings)}; leave one of them out of the pool")
