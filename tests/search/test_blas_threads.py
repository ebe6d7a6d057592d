"""One thread for small matrices, and as many as before for everybody else."""

import numpy as np
from threadpoolctl import ThreadpoolController, threadpool_limits

from macro_routing.search.blas_threads import with_one_blas_thread


def _count_blas_threads():
    np.linalg.cholesky(np.eye(3))
    return {pool["num_threads"] for pool in ThreadpoolController().info() if pool["user_api"] == "blas"}


def test_blas_has_one_thread_inside_and_what_it_had_outside():
    with threadpool_limits(limits=2, user_api="blas"):
        before = _count_blas_threads()
        assert with_one_blas_thread(_count_blas_threads)() == {1}
        assert _count_blas_threads() == before


def test_arguments_and_results_pass_through():
    assert with_one_blas_thread(lambda a, *, b: (a, b))(1, b=2) == (1, 2)
