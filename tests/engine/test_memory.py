import pytest
import torch

from macro_routing.engine.memory import cache_bytes_per_token, free_bytes, in_halves, most_cached_tokens
from macro_routing.errors import ModelError
from tests.models.tiny import tiny_model


def _runs_up_to(limit, error):
    tried = []

    def run(items):
        tried.append(len(items))
        if len(items) > limit:
            raise error
        return [item * 10 for item in items]

    return run, tried


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"),
    ],
)
def test_halves_are_run_until_they_fit_and_nothing_is_lost(error):
    run, tried = _runs_up_to(3, error)
    said = []
    assert in_halves(run, range(13), said.append) == [item * 10 for item in range(13)]
    assert max(tried) == 13
    assert said
    assert all("memory ran out" in message for message in said)


def test_what_cannot_be_halved_is_explained():
    run, _ = _runs_up_to(0, MemoryError())
    with pytest.raises(ModelError, match="single example"):
        in_halves(run, range(4), lambda _: None)


def test_other_errors_pass():
    run, tried = _runs_up_to(0, RuntimeError("shapes differ"))
    with pytest.raises(RuntimeError, match="shapes"):
        in_halves(run, range(4), lambda _: None)
    assert tried == [4]


def test_sizes_come_from_the_model_and_the_machine():
    model = tiny_model("llama")
    assert cache_bytes_per_token(model) == 2 * 2 * 8 * 4  # keys and values, 2 heads of width 8, float32
    assert free_bytes(torch.device("cpu")) > 1 << 20
    assert most_cached_tokens(model, 6) > most_cached_tokens(model, 60) > 1
