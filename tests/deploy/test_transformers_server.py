"""transformers' own server with a routed model, asked by the official client."""

import contextlib
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from tests.cli.runner import ENVIRONMENT
from tests.deploy.server import ask_all, serving
from tests.deploy.test_vllm import QUESTIONS, routed_texts

pytestmark = pytest.mark.engines


def test_a_stock_client_gets_the_routed_text_several_requests_at_once():
    route = "L0-L17 L17 L18(+0.25h-2) RJ"
    command = [sys.executable, "-m", "macro_routing.cli.main", "serve", route, "--model", "smollm2-135m"]
    with serving([*command, "--engine", "transformers"], [], ENVIRONMENT) as url:
        assert ask_all(url, "smollm2-135m", QUESTIONS) == routed_texts(route)


def post(url, body, timeout=60, key="k"):
    """Status and contents of a response."""
    request = urllib.request.Request(  # noqa: S310 an address of a test
        f"{url}/completions",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:  # noqa: S310
            return response.status, json.load(response), response.headers
    except urllib.error.HTTPError as error:
        return error.code, json.load(error), error.headers


def test_a_server_outlives_bad_requests_and_clients_that_leave_and_ends_within_seconds():
    route = "L0-L17 L17 RJ"
    command = [sys.executable, "-m", "macro_routing.cli.main", "serve", route, "--model", "smollm2-135m"]
    long = {"prompt": "1 2 3 4 5 6 7 8 9 10 11 12", "max_tokens": 10**9, "temperature": 0}
    with serving([*command, "--engine", "transformers", "--api-key", "k"], [], ENVIRONMENT) as url:
        assert post(url, long, key="wrong")[0] == 401
        assert post(url, {"prompt": "a", "max_tokens": 0})[0] == 400
        with contextlib.suppress(TimeoutError):
            post(url, long, timeout=2)
            pytest.fail("an answer of thousands of tokens was ready in two seconds")
        start = time.monotonic()
        status, answer, headers = post(url, {"prompt": "The capital of France is", "max_tokens": 3, "temperature": 0})
        assert status == 200
        assert time.monotonic() - start < 20, "the request of a client that left was still being answered"
        assert answer["model"] == f"smollm2-135m ({route})"
        assert headers["x-macro-route"] == route
        with subprocess.Popen(
            [sys.executable, "-c", f"import urllib.request; urllib.request.urlopen('{url}/models')"],
            stderr=subprocess.DEVNULL,
        ) as refused:
            assert refused.wait() != 0  # no key
        with contextlib.suppress(TimeoutError):
            post(url, long, timeout=1)
        stopped = time.monotonic()
    assert time.monotonic() - stopped < 20
