"""One thread for the linear algebra of a search: its matrices are small, and threads that wait keep cores busy.

OpenBLAS wakes one thread per core for a matrix of a few hundred rows, and they wait for each other by spinning. With
one thread results do not depend on the number of cores.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def with_one_blas_thread(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Run ``function`` with one BLAS thread, where threadpoolctl is installed."""

    @functools.wraps(function)
    def run(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        pools = _find_thread_pools()
        with contextlib.nullcontext() if pools is None else pools.limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return run


@functools.cache
def _find_thread_pools() -> Any:
    """The loaded libraries with threads; numpy's, which the search uses, is one. None without threadpoolctl."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()
