"""Capture one decoding step of a transformers model with a static cache in a CUDA graph."""

from typing import Any

import torch


class CudaGraphStep:
    """Replays a model's decoding step; every call appends one token to the static cache."""

    def __init__(self, model: Any, prompt: torch.Tensor, cache: Any) -> None:
        """Run the prompt through ``model`` into ``cache``, then capture the step that follows."""
        self._cache = cache
        with torch.no_grad():
            self.first_logits: torch.Tensor = model(prompt, past_key_values=cache, use_cache=True).logits[:, -1]
            self._token = self.first_logits.argmax(-1, keepdim=True)
            state = [(tensor, tensor.clone()) for tensor in self._cache_tensors()]
            stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):  # libraries allocate their workspaces on first use, outside the graph
                for _ in range(2):
                    model(self._token, past_key_values=cache, use_cache=True)
                    _restore_tensors(state)
            torch.cuda.current_stream().wait_stream(stream)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._logits = model(self._token, past_key_values=cache, use_cache=True).logits[:, -1]

    def _cache_tensors(self) -> list[torch.Tensor]:
        """The tensors of the cache, all of which a step may change."""
        return [
            value for layer in self._cache.layers for value in vars(layer).values() if isinstance(value, torch.Tensor)
        ]

    def __call__(self, token: torch.Tensor) -> torch.Tensor:
        """Logits after ``token``, ``[rows, 1]``."""
        self._token.copy_(token)
        self._graph.replay()
        return torch.clone(self._logits)


def _restore_tensors(state: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for tensor, saved in state:
        tensor.copy_(saved)
