"""Tables of the pages that are made from the code: models, exports, presets, tasks, settings, files, public names."""

import ast
import dataclasses
import inspect
import json
import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from citation import citation
from python_reference import public_names
from result_tables import count_test_items

from macro_routing.deploy.gguf_export import ARCHITECTURES as GGUF_ARCHITECTURES
from macro_routing.deploy.vllm.hf_overrides import ARCHITECTURES as VLLM_ARCHITECTURES
from macro_routing.engine.fused.support import SUPPORTED_MODEL_TYPES as FUSED_ARCHITECTURES
from macro_routing.evaluation import smallest_detectable_gain
from macro_routing.models.built_in import BUILT_IN_MODELS
from macro_routing.models.support import SUPPORTED_ARCHITECTURES
from macro_routing.routes import parse_route
from macro_routing.routes.route_file import RouteFile
from macro_routing.routes.space import RouteSpace
from macro_routing.runs import folder as run_folder
from macro_routing.runs.config import RunConfig, make_run_config
from macro_routing.runs.config_tables import SpaceSettings
from macro_routing.runs.methods import MACRO, METHODS
from macro_routing.settings import get_field_options
from macro_routing.tasks.benchmarks import BENCHMARKS, CONTAMINATED_PAIRS
from macro_routing.tasks.synthetic import SYNTHETIC_TASKS

PAPER = {
    "method": "MACRO",
    "iterations": 10,
    "draws": 30,
    "elite": 5,
    "beta": 1.8262,
    "alpha": 0.0397,
    "temperature": 1.0,
    "epsilon_local": 0.2,
    "epsilon_operator": 0.0867,
    "replay": 0.1,
    "k": 5,
    "final_set": "raw, or anchored",
    "stream": "not stated",
    "radius": 5,
    "window": 6,
    "coefficients": 1.0,
    "training": 1000,
    "validation": "100 or 200",
    "test": "by benchmark",
    "mode": "reasoning",
    "reasoning_budget": 400,
    "answer_budget": 128,
}
"""The settings that the paper prints."""
GAPS = {
    "math500": "no train split: training examples come from the 500 items",
    "medqa": "without the train file, the validation split is used for training",
    "mawps": "the recorded results used an older release with fewer rows; compare only with the same one",
    "mmlu_pro": "no train split: training examples come from the test split's rest; the validation split holds examples"
    " for prompts and is not used",
    "asdiv": "not the paper's; `asdiv_a` is",
    "multiarith": "the paper's name is ambiguous: its text says multistep-arithmetic, an appendix MultiArith, whose"
    " size most cells fit ([why](presets.md#preset-paper-and-the-paper))",
    "bbh_arithmetic": "probably not in the paper; a few cells of MS-Arith fit its size",
    "arc_easy": "not in the paper",
}
"""What a reader must know before comparing a benchmark with the paper's."""

RECORDED_SIZES = {"arc_easy": lambda: count_test_items("arc_easy-likelihood")}
"""Test items of benchmarks that are used whole, where runs are recorded."""
QUANTIZED_FOOTNOTES = {"gpt_oss": " ᶜ"}
"""Architectures that are published with quantized weights, which plain exports reject."""
FUSED_FOOTNOTES = {"phi3": " ᵃ"}
"""Architectures of which the fused decoder runs some models only; the pages say which."""


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in rows]
    return "\n".join(["", *lines, ""])


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ", ".join(_cell(item) for item in value)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else _escape(str(value))


def _escape(text: str) -> str:
    return " ".join(text.replace("``", "`").split()).replace("|", "\\|")


def _mergekit_cell(name: str) -> str:
    """Whether mergekit can write a route of an architecture: it copies the configuration's list of layer types."""
    from transformers import AutoConfig

    types = getattr(AutoConfig.for_model(name), "layer_types", None)
    return "yes" if types is None else "yes ᵇ" if len(set(types)) == 1 else "no"


def _fused_cell(name: str) -> str:
    """Whether the fused decoder runs an architecture; a footnote on the page where it runs only some models."""
    return f"yes{FUSED_FOOTNOTES.get(name, '')}" if name in FUSED_ARCHITECTURES else "no"


def architectures() -> str:
    """Every tested architecture, and which engines run it."""
    columns = ("`model_type`", "models", "fused decoder", "vLLM", "`hf`, `routed`", "`gguf`", "`mergekit`")
    return _table(
        columns,
        (
            (
                f"`{name}`",
                models,
                _fused_cell(name),
                name in VLLM_ARCHITECTURES,
                f"yes{QUANTIZED_FOOTNOTES.get(name, '')}",
                name in GGUF_ARCHITECTURES,
                _mergekit_cell(name),
            )
            for name, models in SUPPORTED_ARCHITECTURES.items()
        ),
    )


