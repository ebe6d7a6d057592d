"""What every recorded measurement carries, so that anyone can repeat it."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def describe_hardware(device: str = "cpu") -> str:
    """The machine in words, without its name; the GPU with its libraries where one was used."""
    machine = f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    if not device.startswith("cuda"):
        return machine
    import torch
    import transformers

    gpu = torch.cuda.get_device_name()
    return f"one {gpu}, torch {torch.__version__}, transformers {transformers.__version__}; {machine}"


def current_commit() -> str:
    """The commit measured, marked when the tree had changes; a copy without its history is told by MACRO_COMMIT."""
    if told := os.environ.get("MACRO_COMMIT"):
        return told

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603

    changed = git("status", "--porcelain", "--", "src", "benchmarks", "experiments")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + (" with changes" if changed else "")


def describe_run_hardware(header: Mapping[str, Any]) -> str:
    """The machine that a run was made on, in words."""
    machine = header["environment"]
    return f"one {machine.get('cuda:0', machine['processor'])}; {machine['extra [models]']}"


def write_record(  # noqa: PLR0913 a record names all it takes to repeat it
    path: Path,
    *,
    command: str,
    config: Mapping[str, Any],
    seed: int | str,
    columns: Mapping[str, str],
    results: Sequence[Mapping[str, Any]],
    device: str = "cpu",
    where: str | None = None,
    commits: str | None = None,
    summary: Mapping[str, Any] | None = None,
) -> None:
    """Write a measurement; ``columns`` maps the keys of a result that the pages show to their headings.

    ``summary`` holds figures about all results. ``where`` says what it was made on when that is not this machine,
    ``commits`` with what when that was not now.
    """
    record = {
        "command": command,
        "config": dict(config),
        "commit": commits or current_commit(),
        "hardware": where or describe_hardware(device),
        "seed": seed,
        "n": len(results),
        **(summary or {}),
        "columns": dict(columns),
        "results": [dict(result) for result in results],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
