import pytest
import torch

from macro_routing.engine.memory import (
    BatchLimit,
    cache_bytes_per_token,
    free_memory_bytes,
    max_cached_tokens,
    run_halving_on_oom,
)
from macro_routing.errors import ModelError
from tests.models.tiny import tiny_model


def _make_limited_run(limit, error):
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
def test_batches_are_halved_until_they_fit_and_no_result_is_lost(error):
    run, tried = _make_limited_run(3, error)
    messages = []
    assert run_halving_on_oom(run, range(13), messages.append) == [item * 10 for item in range(13)]
    assert max(tried) == 13
    assert messages
    assert all("memory ran out" in message for message in messages)


def test_a_batch_size_that_ran_out_of_memory_is_not_tried_again():
    run, tried = _make_limited_run(3, MemoryError())
    fitting = BatchLimit()
    run_halving_on_oom(run, range(13), lambda _: None, fitting)
    assert tried[:2] == [13, 6]
    for size in (13, 5, 2):
        tried.clear()
        assert run_halving_on_oom(run, range(size), lambda _: None, fitting) == [item * 10 for item in range(size)]
        assert max(tried) <= 3


def test_a_single_item_that_does_not_fit_is_explained():
    run, _ = _make_limited_run(0, MemoryError())
    with pytest.raises(ModelError, match="single example"):
        run_halving_on_oom(run, range(4), lambda _: None)


def test_other_errors_are_raised():
    run, tried = _make_limited_run(0, RuntimeError("shapes differ"))
    with pytest.raises(RuntimeError, match="shapes"):
        run_halving_on_oom(run, range(4), lambda _: None)
    assert tried == [4]


def test_sizes_come_from_the_model_and_the_machine():
    model = tiny_model("llama")
    assert cache_bytes_per_token(model) == 2 * 2 * 8 * 4  # keys and values, 2 heads of width 8, float32
    assert free_memory_bytes(torch.device("cpu")) > 1 << 20
    assert max_cached_tokens(model, 6) > max_cached_tokens(model, 60) > 1


def test_a_share_of_a_gpu_is_not_exceeded(monkeypatch):
    """The numbers of a GPU are patched in; the next test asks a real GPU."""
    gpu_numbers = {"mem_get_info": (70, 100), "memory_reserved": 20, "memory_allocated": 15}
    for name, value in gpu_numbers.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    for fraction, free in ((1.0, 75), (0.5, 35), (0.2, 5), (0.1, 5)):
        monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda *_, part=fraction: part)
        assert free_memory_bytes(torch.device("cuda")) == free


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_share_of_a_real_gpu():
    device = torch.device("cuda", torch.cuda.current_device())
    total = torch.cuda.mem_get_info(device)[1]
    before = torch.cuda.get_per_process_memory_fraction(device)
    torch.cuda.set_per_process_memory_fraction(0.1, device)
    try:
        assert 0 < free_memory_bytes(device) <= total // 10
    finally:
        torch.cuda.set_per_process_memory_fraction(before, device)
