"""What stands before transformers' server, without a server."""

import asyncio
import json

import pytest

from macro_routing.deploy.request_guard import RequestGuard, find_request_error

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Hello"}]


def ask(body, *, path=CHAT, method="POST", headers=(), key=None, leaves=False, app=None):
    """The status, the headers and the body of a response; and the request that the application got."""
    received, sent = [], []

    async def answer(scope, receive, send):
        received.append(json.loads((await receive())["body"]) if scope["method"] == "POST" else None)
        if leaves:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                received.append("cancelled")
                raise
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    messages = [{"type": "http.request", "body": content[:5], "more_body": True}]
    messages += [{"type": "http.request", "body": content[5:], "more_body": False}]

    async def receive():
        if messages:
            return messages.pop(0)
        if not leaves:
            await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": list(headers)}
    guard = RequestGuard(app or answer, ("tiny (L0 L0 RJ)", "tiny"), 100, "L0 L0 RJ", key)
    asyncio.run(asyncio.wait_for(guard(scope, receive, send), 10))
    status = sent[0]["status"] if sent else None
    return status, dict(sent[0]["headers"]) if sent else {}, sent[1]["body"] if sent else b"", received


def test_a_request_is_passed_on_with_the_models_name_and_no_more_tokens_than_it_is_made_for():
    status, headers, _, received = ask({"model": "tiny", "messages": HELLO, "max_tokens": 100_000})
    assert status == 200
    assert headers[b"x-macro-route"] == b"L0 L0 RJ"
    assert received == [{"model": "tiny (L0 L0 RJ)", "messages": HELLO, "max_tokens": 100}]
    assert ask({"model": "other", "messages": HELLO})[3] == [{"model": "other", "messages": HELLO}]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"not json", "not JSON"),
        ([], "must be a JSON object"),
        ({}, "messages is missing"),
        ({"messages": ["hello"]}, "messages must be a list such as"),
        ({"messages": HELLO, "max_tokens": 0}, "max_tokens must be an integer of at least 1, not 0"),
        ({"messages": HELLO, "max_tokens": "many"}, 'not "many"'),
        ({"messages": HELLO, "max_completion_tokens": True}, "max_completion_tokens must be"),
        ({"messages": HELLO, "temperature": -1}, "temperature must be a number from 0 to 100, not -1"),
        ({"messages": HELLO, "top_p": "x"}, "top_p must be a number from 0 to 1"),
    ],
)
def test_a_bad_request_is_the_clients_fault(body, reason):
    status, _, content, received = ask(body)
    assert status == 400
    assert reason in json.loads(content)["error"]["message"]
    assert not received


def test_each_path_has_its_input():
    assert find_request_error("/v1/completions", {"messages": HELLO}) == "prompt is missing or empty"
    assert not find_request_error("/v1/completions", {"prompt": "a"})
    assert not find_request_error("/v1/responses", {"input": "a", "max_output_tokens": 3})


def test_a_key_is_asked_for():
    status, _, content, received = ask({"messages": HELLO}, key="secret")
    assert status == 401
    assert "Authorization: Bearer" in json.loads(content)["error"]["message"]
    assert not received
    assert ask({"messages": HELLO}, key="secret", headers=[(b"authorization", b"Bearer other")])[0] == 401
    assert ask({"messages": HELLO}, key="secret", headers=[(b"authorization", b"Bearer secret")])[0] == 200
    assert ask({}, key="secret", method="GET", path="/v1/models")[0] == 401
    assert ask({}, key="secret", method="GET", path="/health")[0] == 200


def test_a_client_that_leaves_ends_its_request():
    assert ask({"messages": HELLO}, leaves=True)[3][-1] == "cancelled"


def test_an_error_of_the_server_is_not_swallowed():
    async def fail(*_):
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError, match="no memory"):
        ask({"messages": HELLO}, app=fail)
