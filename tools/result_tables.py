"""Tables of the pages that are made from several records at once: the headline, the peers, the studies."""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from wording import name_task, reword

from macro_routing.routes import parse_route

DATA = Path(__file__).resolve().parents[1] / "docs" / "data"
RUNS = DATA.parents[1] / "experiments" / "raw" / "runs"
WAYS = {"direct": "direct answers", "likelihood": "multiple choice, by likelihood", "reasoning": "with reasoning"}
METHODS = {"guided": "the default search", "macro": "the paper's search", "random": "random", "rys": "RYS"}
TITLES = {
    "guided": METHODS["guided"],
    "MACRO, guided": METHODS["guided"],
    "guided against": "the default search against",
    "guided, half of the budget: gain, points": "the default search, half of the budget: gain, points",
    "evaluations, guided": "evaluations, the default search",
    "guided minus restarted, points": "default minus restarted, points",
    "paper": METHODS["macro"],
    "MACRO": METHODS["macro"],
    "paper, restarted": "the paper's search, restarted",
    "MACRO, restarted": "the paper's search, restarted",
    "macro-restarts": "the paper's search, restarted",
    "paper, restarted: gain, points": "the paper's search, restarted: gain, points",
    "MACRO (top-1)": "the paper's search (top-1)",
    "MACRO (no Vit.)": "the paper's search (no Viterbi decoding)",
    "rys": "RYS",
}
"""What the pages call a method, by its name in the records of the comparisons."""
SPEEDS = "decoding_baselines_qwen2.5-1.5b.json"
"""Decoding beside ``generate`` and vLLM; pages and pictures do without it while it is not recorded."""
_SHORT = ("guided", "macro", "rys")
"""Methods of the short table."""
UNCHANGED = "+0.0 (+0.0 to +0.0)"
_LEFT_OUT = re.compile(r"published|^standard$|top-1|no Vit")
"""Rows of the comparison that are no methods of their own."""
LAYERS, SMALL_LAYERS = 28, 30
"""Layers of the model that most records are of, and of the small one of the comparison."""


@cache
def read_record(name: str) -> Mapping[str, Any]:
    """A recorded measurement."""
    content: Mapping[str, Any] = json.loads((DATA / name).read_text(encoding="utf-8"))
    return content


def split_setting(row: Mapping[str, Any]) -> tuple[str, str, bool]:
    """Task, way to answer, and whether the small model was asked."""
    task, mode, *rest = (part.strip() for part in row["setting"].replace(" (new)", "").split(","))
    return task, mode, "small model" in rest


@cache
def read_runs(folder: str) -> tuple[Mapping[str, Any], ...]:
    """The recorded runs of a setting."""
    return tuple(map(json.loads, (RUNS / f"{folder}.jsonl").read_text(encoding="utf-8").splitlines()))


def count_test_items(folder: str) -> int:
    """The number of test items of a setting, from the verdicts of its recorded runs."""
    return int(next(iter(read_runs(folder)[0]["right"].values())), 16).bit_length() - 1


def count_correct(run: Mapping[str, Any], variant: str) -> int:
    """The correct answers of a run; the first bit only keeps leading zeros."""
    return int(run["right"][variant], 16).bit_count() - 1


def get_runs_folder(row: Mapping[str, Any]) -> str:
    """The name of the recorded runs of a setting."""
    task, mode, is_small = split_setting(row)
    return ("small-" if is_small else "") + f"{task}-{mode}"


def get_standard_of_default(folder: str) -> float:
    """The accuracy of the standard pass in the runs of the default search, in percent."""
    runs = [run for run in read_runs(folder) if run["method"] == "guided"]
    return 100 * fmean(count_correct(run, "standard") for run in runs) / count_test_items(folder)


def _layers(row: Mapping[str, Any]) -> str:
    """Layers that the standard pass applies, and the default's routes on average over seeds."""
    layers = SMALL_LAYERS if split_setting(row)[2] else LAYERS
    routes = [raw[0] for name, raw in row["raw"].items() if name.rpartition("-")[0] == "guided"]
    return f"{layers} → {fmean(parse_route(route, layers).length for route in routes):.0f}"


