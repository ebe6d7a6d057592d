"""A study's folder: resumed with the same settings, refused with others, whole after any stop."""

import json

import pytest

from macro_routing.errors import RunError
from macro_routing.studies.folder import StudyFolder, file_name

SETTINGS = {"tasks": ["a"], "runs": {"model": "m", "search": {"draws": 4}}}


def opened(path, study="ablation", **changes):
    return StudyFolder.opened(path, study, {**SETTINGS, **changes})


def test_the_same_settings_go_on(tmp_path):
    opened(tmp_path / "s").cell("one", "mark", lambda: {"value": 1})
    kept = opened(tmp_path / "s").cell("one", "mark", lambda: pytest.fail("it was measured already"))
    assert kept == {"value": 1}


def test_other_settings_are_named(tmp_path):
    opened(tmp_path).cell("one", "mark", dict)
    with pytest.raises(RunError, match=r"other settings \(runs.search.draws, tasks\)"):
        opened(tmp_path, tasks=["b"], runs={"model": "m", "search": {"draws": 5}})


def test_another_question_has_a_folder_of_its_own_and_the_same_one_goes_on(tmp_path):
    def place_of(study="ablation", **changes):
        folder = StudyFolder.among(tmp_path / "s", study, {**SETTINGS, **changes})
        folder.cell("one", "mark", dict)
        return folder.path.name

    questions = [{"tasks": [name]} for name in "abcabc"]
    assert [place_of(**one) for one in questions] == ["s", "s.2", "s.3", "s", "s.2", "s.3"]
    with pytest.raises(RunError, match="holds the study ablation"):
        place_of("sweep")


def test_a_mistake_blocks_no_folder_in_which_nothing_was_measured(tmp_path):
    with opened(tmp_path).held():
        pass
    changed = opened(tmp_path, tasks=["b"])
    with changed.held(), pytest.raises(RunError, match="in use"):
        opened(tmp_path, tasks=["c"])  # it may be about to measure
    (changed.run_place("one")).mkdir(parents=True)
    opened(tmp_path, tasks=["b"])
    with pytest.raises(RunError, match=r"other settings \(tasks\)"):
        opened(tmp_path, tasks=["c"])


def test_another_study_is_refused(tmp_path):
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


def test_other_data_under_the_same_name_are_refused(tmp_path):
    folder = opened(tmp_path)
    folder.cell("one", "mark", dict)
    with pytest.raises(RunError, match="other data"):
        folder.cell("one", "another", dict)


def test_a_part_that_fails_leaves_nothing(tmp_path):
    folder = opened(tmp_path)

    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        folder.cell("one", "mark", stop)
    assert not folder.has_cell("one")


def test_damage_says_how_to_go_on(tmp_path):
    folder = opened(tmp_path)
    folder.cell("one", "mark", dict)
    (tmp_path / "cells" / "one.json").write_text("{")
    with pytest.raises(RunError, match="remove it"):
        folder.cell("one", "mark", dict)


@pytest.mark.parametrize("text", ["{", "[]", "[" * 200_000, '{"settings": null}', '{"settings": []}', "{}"])
def test_a_damaged_study_is_told_from_a_part(tmp_path, text):
    opened(tmp_path)
    whole = json.loads((tmp_path / "study.json").read_text())
    kept = {name: whole[name] for name in ("format", "study")}
    (tmp_path / "study.json").write_text(json.dumps(json.loads(text) | kept) if text.endswith("}") else text)
    with pytest.raises(RunError, match=r"study.json is damaged \(.*put it back, or name another folder") as refused:
        opened(tmp_path)
    assert "remove" not in str(refused.value)


@pytest.mark.parametrize("kept", [{}, {"found": None}, {"found": [1]}])
def test_a_part_without_what_was_found_is_damaged(tmp_path, kept):
    folder = opened(tmp_path)
    (tmp_path / "cells" / "one.json").write_text(json.dumps({"mark": "mark", **kept}))
    with pytest.raises(RunError, match=r".found. is no object\); remove it and the same command makes it again"):
        folder.cell("one", "mark", dict)


def test_a_study_that_was_stopped_before_it_began_can_begin(tmp_path):
    (tmp_path / "cells").mkdir()
    (tmp_path / "lock").write_text("123")
    (tmp_path / "study.json.unfinished").write_text("{")
    opened(tmp_path).cell("one", "mark", dict)
    (tmp_path / "study.json").unlink()
    with pytest.raises(RunError, match="not an empty folder"):
        opened(tmp_path)  # parts of a study that nobody knows


def test_a_study_is_there_before_its_parts(tmp_path, monkeypatch):
    def stop(*_):
        assert not (tmp_path / "s" / "cells").exists()
        raise KeyboardInterrupt

    monkeypatch.setattr("macro_routing.studies.folder._write", stop)  # no other way to be stopped just there
    with pytest.raises(KeyboardInterrupt):
        opened(tmp_path / "s")


def test_a_lock_that_cannot_be_made_is_an_error_of_the_folder(tmp_path):
    folder = opened(tmp_path)
    (tmp_path / "lock").mkdir()
    with (
        pytest.raises(RunError, match="cannot be used: Is a directory; name another folder"),
        folder.held(),
    ):
        pass
    (tmp_path / "lock").rmdir()
    with pytest.raises(OSError, match="of the study itself"), folder.held():
        raise OSError("of the study itself")


def test_one_process_at_a_time(tmp_path):
    folder = opened(tmp_path)
    with folder.held(), pytest.raises(RunError, match="in use"), opened(tmp_path).held():
        pass


def test_long_names_that_begin_alike_are_two():
    first, second = (file_name("x" * 200 + end) for end in "ab")
    assert first != second
    assert max(len(first), len(second)) <= 150
    assert file_name("x" * 150) == "x" * 150


def test_names_cannot_leave_the_folder(tmp_path):
    folder = opened(tmp_path)
    folder.cell("on-../../x y:z", "mark", dict)
    assert [one.name for one in (tmp_path / "cells").iterdir()] == ["on-.._.._x_y_z.json"]
