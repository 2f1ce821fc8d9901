"""Progress: silent at first, then a line or a bar that says where each chain is."""

import io
import re
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from thali import CollapsedGibbs
from thali.inference.samplers.chain import SweepInfo
from thali.running import progress
from thali.running.progress import Progress, RestartProgress

INFERENCE = CollapsedGibbs(n_warmup=10, n_draws=40, thin=2)


def chain(n_steps, rng):
    infos = [SweepInfo(-float(i), int(rng.integers(3, 6)), 0.0) for i in range(n_steps)]
    return SimpleNamespace(infos=infos, kept=["a draw"] if n_steps > 10 else [])


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(progress, "_QUIET", 0.0)
    monkeypatch.setattr(progress, "_EVERY", 0.0)


def lines(chains, capsys, **options):
    with Progress(chains, INFERENCE, **{"verbose": True} | options) as show:
        for one in chains:
            one.infos += one.infos[-9:]  # nine more steps since the beginning
        time.sleep(0.01)
        show()
    return capsys.readouterr().err


def test_a_plain_line(at_once, capsys, rng):
    text = lines([chain(0, rng), chain(3, rng), chain(72, rng)], capsys)
    assert text.count("\n") == 1
    first, second, third = text.split(";  ")
    assert re.match(r" +3\d%  about \d+ s left  chain 0 finding a start$", first)
    assert re.fullmatch(r"chain 1 K=\d  log p -2\.0", second)  # no draws yet
    assert re.fullmatch(r"chain 2 K=\d  log p -71\.0  ESS\(K\) \d+\n", third)


def test_the_effective_size_is_that_of_the_draws(rng):
    from thali.verdicts.chains import diagnose

    one = chain(90, rng)
    draws = np.array([[info.n_features for info in one.infos[11::2]]])
    assert draws.shape == (1, 40)
    expected = f"  ESS(K) {diagnose({'K': draws})['K'].ess:.0f}"
    assert Progress([one], INFERENCE, True)._size(one) == expected


def test_the_held_out_score_of_the_last_draw(at_once, capsys, rng):
    text = lines([chain(3, rng), chain(72, rng)], capsys, score=lambda draw: {"a draw": -1.2134}[draw])
    assert text.count("held-out") == 1
    assert "held-out -1.213  ESS(K)" in text


@pytest.mark.parametrize("verbose", [False, None])
def test_silent_unless_asked_or_on_a_terminal(at_once, capsys, rng, verbose):
    assert lines([chain(20, rng)], capsys, verbose=verbose) == ""


def test_silent_in_the_first_seconds(capsys, rng):
    assert lines([chain(20, rng)], capsys) == ""


class Terminal(io.StringIO):
    """Standard error that says it is a terminal."""

    def isatty(self):
        return True


def test_bars_on_a_terminal(at_once, monkeypatch, rng):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "120")
    with Progress([chain(0, rng), chain(72, rng)], INFERENCE, None) as show:
        show()
    text = terminal.getvalue()
    assert "finding a start" in text
    assert "72/90" in text
    assert "ESS(K)" in text


class TestRestarts:
    class State:
        n_features, objective = 3, 12.5

    def watch(self, monkeypatch, verbose, *, terminal=False):
        """Progress of two restarts, one of which has ended, after ten seconds."""
        now = [0.0]
        monkeypatch.setattr("thali.running.progress.time.monotonic", lambda: now[0])
        monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
        progress = RestartProgress(2, verbose)
        progress.passed(0, self.State)
        progress()
        progress.ended(0, self.State, settled=True)
        progress.passed(1, self.State)
        now[0] = 10.0
        progress()
        progress.close()

    def test_lines(self, monkeypatch, capsys):
        self.watch(monkeypatch, True)
        lines = capsys.readouterr().err.splitlines()
        assert lines == [
            "restart 0: objective 12.5, 3 features, settled after 1 passes",
            "1/2 restarts done  restart 1 pass 1  K=3  objective 12.5",
        ]

    def test_a_terminal_is_left_clean(self, monkeypatch, capsys):
        self.watch(monkeypatch, None, terminal=True)
        text = capsys.readouterr().err
        assert "1/2 restarts done" in text
        assert text.endswith("\r")

    @pytest.mark.parametrize("verbose", [None, False])
    def test_silence(self, monkeypatch, capsys, verbose):
        self.watch(monkeypatch, verbose)
        assert capsys.readouterr().err == ""