def get_gain(row: Mapping[str, Any], method: str) -> float:
    """The mean gain over seeds, in points."""
    raw = row["raw"]
    return 100 * fmean(raw[name][1] for name in raw if name.rpartition("-")[0] == method)


def _answers(row: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """Truncated share and tokens per answer, standard pass → default; nothing where no text is written."""
    of = answers.get(row["setting"])
    if of is None:
        return "", ""
    (truncated, tokens), (truncated_after, tokens_after) = (
        of[name].rstrip(")").split(" (") for name in ("standard", "guided")
    )
    return f"{truncated} → {truncated_after}", f"{tokens} → {tokens_after}"


def headline() -> str:
    """Gains on test sets, setting by setting, grouped by how the model answers."""
    rows = read_record("search_quality.json")["results"]
    answers = {row["setting"]: row for row in read_record("search_quality_answers.json")["results"]}
    last = ("layers", "truncated (%)", "tokens per answer")
    lines = ["| task | n | standard (%) | " + " | ".join((*METHODS.values(), *last)) + " |"]
    lines.append("| --- |" + " ---: |" * (len(METHODS) + 5))
    for mode, title in WAYS.items():
        chosen = [row for row in rows if split_setting(row)[1] == mode]
        means = " | ".join(f"**{fmean(get_gain(row, method) for row in chosen):+.1f}**" for method in METHODS)
        empty = " |" * len(last)
        mean = f", mean of {len(chosen)} | | | {means} |{empty}" if len(chosen) > 1 else " | | |" + empty + " |" * 4
        lines.append(f"| **{title}**{mean}")
        for row in sorted(chosen, key=lambda row: -get_gain(row, "guided")):
            task, _, small = split_setting(row)
            folder = get_runs_folder(row)
            cells = [row[method].replace(UNCHANGED, "0") for method in METHODS]
            name = name_task(task) + (" ᵃ" if small else "") + (" ᵇ" if "(new)" in row["setting"] else "")
            figures = f"{count_test_items(folder):,} | {get_standard_of_default(folder):.1f} | {' | '.join(cells)}"
            lines.append(f"| {name} | {figures} | {_layers(row)} | " + " | ".join(_answers(row, answers)) + " |")
    return "\n".join(["", *lines, ""])


def headline_short() -> str:
    """The default search with intervals, beside the paper's search and RYS, setting by setting."""
    rows = read_record("search_quality.json")["results"]
    answers = {row["setting"]: row for row in read_record("search_quality_answers.json")["results"]}
    lines = [
        "| task | n | standard pass (%) | default search | cost (×) | paper's search | RYS |",
        "| --- |" + " ---: |" * 6,
    ]
    for mode, title in WAYS.items():
        chosen = [row for row in rows if split_setting(row)[1] == mode]
        default, *other_means = (fmean(get_gain(row, method) for row in chosen) for method in _SHORT)
        means = " | ".join(f"{gain:+.1f}" for gain in other_means)
        mean = f", mean of {len(chosen)} | | | **{default:+.1f}** | | {means} |" if len(chosen) > 1 else " |" * 7
        lines.append(f"| **{title}**{mean}")
        for row in sorted(chosen, key=lambda row: -get_gain(row, "guided")):
            task, _, small = split_setting(row)
            folder = get_runs_folder(row)
            name = name_task(task) + (" ᵃ" if small else "") + (" ᵇ" if "(new)" in row["setting"] else "")
            shown, *others = (row[method].replace(UNCHANGED, "0") for method in _SHORT)
            figures = f"{count_test_items(folder):,} | {get_standard_of_default(folder):.1f} | {shown}"
            gains = " | ".join(gain.split(" ")[0] for gain in others)
            lines.append(f"| {name} | {figures} | {get_cost_per_answer(row, answers):.1f} | {gains} |")
    return "\n".join(["", *lines, ""])


def get_cost_per_answer(row: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any]]) -> float:
    """Layers applied × tokens generated by the default's routes, as a multiple of the standard pass's."""
    of = answers.get(row["setting"])
    tokens = 1.0
    if of is not None:
        before, after = (float(of[name].rstrip(")").split(" (")[1]) for name in ("standard", "guided"))
        tokens = after / before
    layers, routed = map(float, _layers(row).split(" → "))
    return tokens * routed / layers


