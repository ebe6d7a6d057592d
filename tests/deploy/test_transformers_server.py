"""transformers' own server with a routed model, asked by the official client."""

import sys

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
