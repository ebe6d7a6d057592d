import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.landscape import ChoiceScores, Landscape, is_short_repeat_or_skip, list_routes_to_record
from experiments.landscapes import (
    RAW_FOLDER,
    add_scores_without_question,
    collect_choice_scores,
    record_landscape,
    subsample_routes,
)
from macro_routing.errors import SettingsError
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.model_answers import answer_with_every_route
from macro_routing.routes import Route, RouteSpace, parse_program
from macro_routing.routes.mixture import Mixture
from macro_routing.tasks import load_task, make_splits
from tests.runs.small import small_frozen

SPACE = RouteSpace(6)


def made(examples=21):
    routes = list_routes_to_record(SPACE, 10, seed=1)
    rng = np.random.default_rng(0)
    rows = {route: rng.random(examples) < 0.5 for route in routes}
    return Landscape(tuple(routes), np.array(list(rows.values())), {"task": "tätig"}), rows


def test_the_table_holds_all_single_moves_and_blocks_and_the_wanted_pairs():
    routes = list_routes_to_record(SPACE, 10, seed=1)
    assert routes[0].is_standard
    assert len(set(routes)) == len(routes)
    assert routes == list_routes_to_record(SPACE, 10, seed=1)
    assert len(list_routes_to_record(SPACE, 0, seed=1)) == len(routes) - 10
    for i in range(6):
        for j in range(i + 1, 7):
            repeated = [*range(j), *range(i, 6)]
            assert any([step.layer for step in route.steps] == repeated for route in routes if not route.has_adds)


def test_written_and_read_it_is_the_same(tmp_path):
    landscape, rows = made()
    path = tmp_path / "table.json"
    path.write_text(landscape.to_json(), encoding="utf-8")
    again = Landscape.load(path)
    assert again.routes == landscape.routes
    assert (again.correct == landscape.correct).all()
    assert again.about["task"] == "tätig"
    for route, row in rows.items():
        assert (again.correct_examples(route) == row).all()
        assert again.gain(route) == pytest.approx(row.mean() - rows[Route.standard(6)].mean())
    assert Route.standard(6) in again
    assert Route.standard(7) not in again


@pytest.mark.parametrize("text", ["", "{}", '{"format": 3}', "[]", '{"layers": 2, "examples": 1, "routes": {}}'])
def test_other_files_are_rejected(text, tmp_path):
    path = tmp_path / "table.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match="record"):
        Landscape.load(path)


def test_a_table_without_the_standard_pass_is_rejected():
    landscape, _ = made()
    with pytest.raises(SettingsError, match="standard pass"):
        Landscape(landscape.routes[1:], landscape.correct[1:])


def test_short_repeats_and_skips_are_told_from_other_routes():
    names = [str(route) for route in list_routes_to_record(SPACE, 10, seed=1) if is_short_repeat_or_skip(route)]
    # The standard pass, four skips and 6 + 5 + 4 repeated blocks; the first and the last layer cannot be skipped.
    assert len(names) == 1 + 4 + 15
    assert {"L0 L0 RJ", "L0-L2 L1 RJ", "L0 L1 L3 RJ"} <= set(names)


def test_choice_scores_are_read_back_and_agree_with_the_table(tmp_path):
    routes = list_routes_to_record(SPACE, 0, seed=1)
    examples = [
        SimpleNamespace(choices=("a", "bb"), correct_choice=1),
        SimpleNamespace(choices=("é",), correct_choice=0),
    ]
    values = np.random.default_rng(0).normal(size=(len(routes), 2, 2)).astype(np.float16)
    collect_choice_scores(routes, values, examples).save(tmp_path / "scores.npz")
    scores = ChoiceScores.load(tmp_path / "scores.npz")
    assert scores.choice_bytes.tolist() == [[1, 2], [2, 0]]
    assert scores.answers.tolist() == [1, 0]
    for name, row in zip(scores.routes, scores.log_likelihoods, strict=True):
        assert (row == values[[str(route) for route in routes].index(name)]).all()


