"""A fit that takes rows as they come: several independent filters, fed in step, that can go on later."""

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np

from thali.core.model import Model
from thali.errors import InvalidParameterError
from thali.posteriors.draws import Draws
from thali.rng import freeze, thaw
from thali.running.chains import Chain, run_stream
from thali.running.progress import Progress
from thali.storage.packing import pack, unpack
from thali.verdicts.chains import Filters

Array = np.ndarray


class Stream:
    """The filters (one per chain) and the model, adapted to the first batch."""

    def __init__(self, chains: list[Chain], inference: Any, model: Model) -> None:
        self.chains, self.inference, self.model = chains, inference, model

    @property
    def rows(self) -> Array:
        """All rows so far."""
        state = self.chains[0].state
        return np.zeros((0, 0)) if state is None else state.X

    def snapshot(self) -> list[tuple[Any, ...]]:
        """All that a batch changes; filters change in place."""
        return [(copy.deepcopy(c.rng), copy.deepcopy(c.state), list(c.infos)) for c in self.chains]

    def restore(self, snapshot: list[tuple[Any, ...]]) -> None:
        for chain, (rng, state, infos) in zip(self.chains, snapshot, strict=True):
            chain.rng, chain.state, chain.infos = rng, state, infos

    def absorb(
        self, X: Array, *, n_jobs: int | None, max_time: float | None, verbose: bool | None
    ) -> tuple[int, str | None]:
        """(number of rows of X that were taken in, why no more)."""
        n_rows = len(self.chains[0].infos) + len(X)
        steps = SimpleNamespace(n_warmup=n_rows, n_draws=0, thin=1)  # a step is a row, and none is a draw
        with Progress(self.chains, steps, verbose) as progress:
            return run_stream(
                self.chains, self.inference, self.model, X, n_jobs=n_jobs, max_time=max_time, watch=progress
            )

    def posterior(self) -> Draws:
        """Equally weighted draws: as many from each filter as it has particles."""
        inference, model = self.inference, self.model
        posterior = Draws.from_chains(model, [inference.draws(c.rng, c.state, model) for c in self.chains])
        posterior.filters = self.filters()
        return posterior

    def filters(self) -> Filters:
        """How the filters stand after the last row."""
        last = [chain.infos[-1] for chain in self.chains]
        return Filters(
            log_evidence=np.array([info.log_evidence for info in last]),
            effective=np.array([info.effective for info in last]),
            n_roots=np.array([len(np.unique(chain.state.particles.roots)) for chain in self.chains]),
            n_particles=self.inference.n_draws,
        )

    def history(self) -> dict[str, Array]:
        """(filter, row) arrays: the estimate of log p(rows so far), effective particles and mean number of features."""
        return {
            name: np.array([[getattr(info, name) for info in chain.infos] for chain in self.chains])
            for name in ("log_evidence", "n_features", "effective")
        }

    def to_file(self, arrays: dict[str, Array]) -> list[Any]:
        """As JSON; the arrays go into `arrays`."""
        forms = []
        for chain in self.chains:
            name = f"stream/{chain.number}"
            forms.append(
                {
                    "rng": pack([freeze(chain.rng)], f"{name}/rng", arrays),
                    "state": pack([chain.state], f"{name}/state", arrays),
                    "infos": pack(chain.infos, f"{name}/infos", arrays),
                }
            )
        return forms

    @classmethod
    def from_file(cls, forms: list[Any], arrays: dict[str, Array], inference: Any, model: Model) -> "Stream":
        """Kernels do not look before they read: a state that does not fit is a ValueError."""
        chains = []
        for number, form in enumerate(forms):
            state = unpack(form["state"], arrays, 1)[0]
            inference.check_sound(state, model)
            infos = unpack(form["infos"], arrays, len(state.X))
            chains.append(Chain(number, thaw(unpack(form["rng"], arrays, 1)[0]), state, infos=infos))
        if len({chain.state.X.tobytes() for chain in chains}) != 1:
            raise ValueError("its filters have seen different rows")
        return cls(chains, inference, model)


def refuse_for_streams(**settings: Any) -> None:
    """Settings that say something about chains of draws only."""
    for name, value in settings.items():
        if value is not None:
            raise InvalidParameterError(
                f"{name} is for samplers that draw again and again; a stream ends with its last row. "
                f"Got {value!r}. Leave it out, or use CollapsedGibbs()."
            )
