"""Interpreted kernels in less time."""

import functools
import importlib.util
import os

import pytest

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton") is not None


@pytest.fixture(scope="session")
def _patch():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="session", autouse=True)
def _pad_few_rows(_patch):
    """Rows without a sequence are interpreted too: one or two of them show as much as fifteen."""
    if INTERPRETED:
        from macro_routing.engine.fused import decoder, device_tables

        for module in (decoder, device_tables):
            _patch.setattr(module, "pad_row_count", lambda rows: rows + 3 - rows % 3)


@pytest.fixture(scope="session", autouse=True)
def _patch_language_once(_patch):
    """Triton's interpreter puts its own functions into the language at every call of a kernel; here they stay.

    A triton without these private names runs as it is.
    """
    if not INTERPRETED:
        yield
        return
    from triton.runtime import interpreter

    if not (hasattr(interpreter, "_patch_lang") and hasattr(interpreter, "_LangPatchScope")):
        yield
        return
    patch_language, done, scopes = interpreter._patch_lang, set(), []

    def patch_once(function):
        if id(function.__globals__) not in done:
            done.add(id(function.__globals__))
            scopes.append(patch_language(function))
        return interpreter._LangPatchScope()

    _patch.setattr(interpreter, "_patch_lang", patch_once)
    yield
    for scope in reversed(scopes):
        scope.restore()


@pytest.fixture(scope="session", autouse=True)
def _remember_triton_types(_patch):
    """Triton's interpreter makes the types of every value anew, which is a third of its time; here once per shape."""
    if not INTERPRETED:
        return
    from triton.language import core
    from triton.runtime import interpreter

    make_block_type, get_np_dtype = core.block_type.__init__, interpreter._get_np_dtype
    blocks, np_dtypes = {}, {}

    def init_block_type(self, element_ty, shape):
        sizes = tuple(core._unwrap_if_constexpr(size) for size in shape)
        if (key := (sizes, element_ty.name)) not in blocks:
            make_block_type(self, element_ty, list(sizes))
            blocks[key] = (self.shape, self.numel, self.name)
        self.element_ty = element_ty
        self.shape, self.numel, self.name = blocks[key]

    @functools.cache
    def make_shape(sizes):
        return core.tuple([core.constexpr(size) for size in sizes])

    def init_tensor(self, handle, type):  # noqa: A002
        self.handle, self.type, self.dtype = handle, type, type.scalar
        sizes = tuple(type.shape) if type.is_block() else ()
        self.shape, self.numel = make_shape(sizes), core.constexpr(type.numel if sizes else 1)

    def remember_np_dtype(dtype):
        name = dtype.scalar.name
        if name not in np_dtypes:
            np_dtypes[name] = get_np_dtype(dtype.scalar)
        return np_dtypes[name]

    _patch.setattr(core.block_type, "__init__", init_block_type)
    _patch.setattr(core.tensor, "__init__", init_tensor)
    _patch.setattr(interpreter, "_get_np_dtype", remember_np_dtype)
