"""Interpreted kernels in less time."""

import functools
import importlib.util
import inspect
import os

import pytest


@functools.cache
def _list_builtins(namespace):
    from triton.language import core

    return [(name, member) for name, member in inspect.getmembers(namespace) if core.is_builtin(member)]


@pytest.fixture(scope="session", autouse=True)
def _remember_triton_builtins():
    """Triton's interpreter lists the functions of its language at every launch; the list is always the same.

    That is a third of the interpreter's time. A triton without these two private functions runs as it is.
    """
    if os.environ.get("TRITON_INTERPRET") != "1" or importlib.util.find_spec("triton") is None:
        yield
        return
    from triton.runtime import interpreter

    if not (hasattr(interpreter, "_patch_builtin") and hasattr(interpreter, "_patch_attr")):
        yield
        return

    def replace_builtins(namespace, *rest):
        for name, member in _list_builtins(namespace):
            if getattr(namespace, name) is member:
                interpreter._patch_attr(namespace, name, member, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_builtin", replace_builtins)
        yield
