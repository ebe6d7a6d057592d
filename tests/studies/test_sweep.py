"""The hyper-parameter sweep, end to end on a tiny model."""

import dataclasses

import pytest

from macro_routing.errors import SettingsError
from macro_routing.runs import RunFolder
from macro_routing.runs.options import parse_untyped_value
from macro_routing.studies.settings import (
    HyperparameterSweepSettings,
)
from macro_routing.studies.sweep import (
    find_settings_table_of_hyperparameter,
    get_base_setting_value,
    run_hyperparameter_sweep,
)
from tests.studies.contexts import BASE, check_written_files, small_context


def test_sweep(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    found = run_hyperparameter_sweep(
        context, HyperparameterSweepSettings(tasks=("small",), seeds=(1,), setting="elite", values=(1, 4))
    )
    assert [row["value"] for row in found.table.rows[:-1]] == [1, 2, 4]  # the default is among them
    assert [row["is_default"] for row in found.table.rows[:-1]] == [False, True, False]
    assert found.table.rows[1].get("p") is None
    check_written_files(context, found)
    assert "differ in accuracy from the default" in found.headline
    assert "small n = 20" in found.table.notes[0]
    assert "1 seed (1)" in found.table.notes[0]
    assert "neither includes the variation between searches" in found.table.notes[0]


def test_a_sweep_of_another_method_is_called_by_its_name(tmp_path, frozen):
    base = BASE.with_changes(method="random", search={"iterations": 2, "draws": 6})
    context = dataclasses.replace(small_context(tmp_path, frozen), base=base)
    found = run_hyperparameter_sweep(
        context, HyperparameterSweepSettings(tasks=("small",), seeds=(1,), setting="k", values=(2,))
    )
    assert "random search; bars" in found.figures[0].to_svg()
    run = RunFolder.open(context.folder.path / "runs" / "k_4-small-1").read_json("run.json")
    assert run["config"]["given"]["search"] == base.given["search"]  # the preset's k is no change at all


def test_settings_that_can_be_swept():
    assert find_settings_table_of_hyperparameter("beta", BASE) == "search"
    assert find_settings_table_of_hyperparameter("radius", BASE) == "space"
    assert find_settings_table_of_hyperparameter("training", BASE) == "data"
    assert (
        get_base_setting_value("elite", BASE),
        get_base_setting_value("radius", BASE),
        get_base_setting_value("training", BASE),
    ) == (2, 5, 16)
    assert get_base_setting_value("max_length", BASE.with_changes(space={})) == 0  # the model settles it
    assert get_base_setting_value("anchored", BASE.with_changes(method="random", search={})) is True
    with pytest.raises(SettingsError, match="did you mean 'beta'"):
        find_settings_table_of_hyperparameter("bete", BASE)
    for setting in ("test", "data_dir", "question", "answer", "choices", "kind", "layers"):
        with pytest.raises(SettingsError, match=f"{setting} cannot be swept"):
            find_settings_table_of_hyperparameter(setting, BASE)
    assert [parse_untyped_value(text) for text in ("1", "1.5", "true", "raw")] == [1, 1.5, True, "raw"]


def test_an_impossible_value_is_rejected_before_anything_runs(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    with pytest.raises(SettingsError, match="elite"):
        run_hyperparameter_sweep(
            context, HyperparameterSweepSettings(tasks=("small",), seeds=(1,), setting="elite", values=(1, 400))
        )
    assert not (context.folder.path / "runs").exists()
