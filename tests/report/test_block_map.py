"""The map of repeated blocks: its numbers, what it leaves out, and its place on the page."""

import re
from math import sqrt
from xml.etree import ElementTree as ET

import pytest

from macro_routing.report import write_figures, write_report
from macro_routing.report.block_map import average_by_block_boundary, draw_block_map, list_block_cells
from macro_routing.routes import parse_route
from macro_routing.routes.route import Route
from macro_routing.runs import RunFolder, make_run_config, run_search
from macro_routing.search.rys import count_possible_blocks, list_blocks, make_route_repeating_block
from macro_routing.search.searcher import Draw, Proposal, Score, ScoringFailure, StoppedScore
from tests.report.test_figure_files import parsed
from tests.runs.small import small_frozen, small_task

EXAMPLES, STANDARD = 20, 12


def draw(route, outcome, number=0):
    return Draw(number, Proposal(route), outcome if not isinstance(outcome, int) else Score(outcome, EXAMPLES))


def right_of(i, j):
    return (7 * i + 3 * j) % (EXAMPLES + 1)


def sweep(layers, right=right_of):
    scored = [draw(make_route_repeating_block(layers, i, j), right(i, j)) for i, j in list_blocks(layers)]
    return [draw(Route.standard(layers), STANDARD), *scored]


def drawn(figure):
    return ET.fromstring(figure.to_svg())  # noqa: S314 our own drawing


def titles(figure):
    return re.findall(r"<title>([^<]*)</title>", figure.shapes)


@pytest.mark.parametrize("layers", [4, 30])
def test_cells_and_skyline_are_differences_to_the_standard_pass(layers):
    cells = list_block_cells(sweep(layers))
    expected = {(i, j): (right_of(i, j) - STANDARD) / EXAMPLES for i, j in list_blocks(layers)}
    assert {cell.block: cell.difference for cell in cells} == pytest.approx(expected)
    for axis, places in ((0, range(layers)), (1, range(1, layers + 1))):
        means = average_by_block_boundary(cells, axis)
        assert list(means) == list(places)
        for place in places:
            alike = [difference for block, difference in expected.items() if block[axis] == place]
            assert means[place] == pytest.approx(sum(alike) / len(alike))


def test_every_cell_and_bar_tells_its_numbers():
    found = titles(draw_block_map(sweep(4), 4))
    assert "(1, 3), L1 to L2 twice: +20.0 points (16 correct of 20, the standard pass 12)" in found
    assert "(0, 1), L0 twice: −45.0 points (3 correct of 20, the standard pass 12)" in found
    assert "blocks from L0: −22.5 points on average" in found  # 3, 6, 9 and 12 right
    assert "blocks up to L0: −45.0 points on average" in found
    assert len(found) == count_possible_blocks(4) + 4 + 4


def test_gains_are_blue_losses_orange_and_the_best_is_outlined():
    figure = draw_block_map(sweep(6, lambda i, j: STANDARD + {(2, 4): 4, (0, 1): -9}.get((i, j), 0)), 6)
    boxes = {box[0].text: box.get("class") for box in drawn(figure).iterfind(".//{*}rect") if len(box)}
    shades = {told.split(":")[0]: shade for told, shade in boxes.items()}
    assert shades["(2, 4), L2 to L3 twice"].startswith("up s")
    assert shades["(0, 1), L0 twice"] == "down s10"
    assert shades["(1, 2), L1 twice"] == "never"
    words = [key.meaning for key in figure.legend]
    assert "best: (2, 4), L2 to L3 twice, +20.0 points" in words
    assert "not scored" not in words
    assert figure.shapes.count('class="best-cell"') == 1


def test_of_equally_good_blocks_the_shortest_is_marked_and_it_is_said():
    figure = draw_block_map(sweep(5, lambda i, j: 15 if (i, j) in {(0, 4), (2, 3)} else 10), 5)
    assert "best: (2, 3), L2 twice, +15.0 points; 2 cells are as good" in [key.meaning for key in figure.legend]


