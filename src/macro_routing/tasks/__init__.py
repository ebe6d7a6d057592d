"""Tasks: examples, prompts, grading of answers, splits.

Public names are imported on first use: listing a command's options needs no grader and no numpy.
"""

from typing import TYPE_CHECKING

from macro_routing.lazy_imports import make_lazy_imports

if TYPE_CHECKING:
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
__getattr__, __dir__ = make_lazy_imports(
    __name__,
    {
        "BENCHMARKS": "benchmarks",
        "GRADERS": "grading",
        "MODES": "prompts",
        "SYNTHETIC_TASKS": "synthetic",
        "Example": "task",
        "GradedAnswer": "grading",
        "Grader": "grading",
        "PromptTemplates": "prompts",
        "Splits": "splits",
        "Task": "task",
        "fingerprint_examples": "task",
        "list_contamination_warnings": "benchmarks",
        "list_task_names": "catalog",
        "load_task": "catalog",
        "make_splits": "splits",
    },
)