def test_a_share_of_the_routes_keeps_the_standard_pass_and_the_order():
    routes = list_routes_to_record(SPACE, 0, seed=1)
    some = subsample_routes(routes, 9)
    assert some[0].is_standard
    assert len(some) == 9
    assert some == [route for route in routes if route in set(some)]
    assert subsample_routes(routes, None) == routes


@pytest.mark.parametrize("path", sorted(RAW_FOLDER.glob("*.npz")), ids=lambda path: path.stem)
def test_recorded_choice_scores_give_the_recorded_outcomes(path):
    landscape, scores = Landscape.load(path.with_suffix(".json")), ChoiceScores.load(path)
    per_byte = scores.log_likelihoods.astype(float) / np.maximum(scores.choice_bytes, 1)
    predicted = np.nanargmax(per_byte, axis=2)
    for name, row in zip(scores.routes, predicted, strict=True):
        if "no question" in name:
            continue  # not a route of the table
        recorded = landscape.correct_examples(parse_program(name).to_route(landscape.layers))
        # Recorded in half precision, so that near ties may be settled otherwise.
        assert ((row == scores.answers) != recorded).mean() < 0.02


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A recording of a tiny model: the model, and what the recording was made with."""
    frozen = small_frozen()
    arguments = SimpleNamespace(
        model="small", task="category", mode="likelihood", examples=6, two_edits=0, max_routes=3, minutes=5,
        data_dir=None, folder=tmp_path_factory.mktemp("recorded"),
    )  # fmt: skip
    path, _ = record_landscape(frozen, arguments)
    return frozen, arguments, path


@pytest.fixture
def own_copy(recorded, tmp_path):
    """The model, the arguments, and an archive of the recording that may be changed."""
    frozen, arguments, path = recorded
    archive = shutil.copy(path.with_suffix(".npz"), tmp_path)
    return frozen, SimpleNamespace(**{**vars(arguments), "without_question": Path(archive)})


def test_the_standard_pass_without_the_question_is_added_to_a_recording(own_copy):
    frozen, arguments = own_copy
    before = ChoiceScores.load(arguments.without_question)
    for _ in range(2):  # it is added once
        add_scores_without_question(frozen, arguments)
    after = ChoiceScores.load(arguments.without_question)
    assert after.routes[:-1] == before.routes
    assert after.routes[-1].endswith("| no question]")
    assert np.array_equal(after.log_likelihoods[:-1], before.log_likelihoods, equal_nan=True)
    task = load_task("category", seed=0)
    example = make_splits(task, seed=0, training=3000, validation=100).train[0]
    alone = Mixture.from_route(Route.standard(frozen.layers), with_question=False)
    outcomes = answer_with_every_route(frozen, [alone], task, [example], DecodingSettings("likelihood"))
    recorded = [
        after.log_likelihoods[-1, index] for index in range(6) if after.answers[index] == example.correct_choice
    ]
    expected = np.array(outcomes[alone][0].log_likelihoods)
    assert any(np.allclose(row[: len(expected)], expected, atol=0.05) for row in recorded)


@pytest.mark.parametrize("change", ["answers", "more examples", "fewer choices"])
def test_scores_of_other_examples_are_not_added(own_copy, change):
    frozen, arguments = own_copy
    archive = arguments.without_question
    before = ChoiceScores.load(archive)
    scores, sizes, answers = before.log_likelihoods, before.choice_bytes, before.answers
    if change == "answers":
        answers = (answers + 1) % 2
    elif change == "more examples":
        scores, sizes, answers = np.tile(scores, (1, 999, 1)), np.tile(sizes, (999, 1)), np.tile(answers, 999)
    else:
        scores, sizes = scores[..., :-1], sizes[:, :-1]
    ChoiceScores(before.routes, scores, sizes, answers).save(archive)
    with pytest.raises(SystemExit, match="other examples"):
        add_scores_without_question(frozen, arguments)
