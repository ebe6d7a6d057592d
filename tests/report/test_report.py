import base64
import hashlib
import json
import re
import tomllib
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import pytest

from macro_routing.errors import RunError
from macro_routing.report import write_report
from macro_routing.report.figure import Figure, LegendKey
from macro_routing.report.rendering import render_template
from macro_routing.report.rounds_chart import render_rounds_chart
from macro_routing.report.route_chart import render_route
from macro_routing.report.scale import Scale
from macro_routing.report.search_tables import render_candidates_table
from macro_routing.routes.paper_notation import parse_program
from macro_routing.routes.route import Route
from macro_routing.runs.config import RunConfig, make_run_config
from macro_routing.runs.options import format_config_as_toml, format_search_command
from macro_routing.search.searcher import Draw, Proposal, Score, ScoringFailure, StoppedScore
from tests.report.folders import (
    ATTACK,
    GIVEN,
    LAYERS,
    ROUND,
    ROUTE,
    answers,
    begin,
    candidate,
    complete,
    header,
    result,
)


def page_of(place):
    return write_report(place.path).read_text(encoding="utf-8")


def words(page):
    """What a reader sees."""
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.split("</style>")[1])))


class Balance(HTMLParser):
    """Whether every element that is opened is closed, in order."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):  # noqa: ARG002
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


# --- the whole page -----------------------------------------------------------------------------------------------


def test_a_finished_run_has_everything_on_its_page(tmp_path):
    seen = words(page_of(complete(tmp_path / "run")))
    for part in (
        *("tiny on toys", "No evidence of a gain: +10.0 points.", "MACRO (top-1)", "MACRO (no Vit.)", "24 of 40"),
        *("60.0 %", "44.6 to 73.7 %", "5.0 %", "31.5", "+10.0", "−3.0 to +22.0", "0.29", "19.0 points"),
        *(ROUTE, "jumps back at step 6: L4 to L3", "repeats at step 7: L3 to L3", "jumps ahead at step 8: L3 to L6"),
        *("adds an earlier state at step 7: L3(+h-2)", "2 of 9", "630", "180", "−1.25", "turned down: it costs 3.0"),
        *("Fixed: 6", "Broken: 2", "macro search --task toys --model tiny --preset quick --method macro --seed 7"),
        *("train-mark", "guard-mark", "weights-digest", "numerics-digest", "prompt-digest", "3.11 on Linux"),
        *("searcher.settings.draws 9", "searcher.space.coefficients 1.0, -0.5"),
    ):
        assert part in seen, part
    assert "not finished" not in seen


def test_the_page_is_sound_and_needs_nothing_from_elsewhere(tmp_path):
    page = page_of(complete(tmp_path / "run"))
    parser = Balance()
    parser.feed(page)
    assert parser.open == []
    assert page.count("<script") == 1  # the page's own, and the policy allows no other
    assert "script-src 'sha256-" in page
    assert not re.search(r"src=|href=\"(?!#)|https?:|@import|url\(|style=\"", page)
    anchors = re.findall(r'href="#([^"]*)"', page)
    assert len(anchors) > 5
    assert all(f'id="{anchor}"' in page for anchor in anchors)
    names = re.findall(r' id="([^"]*)"', page)
    assert len(set(names)) == len(names)
    assert "prefers-color-scheme: dark" in page
    # Tables and drawings lie in boxes that scroll by themselves.
    assert page.count("<table") + page.count('class="wide"') == page.count('class="scroll"')


def test_only_the_script_of_the_page_may_run(tmp_path):
    page = page_of(complete(tmp_path / "run"))
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    (digest,) = re.findall(r"script-src 'sha256-([^']+)'", page)
    assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() == digest


def test_the_same_run_gives_the_same_page(tmp_path):
    place = complete(tmp_path / "run")
    assert page_of(place) == page_of(place)
    elsewhere = tmp_path / "page.html"
    assert write_report(str(place.path), elsewhere) == elsewhere
    assert elsewhere.read_text(encoding="utf-8") == page_of(place)
    assert not list(tmp_path.rglob("*.unfinished"))


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_an_unfinished_run_says_how_far_it_came(tmp_path, rounds):
    place = begin(tmp_path / "my run", rounds)
    page = page_of(place)
    seen = words(page)
    assert "This run is not finished" in seen
    assert f"{rounds} of 3 rounds are searched" in seen
    assert f"macro resume '{place.path}'" in seen
    assert ("No round is finished yet." in seen) == (rounds == 0)


def test_a_run_that_was_chosen_but_not_tested_shows_its_route(tmp_path):
    place = begin(tmp_path / "run")
    place.write_json("ended.json", {"reason": "max_minutes", "rounds": 3})
    chosen = {"chosen": ROUTE, "refused": "", "candidates": [candidate(ROUTE)]}
    place.write_json("candidates.json", chosen)
    seen = words(page_of(place))
    assert "a route is chosen; the test set has not been looked at" in seen
    assert "its time was up" in seen
    assert "jumps back at step 6" in seen


def test_a_run_that_chose_the_standard_pass_has_a_page_too(tmp_path):
    place = complete(tmp_path / "run")
    chosen = {"chosen": "L0 RJ", "refused": "since L1 RJ was turned down", "candidates": [candidate("L0 RJ")]}
    place.write_json("candidates.json", chosen)
    place.write_json("result.json", {**result("L0 RJ"), "detectable": float("inf")})
    seen = words(page_of(place))
    assert "This is the standard pass: every layer once, in order." in seen
    assert "so no answer differs from it" in seen
    assert "was chosen since L1 RJ was turned down" in seen
    assert "none smallest detectable gain" in seen


def test_what_is_wrong_with_a_folder_is_said(tmp_path):
    with pytest.raises(RunError, match="is not a run's folder"):
        write_report(tmp_path)
    place = complete(tmp_path / "run")
    with pytest.raises(RunError, match="cannot be written"):
        write_report(place.path, tmp_path / "nowhere" / "page.html")
    place.write_json("answers.json", {"examples": []})
    with pytest.raises(RunError, match="another shape"):
        write_report(place.path)


# --- foreign text -------------------------------------------------------------------------------------------------


def test_foreign_text_is_escaped_wherever_it_comes_from(tmp_path):
    told = answers(question=f'{ATTACK}" onclick="x', text=f"</pre>{ATTACK}")
    place = complete(
        tmp_path / "run", told, init_from=f"/routes/{ATTACK}.json", search={"note": ATTACK}, task=f"{ATTACK}.jsonl"
    )
    hostile = header(init_from=f"/routes/{ATTACK}.json", task=ATTACK)
    hostile["model"]["name"] = hostile["scope"]["task"] = hostile["environment"]["Python"] = ATTACK
    place.write_json("run.json", hostile)
    page = page_of(place)
    assert page.lower().count("<script") == 1
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert f"/routes/{ATTACK}.json" in words(page)
    assert 'onclick="x' not in page
    parser = Balance()
    parser.feed(page)
    assert parser.open == []


def test_text_that_no_page_may_hold_does_not_stop_it(tmp_path):
    place = complete(tmp_path / "run")
    broken = answers(text="half \ud83d zero \x00 end")
    (place.path / "answers.json").write_text(json.dumps(broken), encoding="utf-8")
    assert "half \ufffd zero \ufffd end" in page_of(place)


def test_drawings_escape_text_and_attributes_and_round_numbers():
    shapes = render_template("interval_mark.svg", x=Scale(0, 1, 0, 100), low=0.0104, middle=0.5, high=0.5555)
    assert '<line x1="1" x2="55.5" y1="10" y2="10"' in shapes
    drawn = Figure("f", "t", 'a"b', 9, 9, shapes, [LegendKey("line", 'c"d', "e<f&")]).to_html()
    assert 'aria-label="a&#34;b"' in drawn
    assert 'class="c&#34;d"' in drawn
    assert "e&lt;f&amp;" in drawn
    assert shapes in drawn


# --- size ---------------------------------------------------------------------------------------------------------


def test_at_most_sixty_answers_of_each_kind_are_shown_and_the_rest_counted(tmp_path):
    page = page_of(complete(tmp_path / "run", answers(fixed=75, broken=10, n=100)))
    assert "Fixed: 75" in words(page)
    assert "15 more fixed ones are in answers.json." in words(page)
    assert (page.count('class="answer fixed"'), page.count('class="answer broken"')) == (60, 10)


def test_the_page_stays_small_whatever_was_written(tmp_path):
    place = complete(tmp_path / "run", answers(text="<" * 50_000, fixed=75, broken=70, n=200))
    assert write_report(place.path).stat().st_size < 3_000_000
    assert "ones are in answers.json." in page_of(place)


# --- drawings -----------------------------------------------------------------------------------------------------


def route(text, layers=LAYERS):
    return parse_program(text).to_route(layers)


def test_the_track_marks_what_is_not_ordinary():
    drawn = render_route(route(ROUTE))
    for kind in ("back", "ahead", "repeat"):
        assert drawn.count(f'<path d="M1 6L27 6" class="{kind}"/>') == 1  # in the legend
        assert len(re.findall(rf'class="{kind}"><title>', drawn)) == 1
    assert "step 7, L3(+h-2): the state after step 4 is added to its input" in drawn
    assert "layers never applied" in drawn  # L5


@pytest.mark.parametrize("layers", [1, 2, 48])
def test_the_standard_pass_has_a_plain_track(layers):
    drawn = render_route(Route.standard(layers))
    assert "This is the standard pass" in drawn
    assert 'class="standard-pass"' in drawn
    assert "jump" not in drawn
    assert "never applied" not in drawn


def test_odd_routes_can_be_drawn():
    for text in ("L0", "L7", "L2 L2 L2", "L3 L0-L2 L1(-0.5h-1)"):
        assert "<svg" in render_route(route(text))
    long = route(" ".join(["L0-L7"] * 100))
    assert "too many to draw" in render_route(long)
    assert "<svg" not in render_route(long)


def chart(rounds, planned, draws=()):
    return render_rounds_chart(rounds, planned, {"draws": 9, "elite": 2}, draws)


def joined_rounds(drawn):
    """Strokes of the lines of best and median, the legend's left out."""
    paths = re.findall(r'<path d="([^"]*)" class="(?:best|median)"', drawn)
    return [stroke for path in paths if path != "M1 6L27 6" for stroke in re.findall("L", path)]


