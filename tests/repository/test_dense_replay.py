"""Searches told probabilities: what they are told, and that it can come out either way."""

import json
import sys

import numpy as np
import pytest

from benchmarks import dense_replay
from benchmarks.dense_replay import calibrated, lines
from experiments.landscape import routes_to_record
from macro_routing.routes import RouteSpace


def recorded(is_telling):
    """Six layers, one route better than the standard pass; its probabilities say so, or the opposite."""
    rng = np.random.default_rng(2)
    routes = routes_to_record(RouteSpace(6), 0, seed=1)
    rows = []
    for number, route in enumerate(routes):
        rate = 0.7 if number == 5 else 0.4
        right = rng.random(120) < rate
        shown = rate if is_telling else 0.8 - rate
        dense = np.where(rng.random(120) < shown, -0.2, -2.0) if number else np.where(right, -0.2, -2.0)
        rows.append(
            {
                "model": "planted",
                "task": "planted",
                "layers": 6,
                "route": str(route),
                "right": "".join(str(int(one)) for one in right),
                "dense": (dense + 0.1 * rng.normal(size=120)).tolist(),
            }
        )
    return rows


def test_chances_are_on_the_scale_of_right_or_wrong():
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(3, 5000))
    right = rng.random((3, 5000)) < 1 / (1 + np.exp(-(0.5 + 2 * dense)))
    chances = calibrated(dense, right)
    assert chances.mean(1) == pytest.approx(right.mean(1), abs=0.02)
    assert chances[1] == pytest.approx(1 / (1 + np.exp(-(0.5 + 2 * dense[1]))), abs=0.03)


@pytest.mark.parametrize("is_telling", [True, False])
def test_probabilities_help_only_where_they_tell_something(is_telling):
    plain, probability, half = lines("planted", recorded(is_telling), seeds=2)
    assert [len(line["raw"]) for line in (plain, probability, half)] == [2, 2, 2]
    assert [line["told"] for line in (plain, probability, half)] == ["right or wrong", "probability", "half of each"]
    assert plain["difference"] == ""
    assert (probability["proposed"] > 10) == is_telling
    assert plain["proposed"] > 10


def test_the_table_is_written(tmp_path, monkeypatch, capsys):
    kept, written = tmp_path / "kept.jsonl", tmp_path / "table.json"
    rows = [{**row, "right": row["right"][:40], "dense": row["dense"][:40]} for row in recorded(is_telling=True)]
    kept.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(sys, "argv", ["dense_replay", str(kept), "--seeds", "2", "--write", str(written)])
    dense_replay.main()
    assert "right or wrong" in capsys.readouterr().out
    record = json.loads(written.read_text())
    assert record["config"]["model"] == "planted"
    assert len(record["results"]) == 3
