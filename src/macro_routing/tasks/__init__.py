"""Tasks: examples, prompts, grading of answers, splits."""

from macro_routing.tasks.benchmarks import BENCHMARKS, list_contamination_warnings
from macro_routing.tasks.catalog import list_task_names, load_task
from macro_routing.tasks.grading import GRADERS, GradedAnswer, Grader
from macro_routing.tasks.prompts import MODES, PromptTemplates
from macro_routing.tasks.splits import Splits, make_splits
from macro_routing.tasks.synthetic import SYNTHETIC_TASKS
from macro_routing.tasks.task import Example, Task, fingerprint_examples

__all__ = [
    "BENCHMARKS",
    "GRADERS",
    "MODES",
    "SYNTHETIC_TASKS",
    "Example",
    "GradedAnswer",
    "Grader",
    "PromptTemplates",
    "Splits",
    "Task",
    "fingerprint_examples",
    "list_contamination_warnings",
    "list_task_names",
    "load_task",
    "make_splits",
]