def test_no_round_one_round_and_many_can_be_charted():
    assert chart([], 3) == "<p>No round is finished yet.</p>"
    single = chart([replace(ROUND, rounds=1)], 1)
    assert single.count('class="best-point"') == 2  # one is the legend's
    assert not joined_rounds(single)  # a line needs two rounds
    many = chart([replace(ROUND, number=number) for number in range(1, 401)], 400)
    assert many.count('class="best-point"') == 401
    assert len(joined_rounds(many)) == 2 * 399


def test_every_draw_is_marked_by_what_became_of_it():
    proposal = Proposal(Route.standard(LAYERS))
    outcomes = [Score(10, 30), StoppedScore(2, 10, 30), Score(18, 30), ScoringFailure("it overflowed"), Score(12, 30)]
    drawn = chart([ROUND], 1, [Draw(0, proposal, outcome) for outcome in outcomes])
    assert drawn.count('class="draw elite"') == 2 + 1  # one is the legend's
    assert drawn.count('class="draw"') == 1 + 1
    assert drawn.count('class="stopped"') == 1 + 1
    assert drawn.count('class="best-interval"') == 1
    assert "stopped by racing: at most this" in drawn
    assert "stopped by racing: at most this" not in chart([ROUND], 1, [Draw(0, proposal, outcomes[0])])


