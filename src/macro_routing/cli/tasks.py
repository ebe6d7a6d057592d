"""``macro tasks``: what can be asked, and where it comes from."""

from typing import Annotated

import typer

from macro_routing.cli.console import print_json


def tasks(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the tasks with their kind, test size, licence and source.

    A task of your own is a .jsonl, .csv or .tsv file, or a .toml file that describes one:
    `macro evaluate --task mine.csv …`.

    Example: `macro tasks`
    """
    from macro_routing.tasks.benchmarks import BENCHMARKS, CONTAMINATED_PAIRS
    from macro_routing.tasks.synthetic import SYNTHETIC_TASKS

    if as_json:
        benchmarks = {
            name: {key: getattr(entry, key) for key in ("title", "kind", "test_size", "licence", "hub_id", "folder")}
            for name, entry in BENCHMARKS.items()
        }
        synthetic = {name: {"kind": task.kind, "note": task.note} for name, task in SYNTHETIC_TASKS.items()}
        contaminated = [[*pair, reason] for pair, reason in CONTAMINATED_PAIRS.items()]
        print_json({"benchmarks": benchmarks, "synthetic": synthetic, "contaminated": contaminated})
        return
    print("Benchmarks (from --data-dir, MACRO_DATA_DIR or the hub):")
    for name, entry in BENCHMARKS.items():
        size = "all" if entry.test_size is None else str(entry.test_size)
        print(f"  {name:<16} {entry.kind:<7} {size:>5} test  {entry.licence:<13} {entry.hub_id}")
    print("\nSynthetic, made by --seed:")
    for name, task in SYNTHETIC_TASKS.items():
        print(f"  {name:<16} {task.kind:<7} {task.test:>5} test  {'':<13} {task.note}")
    print("\nThese share questions and must not be judged against each other:")
    for (first, second), reason in CONTAMINATED_PAIRS.items():
        print(f"  {first}, {second}: {reason}")
