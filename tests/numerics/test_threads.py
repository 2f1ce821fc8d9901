"""Spans cover everything once and in order, on as many threads as allowed."""

import threading
import time

import pytest

from thali.numerics.threads import in_spans, n_cores, together


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 100, 1023])
@pytest.mark.parametrize("n_threads", [1, 2, 5, None])
def test_spans_cover_the_range(length, n_threads):
    spans = in_spans(lambda span: span, length, 8, 8, n_threads)
    assert [i for span in spans for i in range(span.start, span.stop)] == list(range(length))
    assert all(span.start % 8 == 0 for span in spans)
    if n_threads == 1:
        assert len(spans) == 1


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_no_more_threads_than_allowed(n_threads):
    working, most, lock = set(), [], threading.Lock()

    def work(span):
        with lock:
            working.add(threading.get_ident())
            most.append(len(working))
        time.sleep(0.002)
        with lock:
            working.discard(threading.get_ident())

    in_spans(work, 400, 8, 8, n_threads)
    assert 1 <= max(most) <= min(n_threads, n_cores() + 1)


def test_short_work_stays_in_this_thread():
    here = threading.get_ident()
    assert in_spans(lambda span: threading.get_ident(), 100, 8, 60, 4) == [here]


@pytest.mark.skipif(n_cores() < 2, reason="needs a second core")
def test_long_work_is_shared():
    both = threading.Barrier(2, timeout=60)  # opens only if two threads are at work at once
    first = iter(range(2))
    in_spans(lambda span: both.wait() if next(first, 2) < 2 else None, 100, 8, 50, 2)


def test_errors_arrive():
    def fail(span):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        in_spans(fail, 100, 8, 8, 2)


def test_nobody_works_on_after_an_error():
    here, working = threading.get_ident(), []

    def work(span):
        if threading.get_ident() == here:
            raise ValueError("no")
        working.append(1)
        time.sleep(0.02)
        working.pop()

    for _ in range(5):
        with pytest.raises(ValueError, match="no"):
            in_spans(work, 400, 8, 8, 2)
        assert not working


def test_work_that_splits_itself_further_comes_to_an_end():
    """As many threads as there are wait for parts of their own work."""

    def inner(span):
        return range(span.start, span.stop)

    def outer(span):
        return [i for part in in_spans(inner, 8, 1, 1, 8) for i in part]

    for _ in range(20):
        assert all(part == list(range(8)) for part in in_spans(outer, 16, 1, 1, 16))


@pytest.mark.parametrize(("most", "n_threads", "expected"), [(0, 4, 1), (1, None, 1), (9, 1, 1), (2, 9, 2), (9, 3, 3)])
def test_together_is_at_most_so_many(most, n_threads, expected):
    calls, everybody = [], threading.Barrier(min(expected, n_cores() + 1), timeout=60)

    def work(is_last):
        everybody.wait()
        calls.append((is_last, threading.get_ident()))

    together(work, most, n_threads)
    if n_cores() + 1 >= expected:
        time.sleep(0.05)  # it waits for no other
        assert sorted(is_last for is_last, _ in calls) == [False] * (expected - 1) + [True]
        assert len({thread for _, thread in calls}) == expected
        assert (True, threading.get_ident()) in calls


def test_together_waits_for_no_one():
    """Others are busy: this thread does it all, and what nobody has begun is not begun later."""
    busy, begun, calls = threading.Event(), threading.Semaphore(0), []

    def occupy(is_last):
        if is_last:
            assert all(begun.acquire(timeout=60) for _ in range(n_cores()))
        else:
            begun.release()
            busy.wait(60)

    together(occupy, n_cores() + 1, n_cores() + 1)
    together(calls.append, 2, 2)
    busy.set()
    time.sleep(0.05)
    assert calls == [True]


def test_together_errors_arrive():
    def fail(is_last):
        raise ValueError(f"last: {is_last}")

    with pytest.raises(ValueError, match="last: True"):
        together(fail, 2, 2)
