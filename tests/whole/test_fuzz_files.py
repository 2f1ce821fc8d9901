"""Whatever is in a file, a folder or a path: a right fit, or a refusal in words, and nothing half written."""

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from damaged_fits import DAMAGES
from fuzzed_fits import ANYTHING, JUNK, SETTINGS, fitted, fitted_data
from fuzzing import Fuzz, each_of, run
from hypothesis import strategies as st
from odd_data import ANY_DATA
from right_results import QUICK, accepted, check_fit, check_use, folder

import thali
from thali import BetaBernoulli, LatentFeatures, LinearGaussian, NormalOffset, PerDim
from thali.storage import checkpoint


@cache
def saved(kind: int) -> bytes:
    """The bytes of a fit; its data are `fitted_data()`."""
    parts = [
        {},
        {"prior": BetaBernoulli(n_features=3)},
        {"observation": LinearGaussian(noise_var=PerDim(), offset=NormalOffset(), noise_floor=0.01)},
    ][kind]
    X = pd.DataFrame(fitted_data(), columns=list("abc")) if kind == 2 else fitted_data()
    model = LatentFeatures(inference=QUICK, n_chains=2, n_jobs=1, random_state=0, **parts).fit(X)
    with folder() as path:
        model.save(path / "fit.thali")
        return (path / "fit.thali").read_bytes()


def load_damaged(data: Any) -> None:
    content = data.draw(data.draw(st.sampled_from(DAMAGES))(saved(data.draw(st.integers(0, 2)))))
    with folder() as path:
        file = path / "fit.thali"
        file.write_bytes(content)
        model = accepted(lambda: thali.load(file))
        assert [entry.name for entry in path.iterdir()] == ["fit.thali"]
    if model is not None:
        check_fit(model, model.posterior_.n_rows, model.n_features_in_)
        names = getattr(model, "feature_names_in_", None)
        X = fitted_data()[:4]
        check_use(model, X if names is None else pd.DataFrame(X, columns=names), X)


@cache
def stopped() -> dict[str, bytes]:
    """The files of a run in the middle."""
    seen: list[dict[str, bytes]] = []
    keep = checkpoint.Checkpoint.keep

    def watch(self: Any, chain: Any, is_last: bool) -> None:
        keep(self, chain, is_last)
        seen.append({file.name: file.read_bytes() for file in self.folder.iterdir()})

    with folder() as path, pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "EVERY", 0.0)
        patch.setattr(checkpoint, "_COST", 0.0)
        patch.setattr(checkpoint.Checkpoint, "keep", watch)
        options = {"n_chains": 2, "n_jobs": 1, "random_state": 0, "checkpoint": path / "run"}
        LatentFeatures(inference=QUICK, **options).fit(fitted_data())
    return seen[-4]


def resume_any(X: Any, data: Any) -> None:
    """Any data and settings for a run that is whole."""
    names = data.draw(st.sets(st.sampled_from(["n_jobs", "verbose", "max_time", "target_ess", "colour"]), max_size=2))
    values = {name: data.draw(SETTINGS.get(name, st.none()) | ANYTHING) for name in sorted(names)}
    X = fitted_data() if data.draw(st.booleans()) else X
    with folder() as path, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="pandas.DataFrame with sparse columns")
        for file, content in stopped().items():
            (path / file).write_bytes(content)
        model = accepted(lambda: thali.resume(path, X, **{"n_jobs": 1, "verbose": False} | values))
        if model is not None:
            check_fit(model, *fitted_data().shape)


PATHS = [*JUNK, "", ".", "..", "/", "\0", "a/b.thali", "x" * 300, Path(), Path("a\0b"), "\ud800", "é.thali", "run"]


def any_path(verb: str, name: Any) -> None:
    """A fit is saved or not there, whatever the name."""
    with folder() as path, pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        if verb == "save":
            accepted(lambda: fitted().save(name))
            assert all(thali.load(file).n_components_ == fitted().n_components_ for file in path.iterdir())
        elif verb == "load":
            assert accepted(lambda: thali.load(name)) is None
        else:
            assert accepted(lambda: thali.resume(name, fitted_data())) is None


def resume_damaged(data: Any) -> None:
    files = {name: content for name, content in stopped().items() if name != "run.lock"}  # it is empty, and made anew
    name = data.draw(st.sampled_from(sorted(files)))
    sort = data.draw(st.sampled_from(["remove", "swap", "extra", "file", "file", "file"]))
    if sort == "remove":
        del files[name]
    elif sort == "swap":
        other = data.draw(st.sampled_from(sorted(files)))
        files[name], files[other] = files[other], files[name]
    elif sort == "extra":
        files[data.draw(st.sampled_from(["chain-7.state.thali", "chain-0.99.thali", "x.txt"]))] = files[name]
    else:
        files[name] = data.draw(data.draw(st.sampled_from(DAMAGES))(files[name]))
    with folder() as path:
        for file, content in files.items():
            (path / file).write_bytes(content)
        model = accepted(lambda: thali.resume(path, fitted_data(), n_jobs=1, verbose=False))
        if model is not None:
            check_fit(model, *fitted_data().shape)
        assert not list(path.glob("*.part"))


FUZZ: dict[str, Fuzz] = {
    "files": (300, load_damaged, {"data": st.data()}),
    "checkpoints": (120, resume_damaged, {"data": st.data()}),
    "resume": (40, resume_any, {"X": ANY_DATA, "data": st.data()}),
    "paths": (80, any_path, {"verb": st.sampled_from(["save", "load", "resume"]), "name": st.sampled_from(PATHS)}),
}


@each_of(FUZZ)
def test_fuzz(name: str, thorough: bool) -> None:
    run(FUZZ[name], thorough)
