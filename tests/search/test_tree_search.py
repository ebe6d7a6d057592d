import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macro_routing.errors import RouteError, SearchError, SettingsError
from macro_routing.evaluation.planted_problem import PlantedProblem
from macro_routing.routes import Route, RouteSpace, parse_program
from macro_routing.search.tree_actions import (
    ProgramTreeActions,
    SkipRepeatEdits,
    drllm_label_from_route,
    route_from_drllm_label,
)
from macro_routing.search.tree_search import TreeSearch, progressive_widening_limit, run_searches_in_lockstep, ucb_score
from macro_routing.search.tree_settings import TreeSettings
from tests.strategies import small_spaces

LAYERS = 12
PAPER = RouteSpace(28, max_length=40)
ACTIONS = [SkipRepeatEdits(LAYERS), ProgramTreeActions(RouteSpace(LAYERS))]
SEEDS = range(20)


def list_children(actions, plan):
    """All plans one edit away from a plan."""
    return [actions.apply_action(plan, where, what) for where, what in actions.list_actions(plan).tolist()]


def run(search, reward):
    """Everything the search asks, in order."""
    asked = []
    while (route := search.ask()) is not None:
        asked.append(route)
        search.tell(reward(route))
    return asked


def wrong(_route):
    return 0.0


def without(layer):
    """Right without this layer; the standard pass is wrong."""
    return lambda route: float(all(step.layer != layer for step in route.steps))


def layer_list(*layers, of=LAYERS):
    return Route(tuple(Route.standard(of).steps[layer] for layer in layers), of)


# --- the search ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("actions", ACTIONS)
def test_the_tree_branches_and_goes_deep(actions):
    search = TreeSearch(actions, TreeSettings(), seed=1)
    run(search, wrong)
    assert search.statistics.max_children > 1
    assert search.statistics.depth > 1
    assert search.statistics.nodes == 11  # the root, and one for each simulation


@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("simulations", [1, 2, 10, 60])
def test_without_a_right_route_it_ends_after_exactly_its_simulations(actions, simulations):
    search = TreeSearch(actions, TreeSettings(simulations=simulations), seed=3)
    asked = run(search, wrong)
    statistics = search.statistics
    assert search.label is None
    assert statistics.simulations == simulations
    assert statistics.asked == len(asked) == len(search.rewards)
    assert statistics.simulations == statistics.asked - 1 + statistics.memo_hits
    assert search.ask() is None


def test_the_standard_pass_is_asked_first_and_is_no_simulation():
    search = TreeSearch(SkipRepeatEdits(LAYERS), TreeSettings(), seed=0)
    assert search.ask().is_standard
    search.tell(0)
    assert search.statistics.simulations == 0
    assert not search.ask().is_standard


def test_asking_again_asks_the_same():
    search = TreeSearch(SkipRepeatEdits(LAYERS), TreeSettings(), seed=0)
    for _ in range(5):
        assert search.ask() is search.ask()
        search.tell(0)


def test_a_route_is_asked_once_and_then_remembered():
    # Two layers have few lists, so simulations must come back to them.
    search = TreeSearch(SkipRepeatEdits(2), TreeSettings(simulations=40), seed=0)
    asked = run(search, wrong)
    assert len(set(asked)) == len(asked) <= 8
    assert search.statistics.memo_hits == 40 - (len(asked) - 1)
    assert search.statistics.simulations == 40


def test_a_space_with_nothing_but_the_standard_pass_is_searched_to_the_end():
    search = TreeSearch(ProgramTreeActions(RouteSpace(1, max_length=1)), TreeSettings(), seed=0)
    assert run(search, wrong) == [Route.standard(1)]
    assert search.statistics.simulations == search.statistics.memo_hits == 10


@pytest.mark.parametrize("actions", ACTIONS)
def test_seed_and_example_fix_what_is_asked(actions):
    def asked(seed, example):
        return run(TreeSearch(actions, TreeSettings(), seed, example=example), wrong)

    assert asked(1, 0) == asked(1, 0)
    assert asked(1, 0) != asked(2, 0)
    assert asked(1, 0) != asked(1, 1)


