"""A study's folder: resumed with the same settings, rejected with others, whole after any stop."""

import json

import pytest

from macro_routing.errors import RunError
from macro_routing.studies.folder import StudyFolder, make_file_name

SETTINGS = {"tasks": ["a"], "runs": {"model": "m", "search": {"draws": 4}}}


def opened(path, study="ablation", **changes):
    return StudyFolder.open(path, study, {**SETTINGS, **changes})


def test_the_same_settings_go_on(tmp_path):
    opened(tmp_path / "s").load_or_measure("one", "mark", lambda: {"value": 1})
    kept = opened(tmp_path / "s").load_or_measure("one", "mark", lambda: pytest.fail("it was measured already"))
    assert kept == {"value": 1}


def test_other_settings_are_named(tmp_path):
    opened(tmp_path).load_or_measure("one", "mark", dict)
    with pytest.raises(RunError, match=r"other settings \(runs.search.draws, tasks\)"):
        opened(tmp_path, tasks=["b"], runs={"model": "m", "search": {"draws": 5}})


def test_another_question_has_a_folder_of_its_own_and_the_same_one_goes_on(tmp_path):
    def find_settings_table_of_hyperparameter(study="ablation", **changes):
        folder = StudyFolder.open_free_or_matching(tmp_path / "s", study, {**SETTINGS, **changes})
        folder.load_or_measure("one", "mark", dict)
        return folder.path.name

    questions = [{"tasks": [name]} for name in "abcabc"]
    assert [find_settings_table_of_hyperparameter(**one) for one in questions] == ["s", "s.2", "s.3", "s", "s.2", "s.3"]
    with pytest.raises(RunError, match="holds the study ablation"):
        find_settings_table_of_hyperparameter("sweep")


def test_a_mistake_blocks_no_folder_in_which_nothing_was_measured(tmp_path):
    with opened(tmp_path).lock():
        pass
    changed = opened(tmp_path, tasks=["b"])
    with changed.lock(), pytest.raises(RunError, match="in use"):
        opened(tmp_path, tasks=["c"])  # it may be about to measure
    (changed.run_folder("one")).mkdir(parents=True)
    opened(tmp_path, tasks=["b"])
    with pytest.raises(RunError, match=r"other settings \(tasks\)"):
        opened(tmp_path, tasks=["c"])


def test_another_study_is_rejected(tmp_path):
    opened(tmp_path)
    with pytest.raises(RunError, match="holds the study ablation"):
        opened(tmp_path, "sweep")


def test_foreign_folders_are_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(RunError, match="not an empty folder"):
        opened(tmp_path)
    (tmp_path / "mine.txt").rename(tmp_path / "run.json")
    with pytest.raises(RunError, match="a run's own folder"):
        opened(tmp_path)
    with pytest.raises(RunError, match="cannot be used"):
        opened(tmp_path / "run.json" / "below")


def test_other_data_under_the_same_name_are_rejected(tmp_path):
    folder = opened(tmp_path)
    folder.load_or_measure("one", "mark", dict)
    with pytest.raises(RunError, match="other data"):
        folder.load_or_measure("one", "another", dict)


def test_a_part_that_fails_leaves_nothing(tmp_path):
    folder = opened(tmp_path)

    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        folder.load_or_measure("one", "mark", stop)
    assert not folder.has_measurement("one")


def test_damage_says_how_to_go_on(tmp_path):
    folder = opened(tmp_path)
    folder.load_or_measure("one", "mark", dict)
    (tmp_path / "measurements" / "one.json").write_text("{")
    with pytest.raises(RunError, match="remove it"):
        folder.load_or_measure("one", "mark", dict)


@pytest.mark.parametrize("text", ["{", "[]", "[" * 200_000, '{"settings": null}', '{"settings": []}', "{}"])
def test_a_damaged_study_is_told_from_a_part(tmp_path, text):
    opened(tmp_path)
    whole = json.loads((tmp_path / "study.json").read_text())
    kept = {name: whole[name] for name in ("format", "study")}
    (tmp_path / "study.json").write_text(json.dumps(json.loads(text) | kept) if text.endswith("}") else text)
    with pytest.raises(RunError, match=r"study.json is damaged \(.*put it back, or name another folder") as rejected:
        opened(tmp_path)
    assert "remove" not in str(rejected.value)


@pytest.mark.parametrize("kept", [{}, {"values": None}, {"values": [1]}])
def test_a_part_without_what_was_found_is_damaged(tmp_path, kept):
    folder = opened(tmp_path)
    (tmp_path / "measurements" / "one.json").write_text(json.dumps({"fingerprint": "mark", **kept}))
    with pytest.raises(
        RunError, match=r".values. is not an object\); remove it and the same command measures it again"
    ):
        folder.load_or_measure("one", "mark", dict)


def test_a_study_that_was_stopped_before_it_began_can_begin(tmp_path):
    (tmp_path / "measurements").mkdir()
    (tmp_path / "lock").write_text("123")
    (tmp_path / "study.json.unfinished").write_text("{")
    opened(tmp_path).load_or_measure("one", "mark", dict)
    (tmp_path / "study.json").unlink()
    with pytest.raises(RunError, match="not an empty folder"):
        opened(tmp_path)  # parts of a study that nobody knows


def test_a_study_is_there_before_its_parts(tmp_path, monkeypatch):
    def stop(*_):
        assert not (tmp_path / "s" / "measurements").exists()
        raise KeyboardInterrupt

    monkeypatch.setattr("macro_routing.studies.folder._write_json", stop)  # no other way to be stopped just there
    with pytest.raises(KeyboardInterrupt):
        opened(tmp_path / "s")


def test_a_lock_that_cannot_be_made_is_an_error_of_the_folder(tmp_path):
    folder = opened(tmp_path)
    (tmp_path / "lock").mkdir()
    with (
        pytest.raises(RunError, match="cannot be used: Is a directory; name another folder"),
        folder.lock(),
    ):
        pass
    (tmp_path / "lock").rmdir()
    with pytest.raises(OSError, match="of the study itself"), folder.lock():
        raise OSError("of the study itself")


def test_one_process_at_a_time(tmp_path):
    folder = opened(tmp_path)
    with folder.lock(), pytest.raises(RunError, match="in use"), opened(tmp_path).lock():
        pass


def test_long_names_that_begin_alike_are_two():
    first, second = (make_file_name("x" * 200 + end) for end in "ab")
    assert first != second
    assert max(len(first), len(second)) <= 150
    assert make_file_name("x" * 150) == "x" * 150


def test_names_cannot_leave_the_folder(tmp_path):
    folder = opened(tmp_path)
    folder.load_or_measure("on-../../x y:z", "mark", dict)
    assert [one.name for one in (tmp_path / "measurements").iterdir()] == ["on-.._.._x_y_z.json"]


def test_a_folder_of_an_older_format_says_which_version_wrote_it(tmp_path):
    opened(tmp_path).load_or_measure("one", "mark", dict)
    header = json.loads((tmp_path / "study.json").read_text())
    (tmp_path / "study.json").write_text(json.dumps({**header, "format": "macro-study/1"}))
    with pytest.raises(RunError, match=r"written by a version with the format 'macro-study/1'.*name another folder"):
        opened(tmp_path)
