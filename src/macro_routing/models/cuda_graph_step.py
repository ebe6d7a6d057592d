"""Decoding steps replayed from a CUDA graph, as serving engines run them."""

from typing import Any

import torch


class CudaGraphStep:
    """A decoding step of a model with a static cache, replayed from a CUDA graph; every call appends one token."""

    def __init__(self, model: Any, prompt: torch.Tensor, cache: Any) -> None:
        """Run the prompt through ``model`` into ``cache``, then capture the step that follows."""
        with torch.no_grad():
            self.first_logits: torch.Tensor = model(prompt, past_key_values=cache, use_cache=True).logits[:, -1]
            self._token = self.first_logits.argmax(-1, keepdim=True)
            # A step may change every tensor of the cache.
            tensors = [value for layer in cache.layers for value in vars(layer).values() if torch.is_tensor(value)]
            saved = [tensor.clone() for tensor in tensors]
            stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):  # libraries allocate their workspaces on first use, outside the graph
                for _ in range(2):
                    model(self._token, past_key_values=cache, use_cache=True)
                    for tensor, value in zip(tensors, saved, strict=True):
                        tensor.copy_(value)
            torch.cuda.current_stream().wait_stream(stream)
            self._cache = cache  # replays read and write its memory
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._logits = model(self._token, past_key_values=cache, use_cache=True).logits[:, -1]

    def __call__(self, token: torch.Tensor) -> torch.Tensor:
        """Logits after ``token``, ``[rows, 1]``."""
        self._token.copy_(token)
        self._graph.replay()
        return torch.clone(self._logits)
