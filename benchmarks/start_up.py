"""What a newcomer waits for, beside an earlier checkout: set-up, GGUF files, commands, the demo, the tests.

python -m benchmarks.start_up EARLIER --commands --set-up --write docs/data/start_up.json
python -m benchmarks.start_up EARLIER --gguf FILE --write docs/data/gguf_import.json
python -m benchmarks.start_up EARLIER --demo --write docs/data/demo_time.json
python -m benchmarks.start_up EARLIER --tests test --tests test-engines --write docs/data/test_times.json

Processor time is given beside wall time, which other processes change. Commands are repeated; the fastest counts. The
demo begins with a converted model and an empty score store, once. Of the help pages of all commands the table has the
slowest; the record has all of them. Tests run once in each checkout, after its environments are made; all must pass.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.record import ROOT, write_record

COLUMNS = {
    "case": "case",
    "before_wall": "before, s",
    "before_cpu": "before, CPU s",
    "wall": "now, s",
    "cpu": "now, CPU s",
}
COMMANDS = {
    "macro --help": ["--help"],
    "macro route show": ["route", "show", "L0-L9 L5-L29 RJ", "--layers", "30"],
    "macro chat --help": ["chat", "--help"],
    "macro search --help": ["search", "--help"],
}
LIST_COMMANDS = """
import json, typer.main
from macro_routing.cli.main import make_cli_app
def list_paths(group, path=()):
    for name, command in group.commands.items():
        yield " ".join((*path, name))
        if hasattr(command, "commands"):
            yield from list_paths(command, (*path, name))
print(json.dumps([*list_paths(typer.main.get_command(make_cli_app()))]))
"""
TEST_ENVIRONMENTS = {
    "test-core": [".venv-core/.ready"],
    "test": [".venv/.ready"],
    "test-engines": ["vllm-env", "lm-eval-env", ".venv-transformers4/.ready", ".venv-site/.ready"],
}
"""What a target of the Makefile installs before its tests begin."""
CONVERT = "import sys; from macro_routing.models.catalog import fetch_model_folder; fetch_model_folder(sys.argv[1])"


def time_command(command: list[str], folder: Path, **environment: str) -> tuple[float, float]:
    """Wall and processor seconds of a command and its children."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, env={**clean, **environment}, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def time_conversion(checkout: Path, file: Path) -> tuple[float, float]:
    """Time to convert a GGUF file into an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        source = {"PYTHONPATH": str(checkout / "src"), "MACRO_CACHE_DIR": cache, "TQDM_DISABLE": "1"}
        return time_command([sys.executable, "-c", CONVERT, str(file)], checkout, **source)


def time_macro(checkout: Path, arguments: list[str]) -> tuple[float, float]:
    """The fastest of five starts of the command."""
    command = [sys.executable, "-m", "macro_routing.cli.main", *arguments]
    return min(time_command(command, checkout, PYTHONPATH=str(checkout / "src")) for _ in range(5))


def list_commands(checkout: Path) -> list[str]:
    """Every command of a checkout, groups and what is in them."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    command = [sys.executable, "-c", LIST_COMMANDS]
    listed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout  # noqa: S603
    commands: list[str] = json.loads(listed)
    return commands


def time_demo(checkout: Path) -> tuple[float, float]:
    """Time of ``macro demo`` from its start to its report."""
    from macro_routing.models.built_in import DEFAULT_MODEL
    from macro_routing.models.cache_folder import get_macro_cache_folder
    from macro_routing.models.catalog import fetch_model_folder

    fetch_model_folder(DEFAULT_MODEL)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "converted").symlink_to(get_macro_cache_folder() / "converted")
        command = [sys.executable, "-m", "macro_routing.cli.main", "demo", "--out", str(Path(folder) / "run")]
        return time_command(command, checkout, PYTHONPATH=str(checkout / "src"), MACRO_CACHE_DIR=folder)


