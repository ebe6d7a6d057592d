"""The model card of an exported checkpoint: model, route, evidence, how to load it."""

from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from macro_routing.deploy.export_common import get_hub_commit
from macro_routing.models.frozen import ModelMetadata
from macro_routing.routes.mixture import Mixture, RouteOrMixture
from macro_routing.routes.route_file import RouteFile
from macro_routing.routes.route_moves import describe_deviations_from_standard_pass

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


def write_model_card(
    folder: Path, base: ModelMetadata, route: RouteOrMixture, evidence: RouteFile | None, *, needs_macro: bool
) -> None:
    """Write the card, and the route file where there is one, to a checkpoint's folder."""
    (folder / "README.md").write_text(make_model_card(base, route, evidence, needs_macro=needs_macro), encoding="utf-8")
    if evidence is not None:
        (folder / "route.json").write_text(evidence.to_json() + "\n", encoding="utf-8")


def make_model_card(
    base: ModelMetadata, route: RouteOrMixture, evidence: RouteFile | None, *, needs_macro: bool
) -> str:
    """The card's text."""
    hub_model = {"base_model": base.name} if get_hub_commit(base) else {}
    front_matter = {
        "library_name": "macro-routing" if needs_macro else "transformers",
        **hub_model,
        "tags": ["layer-routing", "macro-routing"],
    }
    environment = Environment(  # noqa: S701 the template escapes Markdown itself
        loader=PackageLoader("macro_routing.deploy"),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["escape_markdown"] = _escape_markdown
    return environment.get_template("model_card.md").render(
        front_matter=yaml.safe_dump(front_matter, sort_keys=False),
        name=base.name if hub_model else Path(base.name).name,  # no path of this machine in the card
        weights_id=base.weights_id,
        route=route,
        is_mixture=isinstance(route, Mixture),
        deviations=_describe_route_or_mixture(route),
        evidence=evidence,
        titles=_FIELD_TITLES,
        needs_macro=needs_macro,
    )


def _describe_route_or_mixture(route: RouteOrMixture) -> list[str]:
    """What differs from the standard pass; of a mixture, each member with its weight."""
    if isinstance(route, Mixture):
        return [f"{member.weight:+.4g} × the log-probabilities of {member.route}" for member in route.members]
    return describe_deviations_from_standard_pass(route)


def _escape_markdown(value: Any) -> str:
    """Escape a value as one line without markup: a route file is untrusted data."""
    text = " ".join(str(value).split())[:500]
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>|#!" else sign for sign in text)
