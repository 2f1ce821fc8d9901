"""The limit of BLAS threads: it holds while anybody wants it, and afterwards everything is as before."""

import multiprocessing
import subprocess
import sys
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from thali.numerics.blas import one_blas_thread


def n_threads() -> set[int]:
    np.linalg.svd(np.eye(2))
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def three_threads():
    """Whatever the machine has."""
    with threadpool_limits(3, "blas"):
        if n_threads() != {3}:
            pytest.skip("this BLAS cannot have three threads")
        yield


def test_one_inside_and_as_before_outside():
    with one_blas_thread():
        assert n_threads() == {1}
        with one_blas_thread():
            assert n_threads() == {1}
        assert n_threads() == {1}
    assert n_threads() == {3}


@pytest.mark.parametrize("first_out", [0, 1])
@pytest.mark.parametrize("fails", [False, True])
def test_overlapping_limits_in_two_threads(first_out, fails):
    """Each comes before the other has left, in either order of leaving."""
    inside = [threading.Event(), threading.Event()]
    leave = [threading.Event(), threading.Event()]
    errors = []

    def work(i):
        try:
            with one_blas_thread():
                inside[i].set()
                assert leave[i].wait(60)
                if fails:
                    raise ValueError("no")
        except ValueError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for i, thread in enumerate(threads):
        thread.start()
        assert inside[i].wait(60)
    for i in (first_out, 1 - first_out):
        assert n_threads() == {1}
        leave[i].set()
        threads[i].join(60)
    assert n_threads() == {3}
    assert len(errors) == 2 * fails


def test_many_threads_that_come_and_go():
    @one_blas_thread()
    def work(depth):
        found.update(n_threads())
        if depth:
            work(depth - 1)
        if depth == 2:
            raise KeyboardInterrupt

    def often():
        for _ in range(10):
            with pytest.raises(KeyboardInterrupt):
                work(2)

    found = set()
    threads = [threading.Thread(target=often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {1}
    assert n_threads() == {3}


def test_a_library_that_is_loaded_later_is_held_too():
    """scipy brings a BLAS of its own, and may be imported in the middle of a fit."""
    code = """
import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits
from thali.numerics.blas import one_blas_thread
n = lambda: {p["filepath"]: p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"}
threadpool_limits(3, "blas")
with one_blas_thread():
    import scipy.linalg
    before = n()
    with one_blas_thread():
        assert set(n().values()) == {1}, n()
    assert set(n().values()) == {1}, n()
assert all(threads == (3 if before[path] == 1 else before[path]) for path, threads in n().items()), (before, n())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking beside threads is what this is about
def test_a_forked_process_does_not_wait_for_threads_it_does_not_have():
    inside, leave = threading.Event(), threading.Event()

    def work():
        with one_blas_thread():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    assert inside.wait(60)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=lambda: answers.put(n_threads()))
    child.start()
    child.join(60)
    leave.set()
    thread.join(60)
    assert answers.get() == {3}
    assert n_threads() == {3}
