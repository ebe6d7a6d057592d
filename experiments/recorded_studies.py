"""The paper's studies on a real model, in parts that can be resumed, each by the command that anyone can repeat.

    python -m experiments.recorded_studies MODEL --runs FOLDER [--data-dir FOLDER] [--minutes 20]    run what is missing
    python -m experiments.recorded_studies --runs FOLDER [--write docs]                              collect results

Every study has its folder under FOLDER. No part begins after the minutes are over; what was begun goes on the next
time. Tables go to docs/data/study_*.json and pictures to docs/pictures; a study that was not finished is left out, and
the page says so. ``--small`` tries everything at a tiny size; ``--only`` runs some studies.
"""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.record import write_record

DATA, ROUTE = "data.json", "ROUTE"
RUN = "{run}"
"""Stands for a finished run: of the route that the transfer study has found, or of its first task."""
_QUESTIONS = "examples"
"""A table that quotes questions of a dataset, which are not ours to publish."""
TASKS = "counting:direct,gsm8k:direct,arithmetic:direct,category:likelihood,sequence:likelihood,sciq:likelihood"
POOL, OUTSIDE = "counting:direct,category:likelihood,sequence:likelihood", "gsm8k:direct,sciq:likelihood"
_SMALL = "--iterations 2 --draws 3 --elite 2 --training 8 --validation 4 --test 4"
_SMALL_TASKS = "category:likelihood,sequence:likelihood"
_SMALL_ROUTE = "'L0-L4 L7(+h-2) L8-L21 L20 RJ'"
"""A tiny search may well find nothing; the demo's route on SmolLM2-135M."""


_TOLD = ("steps", "route", "routes", "text", "commonest_answer")
"""Details that a record keeps: what a picture was drawn from, and nothing of the machine's folders."""


@dataclass(frozen=True)
class Study:
    """A study by the name of its folder, and the words of its command."""

    name: str
    words: str
    searches: bool = True
    """Whether it takes settings of searches."""

    @property
    def needs_route(self) -> bool:
        """Whether it is about the route that the transfer study has found."""
        return ROUTE in self.words

    @property
    def command(self) -> str:
        """``macro explain``, or one of ``macro study``."""
        return "macro" if self.name == "explain" else "macro study"


