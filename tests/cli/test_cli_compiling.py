"""Kernels are compiled before the work begins, and Ctrl-C ends that."""

import os
import signal
import time

import pytest

from thali.cli import warm_up as compiling


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("swallows", [False, True])
def test_a_signal_ends_the_compilation(monkeypatch, which, swallows) -> None:
    """Even if it comes in a callback of the compiler, from which no exception gets out."""

    def press(*_: object) -> None:
        try:
            os.kill(os.getpid(), which)
            time.sleep(5)
        except KeyboardInterrupt:
            if not swallows:
                raise

    monkeypatch.setattr(compiling, "_tiny_fit", press)
    before = signal.getsignal(which)
    with pytest.raises(KeyboardInterrupt):
        compiling._interruptibly(None, None)
    assert signal.getsignal(which) is before
