"""The documentation site, built strictly and looked at in a browser: whole, self-contained, and readable on a phone."""

import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.report.browser import Browser, find_browser

ROOT = Path(__file__).parents[2]
MKDOCS = ROOT / ".venv-site" / "bin" / "mkdocs"
PAGES = (
    "index.html",
    "tutorials/first_search.html",
    "tutorials/from_python.html",
    "how-to/serving.html",
    "reference/python.html",
    "reference/api/search.html",
    "reference/commands/study-transfer.html",
    "explanation/how_it_works.html",
    "explanation/architecture.html",
    "results/results.html",
    "results/studies.html",
)
pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(not MKDOCS.is_file(), reason="no environment for the site; run make site"),
    pytest.mark.skipif(find_browser() is None, reason="no Chromium here; apt-get install chromium"),
]
BROKEN_IMAGES = "[...document.images].filter((one) => !one.complete || !one.naturalWidth).map((one) => one.src)"


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Address:
    """What ``Browser.open`` takes for a page, of a server."""

    def __init__(self, uri):
        self.uri = uri

    def resolve(self):
        return self

    def as_uri(self):
        return self.uri


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of the site; building it fails on a dead link and on a public name without documentation."""
    folder = tmp_path_factory.mktemp("site")
    command = [MKDOCS, "build", "--strict", "--site-dir", folder]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(find_browser(), tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("page", PAGES)
def test_a_page(site, browser, page, width):
    browser.open(Address(f"{site}/{page}"), width, dark=width == 390)
    assert browser.run("document.querySelector('h1').innerText.length") > 3
    assert browser.run(BROKEN_IMAGES) == []
    assert browser.overflow()[0] == 0
    elsewhere = [one for one in browser.complaints() if not str(one).startswith((site, "data:"))]
    assert elsewhere == []


def test_formulas_are_drawn(site, browser):
    browser.open(Address(f"{site}/explanation/how_it_works.html"), 1280)
    assert browser.run("document.querySelectorAll('math').length") > 20
    assert "$" not in browser.run("document.querySelector('article').innerText")


def test_every_public_name_is_described(site, browser):
    for name in ("models.routing.apply_route", "search.policy_settings.MacroSettings", "runs.prepare.search_routes"):
        browser.open(Address(f"{site}/reference/api/{name.partition('.')[0]}.html"), 1280)
        assert browser.run(f"document.getElementById('macro_routing.{name}') !== null"), name