def search_times() -> str:
    """How long searches took, by model, preset and way to answer."""
    demo = read_record("demo.json")
    paper = [row["minutes"] for row in read_record("results.json")["results"] if row["mode"] == "reasoning"]
    small, large = "SmolLM2-135M", "Qwen2.5-Coder-1.5B"
    lines = [
        "| model | preset | answers | measured on two CPU cores | measured on a shared H200 |",
        "| --- | --- | --- | ---: | ---: |",
    ]
    lines.append(f"| {small} | `quick` | {WAYS['likelihood']} | {demo['search_minutes']:.1f} min | – |")
    for is_small, mode in ((True, "likelihood"), (False, "likelihood"), (False, "direct"), (False, "reasoning")):
        lines.append(
            f"| {small if is_small else large} | `default` | {WAYS[mode]} | – |"
            f" up to {max(_list_default_minutes(mode, is_small=is_small)):.0f} min |"
        )
    lines.append(f"| {large} | `paper` | {WAYS['reasoning']} | – | up to {max(paper):.0f} min |")
    return "\n".join(["", *lines, ""])


def get_most_default_minutes() -> str:
    """The longest search with preset ``default`` on the larger model, in minutes."""
    return f"{max(max(_list_default_minutes(mode, is_small=False)) for mode in WAYS):.0f}"


def _list_default_minutes(mode: str, *, is_small: bool) -> list[float]:
    rows = read_record("search_quality.json")["results"]
    folders = [get_runs_folder(row) for row in rows if split_setting(row)[1:] == (mode, is_small)]
    return [run["seconds"] / 60 for folder in folders for run in read_runs(folder) if run["method"] == "guided"]


STUDIES = {
    "significance": "main-table-significance-search-time-best-routes",
    **{name.replace("-", "_"): name for name in ("ablation", "logit-lens", "transfer", "one-route", "composition")},
    **{name.replace("-", "_"): name for name in ("cost", "explain", "side-effects", "depth-tradeoff")},
}
"""Records of studies, and where the page has each."""


def get_study_headline(name: str, headline: str) -> str:
    """A study's result in a sentence; a perplexity with the number of tokens that it is over."""
    headline = reword(headline)
    if name.startswith("study_side_effects") and headline.endswith(" on LICENSE."):
        tokens = int(read_record("study_side_effects_perplexity.json")["results"][0]["c5"])
        return f"{headline.removesuffix('.')} ({tokens:,} tokens)."
    return headline


def study_headlines() -> str:
    """Every recorded study with its result in a sentence."""
    lines = ["| study | result |", "| --- | --- |"]
    for name, anchor in STUDIES.items():
        if (DATA / (file := f"study_{name}.json")).is_file():
            headline = read_record(file)["config"]["headline"]
            lines.append(f"| [{name.replace('_', ' ')}](#{anchor}) | {get_study_headline(file, headline)} |")
    return "\n" + "\n".join(lines) + "\n"


def decoding_baselines() -> str:
    """Decoding beside ``generate`` and vLLM: picture and table."""
    record = read_record(SPEEDS)
    heads = ("decoded by", "texts", "routes", "seconds (range)", "tokens per second", "times as long as fused")
    lines = ["| " + " | ".join((*heads, "repeats")) + " |", "| --- |" + " ---: |" * len(heads)]
    for row in sorted(record["results"], key=lambda row: row["rows"]):
        seconds = f"{row['seconds']:.2f} ({min(row['samples']):.2f} to {max(row['samples']):.2f})"
        counts = f"{row['rows']:,} | {row['routes']} | {seconds} | {row['tokens']:,.0f} | {row['ratio']:.2f}"
        lines.append(f"| {row['side']} | {counts} | {row['repeats']} |")
    config = record["config"]
    picture = "![Tokens per second of fused decoding, generate and vLLM](../pictures/decoding_speed.svg)"
    origin = (
        f"`{record['command']}`, {config['prompts']} prompts, {config['new_tokens']} tokens each, {config['vllm']}, "
        f"seed {record['seed']}, commit {record['commit']}; {record['hardware']}."
    )
    about = (
        "The shape of Qwen2.5-1.5B with random weights, in bfloat16. All sides decode greedily, write the same number "
        "of tokens and run each batch once before it is timed; times are medians. Only fused decoding runs several "
        "routes in one batch; vLLM runs the standard pass for as many texts. `generate` was timed with the smaller "
        "batch only. vLLM decodes up to 512 texts at once, with CUDA graphs, in a version for the machine's torch."
    )
    return "\n" + "\n\n".join([about, picture, "\n".join(lines), origin]) + "\n"


