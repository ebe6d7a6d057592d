"""Code that a run's model or task brings with it: run only if the call allows it, never because a folder says so."""

from pathlib import Path

from macro_routing.errors import RunError
from macro_routing.runs.config import RunConfig

TRUST_REMOTE_CODE, TRUST_GRADER = "--trust-remote-code", "--trust-grader"
"""Flags of ``macro resume``."""


def check_remote_code_trusted(config: RunConfig, folder: Path) -> None:
    """Reject a run whose model brings code."""
    if config.loading.trust_remote_code:
        raise RunError(
            f"{folder} needs code that comes with the model {config.model}; if you trust it, add --trust-remote-code"
        )


def check_graders_trusted(config: RunConfig, folder: Path, *, loads_task: bool = True) -> None:
    """Reject a run whose tasks bring graders; without ``loads_task`` only the guard tasks are loaded."""
    if graders := list_own_graders(config, loads_task=loads_task):
        raise RunError(
            f"{folder} needs the grader in {', '.join(map(str, graders))}; if you trust that code, add --trust-grader"
        )


def list_own_graders(config: RunConfig, *, loads_task: bool = True) -> list[Path]:
    """Python files of graders that the tasks of a run bring with them."""
    from macro_routing.tasks.task_files import find_own_grader

    tasks = [*([config.task] if loads_task else []), *config.guard.tasks]
    graders = (find_own_grader(task) for task in tasks)
    return [grader for grader in graders if grader is not None]


def list_trust_flags(config: RunConfig) -> list[str]:
    """What ``macro resume`` has to be told to go on with a run."""
    flags = [TRUST_REMOTE_CODE] if config.loading.trust_remote_code else []
    return [*flags, TRUST_GRADER] if list_own_graders(config) else flags
