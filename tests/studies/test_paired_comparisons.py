"""What counts as a gain or a loss: corrected, below the level, and a p of nothing is the smallest there is."""

from macro_routing.studies.paired_comparisons import (
    add_holm_correction,
    compute_paired_score_difference,
    draw_differences,
    select_significant_gains,
    select_significantly_worse_rows,
)


def test_a_p_of_zero_is_a_loss_and_none_is_not():
    rows = [
        {"task": "zero", "difference": -0.5, "p_holm": 0.0},
        {"task": "open", "difference": -0.5, "p_holm": 0.05},
        {"task": "itself", "difference": 0.0, "p_holm": None},
        {"task": "better", "difference": 0.5, "p_holm": 0.0},
    ]
    assert [row["task"] for row in select_significantly_worse_rows(rows)] == ["zero"]
    assert [row["task"] for row in select_significant_gains(rows)] == ["better"]


def test_a_loss_on_very_many_examples_is_drawn_as_one():
    (row,) = add_holm_correction(
        [
            compute_paired_score_difference(
                {"route": "L0 RJ", "correct": [1] * 2000}, {"route": "L0-L1 L1 RJ", "correct": [0] * 2000}
            )
        ]
    )
    assert row["p"] == 0.0  # too small for a number of the machine
    figure = draw_differences("f", "title", [("one", row)])
    assert [key.meaning for key in figure.legend] == ["a loss (p < 0.05, corrected)"]


def test_a_line_that_was_not_compared_is_drawn_as_such():
    row = {"difference": 0.05, "low": 0.01, "high": 0.09}
    rows = [("judged", {**row, "p_holm": 0.01}), ("open", {**row, "p_holm": 0.4}), ("itself", {**row, "p_holm": None})]
    told = [key.meaning for key in draw_differences("any", "title", rows).legend]
    assert told == ["a gain (p < 0.05, corrected)", "no evidence of a gain or a loss", "not compared"]
