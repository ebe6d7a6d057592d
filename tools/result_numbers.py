"""Single numbers of the pages that are computed from records: gains, ranges, counts."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from result_tables import (
    SMALL_LAYERS,
    SPEEDS,
    count_correct,
    count_test_items,
    get_gain,
    get_most_default_minutes,
    get_runs_folder,
    get_standard_of_default,
    read_record,
    read_runs,
    split_setting,
)

from macro_routing.evaluation import DecodingSettings
from macro_routing.evaluation.final_decision import find_detectable_gain
from macro_routing.runs.config import make_run_config
from macro_routing.search import GuidedSearch
from macro_routing.studies.significance import (
    compute_differences_by_model,
    load_main_table_study_rows,
    test_significance_by_model,
)
from macro_routing.tasks.splits import TEST_SHARE

PUBLISHED = Path(__file__).resolve().parents[1] / "tests" / "data" / "published_results.json"
LLAMA = "meta-llama/Llama-3.2-3B-Instruct"


def _mean_gain(*modes: str) -> str:
    rows = [row for row in read_record("search_quality.json")["results"] if split_setting(row)[1] in modes]
    return f"{fmean(get_gain(row, 'guided') for row in rows):+.1f}"


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


def _mixture_searches(record: str) -> str:
    """How many of the planned searches for mixtures were run: every model, every task, three seeds."""
    # The first round has every model and every task.
    planned = {row["setting"] for row in read_record("mixture_quality.json")["results"]}
    models, tasks = zip(*(setting.split(", ") for setting in planned), strict=True)
    done = sum(row["seeds"] for row in read_record(record)["results"])
    return f"{done} of {3 * len(set(models)) * len(set(tasks))}"


def _mixture_answers_settings() -> str:
    """How many runs with written answers there are of those planned: five settings, two models, three seeds."""
    rows = [row for row in read_record("mixture_answers.json")["results"] if row["difference"] is None]
    return f"{sum(row['seeds'] for row in rows)} of {5 * 2 * 3}"


def _paper_settings_standard() -> str:
    """In how many runs with the paper's own settings the search returned the standard pass."""
    routes = [row["route"].strip("`") for row in read_record("results.json")["results"]]
    return f"{routes.count('L0 RJ')} of {len(routes)}"


def _paper_main_hours() -> str:
    """Estimated GPU-hours of the paper's main table."""
    row = next(row for row in read_record("reproducing.json")["results"] if row["item"] == "main-table")
    return f"{row['hours']:.0f}"


def _published_significance() -> Sequence[Mapping[str, Any]]:
    """MACRO against the baseline from the printed main table, model by model, Llama among them."""
    results = load_main_table_study_rows(PUBLISHED)
    differences = compute_differences_by_model(results, "Baseline", "MACRO")
    return test_significance_by_model(differences)


def _published_share_of_two_models() -> str:
    """Share of the summed mean gains of the six models of the main table that the two largest have, in percent."""
    means = sorted(row["mean"] for row in _published_significance() if row["model"] != LLAMA)
    return f"{100 * sum(means[-2:]) / sum(means):.0f}"


def _published_llama(name: str, template: str) -> str:
    """A figure of the test over benchmarks for Llama."""
    return template.format(next(row[name] for row in _published_significance() if row["model"] == LLAMA))


def _mixture_gain_without(task: str) -> str:
    """The mean gain of the returned mixtures over all combinations but those of a task."""
    rows = read_record("mixture_quality.json")["results"]
    gains = [float(row["returned"].split(" ")[0]) for row in rows if not row["setting"].endswith(f", {task}")]
    return f"{fmean(gains):.1f}"


def _count_rows(preset: str) -> str:
    """Rows of one file that fill the training and the validation examples of a preset."""
    data = make_run_config("category", preset=preset).data
    return f"{math.ceil(((data.training or 0) + (data.validation or 0)) / (1 - TEST_SHARE)):,}"


def _mixture_smallest_p() -> str:
    return f"{min(row['p'] for row in read_record('mixture_quality_summary.json')['results']):.2g}"


def _truncated_range() -> str:
    """The lowest and highest share of truncated answers of the standard pass on the benchmarks answered directly."""
    rows = [row for row in read_record("search_quality_answers.json")["results"] if split_setting(row)[1] == "direct"]
    shares = [float(row["standard"].split(" ")[0]) for row in rows if split_setting(row)[0] != "counting"]
    return f"{min(shares):.0f} to {max(shares):.0f}"


def _standard_range(folder: str) -> str:
    """By how many points the standard pass differs at most between the runs of a setting that share a test set."""
    counts: dict[str, list[int]] = {}
    for run in read_runs(folder):
        if "standard" in run["right"]:
            counts.setdefault(run["test"], []).append(count_correct(run, "standard"))
    most = max(max(numbers) - min(numbers) for numbers in counts.values())
    return f"{100 * most / count_test_items(folder):.1f}"


