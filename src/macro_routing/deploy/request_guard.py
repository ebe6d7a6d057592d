"""What stands before transformers' server: a key, checks of every request, an end when the client leaves.

By itself the server answers bad requests with a traceback, generates as many tokens as a request asks for, and goes on
when nobody waits for the answer any more.
"""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]

_INPUTS = {"/v1/chat/completions": "messages", "/v1/completions": "prompt", "/v1/responses": "input"}
"""Paths that generate, each with the field that holds its input."""
_TOKEN_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_MAX_BODY = 32 * 2**20


@dataclass(frozen=True)
class RequestGuard:
    """An ASGI application around another one."""

    app: App
    names: Sequence[str]
    """Names of the model that requests may use; the application knows the first."""
    max_tokens: int
    """Maximum number of tokens of an answer; requests that ask for more get so many."""
    route: str
    """Told in a header of every response."""
    api_key: str | None = None

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer, or reject, one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if self.api_key and scope["path"] != "/health" and not self._is_authorized(scope):
            await _send_error(send, 401, "the API key is missing or wrong; send it as 'Authorization: Bearer KEY'")
            return
        if scope["method"] != "POST" or scope["path"] not in _INPUTS:
            await self.app(scope, receive, self._with_route_header(send))
            return
        content = await _read_body(receive)
        if content is None:
            await _send_error(send, 413, f"a request may have at most {_MAX_BODY} bytes")
            return
        try:
            body = json.loads(content)
        except ValueError as error:
            await _send_error(send, 400, f"the request is not JSON: {error}")
            return
        if reason := find_request_error(scope["path"], body):
            await _send_error(send, 400, reason)
            return
        content = json.dumps(self._limit_request(body)).encode()
        scope = {**scope, "headers": [pair for pair in scope["headers"] if pair[0] != b"content-length"]}
        await _run_until_client_leaves(self.app, scope, content, receive, self._with_route_header(send))

    def _is_authorized(self, scope: Any) -> bool:
        given = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        return secrets.compare_digest(given.encode(), f"Bearer {self.api_key}".encode())

    def _limit_request(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The request with the model's first name, and no more tokens than the model is made for."""
        limits = {name: min(body[name], self.max_tokens) for name in _TOKEN_LIMITS if body.get(name) is not None}
        known = body.get("model") in (None, *self.names)
        return {**body, **limits, **({"model": self.names[0]} if known else {})}

    def _with_route_header(self, send: Send) -> Send:
        async def send_with_header(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), (b"x-macro-route", self.route.encode())]
            await send(message)

        return send_with_header


def find_request_error(path: str, body: Any) -> str:
    """What is wrong with a request; empty if nothing is."""
    if not isinstance(body, dict):
        return "the request must be a JSON object"
    name = _INPUTS[path]
    if not body.get(name):
        return f"{name} is missing or empty"
    if name == "messages" and not (
        isinstance(body[name], list)
        and all(isinstance(message, dict) and isinstance(message.get("role"), str) for message in body[name])
    ):
        return 'messages must be a list such as [{"role": "user", "content": "Hello"}]'
    for limit in _TOKEN_LIMITS:
        value = body.get(limit)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            return f"{limit} must be an integer of at least 1, not {json.dumps(value)[:50]}"
    for limit, largest in (("temperature", 100), ("top_p", 1)):
        value = body.get(limit)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_number and 0 <= value <= largest):
            return f"{limit} must be a number from 0 to {largest}, not {json.dumps(value)[:50]}"
    return ""


async def _read_body(receive: Receive) -> bytes | None:
    """The whole body; None if it is too large."""
    content: bytes = b""
    while True:
        message = await receive()
        content += bytes(message.get("body", b""))
        if len(content) > _MAX_BODY:
            return None
        if not message.get("more_body"):
            return content


async def _run_until_client_leaves(app: App, scope: Any, content: bytes, receive: Receive, send: Send) -> None:
    """Run the application on a body that was read already; cancel it when the client disconnects."""
    has_left = asyncio.Event()
    unread = [content]

    async def receive_again() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        await has_left.wait()
        return {"type": "http.disconnect"}

    async def watch_client() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        has_left.set()

    answer = asyncio.ensure_future(app(scope, receive_again, send))
    watcher = asyncio.ensure_future(watch_client())
    try:
        await asyncio.wait({answer, watcher}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        watcher.cancel()
        if not answer.done():
            answer.cancel()
        await asyncio.gather(answer, watcher, return_exceptions=True)
    if not answer.cancelled() and (error := answer.exception()):
        raise error


async def _send_error(send: Send, status: int, reason: str) -> None:
    """As OpenAI's API does."""
    kind = "authentication_error" if status == 401 else "invalid_request_error"
    content = json.dumps({"error": {"message": reason, "type": kind, "code": status}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
