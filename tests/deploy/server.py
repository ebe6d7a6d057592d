"""A server in a process of its own, and the official client asking it."""

import contextlib
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

_SECONDS = 400
"""Most time to start or to answer: a machine may be doing much else."""


@contextlib.contextmanager
def serving(command, further, environment):
    """The address of the server that ``command`` starts on a free port; it is ended afterwards."""
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    with tempfile.TemporaryFile("w+") as said:
        whole = [*command, "--port", str(port), *further]
        started = subprocess.Popen(whole, env=environment, stdout=said, stderr=subprocess.STDOUT)
        try:
            _wait_for(started, f"http://127.0.0.1:{port}/health", said)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            _end(started)


def _wait_for(started, address, said):
    for _ in range(_SECONDS * 2):
        if started.poll() is not None:
            said.seek(0)
            pytest.fail(f"the server ended with {started.returncode}:\n{said.read()[-3000:]}")
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            urllib.request.urlopen(address).close()  # noqa: S310 an address made above
            return
        time.sleep(0.5)
    raise TimeoutError(address)


def _end(started):
    started.terminate()
    try:
        started.wait(30)
    except subprocess.TimeoutExpired:
        started.kill()
        started.wait()


def ask_all(url, model, questions):
    """Greedy answers to all questions, asked at once with the official client."""
    import openai

    client = openai.OpenAI(base_url=url, api_key="none", timeout=_SECONDS, max_retries=0)

    def ask(question):
        said = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": question}], temperature=0, max_tokens=24
        )
        return said.choices[0].message.content

    with client, ThreadPoolExecutor(len(questions)) as together:
        return list(together.map(ask, questions))
