"""Tables of the pages that are made from several records at once: the headline, the peers, the speed bound."""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from macro_routing.routes import parse_route

DATA = Path(__file__).resolve().parents[1] / "docs" / "data"
RUNS = DATA.parents[1] / "experiments" / "raw" / "runs"
WAYS = {"direct": "direct answers", "likelihood": "choices by likelihood", "reasoning": "with reasoning"}
METHODS = {"guided": "this project's default", "macro": "the paper's search", "random": "random", "rys": "RYS"}
TITLES = {
    "guided": METHODS["guided"],
    "MACRO, guided": METHODS["guided"],
    "guided against": "this project's default against",
    "guided, half of the budget: gain, points": "this project's default, half of the budget: gain, points",
    "evaluations, guided": "evaluations, this project's default",
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
def _read_runs(folder: str) -> tuple[Mapping[str, Any], ...]:
    """The recorded runs of a setting."""
    return tuple(map(json.loads, (RUNS / f"{folder}.jsonl").read_text(encoding="utf-8").splitlines()))


def _count_test_items(folder: str) -> int:
    """The number of test items of a setting, from the verdicts of its recorded runs."""
    return int(next(iter(_read_runs(folder)[0]["right"].values())), 16).bit_length() - 1


def _count_correct(run: Mapping[str, Any], variant: str) -> int:
    """The correct answers of a run; the first bit only keeps leading zeros."""
    return int(run["right"][variant], 16).bit_count() - 1


def _get_folder(row: Mapping[str, Any]) -> str:
    task, mode, is_small = split_setting(row)
    return ("small-" if is_small else "") + f"{task}-{mode}"


def _standard_of_default(folder: str) -> float:
    """The accuracy of the standard pass in the runs of the default search, in percent."""
    runs = [run for run in _read_runs(folder) if run["method"] == "guided"]
    return 100 * fmean(_count_correct(run, "standard") for run in runs) / _count_test_items(folder)


def _layers(row: Mapping[str, Any]) -> str:
    """Layers that the standard pass applies, and the default's routes on average over seeds."""
    layers = SMALL_LAYERS if split_setting(row)[2] else LAYERS
    routes = [raw[0] for name, raw in row["raw"].items() if name.rpartition("-")[0] == "guided"]
    return f"{layers} → {fmean(parse_route(route, layers).length for route in routes):.0f}"


def _gain(row: Mapping[str, Any], method: str) -> float:
    """The mean gain over seeds, in points."""
    raw = row["raw"]
    return 100 * fmean(raw[name][1] for name in raw if name.rpartition("-")[0] == method)


def _answers(row: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """Truncated share and tokens per answer, standard pass → default; nothing where no text is written."""
    of = answers.get(row["setting"])
    if of is None:
        return "", ""
    (cut, tokens), (cut_after, tokens_after) = (of[name].rstrip(")").split(" (") for name in ("standard", "guided"))
    return f"{cut} → {cut_after}", f"{tokens} → {tokens_after}"


def headline(*, short: bool = False) -> str:
    """Gains on test sets, setting by setting, grouped by how the model answers; short: one interval per row."""
    rows = read_record("search_quality.json")["results"]
    answers = {row["setting"]: row for row in read_record("search_quality_answers.json")["results"]}
    last = ("layers", "truncated (%)", "tokens per answer")
    lines = ["| task | n | standard (%) | " + " | ".join((*METHODS.values(), *last)) + " |"]
    lines.append("| --- |" + " ---: |" * (len(METHODS) + 5))
    for mode, title in WAYS.items():
        chosen = [row for row in rows if split_setting(row)[1] == mode]
        means = " | ".join(f"**{fmean(_gain(row, method) for row in chosen):+.1f}**" for method in METHODS)
        empty = " |" * len(last)
        mean = f", mean of {len(chosen)} | | | {means} |{empty}" if len(chosen) > 1 else " | | |" + empty + " |" * 4
        lines.append(f"| **{title}**{mean}")
        for row in sorted(chosen, key=lambda row: -_gain(row, "guided")):
            task, _, small = split_setting(row)
            folder = _get_folder(row)
            cells = [row[method].replace(UNCHANGED, "0") for method in METHODS]
            gains = " | ".join(cells[:1] + [cell.split(" ")[0] for cell in cells[1:]] if short else cells)
            name = task + (" ᵃ" if small else "")
            figures = f"{_count_test_items(folder):,} | {_standard_of_default(folder):.1f} | {gains}"
            lines.append(f"| {name} | {figures} | {_layers(row)} | " + " | ".join(_answers(row, answers)) + " |")
    return "\n".join(["", *lines, ""])


def headline_short() -> str:
    """The headline with the default's intervals alone."""
    return headline(short=True)


def _mean_gain(*modes: str) -> str:
    rows = [row for row in read_record("search_quality.json")["results"] if split_setting(row)[1] in modes]
    return f"{fmean(_gain(row, 'guided') for row in rows):+.1f}"


def _routed(task: str, mode: str) -> str:
    """The measured accuracy of the routes that the default search returned."""
    rows = read_record("peers.json")["results"]
    key = (f"{task}, {mode}", "MACRO, guided")
    return f"{next(row for row in rows if (row['task'], row['method']) == key)['accuracy']:.1f}"


def _paper_rows(task: str, mode: str) -> list[Mapping[str, Any]]:
    rows = read_record("results.json")["results"]
    return [row for row in rows if (row["task"], row["mode"]) == (task, mode)]


def _paper_mean(task: str, mode: str, column: str) -> str:
    return f"{fmean(row[column] for row in _paper_rows(task, mode)):.1f}"


def _paper_gains(task: str, mode: str) -> str:
    gains = [float(str(row["difference"]).split(" ")[0]) for row in _paper_rows(task, mode)]
    return f"{min(gains):.1f} to {max(gains):.1f}"


def _repeated_gain() -> str:
    """The gain of the paper's search on counting with seed 1, in the runs of the comparison."""
    rows = read_record("search_quality.json")["results"]
    raw = next(row["raw"] for row in rows if split_setting(row) == ("counting", "direct", False))
    return f"{100 * raw['macro-1'][1]:+.1f}"


def _summary(against: str, name: str) -> str:
    """A mean of the comparison of mixtures; the sign is said in words."""
    rows = read_record("mixture_quality_summary.json")["results"]
    return f"{abs(next(row[name] for row in rows if row['compared'] == f'returned against {against}')):.2g}"


def _truncated_range() -> str:
    """The lowest and highest share of truncated answers of the standard pass on the benchmarks answered directly."""
    rows = [row for row in read_record("search_quality_answers.json")["results"] if split_setting(row)[1] == "direct"]
    shares = [float(row["standard"].split(" ")[0]) for row in rows if split_setting(row)[0] != "counting"]
    return f"{min(shares):.0f} to {max(shares):.0f}"


def _standard_range(folder: str) -> str:
    """By how many points the standard pass differs at most between the runs of a setting that share a test set."""
    counts: dict[str, list[int]] = {}
    for run in _read_runs(folder):
        if "standard" in run["right"]:
            counts.setdefault(run["test"], []).append(_count_correct(run, "standard"))
    most = max(max(numbers) - min(numbers) for numbers in counts.values())
    return f"{100 * most / _count_test_items(folder):.1f}"


def _counting_beats_majority() -> str:
    """In how many seeds the default's route on object counting is better than the most common answer."""
    majority = {row["seed"]: row["constant"] for row in _paper_rows("counting", "direct")}
    runs = [run for run in _read_runs("counting-direct") if run["method"] == "guided"]
    better = [100 * _count_correct(run, "MACRO, guided") / 1000 > majority[str(run["seed"])] for run in runs]
    return f"{sum(better)} of {len(better)}"


def _direct_sizes() -> str:
    """The smallest and the largest test set of the direct answers."""
    rows = [row for row in read_record("search_quality.json")["results"] if split_setting(row)[1] == "direct"]
    sizes = [_count_test_items(_get_folder(row)) for row in rows]
    return f"{min(sizes):,} to {max(sizes):,}"


def _paper_search_standard() -> str:
    """In how many runs of the comparison the paper's search returned the standard pass, on the larger model."""
    rows = [row for row in read_record("search_quality.json")["results"] if not split_setting(row)[2]]
    routes = [raw[0] for row in rows for name, raw in row["raw"].items() if name.rpartition("-")[0] == "macro"]
    return f"{routes.count('L0 RJ')} of {len(routes)}"


def _peer_gain(method: str) -> str:
    """A method's mean gain over the tasks of the comparison with other systems."""
    rows = [row for row in read_record("peers.json")["results"] if row["method"] == method]
    return f"{fmean(float(row['difference'].split(' ')[0]) for row in rows):+.1f}"


def _mixture_cost(members: int, name: str) -> str:
    """Cost or gain of mixtures of so many members, over all recorded landscapes."""
    rows = read_record("mixture_cost.json")["results"]
    value = next(row[name] for row in rows if (row["landscape"], row["members"]) == ("all", members))
    return f"{value:+.1f}" if name == "gain" else f"{value:.1f}"


def _returned_mixture_cost() -> str:
    """The most layers that a search returned, as a multiple of the model's."""
    return f"{max(row['layers'] for row in read_record('mixture_quality.json')['results']):.2f}"


def _speed_settings(*, is_faster: bool) -> str:
    """On how many settings the objective speed returned a faster route for some seed, or the range of layers saved."""
    rows = read_record("speed_objective.json")["results"]
    faster = [row["saved"] for row in rows if row["saved"]]
    return f"{len(faster)} of {len(rows)}" if is_faster else f"{min(faster):.0f} to {max(faster):.0f}"


def _speed_worst() -> str:
    """The lowest end of the intervals of the accuracy change where a faster route was returned."""
    rows = read_record("speed_objective.json")["results"]
    return f"{min(float(row['speed'].split('(')[1].split(' to ')[0]) for row in rows if row['saved']):+.1f}"


def _speed_bound() -> str:
    """How many times as fast as ``generate`` at its fastest pace per applied layer, for the same routes."""
    raw = read_record("fused_qwen.json")["results"][0]["raw"]
    lengths = [parse_route(route, LAYERS).length for route in raw["compared_routes"]]
    pace = min(seconds / length for seconds, length in zip(raw["generate_seconds"], lengths, strict=True))
    return f"{pace * sum(lengths) / raw['same_seconds']:.1f}"


def _generate_seconds() -> str:
    raw = read_record("fused_qwen.json")["results"][0]["raw"]
    return ", ".join(f"{seconds:.1f}" for seconds in raw["generate_seconds"])


STUDIES = {
    "significance": "main-table-significance-search-time-best-routes",
    **{name.replace("-", "_"): name for name in ("ablation", "logit-lens", "transfer", "one-route", "composition")},
    **{name.replace("-", "_"): name for name in ("cost", "explain", "side-effects", "depth-tradeoff")},
}
"""Records of studies, and where the page has each."""


def study_headlines() -> str:
    """Every recorded study with its result in a sentence."""
    lines = ["| study | result |", "| --- | --- |"]
    for name, anchor in STUDIES.items():
        if (DATA / f"study_{name}.json").is_file():
            headline = read_record(f"study_{name}.json")["config"]["headline"]
            lines.append(f"| [{name.replace('_', ' ')}](#{anchor}) | {headline} |")
    return "\n" + "\n".join(lines) + "\n"


def decoding_baselines() -> str:
    """Decoding beside ``generate`` and vLLM: picture and table, or how to measure it."""
    if not (DATA / SPEEDS).is_file():
        return (
            "\nNot measured yet; `python -m benchmarks.decoding_baselines --shape qwen2.5-1.5b --vllm-site FOLDER`"
            " measures it.\n"
        )
    record = read_record(SPEEDS)
    heads = ("decoded by", "texts", "routes", "seconds", "tokens per second", "times as long as fused", "repeats")
    lines = ["| " + " | ".join(heads) + " |", "| --- |" + " ---: |" * (len(heads) - 1)]
    for row in sorted(record["results"], key=lambda row: row["rows"]):
        counts = f"{row['rows']:,} | {row['routes']} | {row['seconds']:.2f} | {row['tokens']:,.0f} | {row['ratio']:.2f}"
        lines.append(f"| {row['side']} | {counts} | {row['repeats']} |")
    config = record["config"]
    picture = "![Tokens per second of fused decoding, generate and vLLM](../pictures/decoding_speed.svg)"
    origin = (
        f"`{record['command']}`, {config['prompts']} prompts, {config['new_tokens']} tokens each, {config['vllm']}, "
        f"seed {record['seed']}, commit {record['commit']}; {record['hardware']}."
    )
    about = (
        "The shape of Qwen2.5-1.5B with random weights. All sides decode greedily, write the same number of tokens and "
        "run each batch once before it is timed; times are medians. Only fused decoding runs several routes in one "
        "batch; the other sides run the standard pass for as many texts."
    )
    return "\n" + "\n\n".join([about, picture, "\n".join(lines), origin]) + "\n"


def decoding_sentence() -> str:
    """What the README says of the speed: beside ``generate`` and vLLM where that is recorded, else its lower bound."""
    if not (DATA / SPEEDS).is_file():
        return (
            f"On an H200 routes decode together about {float(_speed_bound()):.0f} times as fast as one after the other "
            "with `generate` (Qwen2.5-Coder-1.5B; one sample; vLLM not measured yet"
        )
    rows = read_record(SPEEDS)["results"]
    one = {
        row["side"]: row["ratio"] for row in rows if row["routes"] == 1 and row["rows"] == min(r["rows"] for r in rows)
    }
    vllm = f", and vLLM {one['vLLM']:.1f} times" if "vLLM" in one else ""
    return (
        f"On an H200 `generate` takes {one['generate']:.1f} times as long as MACRO's decoder for the same batch{vllm} "
        "(the shape of Qwen2.5-1.5B, random weights"
    )


def peers() -> str:
    """Every method's mean gain over the tasks of the comparison, the oracle apart."""
    rows = [row for row in read_record("peers.json")["results"] if not _LEFT_OUT.search(row["method"])]
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    sizes = [f"{_count_test_items(task.replace(', ', '-')):,}" for task in tasks]
    heads = [f"{task} (n = {size})" for task, size in zip(tasks, sizes, strict=True)]
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
        "majority answer (%)",
    )
    lines = ["| " + " | ".join(columns) + " |", "| --- | --- |" + " ---: |" * 5]
    for key in dict.fromkeys((row["task"], row["mode"]) for row in rows):
        some = [row for row in rows if (row["task"], row["mode"]) == key]
        gains = ", ".join(str(row["difference"]).split(" ")[0] for row in some)
        means = [f"{fmean(float(row[name]) for row in some):.1f}" for name in ("standard", "macro", "constant")]
        lines.append("| " + " | ".join([*key, f"{some[0]['n']:,}", means[0], means[1], gains, means[2]]) + " |")
    return "\n".join(["", *lines, ""])


def _driver_busy() -> str:
    """How busy the driver is with a thousand workers that each finish a unit a second, in percent."""
    row = next(row for row in read_record("scale_driver.json")["results"] if row["workers"] == 1000)
    return f"{row['milliseconds'] * 1000 / 10:.0f}"


VALUES: dict[str, Callable[[], str]] = {
    "gain-direct": lambda: _mean_gain("direct"),
    "gain-other": lambda: _mean_gain("likelihood", "reasoning"),
    "svamp-routed": lambda: _routed("svamp", "direct"),
    "svamp-reasoning": lambda: f"{_standard_of_default('svamp-reasoning'):.1f}",
    "counting-beats-majority": _counting_beats_majority,
    "direct-sizes": _direct_sizes,
    "paper-search-standard": _paper_search_standard,
    "peer-default": lambda: _peer_gain("MACRO, guided"),
    "peer-paper": lambda: _peer_gain("MACRO"),
    "peer-rys": lambda: _peer_gain("RYS"),
    "peer-drllm": lambda: _peer_gain("Dr.LLM"),
    "peer-cola": lambda: _peer_gain("CoLA (oracle)"),
    "peer-shortgpt": lambda: _peer_gain("ShortGPT"),
    "peer-early-exit": lambda: _peer_gain("early exit"),
    "mixture-cost-2": lambda: _mixture_cost(2, "layers"),
    "mixture-cost-3": lambda: _mixture_cost(3, "layers"),
    "mixture-gain-2": lambda: _mixture_cost(2, "gain"),
    "mixture-gain-3": lambda: _mixture_cost(3, "gain"),
    "mixture-returned-cost": _returned_mixture_cost,
    "speed-settings": lambda: _speed_settings(is_faster=True),
    "speed-worst": _speed_worst,
    "speed-saved": lambda: _speed_settings(is_faster=False),
    "counting-routed": lambda: _routed("counting", "direct"),
    "counting-majority": lambda: _paper_mean("counting", "direct", "constant"),
    "counting-repeated": _repeated_gain,
    "gsm8k-standard": lambda: _paper_mean("gsm8k", "direct", "standard"),
    "gsm8k-n": lambda: f"{_paper_rows('gsm8k', 'direct')[0]['n']:,}",
    "gsm8k-majority": lambda: _paper_mean("gsm8k", "direct", "constant"),
    "gsm8k-reasoning": lambda: _paper_mean("gsm8k", "reasoning", "standard"),
    "gsm8k-gains": lambda: _paper_gains("gsm8k", "direct"),
    "reasoning-gains": lambda: _paper_gains("counting", "reasoning"),
    "mixture-gain": lambda: _summary("standard", "mean"),
    "mixture-behind": lambda: _summary("best control", "mean"),
    "mixture-behind-p": lambda: _summary("best control", "p_holm"),
    "standard-range": lambda: _standard_range("svamp-direct"),
    "driver-busy": _driver_busy,
    "truncated-range": _truncated_range,
    "speed-bound": _speed_bound,
    "generate-seconds": _generate_seconds,
    "decoding-sentence": decoding_sentence,
}
TABLES: dict[str, Callable[[], str]] = {
    one.__name__.replace("_", "-"): one
    for one in (headline, headline_short, peers, paper_reproduction, decoding_baselines, study_headlines)
}
