"""What is asked, and when an answer is right."""

from macro_routing.tasks.benchmarks import BENCHMARKS, contamination
from macro_routing.tasks.catalog import load_task, task_names
from macro_routing.tasks.grading import GRADERS, Grader, Verdict
from macro_routing.tasks.prompts import MODES, PromptTexts
from macro_routing.tasks.splits import Splits, make_splits
from macro_routing.tasks.synthetic import SYNTHETIC
from macro_routing.tasks.task import Example, Task, fingerprint

__all__ = [
    "BENCHMARKS",
    "GRADERS",
    "MODES",
    "SYNTHETIC",
    "Example",
    "Grader",
    "PromptTexts",
    "Splits",
    "Task",
    "Verdict",
    "contamination",
    "fingerprint",
    "load_task",
    "make_splits",
    "task_names",
]
