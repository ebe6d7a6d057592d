"""One source of options: the reproduce command gives the same configuration, and help loads no heavy library."""

import shlex
import subprocess
import sys

import pytest
import typer.main
import typer.testing

from macro_routing.cli import main, run_options
from macro_routing.cli import search as search_command
from macro_routing.routes.space import RouteSpace
from macro_routing.runs import RunConfig, make_run_config
from macro_routing.runs.config_tables import SpaceSettings
from macro_routing.runs.methods import METHODS, keep_settings_of_method, list_used_decision_settings
from macro_routing.runs.options import CONFIG_FILE, format_config_as_toml, format_search_command
from macro_routing.runs.presets import PRESETS

GIVEN = {
    "data": {"training": 30, "question": "ask", "data_dir": "."},
    "decoding": {"mode": "direct", "answer_budget": 9, "stop_loops": False, "by_letter": True},
    "space": {"max_length": 40, "window": 0},
    "guard": {"tasks": ["sequence", "sciq"], "max_drop": 1.5},
    "loading": {"dtype": "float32", "trust_remote_code": True},
}
SEARCH = {"iterations": 3, "draws": 12, "elite": 2, "k": 3, "max_span": 4}
DECISION = {"max_error_probability": 0.03, "price": 0.25}
TOP_LEVEL = {"seed": 7, "budget": 5000, "racing": "never", "decoder": "eager", "max_minutes": 2.5, "init_from": "-x"}


def parse_command(command, monkeypatch, tmp_path):
    """The configuration that the real command makes of a command line."""
    parsed = []
    monkeypatch.setattr(search_command, "search_and_report", lambda config, *_, **__: parsed.append(config))
    monkeypatch.chdir(tmp_path)
    result = typer.testing.CliRunner().invoke(main.make_cli_app(), shlex.split(command)[1:])
    assert result.exit_code == 0, (command, result.output, result.exception)
    return parsed[0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("preset", PRESETS)
def test_the_reproduce_command_gives_the_same_configuration(preset, method, monkeypatch, tmp_path):
    plain = make_run_config("category", preset=preset, method=method, seed=3)
    assert parse_command(format_search_command(plain.to_toml_tables()), monkeypatch, tmp_path) == plain
    search = keep_settings_of_method(method, SEARCH)
    used = list_used_decision_settings(method, "accuracy")
    decision = {name: value for name, value in DECISION.items() if name in used}
    full = make_run_config(
        "category", preset=preset, method=method, search=search, decision=decision, **GIVEN, **TOP_LEVEL
    )
    command = format_search_command(full.to_toml_tables())
    assert CONFIG_FILE not in command
    assert parse_command(command, monkeypatch, tmp_path) == full


@pytest.mark.parametrize("method", METHODS)
def test_what_has_no_flag_comes_in_a_file(method, monkeypatch, tmp_path):
    config = make_run_config("category", method=method, units={"race": 3}, space={"radius": 2}, **TOP_LEVEL)
    command = format_search_command(config.to_toml_tables())
    assert command == f"macro search --config {CONFIG_FILE}"
    (tmp_path / CONFIG_FILE).write_text(format_config_as_toml(config.to_toml_tables()))
    assert parse_command(command, monkeypatch, tmp_path) == config


def test_a_switch_that_is_off_where_no_flag_says_so_comes_in_a_file():
    tables = make_run_config("category", decoding={"by_letter": False}).to_toml_tables()
    assert CONFIG_FILE in format_search_command(tables)


def test_every_table_round_trips():
    config = make_run_config("category", preset="quick", method="macro", search={"beta": 2.0}, **GIVEN)
    assert RunConfig.from_toml_tables(config.to_toml_tables(), "again") == config
    assert config.search.beta == 2.0
    assert config.search.draws == 16
    assert config.data.validation == 100


def test_the_space_of_a_configuration_has_the_fields_of_the_route_space():
    space = SpaceSettings().make_space(30)
    assert space == RouteSpace(30)
    assert {"layers", *vars(SpaceSettings())} == set(vars(RouteSpace(30)))


@pytest.mark.parametrize("words", [["--help"], ["search", "--help"], ["study", "sweep", "--help"]])
def test_help_loads_neither_torch_nor_transformers(words):
    code = (
        "import sys; from typer.testing import CliRunner; from macro_routing.cli.main import make_cli_app;"
        f"assert CliRunner().invoke(make_cli_app(), {words}).exit_code == 0;"
        "loaded = {'torch', 'transformers', 'matplotlib'} & set(sys.modules); assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_search_help_groups_its_options():
    shown = typer.testing.CliRunner().invoke(main.make_cli_app(), ["search", "--help"]).output
    for panel in ("Model:", "Data:", "Answering:", "Search:", "Budget:", "Execution:", "Output:"):
        assert f"\n{panel}\n" in shown


def test_every_flag_of_search_is_an_option_of_a_run_or_of_the_command():
    command = typer.main.get_command(main.make_cli_app()).commands["search"]
    own = {"config", "store", "dry_run", "out", "log_to", "as_json"}
    assert {one.name for one in command.params} == {*run_options.collect_run_options(), *own}