def _counting_beats_majority() -> str:
    """In how many seeds the default's route on object counting is better than the most common answer."""
    majority = {row["seed"]: row["constant"] for row in _paper_rows("counting", "direct")}
    runs = [run for run in read_runs("counting-direct") if run["method"] == "guided"]
    items = count_test_items("counting-direct")
    better = [100 * count_correct(run, "MACRO, guided") / items > majority[str(run["seed"])] for run in runs]
    return f"{sum(better)} of {len(better)}"


def _direct_sizes() -> str:
    """The smallest and the largest test set of the direct answers."""
    rows = [row for row in read_record("search_quality.json")["results"] if split_setting(row)[1] == "direct"]
    sizes = [count_test_items(get_runs_folder(row)) for row in rows]
    return f"{min(sizes):,} to {max(sizes):,}"


def _paper_search_standard() -> str:
    """In how many runs of the comparison the paper's search returned the standard pass, on the larger model."""
    rows = [row for row in read_record("search_quality.json")["results"] if not split_setting(row)[2]]
    routes = [raw[0] for row in rows for name, raw in row["raw"].items() if name.rpartition("-")[0] == "macro"]
    return f"{routes.count('L0 RJ')} of {len(routes)}"


def _standard_of_default(*modes: str) -> str:
    """In how many searches of these ways to answer the default returned the standard pass."""
    rows = [row for row in read_record("search_quality.json")["results"] if split_setting(row)[1] in modes]
    routes = [raw[0] for row in rows for name, raw in row["raw"].items() if name.rpartition("-")[0] == "guided"]
    return f"{routes.count('L0 RJ')} of {len(routes)}"


def _settings_gain(*, is_new: bool) -> str:
    """The default's mean gain over the settings that nobody had looked at before, or over the others."""
    rows = [row for row in read_record("search_quality.json")["results"] if ("(new)" in row["setting"]) is is_new]
    return f"{fmean(get_gain(row, 'guided') for row in rows):+.1f}"


def _summary_of_all(name: str) -> str:
    """The default's mean gain over all settings, or its interval, to a tenth of a point."""
    row = read_record("search_quality_summary.json")["results"][0]
    if name == "mean":
        return f"{row[name]:+.1f}"
    low, high = (float(end) for end in row["interval"].split(" to "))
    return f"{low:+.1f} to {high:+.1f}"


def _peer_sizes() -> str:
    """The smallest and the largest test set of the comparison with other systems."""
    tasks = {row["task"] for row in read_record("peers.json")["results"]}
    sizes = [count_test_items(task.replace(", ", "-")) for task in tasks]
    return f"{min(sizes):,} to {max(sizes):,}"


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


def _decoding_sentence() -> str:
    """How fast fused decoding is compared with ``generate`` and vLLM, in brackets the range of vLLM's repeats."""
    rows = [row for row in read_record(SPEEDS)["results"] if row["routes"] == 1]
    by_texts = {
        count: {row["side"]: row for row in rows if row["rows"] == count} for count in {r["rows"] for r in rows}
    }
    (texts, few), (most, many) = sorted(by_texts.items())
    times = [seconds / few["fused"]["seconds"] for seconds in few["vLLM"]["samples"]]
    return (
        f"On one H200 with {texts} texts, fused decoding is {few['generate']['ratio']:.1f} times as fast as `generate`,"
        f" {few['generate, static cache, compiled']['ratio']:.1f} times as fast as `generate` with a static cache and"
        f" compilation, and {few['vLLM']['ratio']:.1f} times as fast as vLLM ({min(times):.1f} to {max(times):.1f});"
        f" with {most:,} texts {many['vLLM']['ratio']:.1f} times as fast as vLLM."
    )


def _plan(preset: str) -> GuidedSearch:
    """The default search of a preset, for the built-in model and a task with enough rows."""
    config = make_run_config("category", preset=preset)
    decoding = DecodingSettings("likelihood")
    search = config.make_searcher(SMALL_LAYERS, decoding, config.data.training or 0, list)
    assert isinstance(search, GuidedSearch)
    return search


def _fresh_examples(preset: str) -> int:
    """Examples that the search of a preset does not use, which decide in the end."""
    return len(_plan(preset).holdout) + (make_run_config("category", preset=preset).data.validation or 0)


def _detectable_by_decision(preset: str) -> str:
    decision = make_run_config("category", preset=preset).resolve_decision(DecodingSettings("likelihood"))
    return f"{100 * find_detectable_gain(decision, _fresh_examples(preset)):.0f}"


def _planted_quick(search: str) -> str:
    """The share of the gain that a search finds with about the evaluations of preset quick, in percent."""
    row = next(row for row in read_record("planted_small.json")["results"] if row["search"] == search)
    return f"{100 * float(str(row['share']).split(' ')[0]):.0f}"


