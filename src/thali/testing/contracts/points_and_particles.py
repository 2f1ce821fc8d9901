"""The contracts of the engines of point estimates, of particle filters and of the noise floor."""

import math

import numpy as np
from scipy.special import logsumexp

from thali.core.observation import Observation
from thali.core.protocols.engines.calibration import NoiseFloor
from thali.core.protocols.engines.chains import ChainRows
from thali.core.protocols.engines.particles import ParticleRows
from thali.core.protocols.engines.point import PointRows
from thali.core.protocols.engines.predictions import Predictions
from thali.testing.contracts.example import BITS, Example
from thali.testing.contracts.telling import check_stored, contract, near, unchanged

_LIMIT = 6  # features
_PARTICLES = 4


def check_point_rows(example: Example) -> None:
    engine, bits, n_rows = example.observation.engine(PointRows), BITS.copy(), len(BITS)
    with unchanged(X=example.X):
        data = engine.prepare(example.observation.check_data(example.X))
    with contract("features must be those of the least error."), unchanged(Z=bits):
        features = engine.features(data, bits)
        least = engine.error(data, bits, features)
        for _ in range(4):
            other = features + 0.1 * example.rng.standard_normal(features.shape)
            error = engine.error(data, bits, other)
            assert error >= least - 1e-9 * (1 + least), f"Others have the error {error}, they have {least}."
    order = example.rng.permutation(n_rows)
    for name in ("sweep", "refit_sweep"):
        with contract(f"{name} must not raise the error, and leave its arguments as they were."):
            Z = np.ascontiguousarray(1 - bits)
            fitted = engine.features(data, Z)
            before = engine.error(data, Z, fitted)
            with unchanged(Z=Z, features=fitted, order=order):
                new, n_changes = getattr(engine, name)(data, Z, fitted, math.inf, _LIMIT, order)
            after = engine.error(data, new, engine.features(data, new))
            assert after <= before + 1e-9 * (1 + before), f"It rose from {before} to {after}."
            assert (n_changes == 0) == np.array_equal(new, Z), f"It speaks of {n_changes} changes."
    with contract("worth must be by how much the error rises without each feature."), unchanged(Z=bits):
        without = [np.ascontiguousarray(np.delete(bits, k, axis=1)) for k in range(bits.shape[1])]
        wanted = [engine.error(data, Z, engine.features(data, Z)) - least for Z in without]
        assert near(engine.worth(data, bits), wanted, 1e-6), f"It is {engine.worth(data, bits)}, not {wanted}."
    with contract("column must give a column that lowers the error by what it says, with the features as they are."):
        column, gain = engine.column(example.rng, data, bits[:, :1], engine.features(data, bits[:, :1]), 3)
        assert column.shape == (n_rows,), f"Got shape {column.shape}."
        assert np.isin(column, (0, 1)).all(), "It has other values than 0 and 1."
        one = np.ascontiguousarray(bits[:, :1])
        both = np.hstack([one, column[:, None].astype(np.uint8)])
        lower = engine.error(data, one, engine.features(data, one)) - engine.error(
            data, both, engine.features(data, both)
        )
        assert gain <= lower + 1e-6 * (1 + abs(lower)), f"It promises {gain}; fitted anew it is {lower}."
    with contract("point must give a concrete model and a codebook that predictions can use."):
        current, book = engine.point(data, bits, features)
        assert not current.learned, f"{', '.join(current.learned)} is a distribution."
        assert type(book) is current.engine(Predictions).codebook_kind, f"It is a {type(book).__name__}."
        full = current.engine(PointRows).completed(example.X, bits, book)
        assert near(full + example.origin, example.X), "completed changed observed cells."


def check_particle_rows(example: Example) -> None:
    model, X = example.observation, example.holes
    engine = model.engine(ParticleRows)
    engine.check_particles()  # or it refuses, in words
    with contract("start_particles must give equal weights to particles without rows."):
        particles = engine.start_particles(_PARTICLES, example.n_dims)
        assert particles.n_rows == 0, f"They have {particles.n_rows} rows."
        assert near(particles.log_weight, -math.log(_PARTICLES)), "Their weights are not equal."
    n = len(X)
    log_odds, new_rate = np.full((1, n, n), -np.inf), np.zeros((1, n))
    for i in range(n):  # an Indian buffet with a mass of one
        m = np.arange(1, i + 1)
        log_odds[0, i, m] = np.log(m) - np.log(i + 1 - m)
        new_rate[0, i] = 1.0 / (i + 1)
    with contract("filter_rows must take in all rows, and leave particles with normalised weights."):
        with unchanged(X=X, log_odds=log_odds, new_rate=new_rate):
            done = engine.filter_rows(
                example.rng, particles, [model] * _PARTICLES, X, log_odds, new_rate,
                np.zeros(_PARTICLES, np.int64), None, 2, 0.5 * _PARTICLES, n,
            )  # fmt: skip
        particles = done.particles
        assert done.n_absorbed == particles.n_rows == n, f"It took in {done.n_absorbed} of {n}."
        assert done.trace.shape == (n, 3), f"The trace has shape {done.trace.shape}."
        assert np.isfinite(done.trace).all(), "A remark is not finite."
        assert near(logsumexp(particles.log_weight), 0.0), "The weights do not sum to one."
    with contract("check_sound must accept the particles of these rows, and refuse them for others by a ValueError."):
        engine.check_sound(particles, X)
        try:
            engine.check_sound(particles, X[:-1])
        except ValueError:
            pass
        else:
            raise AssertionError("Those of another number of rows were accepted.")
    with contract("particle must give row variables that a chain can hold."):
        rows = model.engine(ChainRows)
        data = rows.prepare(X)
        for i in range(_PARTICLES):
            rows.check(data, engine.particle(particles, i, data, None))
    check_stored("Particles", particles)


def check_noise_floor(example: Example) -> None:
    engine = example.observation.engine(NoiseFloor)
    with contract("A noise floor must not be open where the noise is fixed."):
        assert engine.is_open is False, f"is_open is {engine.is_open!r}."
    with contract("usual_cells must have the shape of X, and closed must give a model."), unchanged(X=example.holes):
        adapted = example.observation.adapt(example.holes)
        cells = engine.usual_cells(adapted, example.holes)
        assert np.shape(cells) == example.X.shape, f"Got shape {np.shape(cells)}."
        assert np.isnan(cells[np.isnan(example.holes)]).all(), "A missing cell is not NaN."
        closed = engine.closed(adapted, np.ones(example.n_dims), np.full(example.n_dims, 0.1))
        assert isinstance(closed, Observation), f"Got {closed!r}."
