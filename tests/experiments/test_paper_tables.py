"""The paper's tables with several processes, stopped and gone on with."""

import json
import re

import pytest

from experiments.paper_tables import is_kept, main, order_units
from macro_routing.cli.console import read_toml
from macro_routing.studies.paper_config import list_units, read_paper_config
from tests.runs.small import small_folder, write_task_file

CONFIG = """
tasks = ["{0}/first.jsonl"]
seeds = [1, 2]

[runs]
search = {{ iterations = 2, draws = 4, elite = 2, k = 2 }}
data = {{ question = "q", answer = "a", choices = "c", kind = "choice", training = 12, validation = 6, test = 8 }}
decoding = {{ mode = "likelihood" }}
space = {{ max_length = 8 }}

[models]
tiny = {{ parameters = 1 }}

[items.main-table]
methods = ["macro", "standard"]
"""


def test_two_processes_share_the_units_and_a_second_call_finds_nothing_left(tmp_path, capsys):
    small_folder(tmp_path / "models" / "tiny")
    write_task_file(tmp_path / "first.jsonl", 60)
    (tmp_path / "paper.toml").write_text(CONFIG.format(tmp_path))
    command = [str(tmp_path / "paper.toml"), "--out", str(tmp_path / "out"), "--model-dir", str(tmp_path / "models")]
    kept = tmp_path / "kept"
    command += ["--kept", str(kept)]
    main([*command, "--minutes", "0.0001", "--slots", "1"])
    before = re.search(r"(\d) of 4 units are done", capsys.readouterr().out)
    assert int(before[1]) < 4  # the one that runs may come to its end before it is interrupted
    main([*command, "--minutes", "10", "--slots", "2"])
    said = capsys.readouterr().out
    assert "main-table: 4 of 4" in said
    assert f"4 more runs are kept in {kept}" in said
    data = json.loads((tmp_path / "out" / "main-table" / "data.json").read_text())
    assert {row["method"] for row in data["tables"]["table"]["rows"]} >= {"standard pass", "MACRO"}
    # What is kept is not run again, and has the same tables.
    units = list_units(read_paper_config(read_toml(tmp_path / "paper.toml"), tmp_path / "models"))
    assert all(is_kept(unit, kept) for unit in units)
    assert not any(is_kept(unit, tmp_path / "none") for unit in units)
    for name in ("data", "pictures"):
        (tmp_path / "docs" / name).mkdir(parents=True)
    main([command[0], "--kept", str(kept), "--write", str(tmp_path / "docs")])
    for name, table in data["tables"].items():
        part = "" if name == "table" else f"_{name}"
        record = json.loads((tmp_path / "docs" / "data" / f"paper_main_table{part}.json").read_text())
        assert [row["raw"] for row in record["results"]] == table["rows"]
        assert record["config"]["headline"] == data["headline"]
    assert (tmp_path / "docs" / "pictures" / "paper_main_table.svg").is_file()


def test_one_of_two_forms_is_asked_for(tmp_path):
    for words in ([], ["--out", str(tmp_path), "--write", str(tmp_path)]):
        with pytest.raises(SystemExit, match="name --out FOLDER to run"):
            main([str(tmp_path / "paper.toml"), *words])


def test_every_process_comes_to_every_unit():
    units = [str(number) for number in range(7)]
    orders = [order_units(units, slot, 3) for slot in range(3)]
    assert all(sorted(order) == units for order in orders)
    assert [order[0] for order in orders] == ["0", "1", "2"]
    assert orders[1] == ["1", "4", "6", "5", "3", "2", "0"]
