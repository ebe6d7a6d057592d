"""Where a search's minutes went, read from its run's log.

python -m benchmarks.search_time RUN --write docs/data/search_time.json
"""

import argparse
import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.record import write_record

COLUMNS = {"part": "part", "seconds": "seconds", "detail": "what was done"}
_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)  (.*)")
_ROUND = re.compile(
    r"round (\d+)/(\d+): .*?(\d+) different routes, (\d+) stopped; (\d+) (?:evaluations|outcomes) run, (\d+) saved"
)


def parse_log_phases(log: str) -> list[dict[str, Any]]:
    """The log's lines as parts with their seconds; a round's line stands at its end, a stage's at its beginning."""
    lines = [(datetime.fromisoformat(match[1]), match[2]) for match in _LINE.finditer(log)]
    found, before = [], lines[0][0]
    for index, (when, text) in enumerate(lines):
        if match := _ROUND.match(text):
            detail = f"{match[3]} different routes, {match[4]} stopped; {match[5]} evaluations run, {match[6]} saved"
            found.append(
                {"part": f"round {match[1]} of {match[2]}", "seconds": _seconds_between(before, when), "detail": detail}
            )
        elif index + 1 < len(lines) and (text.startswith(("validation", "test")) or "costs" in text):
            name, _, detail = text.partition(": ")
            found.append({"part": name, "seconds": _seconds_between(when, lines[index + 1][0]), "detail": detail})
        before = when
    found.append({"part": "together", "seconds": _seconds_between(lines[0][0], lines[-1][0]), "detail": lines[-1][1]})
    return found


def _seconds_between(begin: datetime, end: datetime) -> float:
    return (end - begin).total_seconds()


def main() -> None:
    """Read, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    results = parse_log_phases((arguments.run / "log.txt").read_text(encoding="utf-8"))
    header = json.loads((arguments.run / "run.json").read_text(encoding="utf-8"))
    for one in results:
        print(f"{one['part']:<50} {one['seconds']:7.0f}  {one['detail']}")
    if arguments.write:
        given, machine = header["config"]["given"], header["environment"]
        model = Path(header["model"]["name"]).name
        write_record(
            arguments.write,
            command=f"macro search --model MODEL --task {given['task']} --preset {given['preset']}"
            f" --seed {given['seed']}",
            config={
                "model": model,
                "decoding": header["scope"]["decoding"],
                "units": header["config"]["resolved"]["units"],
            },
            seed=given["seed"],
            columns=COLUMNS,
            results=results,
            where=f"one {machine.get('cuda:0', machine['processor'])}; {machine['extra [models]']}",
        )


if __name__ == "__main__":
    main()
