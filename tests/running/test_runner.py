"""Running chains: threads, turns, stopping, errors."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from runs import ran, shape_of
from runs import same_draws as same

from thali import IBP, BetaBernoulli, CollapsedGibbs, LatentFeatures, LinearGaussian, MeanField
from thali.core.model import Model
from thali.core.protocols.engines.chains import ChainRows
from thali.errors import InvalidParameterError
from thali.rng import make_generator
from thali.running.runner import resolve_n_jobs
from thali.running.shapes.chains import Chains, iterate, most_draws
from thali.storage.tasks import Task
from thali.verdicts.judge import judge

MODEL = Model(IBP(), LinearGaussian())


@pytest.fixture
def X(rng):  # noqa: N802 (the matrix has this name)
    return rng.integers(2, size=(25, 2)) @ (3 * rng.standard_normal((2, 4))) + 0.3 * rng.standard_normal((25, 4))


def short(**settings):
    return CollapsedGibbs(**{"start": "spectral"} | settings)


def run(X, inference, *, model=MODEL, seed=1, n_chains=2, target_ess=None, **options):
    model = Model(model.prior, model.observation.adapt(X))
    return ran(shape_of(X, inference, model, seed=seed, n_chains=n_chains, target_ess=target_ess), **options)


@pytest.mark.parametrize("n_jobs", [0, -2, 1.5, 2.0, "2", True, [1]])
def test_bad_n_jobs(n_jobs, X):
    with pytest.raises(InvalidParameterError, match=r"n_jobs must be .* Got"):
        run(X, short(n_warmup=10**9), n_jobs=n_jobs)


def test_n_jobs_means_threads():
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert resolve_n_jobs(None, 10**6) == resolve_n_jobs(-1, 10**6) == cores
    assert resolve_n_jobs(3, 2) == 2
    assert resolve_n_jobs(np.int64(3), 8) == 3


@pytest.mark.parametrize("thin", [1, 3])
def test_shapes(X, thin):
    result = run(X, short(n_warmup=4, n_draws=5, thin=thin), n_chains=3)
    assert result.stopped_by is None
    assert result.posterior.n_chains == 3
    assert result.posterior.n_draws == 5
    for values in result.history.values():
        assert values.shape == (3, 4 + 5 * thin)
        assert np.isfinite(values).all()
    for name, kept in result.posterior.draws.items():
        assert kept.shape == (3, 5)
        if name in result.history:
            assert np.array_equal(kept, result.history[name][:, 4 + thin - 1 :: thin])


def test_bits_do_not_depend_on_threads_or_company(X, monkeypatch):
    inference = short(n_warmup=5, n_draws=10)
    alone = run(X, inference, n_jobs=1)
    assert same(alone, run(X, inference, n_jobs=2))
    assert not same(alone, run(X, inference, seed=2))
    more = run(X, inference, n_chains=3)
    assert np.array_equal(more.posterior.draws["log_joint"][:2], alone.posterior.draws["log_joint"])
    monkeypatch.setattr(Chains, "turn", 0.0)
    assert same(alone, run(X, inference, n_jobs=1))


def test_chains_take_turns(X, monkeypatch):
    """Three chains on one thread, a turn of one step each."""
    monkeypatch.setattr(Chains, "turn", 0.0)
    seen = []
    keep = lambda chain, is_last: seen.append(chain.number)  # noqa: E731
    run(X, short(n_warmup=0, n_draws=4), n_chains=3, n_jobs=1, keep=keep)
    assert seen[:12] == [0, 1, 2] * 4


def test_a_longer_run_begins_as_a_shorter_one(X):
    less = run(X, short(n_warmup=2, n_draws=4))
    more = run(X, short(n_warmup=2, n_draws=9))
    assert np.array_equal(more.history["log_joint"][:, :6], less.history["log_joint"])


def test_iterate_leaves_stopping_to_the_consumer(X):
    observation = MODEL.observation.adapt(X)
    model = Model(MODEL.prior, observation)
    steps = iterate(
        make_generator(0), short(n_warmup=0, n_draws=1), model, observation.engine(ChainRows).prepare(X), len(X)
    )
    for _ in range(20):
        state, info = next(steps)
    assert info.n_features == state.local.z.shape[1]
    assert info.drift < 1e-8


def test_data_are_not_changed(X):
    X[2, 1] = np.nan
    before = X.copy()
    X.flags.writeable = False
    run(X, short(n_warmup=2, n_draws=2))
    assert np.array_equal(X, before, equal_nan=True)


def test_keep_sees_every_step_and_the_end(X):
    seen = []
    keep = lambda chain, is_last: seen.append((chain.number, len(chain.infos), is_last))  # noqa: E731
    run(X, short(n_warmup=2, n_draws=3), keep=keep)
    steps = [(chain, i, i == 5) for chain in range(2) for i in range(1, 6)]
    assert sorted(seen[:-2]) == steps
    assert seen[-2:] == [(0, 5, True), (1, 5, True)]


def test_watch_is_called_in_the_main_thread(X):
    threads = []

    def watch():
        threads.append(threading.current_thread())
        if len(threads) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    run(X, short(n_warmup=0, n_draws=10**9), watch=[watch])
    assert set(threads) == {threading.main_thread()}


@pytest.mark.parametrize("kind", [ZeroDivisionError, IndexError])
def test_an_error_in_one_chain_ends_all_and_is_shown(X, kind):
    def fail(chain, is_last):
        if chain.number == 1 and len(chain.infos) == 3:
            raise kind("in chain 1")

    begin = time.monotonic()
    with pytest.raises(kind, match="in chain 1"):
        run(X, short(n_warmup=10**9, n_draws=1), n_jobs=2, keep=fail)
    assert time.monotonic() - begin < 30


# ---- Ctrl-C and SIGTERM


def interrupt_at(number, n_steps, which=signal.SIGINT):
    """A `keep` that presses Ctrl-C, and then waits until it has been noticed."""

    def keep(chain, is_last):
        if (chain.number, len(chain.infos)) == (number, n_steps) and not is_last:
            os.kill(os.getpid(), which)
            time.sleep(0.3)

    return keep


def interrupt_when_all_have(n_steps, n_chains, which):
    """A `keep` that sends the signal once every chain is so far, which then go on slowly until it has been noticed:
    one that lags far behind the others would be left out."""
    far, first = set(), threading.Lock()

    def keep(chain, is_last):
        if len(chain.infos) >= n_steps and not is_last:
            far.add(chain.number)
            while len(far) < n_chains:
                time.sleep(0.01)
            if first.acquire(blocking=False):
                os.kill(os.getpid(), which)
            time.sleep(0.3)

    return keep


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_signal_keeps_what_was_drawn(X, n_jobs, which):
    """Of one chain; of several, the draws that each of them has."""
    before = signal.getsignal(which)
    endless = short(n_warmup=0, n_draws=10**9)
    result = run(X, endless, n_chains=n_jobs, n_jobs=n_jobs, keep=interrupt_when_all_have(40, n_jobs, which))
    assert signal.getsignal(which) is before
    assert result.stopped_by == "interrupt"
    assert 1 <= result.posterior.n_draws == result.history["log_joint"].shape[1]
    whole = run(X, short(n_warmup=0, n_draws=result.posterior.n_draws), n_chains=n_jobs)
    assert same(result, whole)


def test_ctrl_c_in_the_warm_up_keeps_nothing(X):
    with pytest.raises(KeyboardInterrupt, match="before the first draw"):
        run(X, short(n_warmup=10**9, n_draws=1), keep=interrupt_at(0, 10))


def test_ctrl_c_while_a_chain_finds_its_start(X, monkeypatch):
    def search(self, rng, model, data, n_rows, tick):
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            tick()
            time.sleep(0.01)

    monkeypatch.setattr(CollapsedGibbs, "init", search)
    with pytest.raises(KeyboardInterrupt, match="before the first draw"):
        run(X, short(n_draws=1))


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_kernels_compile_is_not_forgotten(X, which, monkeypatch):
    """The first step takes long, and it is the last."""
    step = CollapsedGibbs.step

    def slow(*arguments):
        os.kill(os.getpid(), which)
        time.sleep(0.3)
        return step(*arguments)

    monkeypatch.setattr(CollapsedGibbs, "step", slow)
    result = run(X, short(n_warmup=0, n_draws=1), n_chains=1)
    assert result.stopped_by == "interrupt"
    assert result.posterior.n_draws == 1
    with pytest.raises(KeyboardInterrupt, match="before the first draw"):
        run(X, short(n_warmup=1, n_draws=1), n_chains=1)


def test_ctrl_c_with_chains_still_waiting(X, monkeypatch):
    """Two chains on one thread: the second never began, and is left out."""
    monkeypatch.setattr(Chains, "turn", 1e9)
    result = run(X, short(n_warmup=5, n_draws=10**9), n_jobs=1, keep=interrupt_at(0, 20))
    assert result.stopped_by == "interrupt"
    assert result.posterior.n_chains == 1
    assert result.posterior.n_draws >= 15


def test_a_signal_that_is_ignored_stays_ignored(X):
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        result = run(X, short(n_warmup=0, n_draws=30), n_chains=1, keep=interrupt_at(0, 5, signal.SIGTERM))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert result.stopped_by is None


def test_signals_are_left_alone_outside_the_main_thread(X):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    results = []
    seen = []

    def watch():
        seen.append((signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)))

    inference = short(n_warmup=0, n_draws=400)
    thread = threading.Thread(target=lambda: results.append(run(X, inference, watch=[watch])))
    thread.start()
    thread.join()
    assert results[0].posterior.n_draws == 400
    assert all(handlers == before for handlers in seen)


def test_interrupted_fit_warns_and_can_be_used(X, monkeypatch):
    step, steps = CollapsedGibbs.step, []

    def pressing(*arguments):
        steps.append(1)
        if len(steps) == 30:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)
        return step(*arguments)

    monkeypatch.setattr(CollapsedGibbs, "step", pressing)
    m = LatentFeatures(inference=short(n_warmup=5, n_draws=10**6), n_chains=1, random_state=0)
    with pytest.warns(UserWarning, match=r"Interrupted: kept 1 of 1 chains with \d+ draws each, of 1000000"):
        m.fit(X)
    assert m.interrupted_
    assert m.stopped_by_ == "interrupt"
    assert m.transform(X).shape == (25, m.n_components_)


# ---- stopping by time and by effective sample size


def test_max_time(X):
    begin = time.monotonic()
    result = run(X, short(n_warmup=0, n_draws=10**9), max_time=0.5)
    assert 0.5 <= time.monotonic() - begin < 10
    assert result.stopped_by == "max_time"
    n_draws = result.posterior.n_draws
    assert same(result, run(X, short(n_warmup=0, n_draws=n_draws)))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_max_time_ends_a_search_and_a_warm_up(X, n_jobs):
    """What is there by then is shown, and the verdict says what it is."""
    inference = short(n_warmup=10**6, n_draws=50, start="search")
    begin = time.monotonic()
    result = run(X, inference, max_time=0.2, n_chains=3, n_jobs=n_jobs)
    assert time.monotonic() - begin < 5.0
    assert result.stopped_by == "max_time"
    assert 1 <= result.posterior.n_chains <= 3
    assert result.posterior.n_draws == 1
    assert 1 <= result.history["log_joint"].shape[1] < inference.n_warmup
    found = judge(inference, result.posterior, result.history)
    assert not found.converged
    assert "the time was over in the warm-up, after" in found.words
    done = run(X, short(n_warmup=3, n_draws=50, start="empty"), n_chains=2)
    assert "warm-up" not in judge(short(n_warmup=3), done.posterior, done.history).words


@pytest.mark.parametrize(
    ("lengths", "kept"),
    [
        ((5, 5, 5), (5, 5, 5)),
        ((9, 1, 0), (9,)),
        ((4, 3, 0), (4, 3)),
        ((0, 2), (2,)),
        ((3, 1, 1), (3, 1, 1)),
        ((0, 0), ()),
    ],
)
def test_chains_that_lag_far_behind_are_left_out(lengths, kept):
    """When all are as long as the shortest, those that are kept have most draws together."""
    chains = [Task(i, None, kept=range(n)) for i, n in enumerate(lengths)]
    assert tuple(len(chain.kept) for chain in most_draws(chains)) == kept


def test_short_runs_give_every_chain_a_turn(X):
    result = run(X, short(n_warmup=0, n_draws=10**9, start="empty"), max_time=1.0, n_chains=3, n_jobs=1)
    assert (result.posterior.n_chains, result.stopped_by) == (3, "max_time")


def test_a_run_in_time_is_not_stopped(X):
    assert run(X, short(n_warmup=0, n_draws=3), max_time=1e6, target_ess=1e6).stopped_by is None


def test_target_ess_stops_where_the_draws_suffice_and_not_where_the_clock_says(X, monkeypatch):
    from thali.verdicts.chains import diagnose

    found = {run(X, short(n_warmup=20, n_draws=n), target_ess=30).posterior.n_draws for n in (2000, 10**9)}
    assert len(found) == 1
    monkeypatch.setattr("thali.running.runner._LOOK", 0.01)
    monkeypatch.setattr(Chains, "turn", 0.01)
    result = run(X, short(n_warmup=20, n_draws=10**9, thin=1), target_ess=30, n_jobs=1)
    assert result.stopped_by == "target_ess"
    assert {result.posterior.n_draws} == found
    assert result.history["log_joint"].shape[1] == 20 + result.posterior.n_draws
    diagnoses = diagnose(result.posterior.draws).values()
    assert min(d.ess for d in diagnoses) >= 30
    assert max(d.r_hat for d in diagnoses) <= 1.05
    earlier = {name: values[:, :-20] for name, values in result.posterior.draws.items()}
    assert earlier["n_on"].shape[1] == 0 or not all(d.ess >= 30 and d.r_hat <= 1.05 for d in diagnose(earlier).values())


@pytest.mark.parametrize("name", ["max_time", "target_ess"])
@pytest.mark.parametrize("value", [0, -1, np.nan, np.inf, "5", True, [1]])
def test_bad_stopping_rules(name, value, X):
    m = LatentFeatures(inference=short(n_warmup=10**9), **{name: value})
    with pytest.raises(InvalidParameterError, match=rf"{name} must be None or a positive number\. Got"):
        m.fit(X)


@pytest.mark.parametrize("prior", [IBP(mass=2.0), BetaBernoulli(mass=2.0, n_features=3)])
def test_fixed_hyperparameters_stay_fixed(X, prior):
    model = Model(prior, LinearGaussian(noise_var=0.1, feature_var=4.0))
    result = run(X, short(n_warmup=2, n_draws=3), model=model)
    assert set(result.posterior.draws) == {"n_features", "n_on", "log_joint", "free_energy"}
    assert result.posterior.concrete(0, 0) == Model(prior, result.posterior.model.observation)


def test_restarts_come_one_after_the_other_also_when_time_is_short(X):
    model = Model(IBP(), LinearGaussian().adapt(X))
    shape = shape_of(X, MeanField(n_restarts=3, max_iter=3, tol=0.0), model)
    order = []
    ran(shape, max_time=600.0, n_jobs=1, keep=lambda task, is_last: order.append(task.number))
    assert order[:-3] == sorted(order[:-3])
    assert set(order) == {0, 1, 2}