def test_a_round_in_which_all_draws_were_stopped_has_neither_best_nor_median():
    stopped = replace(ROUND, number=2, best=0.0, median=None, stopped=9)
    drawn = chart([ROUND, stopped, replace(ROUND, number=3)], 3)
    assert drawn.count('class="best-point"') == drawn.count('class="median-point"') == 3  # one is the legend's
    assert not joined_rounds(drawn)  # rounds 1 and 3 are not neighbours
    assert ">9 of 9<" in drawn
    assert "nan" not in chart([replace(stopped, number=1)], 1)


def test_accuracies_at_the_ends_stay_within_the_drawing():
    for share in (0.0, 1.0):
        level = replace(ROUND, best=share, median=share, standard=share, standard_low=share, standard_high=share)
        heights = [float(y) for y in re.findall(r'cy="([-\d.]+)"', chart([level], 1))]
        assert all(0 <= height <= 354 for height in heights)


# --- cost, tokens and cut-offs ------------------------------------------------------------------------------------


def cost(**peak):
    one = {"layers": 8, "cache_bytes_per_token": 2048, "prompt_seconds": 0.05, "token_seconds": 0.02, "turns": 3}
    routed = {**one, "layers": 9, "token_seconds": 0.025, "cache_bytes_per_token": 2304}
    measured = {"L0 RJ": {**one, **peak}, ROUTE: {**routed, **peak}}
    return {"format": "macro-cost/1", "device": "cuda:0", "prompts": 4, "tokens": 16, "routes": measured}