def add_test_sizes(name: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record with the number of test items in every row, where a page shows it and the rows do not hold it."""
    count = {
        "speed_objective.json": count_test_items_of_row,
        "mixture_quality.json": _count_mixture_items,
        "mixture_quality_second.json": _count_mixture_items,
    }.get(name)
    if count is None:
        return content
    (first, title), *others = content["columns"].items()
    rows = [{**row, "n_test": count(row)} for row in content["results"]]
    return {**content, "columns": {first: title, "n_test": "n", **dict(others)}, "results": rows}


def count_test_items_of_row(row: Mapping[str, Any]) -> int:
    """The number of test items of a setting."""
    return count_test_items(get_runs_folder(row))


def _count_mixture_items(row: Mapping[str, Any]) -> int:
    """The number of test items of a model and task of the comparison of mixtures, which is the same for every seed."""
    path = RUNS.parent / "mixture_quality.jsonl"
    runs = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    counts = {len(run["examples"]) for run in runs if f"{run['model']}, {run['task']}" == row["setting"]}
    (count,) = counts
    return count


def peers() -> str:
    """Every method's mean gain over the tasks of the comparison, the oracle apart."""
    rows = [row for row in read_record("peers.json")["results"] if not _LEFT_OUT.search(row["method"])]
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    sizes = [f"{count_test_items(task.replace(', ', '-')):,}" for task in tasks]
    heads = [f"{reword(task)} (n = {size})" for task, size in zip(tasks, sizes, strict=True)]
    lines = ["| method | " + " | ".join(heads) + " | mean |", "| --- |" + " ---: |" * (len(tasks) + 1)]
    by_method: dict[str, dict[str, float]] = {}
    for row in rows:
        by_method.setdefault(row["method"], {})[row["task"]] = float(row["difference"].split(" ")[0])
    order = sorted(by_method, key=lambda name: ("oracle" in name, -fmean(by_method[name].values())))
    for method in order:
        gains = by_method[method]
        cells = " | ".join(f"{gains[task]:+.1f}" if task in gains else "" for task in tasks)
        lines.append(f"| {TITLES.get(method, method)} | {cells} | {fmean(gains.values()):+.1f} |")
    return "\n".join(["", *lines, ""])


def paper_reproduction() -> str:
    """The paper's search with its own settings, task by task, over seeds."""
    rows = read_record("results.json")["results"]
    columns = (
        "task",
        "answers",
        "n",
        "standard (%)",
        "the paper's search (%)",
        "gain, seeds 1, 2, 42 (points)",
        "majority-answer baseline (%)",
    )
    lines = ["| " + " | ".join(columns) + " |", "| --- | --- |" + " ---: |" * 5]
    for key in dict.fromkeys((row["task"], row["mode"]) for row in rows):
        some = [row for row in rows if (row["task"], row["mode"]) == key]
        gains = ", ".join(str(row["difference"]).split(" ")[0] for row in some)
        means = [f"{fmean(float(row[name]) for row in some):.1f}" for name in ("standard", "macro", "constant")]
        lines.append(
            "| "
            + " | ".join([name_task(key[0]), key[1], f"{some[0]['n']:,}", means[0], means[1], gains, means[2]])
            + " |"
        )
    return "\n".join(["", *lines, ""])


TABLES: dict[str, Callable[[], str]] = {
    one.__name__.replace("_", "-"): one
    for one in (
        *(headline, headline_short, search_times, peers, paper_reproduction),
        *(decoding_baselines, study_headlines),
    )
}
