"""Everything needed to reproduce a run: the command, the configuration, the data, the model and the machine."""

from markupsafe import Markup

from macro_routing.report.rendering import render_template
from macro_routing.report.run_data import RunData
from macro_routing.report.tables import flatten_settings
from macro_routing.runs.options import CONFIG_FILE, format_config_as_toml, format_search_command

_PRIVATE_FACTS = ("cache folder", "built-in models")
"""Facts about this machine that are not needed to reproduce a run; pages are shared."""


def render_reproduction(run: RunData) -> Markup:
    """The section that says how to reproduce the run."""
    command, private = format_search_command(run.given_config), _PRIVATE_FACTS
    return render_template(
        "reproduce.html",
        command=command,
        config=format_config_as_toml(run.given_config),
        config_file=CONFIG_FILE,
        needs_file=CONFIG_FILE in command,
        has_file=(run.path / CONFIG_FILE).is_file(),
        data=_list_data_facts(run),
        model=_list_model_facts(run),
        environment={name: value for name, value in run.header["environment"].items() if name not in private},
        resolved=flatten_settings(run.resolved_config),
    )


def _list_data_facts(run: RunData) -> dict[str, str]:
    header = run.header
    splits = header["splits"].items()
    guards = header["guards"].items()
    scope = {name: value for name, value in header["scope"].items() if name not in {"numerics", "task"}}
    return {
        "task": run.task_name,
        "seed": str(run.given_config["seed"]),
        **{name: f"{size} examples, fingerprint {fingerprint}" for name, (size, fingerprint) in splits},
        **{f"guard {name}": ", ".join(f"{split} {mark}" for split, mark in marks.items()) for name, marks in guards},
        **flatten_settings(scope),
    }


def _list_model_facts(run: RunData) -> dict[str, str]:
    model = run.header["model"]
    return {
        "name": str(model["name"]),
        "layers": str(model["layers"]),
        "weights": str(model["weights_id"]),
        "numerics": str(run.header["scope"].get("numerics", "not recorded")),
        "macro": str(run.header["macro"]),
        "started": str(run.header["started"]),
    }