def test_cost_is_shown_as_measured_or_said_not_to_be(tmp_path):
    place = complete(tmp_path / "run")
    assert "Time and memory were not measured" in words(page_of(place))
    place.write_json("cost.json", cost(peak_bytes=3 << 20))
    seen = words(page_of(place))
    for part in ("20 ms", "25 ms", "+25.0 %", "+12.5 %", "2.0 KiB", "3 MiB none", "fastest of 3 turns on cuda:0"):
        assert part in seen, part
    noisy = cost()
    noisy["routes"][ROUTE]["noise"] = 0.2
    place.write_json("cost.json", noisy)
    assert "50 ms 50 ms none seen noise 20 %" in words(page_of(place))
    noisy["routes"][ROUTE] |= {"noise": 1.74, "layers": 8}
    place.write_json("cost.json", noisy)
    seen = words(page_of(place))
    assert "20 ms 25 ms not known noise 174 %" in seen
    assert "layers applied 8 8 none" in seen
    assert "noise of 0 %" not in seen
    place.write_json("cost.json", {**cost(), "device": "cpu"})
    assert "Memory was not measured: only CUDA devices count it, and this was cpu." in words(page_of(place))
    place.write_json("cost.json", {**cost(), "not_measured": "memory ran out"})
    assert "Time and memory were not measured: memory ran out." in words(page_of(place))


def test_tokens_and_truncated_answers_of_both_are_told_and_the_gain_without_them(tmp_path):
    told = answers()
    for number, (one, other) in enumerate(zip(told["routes"]["L0 RJ"], told["routes"][ROUTE], strict=True)):
        one["reasoning_tokens"], one["reasoning_truncated"] = 400, number < 6
        other["answer_truncated"] = number in {8, 9}
    seen = words(page_of(complete(tmp_path / "run", told)))
    assert "404.0" in seen  # tokens of the standard pass
    assert "Truncated: 6" in seen
    # What the route fixed was cut off before; without these it has only the two that it broke.
    assert "On the 32 of 40 examples on which neither was truncated: 100.0 % → 93.8 %, −6.2 points." in seen
    whole = words(page_of(complete(tmp_path / "whole")))
    assert "No answer of either was truncated." in whole


def test_variants_are_compared_with_the_standard_pass(tmp_path):
    seen = words(page_of(complete(tmp_path / "run")))
    assert seen.count("+10.0 ") >= 4  # the tile and three variants
    assert "against standard" in seen


def test_the_page_tells_nothing_of_the_machine_that_nobody_needs(tmp_path):
    place = complete(tmp_path / "run")
    told = header()
    told["environment"]["cache folder"] = "/home/somebody/cache"
    place.write_json("run.json", told)
    page = page_of(place)
    assert "/home/somebody" not in page
    assert "/kept/" not in page


# --- repeating ----------------------------------------------------------------------------------------------------


