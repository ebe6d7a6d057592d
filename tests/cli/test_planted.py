import json
from pathlib import Path

import pytest

from tests.cli.runner import run

EXAMPLE = Path(__file__).parents[2] / "examples" / "planted.toml"


def test_the_example_configuration_finds_its_target():
    facts = json.loads(run("planted", "--method", "macro", "--config", str(EXAMPLE), "--json").stdout)
    assert facts["found"]
    assert facts["selected"] == facts["target"]


def test_the_seed_repeats_it():
    once, again = (run("planted", "--method", "macro", "--seed", "3", "--json", fresh=True).stdout for _ in range(2))
    assert once == again


def test_one_file_serves_method_and_control():
    assert "found" in run("planted", "--method", "random", "--config", str(EXAMPLE)).stdout


def test_the_default_search_can_be_tried_with_the_same_file(tmp_path):
    facts = json.loads(run("planted", "--config", str(EXAMPLE), "--json").stdout)
    assert facts["found"]
    assert facts["coin_flips"] <= facts["search"]["budget"]
    path = tmp_path / "sure.toml"
    path.write_text("[decision]\nmax_error_probability = 1e-9\n[search]\nelite = 3")
    careful = json.loads(run("planted", "--method", "guided", "--config", str(path), "--json").stdout)
    assert careful["search"]["decision"]["max_error_probability"] == 1e-9
    assert careful["selected"] == "L0 RJ"
    path.write_text("[decision]\nmax_error_probability = 2")
    assert (
        "max_error_probability = 2 is not allowed"
        in run("planted", "--method", "guided", "--config", str(path), status=2).stderr
    )
    assert "the guided search needs 3" in run("planted", "--method", "guided", "--examples", "2", status=2).stderr


def test_small_models_have_a_default_target():
    assert "L0 L0 RJ" in run("planted", "--method", "macro", "--layers", "2").stdout


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[search]\nelit = 3", "[search]: unknown key 'elit'; known keys: iterations, draws, stream, elite"),
        ("[search]\nk = 0", "k = 0 is not allowed"),
        ("[search]\nepsilon_local = 0.9\nepsilon_operator = 0.2", "sum to at most 1"),
        ("[space]\nmax_length = 5", "max_length (T_max) = 5 is not allowed"),
        ("[serch]\nk = 1", "unknown key 'serch'"),
        ('decision = "speed"', "decision must be a table of settings"),
        ("[problem]\npeak = 0.1", "peak (p1) = 0.1 is not allowed"),
        ("[problem]\nseed = 1", "give seed with --seed"),
        ("[search]\ndraws = 'many'", "draws (K) = 'many' is not allowed"),
        ("[search\n", "cannot read"),
        ("a = " + "[" * 5000, "cannot read"),
        ("[search]\nalpha = " + "9" * 5000, "cannot read"),
        ("[space]\nradius = 1000000000", "radius (r) = 1000000000"),
        ("[space]\nmax_length = 1000000000000", "max_length (T_max)"),
    ],
)
def test_bad_configurations_are_rejected_by_name(toml, message, tmp_path):
    path = tmp_path / "search.toml"
    path.write_text(toml)
    failed = run("planted", "--method", "macro", "--config", str(path), status=2)
    assert message in failed.stderr
    assert "Traceback" not in failed.stderr


def test_other_mistakes():
    assert "there is no file" in run("planted", "--config", "nowhere.toml", status=2).stderr
    assert "5 training examples" in run("planted", "--method", "macro", "--examples", "5", status=2).stderr
    assert "disagree" in run("planted", "--config", str(EXAMPLE), "--layers", "9", status=2).stderr
    assert "--target lies outside the route space" in run("planted", "--target", "L0 L7 RJ", status=2).stderr
    assert "step 2 applies layer 50" in run("planted", "--target", "L0 L50 RJ", status=2).stderr
    assert "seed = -1" in run("planted", "--seed", "-1", status=2).stderr
    assert "validation = 0" in run("planted", "--validation", "0", status=2).stderr


def test_mixtures_have_nothing_to_add_up_there(tmp_path):
    path = tmp_path / "mixtures.toml"
    path.write_text("[decision]\nmax_cost = 2.0\n")
    failed = run("planted", "--config", path, "--layers", "8", status=2)
    assert "mixtures are not allowed in a planted problem" in failed.stderr
    path.write_text("[decision]\nmax_cost = 2.0\nmembers = 1\n")
    assert run("planted", "--config", path, "--layers", "8", "--examples", "60").returncode == 0
