"""The paper's tables with several processes, stopped and gone on with."""

import json
import re

from experiments.paper_tables import main, order_units
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
    main([*command, "--minutes", "0.0001", "--slots", "1"])
    before = re.search(r"(\d) of 4 units are done", capsys.readouterr().out)
    assert int(before[1]) < 4  # the one that runs may come to its end before it is interrupted
    main([*command, "--minutes", "10", "--slots", "2"])
    assert "main-table: 4 of 4" in capsys.readouterr().out
    data = json.loads((tmp_path / "out" / "main-table" / "data.json").read_text())
    assert {row["method"] for row in data["tables"]["table"]["rows"]} >= {"standard pass", "MACRO"}


def test_every_process_comes_to_every_unit():
    units = [str(number) for number in range(7)]
    orders = [order_units(units, slot, 3) for slot in range(3)]
    assert all(sorted(order) == units for order in orders)
    assert [order[0] for order in orders] == ["0", "1", "2"]
    assert orders[1] == ["1", "4", "6", "5", "3", "2", "0"]