def test_ucb_by_hand():
    plain = TreeSettings(exploration=2.0, length_penalty=3.0)
    assert ucb_score(1.0, 4, 9, relative_length=0.5, settings=plain) == pytest.approx(
        0.25 + 2 * math.sqrt(2.1972245773362196 / 4) - 1.5
    )
    assert ucb_score(0.0, 1, 1, relative_length=1.0, settings=plain) == -3.0


@pytest.mark.parametrize(
    ("length_penalty", "rewards", "followed"),
    [
        (0.0, (0.0, 0.5, 0.0), 1),  # visited equally often: the best mean
        (0.0, (0.0, 0.0, 0.0), 0),  # all equal: the earliest
        (3.0, (0.0, 0.0, 0.0), None),  # all equal but for the length: the shortest
    ],
)
def test_selection_follows_the_best_ucb(length_penalty, rewards, followed):
    search = TreeSearch(
        SkipRepeatEdits(LAYERS), TreeSettings(length_penalty=length_penalty, random_child_probability=0), seed=4
    )
    assert search.ask().is_standard
    search.tell(0)
    first = []
    for reward in rewards:  # the root may have 2, 3 and again 3 children after 1, 2 and 3 visits
        first.append(search.ask())
        search.tell(reward)
    assert len({route.length for route in first}) > 1
    below = search.ask()
    expected = min(first, key=lambda route: route.length) if followed is None else first[followed]
    assert below in list_children(SkipRepeatEdits(LAYERS), expected)
    assert [len(node.children) for node in search._nodes if node.route == expected] == [1]


def test_a_random_child_is_followed_now_and_then():
    def spread(random_child_probability):
        choice = TreeSettings(simulations=200, random_child_probability=random_child_probability, exploration=0)
        search = TreeSearch(SkipRepeatEdits(LAYERS), choice, seed=0)
        run(search, wrong)
        return sorted(child.visits for child in search._root.children)

    assert spread(1.0)[-1] < spread(0.0)[-1]
    assert spread(1.0)[-2] > 5


def test_nodes_widen_with_the_root_of_their_visits():
    assert [progressive_widening_limit(visits) for visits in (1, 2, 4, 5, 9, 10, 100)] == [2, 3, 3, 4, 4, 5, 11]
    search = TreeSearch(ProgramTreeActions(PAPER), TreeSettings(simulations=99), seed=0)
    run(search, wrong)
    assert all(len(node.children) <= progressive_widening_limit(node.visits) for node in search._nodes)
    assert len(search._root.children) == 11


@pytest.mark.parametrize("actions", ACTIONS)
def test_visits_and_rewards_add_up_along_the_tree(actions):
    search = TreeSearch(actions, TreeSettings(simulations=50, stop_early=False), seed=2)
    run(search, without(3))
    for node in search._nodes:
        assert node.visits == 1 + sum(child.visits for child in node.children)
        reward = search.rewards[node.route]
        assert node.total == reward + sum(child.total for child in node.children)


# --- when it stops, and what it found -----------------------------------------------------------------------------


def test_it_stops_when_the_standard_pass_was_wrong_and_a_route_is_right():
    search = TreeSearch(SkipRepeatEdits(LAYERS), TreeSettings(simulations=500), seed=0)
    asked = run(search, without(5))
    assert [route for route, reward in search.rewards.items() if reward] == [asked[-1]] == [search.label]
    assert search.statistics.simulations < 500


def test_it_stops_when_a_right_route_is_short_enough():
    search = TreeSearch(SkipRepeatEdits(LAYERS), TreeSettings(simulations=500, min_layers_saved=3), seed=0)
    asked = run(search, lambda _route: 1.0)
    assert asked[-1].length <= LAYERS - 3 < min(route.length for route in asked[:-1])
    assert search.label == asked[-1]


def test_a_standard_pass_that_is_right_is_the_label_until_a_shorter_one_comes():
    search = TreeSearch(SkipRepeatEdits(LAYERS), TreeSettings(), seed=0)
    run(search, lambda route: float(route.length >= LAYERS))
    assert search.statistics.simulations == 10
    assert search.label == Route.standard(LAYERS)


