"""Names of tasks, end to end on a tiny model."""

import pytest

from macro_routing.errors import SettingsError
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode, parse_task_names


def test_a_file_is_kept_from_the_root(tmp_path, monkeypatch):
    (tmp_path / "mine.jsonl").write_text("")
    monkeypatch.chdir(tmp_path)
    assert (
        TaskWithAnswerMode.parse("mine.jsonl:direct").name_with_absolute_path
        == f"{tmp_path.resolve() / 'mine.jsonl'}:direct"
    )
    assert TaskWithAnswerMode.parse("gsm8k:reasoning").name_with_absolute_path == "gsm8k:reasoning"


def test_task_names():
    assert TaskWithAnswerMode.parse("gsm8k:reasoning") == TaskWithAnswerMode("gsm8k", "reasoning")
    assert TaskWithAnswerMode.parse("odd:name.csv") == TaskWithAnswerMode("odd:name.csv")
    with pytest.raises(SettingsError, match="every task once"):
        parse_task_names(["a", "a"])