def test_the_configuration_can_be_copied_as_a_file():
    given = {**GIVEN, "init_from": 'a "b"\\c\n\x7fé', "search": {"draws": 3}, "guard": {"tasks": ["x", "y"]}}
    kept = {name: value for name, value in given.items() if value is not None and value != {}}
    assert tomllib.loads(format_config_as_toml(given)) == kept
    assert format_search_command({**given, "units": {"race": 3}}) == "macro search --config run.toml"
    assert format_search_command({**GIVEN, "racing": "never", "task": "my file.csv"}).endswith(
        "--seed 7 --racing never"
    )
    assert "--task 'my file.csv'" in format_search_command({**GIVEN, "task": "my file.csv"})


def test_the_copied_configuration_is_the_one_that_was_given():
    config = make_run_config(
        task="category", seed=3, max_minutes=1.5, search={"draws": 9}, guard={"tasks": ["sequence"]}
    )
    again = RunConfig.from_toml_tables(tomllib.loads(format_config_as_toml(config.to_toml_tables())), "run.toml")
    assert again.to_toml_tables() == config.to_toml_tables()


def test_finalists_are_shown_with_what_the_decision_knew():
    finalist = {
        "route": "L0-L3 L3 RJ",
        "length": 9,
        "program": None,
        "log_probability": None,
        "raw_rank": None,
        "rank": None,
        "correct": 60,
        "n": 100,
        "holdout": 300,
        "holdout_n": 500,
        "turned_down": "",
        "expected_gain": 0.031,
        "expected_deviation": 0.012,
        "required_gain": 0.00625,
        "p_value": 0.004,
        "certainty": 0.985,
    }
    standard = {**finalist, "route": "L0 RJ", "length": 8, "correct": 50, "holdout": 280}
    standard |= dict.fromkeys(("expected_gain", "expected_deviation", "required_gain", "p_value", "certainty"))
    choice = {"chosen": finalist["route"], "refused": "", "candidates": [standard, finalist]}
    text = re.sub(r"<[^>]*>", " ", render_candidates_table(choice, 0.1))
    assert "360 of 600" in text
    assert "+3.1 ± 1.2" in " ".join(text.split())
    assert "+0.6" in text
    assert "corrected for the number of finalists; only finalists with p of at most 0.1 are returned" in text
    assert "98.5" in text
    assert "on 600 held-out examples: the holdout, 500 of the training examples, and 100 of validation" in text
    assert "cannot be distinguished from the most accurate" in text
    faster = {**finalist, "required_gain": -0.03}
    speed = render_candidates_table({**choice, "candidates": [standard, faster]}, 0.05)
    assert "Of those that pass, the one with the fewest layers is returned; without any" in speed
    assert "cannot be distinguished" not in speed


def test_the_page_says_what_chose_the_route_whatever_the_method(tmp_path):
    place = complete(tmp_path / "run")
    assert "chosen by validation" in words(page_of(place))
    decided = {"holdout": 0, "holdout_n": 0, "expected_gain": 0.01, "expected_deviation": 0.01, "required_gain": -0.03}
    decided |= {"p_value": 0.01, "certainty": 0.9}
    lines = [candidate(route, **decided) for route in ("L0 RJ", ROUTE)]
    place.write_json("candidates.json", {"chosen": ROUTE, "refused": "", "candidates": lines})
    seen = words(page_of(place))  # the method is MACRO, searched for speed
    assert "chosen by the final decision" in seen
    assert "chosen by validation" not in seen
    assert "best on the validation examples" not in seen


def test_negative_numbers_have_a_minus_sign_and_routes_their_hyphens(tmp_path):
    place = complete(tmp_path / "run")
    verdict = "L0-L4 L2(-0.5h-1) RJ: -6.7 points (95 % interval -16.7 to -0.2)."
    place.write_json("result.json", {**result(), "verdict": verdict})
    assert "L0-L4 L2(-0.5h-1) RJ: −6.7 points (95 % interval −16.7 to −0.2)." in words(page_of(place))


def test_the_command_that_reproduces_a_run_names_a_file_of_its_folder(tmp_path):
    place = complete(tmp_path / "run", units={"race": 3})
    assert "for a file run.toml" in words(page_of(place))
    place.write_text("run.toml", "x")
    seen = words(page_of(place))
    assert "macro search --config run.toml" in seen
    assert "it is run.toml in the run's folder" in seen