_PUBLISHED = (
    *("Qwen3-1.7B", "Qwen/Qwen3-4B", "Qwen/Qwen3-8B", "Qwen/Qwen3-14B (4-bit)"),
    *("mistralai/Mixtral-8x7B-Instruct-v0.1 (4-bit)", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B"),
)
"""The models over which the paper corrects its p-values."""


def published_study() -> Study:
    """The paper's significance table from its main table: no model is run."""
    words = ["significance", "tests/data/published_results.json", "--baseline", "Baseline", "--method", "MACRO"]
    return Study("significance", shlex.join([*words, "--models", ",".join(_PUBLISHED)]), searches=False)


def list_studies() -> list[Study]:
    """All of them, those that others need first."""
    return [
        published_study(),
        Study("transfer", f"transfer --preset paper --tasks {TASKS} --seed 1"),
        Study("logit-lens", f"logit-lens {ROUTE} --test 256"),
        Study("cost", f"cost {ROUTE} --tasks counting:direct,gsm8k:direct,gsm8k:reasoning,sciq:likelihood"),
        Study("explain", f"explain {ROUTE}"),
        Study("side-effects", f"side-effects {ROUTE} --tasks {TASKS} --text LICENSE"),
        Study("depth-tradeoff", f"depth-tradeoff {RUN}", searches=False),
        Study("ablation", "ablation --preset paper --tasks counting:direct,category:likelihood --seeds 1,2"),
        Study("one-route", f"one-route --preset paper --tasks {POOL} --out-of-domain {OUTSIDE} --seed 1"),
        Study(
            "sweep-elite", "sweep --setting elite --values 1,5,12 --preset paper --tasks counting:direct --seeds 1,2"
        ),
        Study("sweep-beta", "sweep --setting beta --values 0.5,5 --preset paper --tasks counting:direct --seeds 1,2"),
        Study("composition", "composition", searches=False),
        Study(
            "main-table",
            "main-table --preset paper --tasks counting:direct,gsm8k:direct,sciq:likelihood --seeds 1,2,42"
            " --methods macro,random,drllm",
        ),
    ]


def list_small_studies() -> list[Study]:
    """The same at a tiny size, on synthetic tasks."""
    return [
        published_study(),
        Study("transfer", f"transfer --tasks {_SMALL_TASKS} {_SMALL}"),
        Study("logit-lens", f"logit-lens {_SMALL_ROUTE} --test 4"),
        Study("cost", f"cost {_SMALL_ROUTE} --tasks category:likelihood --items 4 --repeats 2"),
        Study("explain", f"explain {_SMALL_ROUTE} --test 6"),
        Study(
            "side-effects", f"side-effects {_SMALL_ROUTE} --tasks {_SMALL_TASKS} --test 4 --text LICENSE --windows 2"
        ),
        Study("depth-tradeoff", f"depth-tradeoff {RUN} --test 4", searches=False),
        Study("ablation", f"ablation --tasks category:likelihood --seeds 1 {_SMALL}"),
        Study("one-route", f"one-route --tasks {_SMALL_TASKS} --out-of-domain arithmetic --answer-budget 4 {_SMALL}"),
        Study("sweep-elite", f"sweep --setting elite --values 1 --tasks category:likelihood --seeds 1 {_SMALL}"),
        Study("sweep-beta", f"sweep --setting beta --values 5 --tasks category:likelihood --seeds 1 {_SMALL}"),
        Study("composition", "composition", searches=False),
        Study("main-table", f"main-table --tasks category:likelihood --methods macro,random --seeds 1 {_SMALL}"),
    ]


def find_route(runs: Path) -> Path | None:
    """The first run of the transfer study that found another route than the standard pass."""
    order = json.loads((runs / "transfer" / "study.json").read_text(encoding="utf-8"))["settings"]["tasks"]
    folders = list((runs / "transfer" / "runs").glob("*/route.json"))
    places = sorted(folders, key=lambda path: _order_index(path.parent.name, order))
    for path in places:
        if json.loads(path.read_text(encoding="utf-8"))["route"] != "L0 RJ":
            return path.parent
    return None


def _order_index(folder: str, order: Sequence[str]) -> int:
    names = [name.replace(":", "_") for name in order]
    return next((index for index, name in enumerate(names) if folder.startswith(f"{name}-")), len(names))


def build_command(study: Study, model: str, runs: Path, data_dir: Path | None) -> list[str] | None:
    """The words after the study's command; None where a route is needed and none was found."""
    words = shlex.split(study.words)
    if RUN in words:
        found = sorted((runs / "transfer" / "runs").glob("*/result.json"))
        if not found:
            return None
        words[words.index(RUN)] = str(find_route(runs) or found[0].parent)
    if study.needs_route:
        if not (runs / "transfer" / DATA).is_file() or (route := find_route(runs)) is None:
            return None
        words[words.index(ROUTE)] = str(route)
    if not study.searches:
        return [*words, str(runs)] if study.name == "composition" else words
    words += ["--models" if study.name == "main-table" else "--model", model]
    return [*words, *(["--data-dir", str(data_dir)] if data_dir else [])]


def run_missing(model: str, runs: Path, data_dir: Path | None, minutes: float, wanted: Sequence[Study]) -> None:
    """Run study by study while there is time."""
    end = time.monotonic() + 60 * minutes
    for study in wanted:
        left = (end - time.monotonic()) / 60
        if study.searches and (runs / study.name / DATA).is_file():  # what only reads is quick, and may find more
            continue
        if left <= 0:
            return
        words = build_command(study, model, runs, data_dir)
        if words is None:
            print(f"{study.name}: there is no route yet that differs from the standard pass", flush=True)
            continue
        words += ["--out", str(runs / study.name)]
        if study.searches:
            words += ["--minutes", f"{max(left, 0.01):.2f}"]  # no less: none is refused
            if study.name != "main-table":  # its times are only fair without what others have worked out
                words += ["--store", str(runs / "scores.sqlite")]
        print(f"{study.command} {shlex.join(words)}", flush=True)
        status = run_macro([*study.command.split()[1:], *words])
        print(f"{study.name}: ended with status {status}", flush=True)


def run_macro(words: Sequence[str]) -> int:
    """Run a command; its exit status."""
    return subprocess.run([sys.executable, "-m", "macro_routing.cli.main", *words], check=False).returncode  # noqa: S603


# --- collecting ---------------------------------------------------------------------------------------------------


def collect_records(runs: Path, docs: Path, wanted: Sequence[Study]) -> None:
    """Write what is finished into the documentation's data and pictures."""
    for study in wanted:
        folder = runs / study.name
        if not (folder / DATA).is_file():
            print(f"{study.name}: not run yet")
            continue
        data = json.loads((folder / DATA).read_text(encoding="utf-8"))
        print(f"{study.name}: {data['headline']}")
        for name, table in data["tables"].items():
            if name != _QUESTIONS:
                _write(docs, study, data, name, table)
        for picture in iterate_pictures(folder):
            target = docs / "pictures" / f"{_record_name(study.name, picture.stem)}.svg"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(picture, target)


def iterate_pictures(folder: Path) -> Iterator[Path]:
    """The study's drawings; of several alike, one per kind of search, only the first, which is the figure."""
    yield from (path for path in sorted(folder.glob("*.svg")) if not path.stem.startswith("layers_"))


def _record_name(study: str, part: str) -> str:
    base = f"study_{study.replace('-', '_')}"
    return base if part in {"table", "figure"} else f"{base}_{part}"


def _write(docs: Path, study: Study, data: dict[str, Any], name: str, table: dict[str, Any]) -> None:
    machine, settings = data["environment"], data["settings"]
    heads = list(dict.fromkeys(head for row in table["shown"] for head in row))
    columns = {f"c{index}": head for index, head in enumerate(heads)}
    results = [
        {**{key: row.get(head, "") for key, head in columns.items()}, "raw": raw}
        for row, raw in zip(table["shown"], table["rows"], strict=True)
    ]
    runs = settings.get("runs")
    seeds = settings.get("seeds") or [settings.get("seed", 1)]
    model = Path(str(runs["model"])).name if isinstance(runs, dict) else ""
    config = {
        "study": data["study"],
        "model": model,
        "headline": data["headline"],
        "title": table["title"],
        "notes": table["notes"],
        "comparisons": data["comparisons"],
        "seeds": seeds,
        "details": {key: value for key, value in data["details"].items() if key in _TOLD and name == "table"},
    }
    device = f"one {machine['cuda:0']}" if "cuda:0" in machine else machine.get("processor", "a machine")
    write_record(
        docs / "data" / f"{_record_name(study.name, name)}.json",
        command=f"{study.command} {study.words}{_closing_sentence(study)}".replace(RUN, "RUN"),
        config=config,
        seed=seeds[0] if len(seeds) == 1 else ", ".join(map(str, seeds)),
        columns=columns,
        results=results,
        where=f"{device}; {machine.get('extra [models]', '')}",
    )


def _closing_sentence(study: Study) -> str:
    """What a command needs beside the words of the study."""
    if study.searches:
        return " --models MODEL" if study.name == "main-table" else " --model MODEL"
    return " FOLDER" if study.name == "composition" else ""


def main() -> None:
    """Run and collect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--only", help="names of studies, with commas")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--write", type=Path, default=Path("docs"))
    arguments = parser.parse_args()
    wanted = list_small_studies() if arguments.small else list_studies()
    if arguments.only:
        wanted = [study for study in wanted if study.name in arguments.only.split(",")]
    if arguments.model:
        arguments.runs.mkdir(parents=True, exist_ok=True)
        run_missing(arguments.model, arguments.runs, arguments.data_dir, arguments.minutes, wanted)
    collect_records(arguments.runs, arguments.write, wanted)


if __name__ == "__main__":
    main()