def architectures_short() -> str:
    """The tested architectures, those with the same engines in one row."""
    rows: dict[tuple[bool | str, ...], list[str]] = {}
    for name in SUPPORTED_ARCHITECTURES:
        checkpoints = f"yes{QUANTIZED_FOOTNOTES.get(name, '')}"
        exports = (checkpoints, name in GGUF_ARCHITECTURES, _mergekit_cell(name))
        engines = (_fused_cell(name), name in VLLM_ARCHITECTURES, *exports)
        rows.setdefault(engines, []).append(f"`{name}`")
    columns = ("`model_type`", "fused decoder", "vLLM", "plain or routed checkpoint", "llama.cpp", "mergekit")
    return _table(columns, ((names, *engines) for engines, names in rows.items()))


def exports() -> str:
    """What a route can be exported to or served with."""
    columns = ("how", "runs in", "adds", "mixtures", "weights", "architectures")
    every, vllm, gguf = (f"{len(names)}" for names in (SUPPORTED_ARCHITECTURES, VLLM_ARCHITECTURES, GGUF_ARCHITECTURES))
    return _table(
        columns,
        (
            ("`macro serve`", "vLLM's server", True, True, "once", vllm),
            ("`macro serve --engine transformers`", "transformers' server", True, True, "once", every),
            ("`macro export --format routed`", "transformers, after `register()`", True, True, "once", every),
            ("`macro export --format hf`", "transformers alone", False, False, "one copy per step", every),
            ("`macro export --format gguf`", "llama.cpp", False, False, "one copy per step", gguf),
            (
                "`macro export --format mergekit`",
                "mergekit",
                False,
                False,
                "one copy per step",
                f"{sum(_mergekit_cell(name) != 'no' for name in SUPPORTED_ARCHITECTURES)}",
            ),
            ("`macro lm-eval`", "lm-evaluation-harness", True, True, "once", every),
        ),
    )


def models() -> str:
    """The built-in models."""
    columns = ("name", "model", "layers", "download", "licence")
    return _table(
        columns, ((f"`{name}`", one.note, one.layers, one.size, one.licence) for name, one in BUILT_IN_MODELS.items())
    )


def presets() -> str:
    """The presets' settings beside the paper's."""
    configs = {
        (preset, method): make_run_config("category", preset=preset, method=method)
        for preset in ("quick", "default", "paper")
        for method in {METHODS_OF_PRESETS[preset], MACRO}
    }
    rows = []
    for name, printed in PAPER.items():
        row = [f"`{name}`"]
        for preset, own in METHODS_OF_PRESETS.items():
            values = [_find_setting(configs[preset, method], name) for method in dict.fromkeys((own, MACRO))]
            shown = [_cell(value) for value in values if value is not None]
            row.append(" / ".join(dict.fromkeys(shown)) or "–")
        rows.append([*row, printed])
    return _table(("setting", "`quick`", "`default`", "`paper`", "the paper"), rows)


METHODS_OF_PRESETS = {preset: make_run_config("category", preset=preset).method for preset in ("quick", "default")}
METHODS_OF_PRESETS["paper"] = make_run_config("category", preset="paper").method


def _find_setting(config: RunConfig, name: str) -> Any:
    if name == "method":
        return config.method
    for table in (config.search, config.space, config.data, config.decoding):
        if hasattr(table, name):
            value = getattr(table, name)
            return "all" if name == "test" and value is None else value
    return None


def tasks() -> str:
    """Benchmarks with the name that the paper uses, size, licence, source and gaps."""
    columns = ("name", "in the paper", "answers", "test items", "licence", "source", "folder", "note")
    rows = [
        (
            f"`{name}`",
            "–" if GAPS.get(name, "").startswith("not ") else one.title,
            one.kind,
            RECORDED_SIZES.get(name, lambda: "all")() if one.test_size is None else one.test_size,
            one.licence,
            f"`{one.hub_id}`",
            f"`{one.folder}`",
            GAPS.get(name, ""),
        )
        for name, one in BENCHMARKS.items()
    ]
    return _table(columns, rows)


def synthetic_tasks() -> str:
    """The tasks that are generated from the seed."""
    rows = ((f"`{name}`", one.kind, one.test, one.note) for name, one in SYNTHETIC_TASKS.items())
    return _table(("name", "answers", "test items", "what is asked"), rows)


def shared_questions() -> str:
    """Tasks that must not be judged against each other."""
    return _table(("tasks", "why"), ((f"`{one}`, `{other}`", why) for (one, other), why in CONTAMINATED_PAIRS.items()))


def methods() -> str:
    """The search methods with their names in tables."""
    return _table(("`--method`", "in tables"), ((f"`{name}`", one.title) for name, one in METHODS.items()))


def detectable_gains() -> str:
    """The smallest gain that test sets of several sizes can show."""
    sizes = (50, 100, 200, 300, 500, 1000)
    shares = (0.1, 0.2)
    columns = ("test items", *(f"points, if {100 * share:.0f} % of the answers differ" for share in shares))
    return _table(columns, ((size, *(_format_detectable(size, share) for share in shares)) for size in sizes))