def time_set_up(checkout: Path, target: str) -> tuple[float, float]:
    """Time of ``make TARGET`` in a copy of the sources without environments."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(
            checkout, Path(folder) / "copy", ignore=shutil.ignore_patterns(".venv*", ".git", ".*_cache")
        )
        return time_command(["make", "--silent", target], copy)


def time_tests(checkout: Path, target: str) -> tuple[float, float]:
    """Time of ``make TARGET`` where everything is installed."""
    time_command(["make", "--silent", *TEST_ENVIRONMENTS[target]], checkout)
    return time_command(["make", "--silent", target], checkout)


def measure(
    case: str, before: Callable[[], tuple[float, float]], now: Callable[[], tuple[float, float]]
) -> dict[str, Any]:
    """One row of the table, the earlier checkout first."""
    (before_wall, before_cpu), (wall, cpu) = before(), now()
    row: dict[str, Any] = {"case": case, "before_wall": before_wall, "before_cpu": before_cpu, "wall": wall, "cpu": cpu}
    print({name: value if name == "case" else round(value, 2) for name, value in row.items()}, flush=True)
    return row


def measure_command(earlier: Path, name: str, arguments: list[str]) -> dict[str, Any]:
    """The row of a command."""
    return measure(f"`{name}`", partial(time_macro, earlier, arguments), partial(time_macro, ROOT, arguments))


def measure_help_pages(earlier: Path) -> list[dict[str, Any]]:
    """A row for the help of every command that both checkouts have."""
    known = set(list_commands(earlier))
    commands = [name for name in list_commands(ROOT) if name in known]
    return [measure_command(earlier, f"macro {name} --help", [*name.split(), "--help"]) for name in commands]


def measure_commands(earlier: Path, pages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Some commands, and the slowest of ``pages``, which are the rows of help pages."""
    for name, arguments in COMMANDS.items():
        yield measure_command(earlier, name, arguments)
    slowest = max(pages, key=lambda page: page["wall"])
    yield {**slowest, "case": f"slowest help of {len(pages)} commands, {slowest['case']}"}


def measure_others(
    earlier: Path, files: list[Path], tests: list[str], *, set_up: bool, demo: bool
) -> Iterator[dict[str, Any]]:
    """The other rows that were asked for."""
    for target in tests:
        yield measure(f"`make {target}`", partial(time_tests, earlier, target), partial(time_tests, ROOT, target))
    for file in files:
        yield measure(file.name, partial(time_conversion, earlier, file), partial(time_conversion, ROOT, file))
    if demo:
        yield measure("`macro demo`", partial(time_demo, earlier), partial(time_demo, ROOT))
    if set_up:
        everything = ".venv/.ready"
        before = time_set_up(earlier, everything)  # it had one environment for the demo and the tests
        for name, target in (("what the demo needs", f"{everything}-demo"), ("what the tests need", everything)):
            yield measure(f"set-up, {name}", lambda: before, partial(time_set_up, ROOT, target))


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("earlier", type=Path)
    parser.add_argument("--commands", action="store_true")
    parser.add_argument("--gguf", type=Path, action="append", default=[])
    parser.add_argument("--set-up", action="store_true")
    parser.add_argument("--demo", action="store_true")
    parser.add_argument("--tests", choices=TEST_ENVIRONMENTS, action="append", default=[])
    parser.add_argument("--write", type=Path, required=True)
    arguments = parser.parse_args()
    git = ["git", "-C", str(arguments.earlier), "rev-parse", "--short", "HEAD"]
    earlier = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
    files = [file.resolve() for file in arguments.gguf]
    parts = {name: getattr(arguments, name) for name in ("commands", "set_up", "demo")}
    earlier_checkout = arguments.earlier.resolve()
    pages = measure_help_pages(earlier_checkout) if arguments.commands else []
    rows = list(measure_commands(earlier_checkout, pages)) if pages else []
    rows += measure_others(earlier_checkout, files, arguments.tests, set_up=arguments.set_up, demo=arguments.demo)
    flags = [f"--{name.replace('_', '-')}" for name, is_asked in parts.items() if is_asked]
    asked = " ".join([*flags, *["--gguf FILE"] * len(files), *(f"--tests {name}" for name in arguments.tests)])
    write_record(
        arguments.write,
        command=f"python -m benchmarks.start_up EARLIER {asked} --write docs/data/{arguments.write.name}",
        config={"before": earlier, "files": [file.name for file in arguments.gguf]},
        seed="none",
        columns=COLUMNS,
        results=rows,
        summary={
            "load_average_at_the_end": round(os.getloadavg()[0], 1),
            "threads": os.environ.get("OMP_NUM_THREADS", "as many as cores"),
            **({"help_pages": pages} if pages else {}),
        },
    )


if __name__ == "__main__":
    main()
