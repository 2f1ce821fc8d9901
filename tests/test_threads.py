"""Spans cover everything once and in order, on as many threads as allowed."""

import threading

import pytest

from thali.threads import in_spans, n_cores


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 100, 1023])
@pytest.mark.parametrize("n_threads", [1, 2, 5, None])
def test_spans_cover_the_range(length, n_threads):
    spans = in_spans(lambda span: span, length, 8, 8, n_threads)
    assert [i for span in spans for i in range(span.start, span.stop)] == list(range(length))
    assert all(span.start % 8 == 0 for span in spans)
    assert len(spans) <= (n_cores() if n_threads is None else n_threads)


def test_short_work_stays_in_this_thread():
    here = threading.get_ident()
    assert in_spans(lambda span: threading.get_ident(), 100, 8, 60, 4) == [here]
    *others, last = in_spans(lambda span: threading.get_ident(), 100, 8, 50, 4)
    assert others
    assert here not in others
    assert here == last


def test_errors_arrive():
    def fail(span):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        in_spans(fail, 100, 8, 8, 2)


def test_work_that_splits_itself_further_comes_to_an_end():
    """As many threads as there are wait for parts of their own work."""

    def inner(span):
        return [(span.start, span.stop)]

    def outer(span):
        return in_spans(inner, 8, 1, 1, 8)

    for _ in range(20):
        parts = in_spans(outer, 16, 1, 1, 16)
        assert len(parts) == 16
        assert all(part[0][0] == (0, 1) or part[0][0] == (0, 8) for part in parts)