def test_without_stopping_early_all_simulations_are_done():
    search = TreeSearch(SkipRepeatEdits(LAYERS), TreeSettings(stop_early=False), seed=0)
    run(search, lambda _route: 1.0)
    assert search.statistics.simulations == 10


@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("seed", range(5))
def test_the_label_is_the_shortest_right_route(actions, seed):
    search = TreeSearch(actions, TreeSettings(simulations=60, stop_early=False), seed=seed)
    run(search, lambda route: float(sum(step.layer for step in route.steps) % 3 == 1))
    right = [route for route, reward in search.rewards.items() if reward >= 1]
    assert 1 < len(right) < len(search.rewards)
    assert search.label == min(right, key=lambda route: (route.length, len({step.layer for step in route.steps})))


def test_partial_credit_is_not_right():
    search = TreeSearch(SkipRepeatEdits(LAYERS), TreeSettings(), seed=0)
    run(search, lambda _route: 0.99)
    assert search.label is None
    assert search.statistics.simulations == 10


def test_it_finds_a_harmful_layer_in_most_seeds():
    correct = 0
    for seed in SEEDS:
        search = TreeSearch(SkipRepeatEdits(LAYERS), TreeSettings(simulations=60), seed=seed)
        run(search, without(5))
        correct += search.label is not None
    assert correct > 0.9 * len(SEEDS)


def test_it_finds_the_one_planted_route_in_most_seeds():
    target = layer_list(0, 1, 2, 4, of=5)
    problem = PlantedProblem(target, base=0.0, peak=1.0, reach=4)
    correct = 0
    for seed in SEEDS:
        search = TreeSearch(SkipRepeatEdits(5), TreeSettings(simulations=60), seed=seed)
        run(search, problem.true_score)
        correct += search.label == target
    assert correct > len(SEEDS) / 2


# --- many examples at once ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("actions", ACTIONS)
def test_lockstep_gives_the_same_as_one_by_one(actions):
    def searches():
        return [TreeSearch(actions, TreeSettings(simulations=20), seed=7, example=example) for example in range(6)]

    calls = []

    def score(asked):
        calls.append(len(asked))
        return [without(index)(route) for index, route in asked]

    together, apart = searches(), searches()
    run_searches_in_lockstep(together, score)
    for index, search in enumerate(apart):
        run(search, without(index))
    for together_search, apart_search in zip(together, apart, strict=True):
        assert list(together_search.rewards.items()) == list(apart_search.rewards.items())
        assert (together_search.label, together_search.statistics) == (apart_search.label, apart_search.statistics)
    assert calls[0] == 6
    assert len(calls) == max(search.statistics.asked for search in apart)


def test_lockstep_over_nothing_scores_nothing():
    run_searches_in_lockstep([], lambda _asked: pytest.fail("nothing to score"))


def test_wrong_answers_are_rejected():
    search = TreeSearch(SkipRepeatEdits(LAYERS), TreeSettings(), seed=0)
    with pytest.raises(SearchError, match="call ask first"):
        search.tell(0)
    search.ask()
    with pytest.raises(SearchError, match="finite"):
        search.tell(float("nan"))
    with pytest.raises(SearchError, match="1 rewards were asked for, 2 came back"):
        run_searches_in_lockstep([search], lambda _asked: [0.0, 1.0])
    search.tell(0)
    with pytest.raises(SearchError, match="call ask first"):
        search.tell(0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("simulations", 0),
        ("exploration", -1),
        ("length_penalty", math.nan),
        ("random_child_probability", 1.1),
        ("min_layers_saved", 0),
        ("stop_early", 1),
    ],
)
def test_impossible_settings_are_rejected_by_name(name, value):
    with pytest.raises(SettingsError, match=name):
        TreeSettings(**{name: value})


# --- layer lists --------------------------------------------------------------------------------------------------


