"""Progress: silent at first, then a line or a bar that says where each chain is."""

import io
import re
import time

import numpy as np
import pytest
from runs import shape_of

from thali import IBP, CollapsedGibbs, LinearGaussian, MeanField
from thali.core.model import Model
from thali.inference.restart import PassInfo
from thali.inference.samplers.chain import SweepInfo
from thali.running import progress
from thali.running.progress import Progress

INFERENCE = CollapsedGibbs(n_warmup=10, n_draws=40, thin=2)


def chains(rng, *lengths, score=None):
    """Chains that have made so many steps."""
    shape = shape_of(rng.random((5, 2)), INFERENCE, Model(IBP(), LinearGaussian()), n_chains=len(lengths))
    shape.job = shape.job._replace(score=score)
    for task, n_steps in zip(shape.tasks, lengths, strict=True):
        task.infos += [SweepInfo(-float(i), int(rng.integers(3, 6)), 0.0) for i in range(n_steps)]
        task.kept += ["a draw"] if n_steps > 10 else []
    return shape


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(progress, "_QUIET", 0.0)
    monkeypatch.setattr(progress, "_EVERY", 0.0)


def lines(shape, capsys, verbose=True):
    with Progress(shape, verbose) as show:
        for one in shape.tasks:
            one.infos += one.infos[-9:]  # nine more steps since the beginning
        time.sleep(0.01)
        show()
    return capsys.readouterr().err


def test_a_plain_line(at_once, capsys, rng):
    text = lines(chains(rng, 0, 3, 72), capsys)
    assert text.count("\n") == 1
    first, second, third = text.split(";  ")
    assert re.match(r" +3\d%  chain 0 finding a start$", first)
    assert re.fullmatch(r"chain 1 K=\d  log p -2\.0", second)  # no draws yet
    assert re.fullmatch(r"chain 2 K=\d  log p -71\.0  ESS\(K\) \d+\n", third)


def test_the_time_that_is_left_counts_from_the_last_start(at_once, monkeypatch, capsys, rng):
    """A start of 1000 s and then 10 steps of 1 s: there are 160 s left, not 16160."""
    seconds = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: seconds[0])
    shape = chains(rng, 4, 0)
    with Progress(shape, True) as show:
        seconds[0] = 1000.0
        show()
        shape.tasks[1].infos += shape.tasks[0].infos[:1]
        for _ in range(10):
            seconds[0] += 1.0
            shape.tasks[0].infos += shape.tasks[0].infos[:1]
            show()
    first, *_, last = capsys.readouterr().err.splitlines()
    assert "left" not in first
    left = float(re.search("about ([0-9]+) s left", last)[1])
    assert left == round(10 * (180 - 15) / 11)


def test_the_effective_size_is_that_of_the_draws(rng):
    from thali.verdicts.chains import diagnose

    shape = chains(rng, 90)
    one = shape.tasks[0]
    draws = np.array([[info.n_features for info in one.infos[11::2]]])
    assert draws.shape == (1, 40)
    expected = f"  ESS(K) {diagnose({'K': draws})['K'].ess:.0f}"
    assert shape.note(one, thorough=True).endswith(expected)


def test_the_held_out_score_of_the_last_draw(at_once, capsys, rng):
    text = lines(chains(rng, 3, 72, score=lambda draw: {"a draw": -1.2134}[draw]), capsys)
    assert text.count("held-out") == 1
    assert "held-out -1.213  ESS(K)" in text


@pytest.mark.parametrize("verbose", [False, None])
def test_silent_unless_asked_or_on_a_terminal(at_once, capsys, rng, verbose):
    assert lines(chains(rng, 20), capsys, verbose) == ""


def test_silent_in_the_first_seconds(capsys, rng):
    assert lines(chains(rng, 20), capsys) == ""


class Terminal(io.StringIO):
    """Standard error that says it is a terminal."""

    def isatty(self):
        return True


def test_bars_on_a_terminal(at_once, monkeypatch, rng):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "120")
    with Progress(chains(rng, 0, 72), None) as show:
        show()
    text = terminal.getvalue()
    assert "finding a start" in text
    assert "72/90" in text
    assert "ESS(K)" in text


class TestRestarts:
    def shape(self, rng):
        """Two restarts, one of which has settled."""
        shape = shape_of(rng.random((5, 2)), MeanField(n_restarts=2), Model(IBP(), LinearGaussian()))
        for task, settled in zip(shape.tasks, (True, False), strict=True):
            task.infos += [PassInfo(13.0, 3, False), PassInfo(12.5, 3, settled)]
        return shape

    def test_a_plain_line(self, at_once, capsys, rng):
        with Progress(self.shape(rng), True) as show:
            time.sleep(0.01)
            show()
        wanted = "restart 0 K=3  objective 12.5, settled;  restart 1 K=3  objective 12.5\n"
        assert capsys.readouterr().err == wanted

    def test_bars_without_an_end(self, at_once, monkeypatch, rng):
        terminal = Terminal()
        monkeypatch.setattr("sys.stderr", terminal)
        monkeypatch.setenv("COLUMNS", "120")
        with Progress(self.shape(rng), None) as show:
            show()
        assert "2/?" in terminal.getvalue()
        assert "objective 12.5, settled" in terminal.getvalue()
