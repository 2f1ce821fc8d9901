"""Threads that share numbers: no addition is lost, and who waits is let go."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from reference import atomics as twin

from thali.kernels import atomics as kernel
from thali.kernels._jit import jit


@jit
def add_often(numbers, n):
    for _ in range(n):
        kernel.fetch_add(numbers, 0, 1)
        kernel.fetch_add(numbers, 1, -2)


@jit
def add_and_give_way(numbers, value):
    kernel.give_way()
    return kernel.fetch_add(numbers, 1, value)


def test_additions_of_several_threads():
    numbers = np.zeros(3, np.int64)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: add_often(numbers, 200_000), range(8)))
    assert numbers.tolist() == [1_600_000, -3_200_000, 0]


def test_it_returns_what_was_there():
    for add in (add_and_give_way, kernel.fetch_add):
        numbers = np.array([3, 5, 7])
        assert (add(numbers, 4) if add is add_and_give_way else add(numbers, 1, 4)) == 5
        assert numbers.tolist() == [3, 9, 7]
    assert kernel.give_way() is None


def test_who_waits_is_let_go():
    numbers = np.zeros(2, np.int64)
    kernel.wait_until(numbers, 1, 0)  # at once
    waiting = threading.Thread(target=kernel.wait_until, args=(numbers, 1, 3), daemon=True)
    waiting.start()
    time.sleep(0.02)
    numbers[1] = 2
    time.sleep(0.02)
    assert waiting.is_alive()
    numbers[1] = 3
    waiting.join(30)
    assert not waiting.is_alive()
    twin.wait_until(numbers, 1, 3)