def test_only_blocks_scored_beside_the_standard_pass_count():
    others = [
        draw(parse_route("L0 L2 L3", 4), 20),  # no block
        draw(make_route_repeating_block(4, 0, 3), ScoringFailure("no memory")),
        draw(make_route_repeating_block(4, 1, 4), StoppedScore(3, 10, 20)),
        draw(make_route_repeating_block(4, 2, 4), 20, number=1),  # another round, without the standard pass
    ]
    scored = [draw(make_route_repeating_block(4, i, i + 1), 14) for i in range(3)]
    draws = [draw(Route.standard(4), STANDARD), *others, *scored]
    assert {cell.block for cell in list_block_cells(draws)} == {(0, 1), (1, 2), (2, 3)}
    figure = draw_block_map(draws, 4)
    assert "not scored" in [key.meaning for key in figure.legend]
    assert draw_block_map(draws[:-1], 4) is None
    assert draw_block_map(draws[1:], 4) is None
    assert draw_block_map([draw(Route.standard(4), ScoringFailure("no memory")), *scored], 4) is None
    assert draw_block_map([], 4) is None


def test_a_block_of_several_rounds_is_one_cell_over_all_of_them():
    draws = [draw(Route.standard(4), right, number) for number, right in ((0, 10), (1, 14))]
    draws += [draw(make_route_repeating_block(4, 1, 2), right, number) for number, right in ((0, 13), (1, 15))]
    (cell,) = list_block_cells(draws)
    assert (cell.correct, cell.standard, cell.total) == (28, 24, 40)


def test_the_caption_has_the_examples_and_a_yardstick():
    caption = draw_block_map(sweep(6), 6).caption
    error = 100 * sqrt(2 * 0.6 * 0.4 / EXAMPLES)
    assert f"standard error of about {error:.1f} points" in caption
    assert "rests on 20 examples" in caption
    assert "The best of 21 cells looks better than it is" in caption


def test_without_any_spread_there_is_a_map_and_no_yardstick():
    draws = [draw(one.proposal.route, EXAMPLES) for one in sweep(4)]
    figure = draw_block_map(draws, 4)
    assert "standard error" not in figure.caption
    assert "100.0" in figure.caption
    assert drawn(figure) is not None


@pytest.mark.parametrize("layers", [4, 6, 30, 80])
def test_maps_of_all_sizes_stay_on_their_canvas(layers):
    figure = draw_block_map(sweep(layers), layers)
    assert figure.width <= 860
    assert figure.height <= 860
    assert len(figure.to_html()) < 700_000
    for box in ET.fromstring(f"<g>{figure.shapes}</g>").iter("rect"):  # noqa: S314 our own drawing
        x, y, width, height = (float(box.get(name)) for name in ("x", "y", "width", "height"))
        assert min(x, y, width, height) >= 0
        assert x + width <= figure.width
        assert y + height <= figure.height


def test_a_sweep_has_the_map_on_its_page_and_as_files(tmp_path):
    config = make_run_config(
        task="small",
        model="small",
        preset="quick",
        method="rys",
        budget=22 * 10,
        data={"training": 20, "validation": 10, "test": 20},
        units={"race": 4, "full": 16},
    )
    folder = tmp_path / "run"
    run_search(config, folder, frozen=small_frozen(), task=small_task(), store=tmp_path / "s.sqlite")
    page = write_report(folder).read_text(encoding="utf-8")
    assert re.findall(r"<h2[^>]*>([^<]*)</h2>", page).index("Repeated blocks") > 0
    state = RunFolder.open(folder).load_last_state()
    assert len(list_block_cells(state.draws)) == count_possible_blocks(6)
    for cell in list_block_cells(state.draws):
        assert cell.description in page
    assert "rests on 10 examples" in page
    written = write_figures([folder], tmp_path / "figures", pytest.fail)
    (svg,) = (path for path in written if path.name == "blocks.svg")
    assert parsed(svg) is not None
    assert "var(" not in svg.read_text(encoding="utf-8")
    assert tmp_path / "figures" / "blocks.png" in written
