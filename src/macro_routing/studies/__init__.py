"""The paper's analyses, one module each: a study runs its missing parts and writes data, tables and figures.

The names below are loaded when they are asked for, so that listing the studies' options needs no deep-learning library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from macro_routing.lazy_imports import make_lazy_imports

if TYPE_CHECKING:
    from macro_routing.studies.context import RouteWithSearchedTask, StudyContext
    from macro_routing.studies.folder import StudyFolder
    from macro_routing.studies.study_result import StudyResult, write_study_result
    from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode

__all__ = [
    "RouteWithSearchedTask",
    "StudyContext",
    "StudyFolder",
    "StudyResult",
    "TaskWithAnswerMode",
    "write_study_result",
]
__getattr__, __dir__ = make_lazy_imports(
    __name__,
    {
        "RouteWithSearchedTask": "context",
        "StudyContext": "context",
        "StudyFolder": "folder",
        "StudyResult": "study_result",
        "TaskWithAnswerMode": "task_with_answer_mode",
        "write_study_result": "study_result",
    },
)
