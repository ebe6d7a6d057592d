"""The random numbers of the paper's searches: published routes, a plain form of the draws, later rounds, resuming."""

import dataclasses

import numpy as np
import pytest

from macro_routing.errors import SettingsError
from macro_routing.routes import RouteSpace, parse_program
from macro_routing.runs import make_run_config
from macro_routing.search import MacroSearch, MacroSettings, Score
from macro_routing.search.macro import RestartedSearch
from macro_routing.search.paper_stream import (
    count_random_numbers,
    draw_first_programs,
    make_paper_generator,
    sample_paper_program,
)
from macro_routing.search.state_file import load_state, save_state


@pytest.mark.parametrize(
    ("layers", "max_length", "seed", "draw", "program"),
    [
        (32, 44, 42, 17, "L0-L7 L3(+h-4) L5(+h-6) L6-L11 RJ"),  # Mixtral, MAWPS
        (40, 52, 42, 5, "L0-L6 L1(+h-5) L2 L3 RJ"),  # Qwen3-14B, GSM8K
        (28, 40, 1, 27, "L0-L5 L1-L9 RJ"),  # Qwen3-1.7B, GSM8K-Plus
        (28, 40, 2, 7, "L0-L7 L7 RJ"),  # Qwen3-1.7B, MedQA
        (36, 40, 42, 14, "L0 L1 L0 RJ"),  # Qwen3-4B, MMLU-Pro; Qwen3-8B, GSM8K-Plus
    ],
)
def test_published_programs_are_drawn_verbatim(layers, max_length, seed, draw, program):
    assert str(draw_first_programs(RouteSpace(layers, max_length=max_length), seed, 30)[draw]) == program


def draw_plainly(layers, max_length, seed, count):
    """The same draws from the paper's text alone: no policy, no table, no mask of ours."""
    rng, found = np.random.default_rng(seed), []
    choices = [None, *((move, back) for back in range(7) for move in range(-5, 6))]
    for _ in range(count):
        path = [(0, 0)]
        while path[-1][0] != layers - 1:
            here, taken = path[-1][0], len(path)
            open_choices, masses = [], []
            for choice in choices:
                if choice is not None:
                    there, back = here + choice[0], choice[1]
                    fits = 0 <= there < layers and taken + layers - there <= max_length
                    if not fits or back > taken - 1:
                        continue
                is_add = choice is not None and choice[1] > 0
                masses.append(0.0867 / 66 if is_add else 0.2 / 12)
                if choice == (1, 0):
                    masses[-1] += 1 - 0.2 - 0.0867
                open_choices.append(choice)
            shares = np.cumsum(masses)
            choice = open_choices[np.searchsorted(shares / shares[-1], rng.random(), side="right")]
            if choice is None:
                break
            path.append((here + choice[0], choice[1]))
        text = " ".join(f"L{layer}" + (f"(+h-{back})" if back else "") for layer, back in path)
        found.append(parse_program(f"{text} RJ"))
    return found


@pytest.mark.parametrize(("layers", "max_length"), [(28, 40), (32, 44), (6, 9)])
@pytest.mark.parametrize("seed", [1, 2, 42, 7])
def test_draws_are_those_of_a_plain_form(layers, max_length, seed):
    space = RouteSpace(layers, max_length=max_length)
    assert draw_first_programs(space, seed, 60) == draw_plainly(layers, max_length, seed, 60)


def test_the_generator_goes_on_after_any_number_of_draws():
    space = RouteSpace(12, max_length=18)
    programs = draw_first_programs(space, 42, 50)
    for count in (0, 1, 7, 49):
        rng = make_paper_generator(42, count_random_numbers(space, programs[:count]))
        expected = np.random.default_rng(42).random(count_random_numbers(space, programs[:count]) + 1)[-1]
        assert rng.random() == expected


def play(search, state, stop=99):
    """A search whose scores depend on the route's length, and its programs."""
    programs = []
    while state.rounds < stop and (asked := search.ask(state)) is not None:
        programs += [proposal.program for proposal in asked.proposals]
        outcomes = [Score(len(one.route.steps) % 7, 10) for one in asked.proposals]
        outcomes = [dataclasses.replace(one, total=len(asked.examples)) for one in outcomes]
        state = search.tell(state, asked, outcomes)
    return programs, state


def test_later_rounds_go_on_with_the_same_generator(tmp_path):
    space = RouteSpace(12, max_length=18)
    settings = MacroSettings(iterations=4, draws=10, stream="paper")
    search = MacroSearch(space, 60, settings, 42)
    programs, _ = play(search, search.make_initial_state())
    assert programs[:10] == draw_first_programs(space, 42, 10)

    rng, state, expected = np.random.default_rng(42), search.make_initial_state(), []
    while (asked := search.ask(state)) is not None:
        drawn = [sample_paper_program(search.policy(state), rng) for _ in range(10)]
        expected += drawn
        outcomes = [Score(len(one.route.steps) % 7, len(asked.examples)) for one in asked.proposals]
        state = search.tell(state, asked, outcomes)
    assert programs == expected

    first, half = play(search, search.make_initial_state(), stop=2)
    save_state(tmp_path / "state.npz", half)
    rest, _ = play(search, load_state(tmp_path / "state.npz"))
    assert first + rest == programs


def test_restarts_draw_on(tmp_path):
    space = RouteSpace(12, max_length=18)
    first = MacroSearch(space, 60, MacroSettings(iterations=3, draws=10, stream="paper"), 42)
    restarted = RestartedSearch(first, 2 * first.max_evaluations())
    alone, _ = play(first, first.make_initial_state())
    programs, _ = play(restarted, restarted.make_initial_state())
    assert programs[: len(alone)] == alone
    drawn, half = play(restarted, restarted.make_initial_state(), stop=2)
    save_state(tmp_path / "state.npz", half)
    rest, _ = play(restarted, load_state(tmp_path / "state.npz"))
    assert drawn + rest == programs


def test_the_papers_preset_has_the_papers_stream():
    assert make_run_config("category", preset="paper").build_search_settings({}).stream == "paper"
    assert make_run_config("category", preset="default", method="macro").build_search_settings({}).stream == "per-round"
    with pytest.raises(SettingsError, match="stream"):
        MacroSettings(stream="numpy")
