"""What is read from the folders of finished runs."""

from macro_routing.runs.comparison_results import measure_selection_seconds


def test_selection_is_timed_from_the_last_round(tmp_path):
    lines = [
        "2026-01-01 10:00:00  begins or goes on: a task",
        "2026-01-01 10:00:30  round 1/1: best 50.0",
        "2026-01-01 10:00:31  validation: at most 5 outcomes",
        "2026-01-01 12:00:00  begins or goes on: a task",
        "2026-01-01 12:00:07  test: at most 5 outcomes",
    ]
    (tmp_path / "log.txt").write_text("\n".join(lines))
    assert measure_selection_seconds(tmp_path) == 8  # the pause does not count, what was done before it does
    (tmp_path / "log.txt").write_text("\n".join([*lines, "2026-01-01 13:00:00  begins or goes on: a task", *lines[4:]]))
    assert measure_selection_seconds(tmp_path) == 8  # stopped in its test, when all was selected
    (tmp_path / "log.txt").write_text("\n".join([*lines[:3], lines[4].replace("12:00:07", "10:00:50")]))
    assert measure_selection_seconds(tmp_path) == 20
