"""A fit to a `.thali` file and back."""

import os
import platform
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple, Self

import numpy as np

from thali.core.model import Model
from thali.files import limits
from thali.posteriors.approximation import Approximation, SummedApproximation
from thali.posteriors.base import Posterior
from thali.posteriors.draws import Draws
from thali.posteriors.ragged import Ragged
from thali.posteriors.variational import Variational
from thali.posteriors.variational_sums import VariationalSums
from thali.storage import archive as files
from thali.storage.integrity import (
    check_about,
    check_draws,
    check_history,
    check_variational,
    table_of_pairs,
)
from thali.storage.packing import pack, unpack
from thali.storage.spec_json import from_json, to_json
from thali.storage.streams import Stream


@cache
def _versions() -> dict[str, str]:
    names = ("numpy", "scipy", "numba", "scikit-learn")
    return {name: version(name) for name in names} | {"python": platform.python_version()}


def other_versions(meta: dict[str, Any]) -> str:
    """Which software other than the present wrote a file, in words: thali 0.0.9 (now 0.1.0), ..."""
    mine = {"thali": version("thali")} | _versions()
    its = {"thali": meta.get("thali"), **(meta.get("versions") or {})}
    others = [name for name in mine if name != "python" and its.get(name) != mine[name]]
    return ", ".join(f"{name} {str(its.get(name))[:40]} (now {mine[name]})" for name in others)


class Choice(NamedTuple):
    """The inference that is used, and why."""

    inference: Any
    reason: str


class About(NamedTuple):
    """What was asked for, and of which data: all of a fit but its draws."""

    params: dict[str, Any]  # of the estimator
    model: Model  # adapted to the data
    choice: Choice
    data_fingerprint: str
    n_dims: int
    dim_names: list[str]  # empty when X had none

    def to_meta(self) -> dict[str, Any]:
        params = self.params | {"checkpoint": None}  # where a run kept its state does not bear on the result
        if not isinstance(params["random_state"], int | np.integer | None):
            params["random_state"] = None  # a generator that has moved on would not reproduce the run
        return {
            "thali": version("thali"),
            "versions": dict(_versions()),
            "params": {name: to_json(value) for name, value in params.items()},
            "model": to_json(self.model),
            "inference": to_json(self.choice.inference),
            "reason": self.choice.reason,
            "data_fingerprint": self.data_fingerprint,
            "n_dims": self.n_dims,
            "dim_names": self.dim_names,
        }

    @classmethod
    def from_meta(cls, meta: dict[str, Any]) -> Self:
        about = cls(
            {name: from_json(value) for name, value in meta["params"].items()},
            from_json(meta["model"]),
            Choice(from_json(meta["inference"]), meta["reason"]),
            meta["data_fingerprint"],
            meta["n_dims"],
            meta["dim_names"],
        )
        check_about(about)
        return about


STOPS = (None, "interrupt", "max_time", "target_ess", "error")


class Outcome(NamedTuple):
    """What a fit found: whoever fits, goes on, takes up a run or loads a file gives one, and the estimator shows it."""

    about: About
    posterior: Any  # Draws, or Variational
    history: dict[str, np.ndarray]
    stopped_by: str | None = None  # what ended the fit early
    stream: Stream | None = None  # what goes on with more rows, if the inference can
    words: str = ""  # what there is of a fit that was ended early
    left: Any = None  # the folder of its run, until it is saved
    error: BaseException | None = None  # that ended it, and is raised once what was found before is shown


def save(fit: Outcome, path: str | os.PathLike[str]) -> None:
    arrays = {f"history/{name}": values for name, values in fit.history.items()}
    meta = fit.about.to_meta()
    if _forgets_rows(fit.about):
        meta["of_stream"] = True
    elif isinstance(fit.posterior, Variational):
        meta["variational"] = {
            "prior": to_json(fit.posterior.model.prior),
            "factors": pack([fit.posterior.factors], "factors", arrays),
        }
        if isinstance(fit.posterior, VariationalSums):
            meta["variational"]["sums"] = pack([fit.posterior.q.sums], "sums", arrays)
    else:
        arrays |= _draws_to_arrays(fit.posterior)
    if fit.stopped_by is not None:
        meta["stopped_by"] = fit.stopped_by
    if fit.posterior.row_digests is not None:
        arrays["row_digests"] = fit.posterior.row_digests
    if fit.stream is not None:
        meta["stream"] = fit.stream.to_file(arrays)
    if table_of_pairs(fit.posterior) > limits.FIT_FLOOR:
        meta["room"] = table_of_pairs(fit.posterior)
    files.write(path, meta, arrays)


