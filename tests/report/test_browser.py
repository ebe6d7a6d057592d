"""Reports of real runs in a real browser: nothing logged, nothing sticking out, buttons and search at work."""

import json

import pytest

from macro_routing.report import write_report, write_run_comparison
from macro_routing.runs import Listener, make_run_config, run_search
from macro_routing.runs.folder import ANSWERS, RESULT, RUN, RunFolder
from tests.report.browser import Browser, find_browser
from tests.report.folders import answers, complete
from tests.runs.small import small_frozen, small_task

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(find_browser() is None, reason="no Chromium here; apt-get install chromium"),
]
WIDTHS = (400, 1280)
HOSTILE = "</pre></details><script>document.title='broken'</script><img src=x onerror=alert(1)> " + "w" * 3000

FIND = """((words) => {
  const field = document.querySelector('input[type=search]');
  field.value = words;
  field.dispatchEvent(new Event('input'));
})"""


class Stop(Listener):
    """Ends a run after its first round."""

    def on_round(self, report):  # noqa: ARG002
        raise KeyboardInterrupt


def run(folder, mode, listener=None, **more):
    """A small run; afterwards a few answers are made to change, and all try to break out of the page."""
    config = make_run_config(
        task="small",
        model="small",
        preset="quick",
        method="macro",
        search={"iterations": 3, "draws": 8, "elite": 4, "k": 3, "epsilon_local": 0.5, "alpha": 0.5},
        data={"training": 40, "validation": 12, "test": 40},
        space={"max_length": 10},
        decoding={"mode": mode, **({} if mode == "likelihood" else {"answer_budget": 6})},
        **more,
    )
    store = folder.parent / "s.sqlite"
    run_search(config, folder, frozen=small_frozen(), task=small_task(), listener=listener, store=store)
    place = RunFolder.open(folder)
    told = place.read_json(ANSWERS)
    for example in told["examples"]:
        example["question"] += HOSTILE
    for outcomes in told["routes"].values():
        for outcome in outcomes:
            outcome["text"] += HOSTILE
    for outcome in told["routes"][place.read_json(RESULT)["route"]][:6]:
        outcome["correct"] = not outcome["correct"]
    place.write_json(ANSWERS, told)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Reports of a likelihood run, a writing one, one that was stopped and one full of hostile names; all compared."""
    folder = tmp_path_factory.mktemp("runs")
    run(folder / "likelihood", "likelihood", seed=5)
    run(folder / "direct", "direct", seed=3)
    with pytest.raises(KeyboardInterrupt):
        run(folder / "stopped", "likelihood", Stop(), seed=6)
    strange = complete(folder / "strange", answers(question=HOSTILE, text=HOSTILE), task=HOSTILE, init_from=HOSTILE)
    told = strange.read_json(RUN)
    told["model"]["name"] = told["scope"]["task"] = told["environment"]["Python"] = HOSTILE
    strange.write_json(RUN, told)
    runs = [folder / name for name in ("likelihood", "direct", "stopped", "strange")]
    return [*map(write_report, runs), write_run_comparison(runs, folder / "compare.html")]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(find_browser(), tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_logged_and_nothing_sticks_out(browser, pages, width, dark):
    for page in pages:
        assert page.stat().st_size < 3_000_000
        browser.open(page, width, dark=dark)
        assert browser.overflow() == (0, [])
        # Everything that can be opened, opened: long words are inside.
        browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert browser.overflow() == (0, [])
        assert browser.complaints() == []
        assert browser.run("document.title") != "broken"


_CUT = """[...document.querySelectorAll('.scroll')].map((box) =>
  [box.scrollWidth > box.clientWidth + 1, getComputedStyle(box, '::before').content.includes('sideways')])"""
_VISIBLE = """(([section, columns]) => [...document.querySelectorAll(`#${section} th`)].slice(0, columns)
  .every((cell) => cell.getBoundingClientRect().right <= document.documentElement.clientWidth))"""


def test_tables_that_scroll_say_so_and_begin_with_what_matters(browser, pages):
    """On a phone: the variant with its accuracy and gain, the rounds' best beside the standard pass."""
    browser.open(pages[0], 390)
    boxes = browser.run(_CUT)
    assert all(is_cut == says_so for is_cut, says_so in boxes)
    assert any(is_cut for is_cut, _ in boxes)
    for section, columns in (("result", 3), ("accuracy-per-round", 4), ("cost", 4)):
        assert browser.run(f"({_VISIBLE})({json.dumps([section, columns])})"), section
    browser.open(pages[0], 1280)
    assert browser.run("(([box]) => box.scrollWidth <= box.clientWidth)(document.querySelectorAll('#cost .scroll'))")


def test_the_browser_sees_what_it_is_meant_to_see(browser, tmp_path):
    """The test's own control: a page with all the faults."""
    page = tmp_path / "page.html"
    page.write_text("<p style='width: 3000px'>x</p><script>console.error('so')</script><script>nothing()</script>")
    browser.open(page, 400)
    wide, sticking = browser.overflow()
    assert wide > 2000
    assert sticking
    assert len(browser.complaints()) == 2
    policy = '<meta http-equiv="Content-Security-Policy" content="script-src \'none\'">'
    page.write_text(f"{policy}<script>1</script><img src='x.png'>")
    browser.open(page, 400)
    assert len(browser.complaints()) >= 2


def test_the_policy_can_be_watched_round_by_round(browser, pages):
    browser.open(pages[0], 1280)
    shown = "[...document.querySelectorAll('.frame')].map((one) => one.offsetHeight > 0)"
    assert browser.run(shown) == [False, False, False, True]
    browser.run("document.querySelector('label[for=policy-1]').click()")
    assert browser.run(shown) == [False, True, False, False]


@pytest.mark.parametrize("number", [0, 1])
def test_answers_can_be_filtered(browser, pages, number):
    browser.open(pages[number], 1280)
    shown = "[...document.querySelectorAll('.answer')].filter((one) => one.offsetHeight > 0).length"
    every = browser.run(shown)
    assert every > 1
    counts = {}
    for kind in ("fixed", "broken"):
        browser.run(f"document.querySelector('label[for=kind-{kind}]').click()")
        counts[kind] = browser.run(shown)
        assert counts[kind] == browser.run(f"document.querySelectorAll('.answer.{kind}').length")
    assert sum(counts.values()) == every
    browser.run("document.querySelector('label[for=kind-all]').click()")
    assert browser.run("document.querySelector('.find').hidden") is False
    name = browser.run("document.querySelector('.answer .soft').textContent").split()[-1]
    for words, expected in ((name, range(1, every)), ("no such words at all", [0]), ("", [every])):
        browser.run(f"{FIND}('{words}')")
        assert browser.run(shown) in expected
    assert browser.complaints() == []
