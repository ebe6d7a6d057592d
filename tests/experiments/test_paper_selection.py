"""The simulation of the paper's main table: its draws have the published moments, and validation chooses."""

import numpy as np
import pytest

from experiments.paper_selection import (
    CANDIDATES,
    Cell,
    count_published,
    draw_gains_of_seeds,
    draw_measured_gains,
    make_row,
    read_cells,
    simulate_cell,
)


def test_the_published_table_has_no_loss():
    assert count_published() == {"wins": 67, "ties": 11, "losses": 0}
    assert [len(read_cells(names)) for names in CANDIDATES.values()] == [78, 78]
    assert sorted({cell.validation for cell in read_cells(["MACRO", "MACRO (top-1)"])}) == [100, 200]


def test_seeds_have_the_published_mean_and_deviation():
    gains = draw_gains_of_seeds(Cell((0.1, -0.02), (0.03, 0.0), 100), 50, np.random.default_rng(1))
    assert gains.mean(axis=1) == pytest.approx(np.tile([0.1, -0.02], (50, 1)))
    assert gains.std(axis=1, ddof=1) == pytest.approx(np.tile([0.03, 0.0], (50, 1)))


def test_a_measured_gain_is_that_of_paired_examples():
    gain, disagreement, n = 0.04, 0.1, 100
    measured = draw_measured_gains(np.full(200_000, gain), disagreement, n, np.random.default_rng(1))
    assert measured.mean() == pytest.approx(gain, abs=3e-4)
    # Each example adds 1, 0 or -1.
    assert measured.var() == pytest.approx((disagreement - gain**2) / n, rel=0.02)
    # Where a route breaks nothing, or fixes nothing, it is never measured on the wrong side.
    assert (draw_measured_gains(np.full(1000, gain), 0.0, n, np.random.default_rng(1)) >= 0).all()
    assert (draw_measured_gains(np.zeros(10), 0.0, n, np.random.default_rng(1)) == 0).all()


def test_validation_chooses():
    rng = np.random.default_rng(1)
    assert simulate_cell(Cell((0.3, -0.3), (0.0, 0.0), 200), 0.05, 500, rng) == pytest.approx(np.full(500, 0.3))
    assert simulate_cell(Cell((-0.3,), (0.0,), 200), 0.05, 500, rng) == pytest.approx(np.zeros(500))
    harmful = simulate_cell(Cell((-0.02,), (0.0,), 100), 0.1, 2000, rng)
    assert 0.3 < (harmful < 0).mean() < 0.8  # in one of three seeds at least


def test_more_disagreement_costs_more_losses():
    rows = [make_row("standard pass, top-1, no Vit., MACRO", share, 50) for share in (0.02, 0.2)]
    assert rows[0]["losses"] < rows[1]["losses"]
    assert all(row["wins"] + row["ties"] + row["losses"] == pytest.approx(78) for row in rows)