def test_layer_edits_of_the_standard_pass():
    lists = {
        tuple(step.layer for step in route.steps) for route in list_children(SkipRepeatEdits(3), Route.standard(3))
    }
    repeats = {(0, 0, 1, 2), (0, 1, 1, 2), (0, 1, 2, 2)}
    assert lists == repeats | {(1, 2), (0, 2), (0, 1)} | {(2,), (0,)}


def test_layer_edits_leave_one_layer_and_repeat_none_twice():
    actions = SkipRepeatEdits(2)
    assert list_children(actions, layer_list(1, of=2)) == [layer_list(1, 1, of=2)]
    assert set(list_children(actions, layer_list(0, 0, of=2))) == {layer_list(0, of=2)}
    assert all(route.length < 4 for route in list_children(actions, layer_list(0, 0, 1, 1, of=2)))


label_counts = st.lists(st.integers(0, 2), min_size=1, max_size=8).filter(any).map(tuple)


@given(label_counts)
def test_counts_and_lists_say_the_same(counts):
    route = route_from_drllm_label(counts)
    assert route.length == sum(counts)
    assert drllm_label_from_route(route) == counts


@given(label_counts)
def test_layer_edits_give_different_labels(counts):
    actions, parent = SkipRepeatEdits(len(counts)), route_from_drllm_label(counts)
    children = list_children(actions, parent)
    assert len({parent, *children}) == len(children) + 1
    for child in children:
        assert sum(drllm_label_from_route(child)) == child.length <= 2 * len(counts)


@pytest.mark.parametrize("text", ["L0-L2 L2 L2 RJ", "L0-L5 L3 RJ", "L0-L3 L4(+h-1) RJ"])
def test_routes_that_counts_cannot_say_are_rejected(text):
    with pytest.raises(RouteError, match="cannot be written as counts"):
        drllm_label_from_route(parse_program(text).to_route(LAYERS))


@pytest.mark.parametrize("counts", [(0, 0, 0), (), (1, 3), (1, -1)])
def test_counts_that_are_no_label_are_rejected(counts):
    with pytest.raises(RouteError):
        route_from_drllm_label(counts)


# --- programs -----------------------------------------------------------------------------------------------------


def check_children(space, program):
    actions = ProgramTreeActions(space)
    children = list_children(actions, program)
    routes = {actions.tree_plan_to_route(child) for child in children}
    assert len(routes | {actions.tree_plan_to_route(program)}) == len(children) + 1
    for child in children:
        space.check_route(child)
        assert child.steps[: len(program.steps)] == program.steps
    return children


@given(small_spaces(), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_program_edits_give_different_feasible_programs(space, random):
    program = ProgramTreeActions(space).standard_pass_plan
    for _ in range(3):
        children = check_children(space, program)
        if not children:
            break
        program = random.choice(children)


@pytest.mark.parametrize("space", [PAPER, RouteSpace(16, max_length=16), RouteSpace(28, window=0)])
def test_program_edits_of_the_standard_pass(space):
    children = check_children(space, ProgramTreeActions(space).standard_pass_plan)
    assert len(children) == len(set(children)) > 0
    if space is PAPER:
        assert parse_program("L0-L7 L3 RJ") in children
        assert parse_program("L0 L2 RJ") in children
        assert parse_program("L0-L5 L6(+h-4) RJ") in children


def test_program_edits_reach_every_route_of_a_small_space():
    space = RouteSpace(3, max_length=4, radius=1, window=1)
    actions = ProgramTreeActions(space)
    reached, new = set(), [actions.standard_pass_plan]
    while new:
        reached |= {actions.tree_plan_to_route(program) for program in new}
        new = [child for program in new for child in list_children(actions, program)]
    every, prefixes = set(), [[]]
    while prefixes:
        every |= {space.program_from_actions(actions_so_far).to_route(3) for actions_so_far in prefixes}
        prefixes = [
            [*before, action]
            for before in prefixes
            for action in range(space.action_count)
            if action != space.rejoin_action
            and space.feasibility_mask[len(before) + 1, space.program_from_actions(before).steps[-1].layer, action]
        ]
    assert reached == every