def _format_detectable(size: int, share: float) -> str:
    gain = smallest_detectable_gain(size, share)
    return f"{100 * gain:.1f}" if math.isfinite(gain) else "none"


@cache
def _described_fields(settings: type) -> dict[str, str]:
    """What stands below each field of a dataclass and of those it is made of."""
    found: dict[str, str] = {}
    for owner in reversed(settings.__mro__[:-1]):
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        assert isinstance(tree, ast.ClassDef)
        for node, after in zip(tree.body, tree.body[1:], strict=False):
            if (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                found[node.target.id] = inspect.cleandoc(str(after.value.value))
    return found


def _settings_rows(settings: type, *presets: Any) -> list[tuple[str, str, str]]:
    """Name, default and meaning of every field; a default that not all ``presets`` leave is theirs."""
    options, described = get_field_options(settings), _described_fields(settings)
    if settings is SpaceSettings:
        described |= _described_fields(RouteSpace)
    rows = []
    for item in dataclasses.fields(settings):
        known = options.get(item.name)
        is_of_the_flag = known is not None and known.flag_value is not None and item.name in described
        help_text = known.help if known and not is_of_the_flag else described.get(item.name, "")
        if known and is_of_the_flag:
            help_text += f" `{known.flag}` sets it to {known.flag_value}."
        default = known.shown_default if known and known.shown_default else _default(item)
        if any(getattr(preset, item.name) != item.default for preset in presets):
            default = "the preset's"
        rows.append((f"`{item.name}`", default, help_text))
    return rows


def _default(item: dataclasses.Field[Any]) -> str:
    if item.default is dataclasses.MISSING or item.default is None or item.default in ("", ()):
        return ""
    return f"`{str(item.default).lower() if isinstance(item.default, bool) else _cell(item.default)}`"


def config_file() -> str:
    """Every key of a TOML file, table by table."""
    top = [row for row in _settings_rows(RunConfig) if row[0].strip("`") in get_field_options(RunConfig)]
    columns = ("key", "default", "meaning")
    parts = ["## Top level", _table(columns, top).strip()]
    for name, settings in RunConfig.TABLES.items():
        parts += [f"## `[{name}]`", _first_line(settings), _table(columns, _settings_rows(settings)).strip()]
    for method in ("guided", MACRO):
        settings = METHODS[method].settings
        presets = [make_run_config("category", preset=name, method=method).search for name in METHODS_OF_PRESETS]
        parts += [f"## `[search]` with method `{method}`", _table(columns, _settings_rows(settings, *presets)).strip()]
    return "\n\n".join(["", *parts, ""])


def run_folder_files() -> str:
    """The files of a run's folder, from the module that writes them."""
    rows = []
    for line in (run_folder.__doc__ or "").splitlines():
        name, _, meaning = line.partition("  ")
        if meaning.strip() and ("." in name or "/" in name):
            rows.append((f"`{name.strip()}`", meaning.strip()))
    return _table(("file", "what it holds"), rows)


def route_file_fields() -> str:
    """The keys of a route file."""
    described = _described_fields(RouteFile) | {
        "route": "The route or mixture, in the paper's notation.",
        "model": "Name by which the model was loaded.",
        "weights_id": "The model the route belongs to, whatever it is called.",
        "task": "The task it was found for.",
        "revision": "Commit of a hub model.",
        "decoding": "How answers were obtained: mode and budgets.",
    }
    rows = [("`format`", "`macro-route/1`"), ("`layers`", "Number of layers of the model.")]
    rows += [(f"`{item.name}`", described.get(item.name, "")) for item in dataclasses.fields(RouteFile)]
    return _table(("key", "what it holds"), rows)


def route_file_sample() -> str:
    """The demo's route file, shortened."""
    record = json.loads((Path(__file__).resolve().parents[1] / "docs" / "data" / "demo.json").read_text("utf-8"))
    (row, standard), config = record["results"], record["config"]
    test = {"n": row["n"], "baseline": standard["accuracy"] / 100, "routed": row["accuracy"] / 100}
    sample = RouteFile(
        parse_route(row["route"].strip("`"), standard["length"]),
        config["model"],
        "…",
        "…",
        config["task"],
        decoding={"mode": "likelihood"},
        scores={"test": {**test, "p_value": float(row["p"])}, "verdict": row["verdict"]},
        found_by={"method": "guided", "preset": config["preset"], "seed": record["seed"]},
        recommendation="…",
    )
    return f"\n```json\n{sample.to_json()}\n```\n"


def _first_line(value: Any) -> str:
    return (inspect.getdoc(value) or "").split("\n\n")[0]


TABLES: dict[str, Callable[[], str]] = {
    name.__name__: name
    for name in (
        *(
            architectures,
            architectures_short,
            exports,
            models,
            presets,
            tasks,
            synthetic_tasks,
            shared_questions,
            methods,
        ),
        *(
            citation,
            detectable_gains,
            config_file,
            run_folder_files,
            route_file_fields,
            route_file_sample,
            public_names,
        ),
    )
}
