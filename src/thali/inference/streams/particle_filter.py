"""A particle filter: rows are taken in one by one, by many weighted hypotheses about Z at the same time (Wood &
Griffiths 2007), which are moved after a resampling (Gilks & Berzuini 2001). The mean weights multiply to an unbiased
estimate of the evidence p(X).
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from thali.core.model import Model
from thali.core.odds import exchangeable_odds
from thali.core.protocols.engines.chains import ChainRows, CollapsedRows
from thali.core.protocols.engines.particles import ParticleRows
from thali.core.protocols.prior import Predictive
from thali.core.registry import stored
from thali.core.spec import Spec, at_least, one_of, setting, share
from thali.inference.samplers.chain import ZState, as_draw, log_joint
from thali.kernels.bits.particles import pick_ancestors
from thali.posteriors.base import Draw
from thali.posteriors.draws import Draws
from thali.verdicts.chains import Filters

Array = np.ndarray

_GROUP = 5  # bits that are proposed together
_TABLE = 2_000_000  # numbers of the prior's tables that are held at a time
_SWEEP_GROUP = 3  # bits that a sweep draws together
_ROWS = 4  # for which a particle's own tables are made, since a resampling may change them


@stored("FilterState")
class FilterState(NamedTuple):
    """Everything after the rows so far."""

    X: Array  # those rows
    hyper: dict[str, Array]  # "prior.mass": the value of each particle
    particles: Any
    log_evidence: float

    @property
    def n_rows(self) -> int:
        return len(self.X)


@stored("RowRemarks")
class RowInfo(NamedTuple):
    """Remarks about one row."""

    log_evidence: float  # of the rows so far
    n_features: float  # mean over the particles
    effective: float  # number of particles, before a resampling

    @property
    def log_joint(self) -> float:
        return self.log_evidence


@stored("ParticleFilter")
@dataclass(frozen=True, eq=False)
class ParticleFilter(Spec):
    """For rows that come one after the other, and for the evidence.

    Learned hyperparameters: each particle has its own values, drawn from their priors before the first row and moved
    by a Gibbs step after each resampling. Vague priors need many particles. Relative priors refer to the first batch.
    These moves run in Python: a few tenths of a millisecond a particle and resampling, and its sweeps.

    The bits of all particles for all rows are kept, n_particles x n_rows x features bytes, and the rows.

    Parameters
    ----------
    n_particles : int
        Hypotheses. Each chain of the estimator is a filter with so many.
    resample_below : float
        Particles are resampled when their effective number falls below this share of them.
    proposal : "gibbs" or "prior"
        "gibbs" draws a row's bits given the row, in groups, with an exact weight; "prior" draws them blindly (Wood
        & Griffiths).
    n_sweeps : int
        Gibbs sweeps of each particle over all rows so far after a resampling. They undo early mistakes; with 0 rows
        are never revised, and time does not grow with their number.
    """

    n_particles: int = setting(200, at_least(2))
    resample_below: float = setting(0.5, share)
    proposal: str = setting("gibbs", one_of("gibbs", "prior"))
    n_sweeps: int = setting(1, at_least(0))

    shape = "rows"
    keeps_rows = True
    needs_prior = (Predictive,)
    needs_observation = (ParticleRows, ChainRows, CollapsedRows)

    @property
    def n_draws(self) -> int:
        return self.n_particles

    @property
    def group(self) -> int:
        """How many bits are proposed together given the data; 0: none."""
        return _GROUP if self.proposal == "gibbs" else 0

    def begin(self, rng: np.random.Generator, model: Model, n_dims: int) -> FilterState:
        engine = model.observation.engine(ParticleRows)
        engine.check_particles()
        particles = engine.start_particles(self.n_particles, n_dims)
        many = range(self.n_particles)
        priors = [model.prior.draw(rng) for _ in many] if model.prior.learned else []
        observations = [model.observation.draw(rng, n_dims) for _ in many] if model.observation.learned else []
        return FilterState(np.zeros((0, n_dims)), _collect(model, priors, observations), particles, 0.0)

    def absorb(
        self, rng: np.random.Generator, state: FilterState, model: Model, X: Array
    ) -> tuple[FilterState, list[RowInfo]]:
        seen, hyper, particles, log_evidence = state
        moves = bool(hyper) or self.n_sweeps > 0
        infos: list[RowInfo] = []
        row = 0
        priors, observations = _concrete(model, hyper, self.n_particles)
        while row < len(X):
            own = bool(model.prior.learned)  # whether each particle has tables of its own
            tables = prior_tables(priors if own else priors[:1], len(seen) + row, len(X) - row)
            table_of = np.arange(self.n_particles) if own else np.zeros(self.n_particles, np.int64)
            step = model.observation.engine(ParticleRows).filter_rows(
                rng, particles, observations, X[row : row + tables[1].shape[1]], *tables, table_of,
                model.prior.n_features, self.group, self.resample_below * self.n_particles, 1 if moves else len(X),
            )  # fmt: skip
            particles = step.particles
            row += step.n_absorbed
            for log_mean, effective, n_features in step.trace:
                log_evidence += float(log_mean)
                infos.append(RowInfo(log_evidence, float(n_features), float(effective)))
            if moves and step.source is not None:
                priors = [priors[i] for i in step.source]
                observations = [observations[i] for i in step.source]
                rows = np.concatenate([seen, X[:row]])
                particles = self._move(rng, model, particles, priors, observations, rows)
        hyper = _collect(model, priors, observations)
        return FilterState(np.concatenate([seen, X]), hyper, particles, log_evidence), infos

    def _move(
        self,
        rng: np.random.Generator,
        model: Model,
        particles: Any,
        priors: list[Any],
        observations: list[Any],
        rows: Array,
    ) -> Any:
        """Steps that leave the posterior given the rows so far invariant (resample-move). The lists change in place."""
        data = model.observation.engine(ChainRows).prepare(rows)
        n = len(rows)
        for i, (prior, observation) in enumerate(zip(priors, observations, strict=True)):
            engine = observation.engine(ParticleRows)
            local = engine.particle(particles, i, data, model.prior.n_features)
            for _ in range(self.n_sweeps):
                sweeps = observation.engine(CollapsedRows)
                local, _ = sweeps.sweep(rng, data, local, exchangeable_odds(prior, n), _SWEEP_GROUP)
            if self.n_sweeps:
                particles = engine.put_particle(particles, i, local, data)
            priors[i] = model.prior.resample(rng, prior, local.z)
            observations[i] = observation.engine(ChainRows).resample(rng, model.observation, data, local)
        return model.observation.engine(ParticleRows).refreshed(particles, observations)

    def posterior(self, tasks: Sequence[Any], model: Model) -> Draws:
        """Equally weighted draws: as many from each filter as it has particles."""
        posterior = Draws.from_chains(model, [self.draws(task.rng, task.state, model) for task in tasks])
        posterior.filters = self.filters(tasks)
        return posterior

    def filters(self, tasks: Sequence[Any]) -> Filters:
        """How the filters stand after the last row."""
        last = [task.infos[-1] for task in tasks]
        return Filters(
            log_evidence=np.array([info.log_evidence for info in last]),
            effective=np.array([info.effective for info in last]),
            n_roots=np.array([len(np.unique(task.state.particles.roots)) for task in tasks]),
            n_particles=self.n_draws,
        )

    def history(self, tasks: Sequence[Any]) -> dict[str, Array]:
        """(filter, row) arrays: the estimate of log p(rows so far), effective particles and mean number of features."""
        return {
            name: np.array([[getattr(info, name) for info in task.infos] for task in tasks])
            for name in ("log_evidence", "n_features", "effective")
        }

    def rows(self, tasks: Sequence[Any]) -> Array:
        """All rows so far: particles are moved given all of them."""
        return tasks[0].state.X

    def draws(self, rng: np.random.Generator, state: FilterState, model: Model) -> list[Draw]:
        """Particles in proportion to their weights, by one more systematic resampling that the filter does not see."""
        source = np.zeros(self.n_particles, np.int64)
        pick_ancestors(state.particles.log_weight, copy.deepcopy(rng).random(), source)
        priors, observations = _concrete(model, state.hyper, self.n_particles)
        data = model.observation.engine(ChainRows).prepare(state.X)
        made: dict[int, Draw] = {}
        for i in np.unique(source):
            engine = observations[i].engine(ParticleRows)
            local = engine.particle(state.particles, i, data, model.prior.n_features)
            at = ZState(priors[i], observations[i], local)
            made[int(i)] = as_draw(at, log_joint(at, model, data), data)
        return [made[int(i)] for i in source]

    def check_sound(self, state: FilterState, model: Model) -> None:
        wanted = {f"{part}.{name}" for part in ("prior", "observation") for name in getattr(model, part).learned}
        if state.hyper.keys() != wanted or any(v.shape != (self.n_particles,) for v in state.hyper.values()):
            raise ValueError("its hyperparameters are not those of the model")
        if state.particles.log_weight.shape != (self.n_particles,):
            raise ValueError("it has another number of particles")
        _concrete(model, state.hyper, self.n_particles)
        model.observation.engine(ParticleRows).check_sound(state.particles, state.X)

    def check_stream(self, tasks: Sequence[Any], posterior: Draws) -> None:
        if len({task.state.X.tobytes() for task in tasks}) != 1:
            raise ValueError("its filters have seen different rows")
        if tasks[0].state.X.shape[0] != posterior.n_rows or len(tasks) != posterior.n_chains:
            raise ValueError("its rows are not those of its draws")
        if any(len(task.infos) != len(task.state.X) for task in tasks):
            raise ValueError("it has not a remark on every row")


def prior_tables(priors: Sequence[Any], n_before: int, n_rows: int) -> tuple[Array, Array]:
    """(log_odds, new_rate) of each prior for the next rows, for as many of at most n_rows as there is room for."""
    limit = _TABLE // (len(priors) * (n_before + 1))
    n_rows = max(1, min(n_rows, limit, _ROWS if len(priors) > 1 else n_rows))
    log_odds = np.zeros((len(priors), n_rows, n_before + n_rows))
    new_rate = np.zeros((len(priors), n_rows))
    for t, prior in enumerate(priors):
        for i in range(n_rows):
            n = n_before + i + 1  # rows so far, this one included
            # eq: WG07.row-prior
            log_odds[t, i, :n] = prior.log_odds(n)
            new_rate[t, i] = prior.new_rate(n)
    return log_odds, new_rate


def _collect(model: Model, priors: Sequence[Any], observations: Sequence[Any]) -> dict[str, Array]:
    """The learned hyperparameters of all particles."""
    return {
        f"{part}.{name}": np.array([float(getattr(spec, name)) for spec in specs])
        for part, specs in (("prior", priors), ("observation", observations))
        for name in getattr(model, part).learned
    }


def _concrete(model: Model, hyper: dict[str, Array], n_particles: int) -> tuple[list[Any], list[Any]]:
    """The prior and the observation model of each particle."""
    parts = []
    for part in ("prior", "observation"):
        spec = getattr(model, part)
        if not spec.learned:
            parts.append([spec] * n_particles)
            continue
        values = {name: hyper[f"{part}.{name}"] for name in spec.learned}
        parts.append([spec.updated(**{name: float(v[i]) for name, v in values.items()}) for i in range(n_particles)])
    return parts[0], parts[1]
