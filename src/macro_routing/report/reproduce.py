"""Everything needed to reproduce a run: the command, the configuration, the data, the model and the machine."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from macro_routing.report.rendering import render_template
from macro_routing.report.run_data import RunData
from macro_routing.report.tables import flatten_settings

CONFIG_FILE = "run.toml"
_FLAGS = ("task", "model", "preset", "method", "seed", "racing", "max_minutes", "init_from")
_ALWAYS = ("task", "model", "preset", "seed")
_PRIVATE_FACTS = ("cache folder", "built-in models")
"""Facts about this machine that are not needed to reproduce a run; pages are shared."""
_DEFAULTS = {"method": "macro", "racing": "exact", "max_minutes": None, "init_from": None}


def render_reproduction(run: RunData) -> Markup:
    """The section that says how to reproduce the run."""
    given, private = run.given, _PRIVATE_FACTS
    return render_template(
        "reproduce.html",
        command=search_command(given),
        config=format_toml(given),
        config_file=CONFIG_FILE,
        needs_file=_has_tables(given),
        data=_data_facts(run),
        model=_model_facts(run),
        environment={name: value for name, value in run.header["environment"].items() if name not in private},
        resolved=flatten_settings(run.resolved),
    )


def search_command(given: Mapping[str, Any]) -> str:
    """The command that starts the same run again; tables of settings come in a file."""
    if _has_tables(given):
        return f"macro search --config {CONFIG_FILE}"
    words = ["macro", "search"]
    for name in _FLAGS:
        value = given.get(name)
        if name in _ALWAYS or value != _DEFAULTS.get(name):
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


def _has_tables(given: Mapping[str, Any]) -> bool:
    return any(isinstance(value, Mapping) and value for value in given.values())


def format_toml(given: Mapping[str, Any]) -> str:
    """The configuration as the file that gives the same one; what was not set is left out."""
    lines = [f"{name} = {_toml(value)}" for name, value in given.items() if _is_value(value)]
    for name, table in given.items():
        if isinstance(table, Mapping) and table:
            lines += ["", f"[{name}]", *[f"{key} = {_toml(value)}" for key, value in table.items() if _is_value(value)]]
    return "\n".join(lines)


def _is_value(value: Any) -> bool:
    return value is not None and not isinstance(value, Mapping)


def _toml(value: Any) -> str:
    # JSON writes texts, numbers, truth values and lists of them as TOML does, but for one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _data_facts(run: RunData) -> dict[str, str]:
    header = run.header
    lines = {"task": str(header["scope"].get("task", run.given["task"])), "seed": str(run.given["seed"])}
    for name, (size, mark) in header["splits"].items():
        lines[name] = f"{size} examples, fingerprint {mark}"
    for name, marks in header["guards"].items():
        lines[f"guard {name}"] = ", ".join(f"{part} {mark}" for part, mark in marks.items())
    scope = {name: value for name, value in header["scope"].items() if name not in {"numerics", "task"}}
    return {**lines, **flatten_settings(scope)}


def _model_facts(run: RunData) -> dict[str, str]:
    model = run.header["model"]
    return {
        "name": str(model["name"]),
        "layers": str(model["layers"]),
        "weights": str(model["weights_id"]),
        "numerics": str(run.header["scope"].get("numerics", "not recorded")),
        "macro": str(run.header["macro"]),
        "started": str(run.header["started"]),
    }