def _evaluations_used() -> str:
    """The fewest and the most evaluations that a method used in the comparison with other systems, on average."""
    rows = [row for row in read_record("peers.json")["results"] if row["asked"] and "published" not in row["method"]]
    return f"{min(row['asked'] for row in rows):,.0f} to {max(row['asked'] for row in rows):,.0f}"


def _transfer_losses() -> str:
    """How many routes of another task are significantly worse than the standard pass, of those that can be compared."""
    rows = [row["raw"] for row in read_record("study_transfer.json")["results"]]
    rows = [
        row for row in rows if row["source"] != row["target"] and row["p"] is not None and not row["shares_questions"]
    ]
    return f"{sum(row['p_holm'] < 0.05 and row['difference'] < 0 for row in rows)} of {len(rows)}"


def _driver_busy() -> str:
    """How busy the driver is with a thousand workers that each finish a unit a second, in percent."""
    row = next(row for row in read_record("scale_driver.json")["results"] if row["workers"] == 1000)
    return f"{row['milliseconds'] * 1000 / 10:.0f}"


NUMBERS: dict[str, Callable[[], str]] = {
    "gain-direct": lambda: _mean_gain("direct"),
    "gain-other": lambda: _mean_gain("likelihood", "reasoning"),
    "gain-all": lambda: _summary_of_all("mean"),
    "gain-all-interval": lambda: _summary_of_all("interval"),
    "gain-new": lambda: _settings_gain(is_new=True),
    "gain-seen": lambda: _settings_gain(is_new=False),
    "choice-standard": lambda: _standard_of_default("likelihood"),
    "all-standard": lambda: _standard_of_default("direct", "likelihood", "reasoning"),
    "other-standard": lambda: _standard_of_default("likelihood", "reasoning"),
    "demo-minutes": lambda: f"{math.ceil(read_record('demo.json')['search_minutes'])}",
    "quick-evaluations": lambda: f"{_plan('quick').max_evaluations():,}",
    "quick-draws": lambda: f"{_plan('quick').draws_per_round}",
    "quick-fresh": lambda: f"{_fresh_examples('quick')}",
    "quick-detectable": lambda: _detectable_by_decision("quick"),
    "quick-planted": lambda: _planted_quick("guided"),
    "default-evaluations": lambda: f"{_plan('default').max_evaluations():,}",
    "default-most-minutes": get_most_default_minutes,
    "default-times-quick": lambda: f"{_plan('default').max_evaluations() / _plan('quick').max_evaluations():.0f}",
    "default-detectable": lambda: _detectable_by_decision("default"),
    "evaluations-used": _evaluations_used,
    "svamp-routed": lambda: _routed("svamp", "direct"),
    "svamp-reasoning": lambda: f"{get_standard_of_default('svamp-reasoning'):.1f}",
    "counting-beats-majority": _counting_beats_majority,
    "direct-sizes": _direct_sizes,
    "paper-search-standard": _paper_search_standard,
    "peer-sizes": _peer_sizes,
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
    "counting-reasoning-standard": lambda: _paper_mean("counting", "reasoning", "standard"),
    "counting-reasoning-paper": lambda: _paper_mean("counting", "reasoning", "macro"),
    "mixture-gain-single": lambda: _summary("single", "mean"),
    "mixture-gain-without-mmlu-pro": lambda: _mixture_gain_without("mmlu_pro"),
    "quick-rows": lambda: _count_rows("quick"),
    "default-rows": lambda: _count_rows("default"),
    "mixture-behind": lambda: _summary("best control", "mean"),
    "paper-settings-standard": _paper_settings_standard,
    "paper-main-hours": _paper_main_hours,
    "published-top-two": _published_share_of_two_models,
    "published-llama-mean": lambda: _published_llama("mean", "{:+.2f}"),
    "published-llama-wins": lambda: _published_llama("wins", "{}"),
    "published-llama-ties": lambda: _published_llama("ties", "{}"),
    "published-llama-p": lambda: _published_llama("p_value", "{:.2g}"),
    "mawps-items": lambda: f"{count_test_items('mawps-direct'):,}",
    "mixture-answers-settings": _mixture_answers_settings,
    "mixture-searches": lambda: _mixture_searches("mixture_quality.json"),
    "mixture-searches-second": lambda: _mixture_searches("mixture_quality_second.json"),
    "mixture-smallest-p": _mixture_smallest_p,
    "mixture-behind-p": lambda: _summary("best control", "p_holm"),
    "standard-range": lambda: _standard_range("svamp-direct"),
    "driver-busy": _driver_busy,
    "transfer-losses": _transfer_losses,
    "truncated-range": _truncated_range,
    "decoding-sentence": _decoding_sentence,
}