def _forgets_rows(about: About) -> bool:
    """Whether all that a fit knows is in the state of its stream."""
    return about.choice.inference.shape == "rows" and not about.choice.inference.keeps_rows


def _draws_to_arrays(posterior: Draws) -> dict[str, np.ndarray]:
    arrays = {f"draws/{name}": values for name, values in posterior.draws.items()}
    arrays |= {f"hyper/{name}": values for name, values in posterior.hyper.items()}
    ragged = {"Z": posterior.packed_z} | {f"codebook/{k}": v for k, v in posterior.codebooks.items()}
    for name, packed in ragged.items():
        arrays |= {f"{name}.values": packed.values, f"{name}.shapes": packed.shapes}
    return arrays


def load(path: str | os.PathLike[str]) -> Outcome:
    """Nothing in the file is executed; a damaged one gives an InvalidFileError.

    Whether a stream of rows can go on from there is for its shape to judge.
    """
    meta, arrays = files.read(path)
    with files.blamed(path):
        about = About.from_meta(meta)
        stream = Stream.from_file(meta["stream"], arrays, about.n_dims) if "stream" in meta else None
        posterior: Any
        if "of_stream" in meta:
            posterior = _of_stream(stream, about)
        elif "variational" in meta:
            posterior = _variational(meta["variational"], arrays, about)
        else:
            posterior = _draws(arrays, about)
        if table_of_pairs(posterior) > files.room(path):
            raise ValueError("it has more features than its size allows")
        history = _group(arrays, "history/")
        check_history(history, posterior, about)
        posterior.row_digests = _row_digests(arrays, posterior)
        stopped_by = meta.get("stopped_by")  # which older versions did not keep
        if stopped_by not in STOPS:
            raise ValueError("it was stopped by nothing that we know")
        return Outcome(about, posterior, history, stopped_by, stream)


def _draws(arrays: dict[str, np.ndarray], about: About) -> Draws:
    books = [name.removesuffix(".shapes") for name in _group(arrays, "codebook/") if name.endswith(".shapes")]
    posterior = Draws(
        about.model,
        _group(arrays, "draws/"),
        _group(arrays, "hyper/"),
        _ragged(arrays, "Z"),
        {name: _ragged(arrays, f"codebook/{name}") for name in books},
    )
    check_draws(posterior, about.n_dims)
    return posterior


def _variational(meta: dict[str, Any], arrays: dict[str, np.ndarray], about: About) -> Variational:
    prior, factors = from_json(meta["prior"]), unpack(meta["factors"], arrays, 1)[0]
    model = Model(prior, about.model.observation)
    if "sums" in meta:
        sums = unpack(meta["sums"], arrays, 1)[0]
        posterior: Variational = VariationalSums(SummedApproximation(model, factors, sums))
    else:
        posterior = Variational(Approximation(model, factors))
    check_variational(posterior, about)
    return posterior


def _of_stream(stream: Stream | None, about: About) -> Posterior:
    if stream is None or not _forgets_rows(about) or len(stream.tasks) != 1:
        raise ValueError("it has no stream to tell of")
    state = stream.tasks[0].state.state
    about.choice.inference.check_sound(state, about.model, about.n_dims)
    return about.choice.inference.posterior(state)  # type: ignore[no-any-return]


def _row_digests(arrays: dict[str, np.ndarray], posterior: Posterior) -> np.ndarray | None:
    """None in files of versions that did not keep them: all rows are then encoded as new ones."""
    digests = arrays.get("row_digests")
    if digests is not None and (digests.dtype != np.uint64 or digests.shape != (len(posterior.consensus.codes),)):
        raise ValueError("its digests of rows are not those of its rows")
    return digests


def _group(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _ragged(arrays: dict[str, np.ndarray], name: str) -> Ragged:
    ragged = Ragged(arrays[f"{name}.values"], arrays[f"{name}.shapes"])
    if not ragged.is_sound():
        raise ValueError(f"{name} does not have the size that it says")
    return ragged
