"""The command line with a stream that costs little: run as a program, or by `make_quick` in a process of its own."""

from typing import Any

from thali import ParticleFilter, StochasticMeanField
from thali.cli import model_options
from thali.cli.main import run

_make = model_options.StreamInference.make


def quick(inference: Any, batch: int | None = None) -> Any:
    """In place of `StreamInference.make`: few features, from one start."""
    made = _make(inference, batch)
    if isinstance(made, ParticleFilter):
        return made.replace(n_particles=20)
    if isinstance(made, StochasticMeanField):
        return made.replace(n_start=50, n_restarts=1, moves=False, truncation=4)
    return made.replace(truncation=4)


def make_quick(patch: Any) -> None:
    """`patch` is pytest's monkeypatch, or anything that sets an attribute likewise."""
    patch.setattr(model_options.StreamInference, "make", quick)


class _Now:
    @staticmethod
    def setattr(owner: Any, name: str, value: Any) -> None:
        setattr(owner, name, value)


if __name__ == "__main__":
    make_quick(_Now)
    run()
