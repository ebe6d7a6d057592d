"""The model card of an exported checkpoint: model, route, evidence, how to load it."""

from pathlib import Path
from typing import Any

import yaml

from macro_routing.deploy.base_model import get_hub_commit
from macro_routing.models.metadata import ModelMetadata
from macro_routing.routes.composition import describe_deviations
from macro_routing.routes.route import Route
from macro_routing.routes.route_file import RouteFile

_LOAD_ROUTED = """import macro_routing
from transformers import AutoModelForCausalLM, AutoTokenizer

macro_routing.register()
model = AutoModelForCausalLM.from_pretrained("PATH")
tokenizer = AutoTokenizer.from_pretrained("PATH")"""
_LOAD_STANDARD = """from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("PATH")
tokenizer = AutoTokenizer.from_pretrained("PATH")"""


def write_model_card(
    folder: Path, base: ModelMetadata, route: Route, evidence: RouteFile | None, *, needs_macro: bool
) -> None:
    """Write the card, and the route file where there is one, to a checkpoint's folder."""
    (folder / "README.md").write_text(make_model_card(base, route, evidence, needs_macro=needs_macro), encoding="utf-8")
    if evidence is not None:
        (folder / "route.json").write_text(evidence.to_json() + "\n", encoding="utf-8")


def make_model_card(base: ModelMetadata, route: Route, evidence: RouteFile | None, *, needs_macro: bool) -> str:
    """The card's text."""
    # No path of this machine in the card.
    name = base.name if get_hub_commit(base) else Path(base.name).name
    parts = [
        _make_front_matter(base, needs_macro=needs_macro),
        f"# {_escape_markdown(name)} on another route",
        f"This model runs the layers of {_escape_markdown(name)} in another order; its weights were not changed.",
        _format_fields(base, route),
        "## How it differs from the standard pass",
        "\n".join(f"- {_escape_markdown(line)}" for line in describe_deviations(route)) or "It does not.",
        "## Evidence",
        _format_evidence(evidence),
        "## Use",
        f"```python\n{_LOAD_ROUTED if needs_macro else _LOAD_STANDARD}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _make_front_matter(base: ModelMetadata, *, needs_macro: bool) -> str:
    values: dict[str, Any] = {"library_name": "macro-routing" if needs_macro else "transformers"}
    if get_hub_commit(base) is not None:
        values["base_model"] = base.name
    values["tags"] = ["layer-routing", "macro-routing"]
    return f"---\n{yaml.safe_dump(values, sort_keys=False)}---"


def _format_fields(base: ModelMetadata, route: Route) -> str:
    fields = {"route": str(route), "layers applied": f"{route.length} of a model with {route.layers}"}
    return "\n".join(f"- {name}: `{value}`" for name, value in {**fields, "weights_id": base.weights_id}.items())


def _format_evidence(evidence: RouteFile | None) -> str:
    if evidence is None:
        return "None: the route was given, not found by a search."
    test = evidence.scores.get("test")
    verdict = evidence.scores.get("verdict", "No verdict was recorded.")
    lines = [f"Task: {_escape_markdown(evidence.task)}. {_escape_markdown(verdict)}"]
    if isinstance(test, dict):
        lines.append("| on the test set | |\n|---|---|\n" + "\n".join(_format_test_rows(test)))
    found_by = {key: value for key, value in evidence.found_by.items() if not isinstance(value, dict)}
    lines.append(
        "Found by: "
        + ", ".join(f"{_escape_markdown(key)} {_escape_markdown(value)}" for key, value in found_by.items())
        + "."
    )
    return "\n\n".join(lines)


_FIELD_TITLES = {
    "n": "examples",
    "baseline": "accuracy of the standard pass",
    "routed": "accuracy of this route",
    "difference": "difference",
    "low": "difference, lower end of the 95 % interval",
    "high": "difference, upper end of the 95 % interval",
    "fixed": "examples correct on the route only",
    "broken": "examples correct on the standard pass only",
    "p_value": "p-value of an exact McNemar test",
}


def _format_test_rows(test: dict[str, Any]) -> list[str]:
    ordered = sorted(test.items(), key=lambda item: [*_FIELD_TITLES, item[0]].index(item[0]))
    return [
        f"| {_FIELD_TITLES.get(name, _escape_markdown(name))} | {_format_value(value)} |" for name, value in ordered
    ]


def _format_value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else _escape_markdown(value)


def _escape_markdown(value: Any) -> str:
    """Escape a value as one line without markup: a route file is untrusted data."""
    text = " ".join(str(value).split())[:500]
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>|#!" else sign for sign in text)
